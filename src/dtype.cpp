// The compiled form of dtype.hpp.
#include <corbel/dtype.hpp>
#include <corbel/impl/dtype.ipp>
