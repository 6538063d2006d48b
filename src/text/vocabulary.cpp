// Compiled form of text/vocabulary.hpp.
#include <corbel/impl/text/vocabulary.ipp>
#include <corbel/text/vocabulary.hpp>
