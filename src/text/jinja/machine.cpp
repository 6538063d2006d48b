// The compiled form of text/jinja/machine.hpp.
#include <corbel/impl/text/jinja/machine.ipp>
#include <corbel/impl/text/jinja/machine_calls.ipp>
#include <corbel/text/jinja/machine.hpp>
