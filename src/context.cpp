// The definitions of context.hpp in the compiled library.
#include <corbel/context.hpp>
#include <corbel/impl/context.ipp>
