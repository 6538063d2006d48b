// Compiled form of tokenizer.hpp.
#include <corbel/impl/tokenizer.ipp>
#include <corbel/tokenizer.hpp>
