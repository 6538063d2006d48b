// Compiled form of text/tokenizer_model.hpp.
#include <corbel/impl/text/tokenizer_model.ipp>
#include <corbel/text/tokenizer_model.hpp>
