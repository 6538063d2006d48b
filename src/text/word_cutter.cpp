// Compiled form of text/word_cutter.hpp.
#include <corbel/impl/text/word_cutter.ipp>
#include <corbel/text/word_cutter.hpp>
