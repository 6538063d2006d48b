// The compiled form of checkpoint/generation_defaults.hpp.
#include <corbel/checkpoint/generation_defaults.hpp>
#include <corbel/impl/checkpoint/generation_defaults.ipp>
