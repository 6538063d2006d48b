#include <corbel/models/weight_source.hpp>

#include <corbel/impl/models/weight_source.ipp>
