// Compiled form of text/normalization.hpp.
#include <corbel/impl/text/normalization.ipp>
#include <corbel/text/normalization.hpp>
