// Compiled form of generate.hpp.
#include <corbel/generate.hpp>

#include <corbel/impl/generate.ipp>
