// Compiled form of text/regex.hpp.
#include <corbel/impl/text/regex.ipp>
#include <corbel/impl/text/regex_compiler.ipp>
#include <corbel/text/regex.hpp>
