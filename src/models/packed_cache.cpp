#include <corbel/models/packed_cache.hpp>

#include <corbel/impl/models/packed_cache.ipp>
