#include <corbel/models/rope_table.hpp>

#include <corbel/impl/models/rope_table.ipp>
