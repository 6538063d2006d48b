// The compiled form of text/jinja/lexer.hpp.
#include <corbel/impl/text/jinja/lexer.ipp>
#include <corbel/text/jinja/lexer.hpp>
