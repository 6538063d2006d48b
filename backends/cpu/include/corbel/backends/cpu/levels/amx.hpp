// Level amx: the kernels of avx512, and linears on tiles for rows of prompts. Compiles what is on tiles, for the
// instructions of avx512 alone: those of AMX are inline assembly.
#pragma once

#include <corbel/backends/cpu/amx/tiles.hpp>
#include <corbel/backends/cpu/levels/common.hpp>
#include <corbel/backends/cpu/tile_table.hpp>

#if defined(__clang__)
#pragma clang attribute push(                                                                             \
    __attribute__((target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni"))), \
    apply_to = function)
#else
#pragma GCC diagnostic push
// GCC 12: its own intrinsics start from undefined vectors (PR 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2,avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vnni")
#endif
CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace cpu {
namespace amx {
// In order of dependence.
// clang-format off
#include <corbel/backends/cpu/isa/avx512-inl.hpp>
#include <corbel/backends/cpu/kernels/linear-inl.hpp>
#include <corbel/backends/cpu/kernels/linear_tiles-inl.hpp>
// clang-format on
}  // namespace amx
}  // namespace cpu
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif

CORBEL_NAMESPACE_BEGIN
namespace cpu {
CORBEL_INLINE const TileTable& amx_tiles() noexcept { return amx::kHardwareTable; }
CORBEL_INLINE const TileTable& emulated_tiles() noexcept { return amx::kEmulatedTable; }
}  // namespace cpu
CORBEL_NAMESPACE_END
