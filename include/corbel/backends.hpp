// The enabled backends, and the default one.
#pragma once

#include <corbel/hal/backend.hpp>
#include <corbel/hal/registry.hpp>
#if CORBEL_HAS_CPU
#include <corbel/backends/cpu/cpu_backend.hpp>
#endif
#include <corbel/backends/ref/ref_backend.hpp>

CORBEL_NAMESPACE_BEGIN

/// What Model<> runs on: the CPU.
#if CORBEL_HAS_CPU
using DefaultBackend = CpuBackend;
#else
using DefaultBackend = RefBackend;
#endif

CORBEL_NAMESPACE_END
