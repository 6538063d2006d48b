// Level avx2. Compiles the kernels once, in the level's namespace, for its instructions alone: no -m flags, so nothing
// else of the translation unit may use them.
#pragma once

#include <corbel/backends/cpu/levels/common.hpp>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi2")
#endif
CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace cpu {
namespace avx2 {
// In order of dependence.
// clang-format off
#include <corbel/backends/cpu/isa/avx2-inl.hpp>
#include <corbel/backends/cpu/kernels/math-inl.hpp>
#include <corbel/backends/cpu/kernels/rowwise-inl.hpp>
#include <corbel/backends/cpu/kernels/linear-inl.hpp>
#include <corbel/backends/cpu/kernels/linear_panel-inl.hpp>
#include <corbel/backends/cpu/kernels/attention-inl.hpp>
#include <corbel/backends/cpu/kernels/table-inl.hpp>
// clang-format on
}  // namespace avx2
}  // namespace cpu
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

CORBEL_NAMESPACE_BEGIN
namespace cpu {
CORBEL_INLINE const KernelTable& avx2_kernels() noexcept { return avx2::kTable; }
}  // namespace cpu
CORBEL_NAMESPACE_END
