// The compiled form of models/convert.hpp.
#include <corbel/models/convert.hpp>
#include <corbel/impl/models/convert.ipp>
