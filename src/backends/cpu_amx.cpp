#include <corbel/config.hpp>

#if CORBEL_HAS_CPU && defined(__x86_64__)
#include <corbel/backends/cpu/levels/amx.hpp>
#endif
