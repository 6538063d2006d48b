// Compiled form of text/normalizer.hpp.
#include <corbel/impl/text/normalizer.ipp>
#include <corbel/text/normalizer.hpp>
