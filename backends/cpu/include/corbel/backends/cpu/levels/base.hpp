// Level base: what every x86-64 (or other) CPU has. Compiles the kernels once, in the level's namespace, for its
// instructions alone: no -m flags, so nothing else of the translation unit may use them.
#pragma once

#include <corbel/backends/cpu/levels/common.hpp>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace cpu {
namespace base {
// In order of dependence.
// clang-format off
#include <corbel/backends/cpu/isa/base-inl.hpp>
#include <corbel/backends/cpu/kernels/math-inl.hpp>
#include <corbel/backends/cpu/kernels/rowwise-inl.hpp>
#include <corbel/backends/cpu/kernels/linear-inl.hpp>
#include <corbel/backends/cpu/kernels/linear_panel-inl.hpp>
#include <corbel/backends/cpu/kernels/attention-inl.hpp>
#include <corbel/backends/cpu/kernels/table-inl.hpp>
// clang-format on
}  // namespace base
}  // namespace cpu
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END

CORBEL_NAMESPACE_BEGIN
namespace cpu {
CORBEL_INLINE const KernelTable& base_kernels() noexcept { return base::kTable; }
}  // namespace cpu
CORBEL_NAMESPACE_END
