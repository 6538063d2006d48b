#include <corbel/config.hpp>

#if CORBEL_HAS_CPU
#include <corbel/backends/cpu/cpu_backend.hpp>

#include <corbel/backends/cpu/cpu_backend.ipp>
#endif
