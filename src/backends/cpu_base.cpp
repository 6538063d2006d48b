#include <corbel/config.hpp>

#if CORBEL_HAS_CPU
#include <corbel/backends/cpu/levels/base.hpp>
#endif
