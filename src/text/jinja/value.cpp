// The compiled form of text/jinja/value.hpp.
#include <corbel/impl/text/jinja/containers.ipp>
#include <corbel/impl/text/jinja/value.ipp>
#include <corbel/text/jinja/value.hpp>
