// Compiled form of text/special_matcher.hpp.
#include <corbel/impl/text/special_matcher.ipp>
#include <corbel/text/special_matcher.hpp>
