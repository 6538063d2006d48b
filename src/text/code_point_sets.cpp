// Compiled form of text/code_point_sets.hpp.
#include <corbel/impl/text/code_point_sets.ipp>
#include <corbel/text/code_point_sets.hpp>
