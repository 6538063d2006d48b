// The compiled form of text/jinja/builtins.hpp.
#include <corbel/impl/text/jinja/builtins.ipp>
#include <corbel/impl/text/jinja/filters_markup.ipp>
#include <corbel/impl/text/jinja/filters_sequence.ipp>
#include <corbel/impl/text/jinja/filters_text.ipp>
#include <corbel/impl/text/jinja/methods.ipp>
#include <corbel/impl/text/jinja/tests.ipp>
#include <corbel/text/jinja/builtins.hpp>
