// The compiled form of text/jinja/print.hpp.
#include <corbel/impl/text/jinja/print.ipp>
#include <corbel/text/jinja/print.hpp>
