#include <corbel/models/build.hpp>

#include <corbel/impl/models/build.ipp>
