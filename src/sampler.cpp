// Compiled form of sampler.hpp.
#include <corbel/sampler.hpp>

#include <corbel/impl/sampler.ipp>
