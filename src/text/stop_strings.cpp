// Compiled form of text/stop_strings.hpp.
#include <corbel/text/stop_strings.hpp>

#include <corbel/impl/text/stop_strings.ipp>
