// Definitions of dtype.hpp: the conversions of 16-bit floats, one decoder per block layout, and the trait table.
//
// Each decoder does its operations in the order of the reference, without fusion, so that results are equal to the bit.
// f16 conversions use integers only: they do not depend on the host's flush-to-zero mode.
#pragma once

#include <corbel/detail/compiler.hpp>
#include <corbel/dtype.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>

CORBEL_EXACT_FP_BEGIN

CORBEL_NAMESPACE_BEGIN

CORBEL_INLINE float f16_to_f32(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1Fu;
  std::uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0x1Fu) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // A subnormal is mantissa * 2^-24: shift its highest bit to the place of the hidden bit.
  const auto shift = static_cast<std::uint32_t>(std::countl_zero(mantissa)) - 21;
  mantissa = mantissa << shift & 0x3FFu;
  return std::bit_cast<float>(sign | (113 - shift) << 23 | mantissa << 13);
}

CORBEL_INLINE std::uint16_t f32_to_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000u) {
    // NaN: the upper part of the payload stays; one that would become infinity gets the quiet bit.
    const std::uint32_t payload = magnitude >> 13 & 0x3FFu;
    half = 0x7C00u | (payload != 0 ? payload : 0x200u);
  } else if (magnitude >= 0x47800000u) {
    half = 0x7C00u;
  } else if (magnitude >= 0x38800000u) {
    // Normal. A carry out of the mantissa goes into the exponent, up to infinity, as it should.
    half = (magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
  } else if (magnitude >= 0x33000000u) {
    const std::uint32_t shift = 126 - (magnitude >> 23);
    const std::uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    const std::uint32_t down = mantissa >> shift;
    const std::uint32_t rest = mantissa & ((1u << shift) - 1);
    const std::uint32_t tie = 1u << (shift - 1);
    half = down + (rest > tie || (rest == tie && (down & 1u) != 0) ? 1u : 0u);
  }
  return static_cast<std::uint16_t>(sign | half);
}

