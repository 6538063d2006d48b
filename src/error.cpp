// The definitions of error.hpp in the compiled library.
#include <corbel/error.hpp>
#include <corbel/impl/error.ipp>
