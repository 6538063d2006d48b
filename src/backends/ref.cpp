// The definitions of the reference backend in the compiled library.
#include <corbel/backends/ref/ref_backend.hpp>
#include <corbel/backends/ref/ref_backend.ipp>
