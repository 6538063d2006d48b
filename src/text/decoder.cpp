// Compiled form of text/decoder.hpp.
#include <corbel/impl/text/decoder.ipp>
#include <corbel/text/decoder.hpp>
