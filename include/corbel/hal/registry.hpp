// The one list of backends, best first. Includes, the default, run-time choice and the tests' matrix come from it.
#pragma once

#include <corbel/config.hpp>

// X(name, Type, header's folder is corbel/backends/<name>/<name>_backend.hpp)
#if CORBEL_HAS_CPU
#define CORBEL_BACKENDS(X) X(cpu, CpuBackend) X(ref, RefBackend)
#else
#define CORBEL_BACKENDS(X) X(ref, RefBackend)
#endif
