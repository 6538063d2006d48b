// The definitions of build_info.hpp in the compiled library.
#include <corbel/build_info.hpp>

#include <corbel/impl/build_info.ipp>
