// Level avx512. Compiles the kernels once, in the level's namespace, for its instructions alone: no -m flags, so
// nothing else of the translation unit may use them.
#pragma once

#include <corbel/backends/cpu/levels/common.hpp>

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
namespace avx512 {
// In order of dependence.
// clang-format off
#include <corbel/backends/cpu/isa/avx512-inl.hpp>
#include <corbel/backends/cpu/kernels/math-inl.hpp>
#include <corbel/backends/cpu/kernels/rowwise-inl.hpp>
#include <corbel/backends/cpu/kernels/linear-inl.hpp>
#include <corbel/backends/cpu/kernels/linear_panel-inl.hpp>
#include <corbel/backends/cpu/kernels/attention-inl.hpp>
#include <corbel/backends/cpu/kernels/table-inl.hpp>
// clang-format on
}  // namespace avx512
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
CORBEL_INLINE const KernelTable& avx512_kernels() noexcept { return avx512::kTable; }
}  // namespace cpu
CORBEL_NAMESPACE_END