CORBEL_INLINE float bf16_to_f32(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

CORBEL_INLINE std::uint16_t f32_to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    const std::uint32_t upper = bits >> 16;
    return static_cast<std::uint16_t>((upper & 0x7Fu) != 0 ? upper : upper | 0x40u);
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END

#include <corbel/impl/dtype/blocks_of_32.ipp>
#include <corbel/impl/dtype/encode_blocks.ipp>
#include <corbel/impl/dtype/encode_k.ipp>
#include <corbel/impl/dtype/groups.ipp>
#include <corbel/impl/dtype/iq_types.ipp>
#include <corbel/impl/dtype/k_types.ipp>
#include <corbel/impl/dtype/plain.ipp>
#include <corbel/impl/dtype/small_types.ipp>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace detail {

// A layout names its values per block and its bytes, and the places of its f16 scales if it has any. One of a plain
// type decodes a block to float32, one of a quantized type unpacks it to integers and scales.

template <class Layout>
concept Quantized = requires(BlockBytes in, IntegerBlock& out) {
  Layout::unpack(in, out);
};

template <class Layout>
void dequantize_blocks(const std::byte* in, float* out, std::size_t num_blocks) {
  for (std::size_t block = 0; block < num_blocks; ++block, in += Layout::kBytes, out += Layout::kElements) {
    if constexpr (requires { Layout::decode(BlockBytes(in), out); }) {
      Layout::decode(BlockBytes(in), out);
    } else {
      IntegerBlock integers;
      Layout::unpack(BlockBytes(in), integers);
      for (std::size_t i = 0; i < Layout::kElements; ++i) {
        const std::size_t group = i / Layout::kScaleElements;
        out[i] = integers.scales[group] * static_cast<float>(integers.codes[i]);
        if constexpr (Layout::kHasMinimum) out[i] += integers.minima[group];
      }
    }
  }
}

template <class Layout>
void encode_blocks(const float* in, std::byte* out, std::size_t num_blocks) {
  for (std::size_t block = 0; block < num_blocks; ++block, in += Layout::kElements, out += Layout::kBytes)
    Encoder<Layout>::encode(in, out);
}

template <class Layout>
void unpack_block(const std::byte* in, IntegerBlock& out) noexcept {
  Layout::unpack(BlockBytes(in), out);
}

inline bool is_finite_f32(float value) noexcept {
  return (std::bit_cast<std::uint32_t>(value) & 0x7F800000u) != 0x7F800000u;
}

template <class Layout>
bool is_finite_block(BlockBytes in) noexcept {
  if constexpr (requires { Layout::is_finite(in); }) {
    return Layout::is_finite(in);
  } else if constexpr (requires { Layout::kScales; }) {
    for (const std::size_t at : Layout::kScales)
      if ((in.u16(at) & 0x7C00u) == 0x7C00u) return false;
    return true;
  } else {
    float values[Layout::kElements];
    Layout::decode(in, values);
    return std::all_of(std::begin(values), std::end(values), is_finite_f32);
  }
}

template <class Layout>
std::size_t first_non_finite_block(const std::byte* in, std::size_t num_blocks) {
  for (std::size_t block = 0; block < num_blocks; ++block) {
    if (!is_finite_block<Layout>(BlockBytes(in + block * Layout::kBytes))) return block;
  }
  return num_blocks;
}

enum InSafetensors : bool { kGgufOnly = false, kInSafetensors = true };

template <class Layout>
constexpr DTypeTraits dtype_row(DType dtype, const char* name, std::uint32_t ggml_id,
                                InSafetensors in_safetensors = kGgufOnly) {
  DTypeTraits row{};
  row.dtype = dtype;
  row.name = name;
  row.ggml_id = ggml_id;
  row.in_safetensors = in_safetensors;
  row.block_elements = Layout::kElements;
  row.block_bytes = Layout::kBytes;
  row.dequantize = &dequantize_blocks<Layout>;
  row.first_non_finite = &first_non_finite_block<Layout>;
  if constexpr (Quantized<Layout>) {
    row.scale_elements = Layout::kScaleElements;
    row.has_minimum = Layout::kHasMinimum;
    row.unpack = &unpack_block<Layout>;
  }
  if constexpr (requires(const float* x, std::byte* out) { Encoder<Layout>::encode(x, out); })
    row.encode = &encode_blocks<Layout>;
  return row;
}

// In the order of DType.
// clang-format off
inline constexpr DTypeTraits kDTypes[] = {
    dtype_row<LayoutF32>(DType::kF32, "F32", 0, kInSafetensors),
    dtype_row<LayoutF16>(DType::kF16, "F16", 1, kInSafetensors),
    dtype_row<LayoutBF16>(DType::kBF16, "BF16", 30, kInSafetensors),
    dtype_row<LayoutQ4_0>(DType::kQ4_0, "Q4_0", 2),
    dtype_row<LayoutQ4_1>(DType::kQ4_1, "Q4_1", 3),
    dtype_row<LayoutQ5_0>(DType::kQ5_0, "Q5_0", 6),
    dtype_row<LayoutQ5_1>(DType::kQ5_1, "Q5_1", 7),
    dtype_row<LayoutQ8_0>(DType::kQ8_0, "Q8_0", 8),
    dtype_row<LayoutQ2_K>(DType::kQ2_K, "Q2_K", 10),
    dtype_row<LayoutQ3_K>(DType::kQ3_K, "Q3_K", 11),
    dtype_row<LayoutQ4_K>(DType::kQ4_K, "Q4_K", 12),
    dtype_row<LayoutQ5_K>(DType::kQ5_K, "Q5_K", 13),
    dtype_row<LayoutQ6_K>(DType::kQ6_K, "Q6_K", 14),
    dtype_row<LayoutQ8_1>(DType::kQ8_1, "Q8_1", 9),
    dtype_row<LayoutQ8_K>(DType::kQ8_K, "Q8_K", 15),
    dtype_row<LayoutIQ1_S>(DType::kIQ1_S, "IQ1_S", 19),
    dtype_row<LayoutIQ1_M>(DType::kIQ1_M, "IQ1_M", 29),
    dtype_row<LayoutIQ2_XXS>(DType::kIQ2_XXS, "IQ2_XXS", 16),
    dtype_row<LayoutIQ2_XS>(DType::kIQ2_XS, "IQ2_XS", 17),
    dtype_row<LayoutIQ2_S>(DType::kIQ2_S, "IQ2_S", 22),
    dtype_row<LayoutIQ3_XXS>(DType::kIQ3_XXS, "IQ3_XXS", 18),
    dtype_row<LayoutIQ3_S>(DType::kIQ3_S, "IQ3_S", 21),
    dtype_row<LayoutIQ4_NL>(DType::kIQ4_NL, "IQ4_NL", 20),
    dtype_row<LayoutIQ4_XS>(DType::kIQ4_XS, "IQ4_XS", 23),
    dtype_row<LayoutTQ1_0>(DType::kTQ1_0, "TQ1_0", 34),
    dtype_row<LayoutTQ2_0>(DType::kTQ2_0, "TQ2_0", 35),
    dtype_row<LayoutMXFP4>(DType::kMXFP4, "MXFP4", 39),
    dtype_row<LayoutNVFP4>(DType::kNVFP4, "NVFP4", 40),
    dtype_row<LayoutQ1_0>(DType::kQ1_0, "Q1_0", 41),
    dtype_row<LayoutQ2_0>(DType::kQ2_0, "Q2_0", 42),
    dtype_row<LayoutF64>(DType::kF64, "F64", 28, kInSafetensors),
    dtype_row<LayoutInt<std::int64_t>>(DType::kI64, "I64", 27, kInSafetensors),
    dtype_row<LayoutInt<std::int32_t>>(DType::kI32, "I32", 26, kInSafetensors),
    dtype_row<LayoutInt<std::int16_t>>(DType::kI16, "I16", 25, kInSafetensors),
    dtype_row<LayoutInt<std::int8_t>>(DType::kI8, "I8", 24, kInSafetensors),
    dtype_row<LayoutInt<std::uint64_t>>(DType::kU64, "U64", kNoGgmlId, kInSafetensors),
    dtype_row<LayoutInt<std::uint32_t>>(DType::kU32, "U32", kNoGgmlId, kInSafetensors),
    dtype_row<LayoutInt<std::uint16_t>>(DType::kU16, "U16", kNoGgmlId, kInSafetensors),
    dtype_row<LayoutInt<std::uint8_t>>(DType::kU8, "U8", kNoGgmlId, kInSafetensors),
    dtype_row<LayoutBool>(DType::kBool, "BOOL", kNoGgmlId, kInSafetensors),
    dtype_row<LayoutF8_E4M3>(DType::kF8_E4M3, "F8_E4M3", kNoGgmlId, kInSafetensors),
    dtype_row<LayoutF8_E5M2>(DType::kF8_E5M2, "F8_E5M2", kNoGgmlId, kInSafetensors),
    dtype_row<LayoutF8_E8M0>(DType::kF8_E8M0, "F8_E8M0", kNoGgmlId, kInSafetensors),
    dtype_row<LayoutF6<2, 3>>(DType::kF6_E2M3, "F6_E2M3", kNoGgmlId, kInSafetensors),
    dtype_row<LayoutF6<3, 2>>(DType::kF6_E3M2, "F6_E3M2", kNoGgmlId, kInSafetensors),
    dtype_row<LayoutF4>(DType::kF4, "F4", kNoGgmlId, kInSafetensors),
    dtype_row<LayoutGroupI4>(DType::kGroupI4, "group I4", kNoGgmlId),
    dtype_row<LayoutGroupU4>(DType::kGroupU4, "group U4", kNoGgmlId),
    dtype_row<LayoutGroupI8>(DType::kGroupI8, "group I8", kNoGgmlId),
    dtype_row<LayoutGroupU8>(DType::kGroupU8, "group U8", kNoGgmlId),
    dtype_row<LayoutGroupF8>(DType::kGroupF8, "group F8", kNoGgmlId),
    dtype_row<LayoutGroupE2M1>(DType::kGroupE2M1, "group E2M1", kNoGgmlId),
    dtype_row<LayoutGroupNF4>(DType::kGroupNF4, "group NF4", kNoGgmlId),
};
// clang-format on
static_assert(std::size(kDTypes) == kNumDTypes);

}  // namespace detail

CORBEL_INLINE std::span<const DTypeTraits> all_dtypes() noexcept { return detail::kDTypes; }

CORBEL_INLINE const DTypeTraits& traits(DType dtype) noexcept {
  return detail::kDTypes[static_cast<std::size_t>(dtype)];
}

CORBEL_INLINE const DTypeTraits* find_dtype_by_ggml_id(std::uint32_t id) noexcept {
  for (const DTypeTraits& row : detail::kDTypes) {
    if (row.ggml_id == id && id != kNoGgmlId) return &row;
  }
  return nullptr;
}

CORBEL_INLINE const DTypeTraits* find_dtype_by_name(std::string_view name) noexcept {
  for (const DTypeTraits& row : detail::kDTypes) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

CORBEL_INLINE const DTypeTraits* find_dtype_by_safetensors_name(std::string_view name) noexcept {
  const DTypeTraits* row = find_dtype_by_name(name);
  return row != nullptr && row->in_safetensors ? row : nullptr;
}

CORBEL_NAMESPACE_END

CORBEL_EXACT_FP_END
