// Compiled form of text/word_model.hpp.
#include <corbel/impl/text/word_model.ipp>
#include <corbel/text/word_model.hpp>
