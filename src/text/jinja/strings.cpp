// The compiled form of text/jinja/strings.hpp.
#include <corbel/impl/text/jinja/strings.ipp>
#include <corbel/text/jinja/strings.hpp>
