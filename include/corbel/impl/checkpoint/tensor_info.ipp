// Definitions of tensor_info.hpp: the numbers of GGUF's tensor types, those of the trait table and those dropped.
#pragma once

#include <corbel/checkpoint/tensor_info.hpp>

#include <cstdint>

CORBEL_NAMESPACE_BEGIN
namespace detail {

struct RemovedType {
  std::uint32_t id;
  GgmlType type;
};

inline constexpr RemovedType kRemovedTypes[] = {
    {4, {"Q4_2", 0, 0}},      {5, {"Q4_3", 0, 0}},        {31, {"Q4_0_4_4", 0, 0}},   {32, {"Q4_0_4_8", 0, 0}},
    {33, {"Q4_0_8_8", 0, 0}}, {36, {"IQ4_NL_4_4", 0, 0}}, {37, {"IQ4_NL_4_8", 0, 0}}, {38, {"IQ4_NL_8_8", 0, 0}},
};

}  // namespace detail

CORBEL_INLINE const GgmlType* find_ggml_type(std::uint32_t id) noexcept {
  for (const detail::RemovedType& removed : detail::kRemovedTypes) {
    if (removed.id == id) return &removed.type;
  }
  return find_dtype_by_ggml_id(id);
}

CORBEL_NAMESPACE_END
