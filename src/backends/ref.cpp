#include <corbel/backends/ref/ref_backend.hpp>
#include <corbel/backends/ref/ref_backend.ipp>
