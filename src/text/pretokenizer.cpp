// Compiled form of text/pretokenizer.hpp.
#include <corbel/impl/text/pretokenizer.ipp>
#include <corbel/text/pretokenizer.hpp>
