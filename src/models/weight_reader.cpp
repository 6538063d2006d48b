#include <corbel/models/weight_reader.hpp>

#include <corbel/impl/models/weight_reader.ipp>
