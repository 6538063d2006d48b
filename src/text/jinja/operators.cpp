// The compiled form of text/jinja/operators.hpp.
#include <corbel/impl/text/jinja/format_percent.ipp>
#include <corbel/impl/text/jinja/operators.ipp>
#include <corbel/text/jinja/operators.hpp>
