// The compiled form of text/jinja/compiler.hpp.
#include <corbel/impl/text/jinja/compiler.ipp>
#include <corbel/impl/text/jinja/compiler_expressions.ipp>
#include <corbel/impl/text/jinja/compiler_literals.ipp>
#include <corbel/impl/text/jinja/compiler_statements.ipp>
#include <corbel/text/jinja/compiler.hpp>
