// What the level headers share: the includes (none may follow inside a region) and the macros of the kernels.
#pragma once

#include <corbel/backends/cpu/kernel_table.hpp>
#include <corbel/config.hpp>
#include <corbel/detail/compiler.hpp>
#include <corbel/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Vectors stay in registers only where everything that handles them is inlined, in debug builds too.
#define CORBEL_CPU_INLINE inline __attribute__((always_inline))
// Loops over the rows of a tile, whose accumulators must not become an array in memory.
#if defined(__clang__)
#define CORBEL_CPU_UNROLL _Pragma("unroll")
#else
#define CORBEL_CPU_UNROLL _Pragma("GCC unroll 16")
#endif
