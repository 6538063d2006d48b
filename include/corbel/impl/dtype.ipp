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

namespace detail {

// One block in its file layout: bytes, read without alignment, little-endian.
class BlockBytes {
 public:
  explicit BlockBytes(const std::byte* bytes) noexcept : bytes_(bytes) {}
  std::uint32_t u8(std::size_t at) const noexcept { return static_cast<std::uint32_t>(bytes_[at]); }
  float i8(std::size_t at) const noexcept { return static_cast<float>(static_cast<std::int8_t>(bytes_[at])); }
  std::uint16_t u16(std::size_t at) const noexcept { return static_cast<std::uint16_t>(u8(at) | u8(at + 1) << 8); }
  std::uint32_t u32(std::size_t at) const noexcept {
    return u8(at) | u8(at + 1) << 8 | u8(at + 2) << 16 | u8(at + 3) << 24;
  }
  float f16(std::size_t at) const noexcept { return f16_to_f32(u16(at)); }

 private:
  const std::byte* bytes_;
};

inline float as_float(std::uint32_t code) noexcept { return static_cast<float>(static_cast<std::int32_t>(code)); }

// A code of `bits` bits that stands for code - offset.
inline float centred(std::uint32_t code, std::int32_t offset) noexcept {
  return static_cast<float>(static_cast<std::int32_t>(code) - offset);
}

// The layouts. Each names its size, its values per block, the places of its f16 scales, and decodes one block.

struct LayoutF32 {
  static constexpr std::size_t kElements = 1, kBytes = 4;
  static void decode(BlockBytes in, float* out) noexcept { *out = std::bit_cast<float>(in.u32(0)); }
};

struct LayoutF16 {
  static constexpr std::size_t kElements = 1, kBytes = 2;
  static void decode(BlockBytes in, float* out) noexcept { *out = in.f16(0); }
};

struct LayoutBF16 {
  static constexpr std::size_t kElements = 1, kBytes = 2;
  static void decode(BlockBytes in, float* out) noexcept { *out = bf16_to_f32(in.u16(0)); }
};

struct LayoutQ4_0 {  // d, 32 x 4 bits: low halves first
  static constexpr std::size_t kElements = 32, kBytes = 18;
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void decode(BlockBytes in, float* out) noexcept {
    const float d = in.f16(0);
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint32_t q = in.u8(2 + i);
      out[i] = centred(q & 15u, 8) * d;
      out[i + 16] = centred(q >> 4, 8) * d;
    }
  }
};

struct LayoutQ4_1 {  // d, m, 32 x 4 bits
  static constexpr std::size_t kElements = 32, kBytes = 20;
  static constexpr std::array<std::size_t, 2> kScales = {0, 2};
  static void decode(BlockBytes in, float* out) noexcept {
    const float d = in.f16(0);
    const float m = in.f16(2);
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint32_t q = in.u8(4 + i);
      out[i] = as_float(q & 15u) * d + m;
      out[i + 16] = as_float(q >> 4) * d + m;
    }
  }
};

struct LayoutQ5_0 {  // d, 32 fifth bits, 32 x 4 bits
  static constexpr std::size_t kElements = 32, kBytes = 22;
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void decode(BlockBytes in, float* out) noexcept {
    const float d = in.f16(0);
    const std::uint32_t high = in.u32(2);
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint32_t q = in.u8(6 + i);
      out[i] = centred((q & 15u) | (high >> i & 1u) << 4, 16) * d;
      out[i + 16] = centred(q >> 4 | (high >> (i + 16) & 1u) << 4, 16) * d;
    }
  }
};

struct LayoutQ5_1 {  // d, m, 32 fifth bits, 32 x 4 bits
  static constexpr std::size_t kElements = 32, kBytes = 24;
  static constexpr std::array<std::size_t, 2> kScales = {0, 2};
  static void decode(BlockBytes in, float* out) noexcept {
    const float d = in.f16(0);
    const float m = in.f16(2);
    const std::uint32_t high = in.u32(4);
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint32_t q = in.u8(8 + i);
      out[i] = as_float((q & 15u) | (high >> i & 1u) << 4) * d + m;
      out[i + 16] = as_float(q >> 4 | (high >> (i + 16) & 1u) << 4) * d + m;
    }
  }
};

struct LayoutQ8_0 {  // d, 32 x int8
  static constexpr std::size_t kElements = 32, kBytes = 34;
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void decode(BlockBytes in, float* out) noexcept {
    const float d = in.f16(0);
    for (std::size_t i = 0; i < 32; ++i) out[i] = in.i8(2 + i) * d;
  }
};

// The K types: 256 values in groups of 16 or 32, each with its own small scale (and minimum) times the block's d (and
// dmin).

struct LayoutQ2_K {  // 16 x (4 bits scale, 4 bits minimum), 256 x 2 bits, d, dmin
  static constexpr std::size_t kElements = 256, kBytes = 84;
  static constexpr std::array<std::size_t, 2> kScales = {80, 82};
  static void decode(BlockBytes in, float* out) noexcept {
    const float d = in.f16(80);
    const float dmin = in.f16(82);
    for (std::size_t group = 0; group < 16; ++group) {
      const std::uint32_t packed = in.u8(group);
      const float scale = d * as_float(packed & 15u);
      const float minimum = dmin * as_float(packed >> 4);
      const std::size_t codes = 16 + group / 8 * 32 + group % 2 * 16;
      const std::size_t shift = group % 8 / 2 * 2;
      for (std::size_t i = 0; i < 16; ++i) *out++ = scale * as_float(in.u8(codes + i) >> shift & 3u) - minimum;
    }
  }
};

struct LayoutQ3_K {  // 256 third bits, 256 x 2 bits, 16 x 6 bits scale, d
  static constexpr std::size_t kElements = 256, kBytes = 110;
  static constexpr std::array<std::size_t, 1> kScales = {108};
  static void decode(BlockBytes in, float* out) noexcept {
    const float d = in.f16(108);
    for (std::size_t group = 0; group < 16; ++group) {
      const std::uint32_t low = group < 8 ? in.u8(96 + group) & 15u : in.u8(96 + group - 8) >> 4;
      const std::uint32_t high = in.u8(104 + group % 4) >> (group / 4 * 2) & 3u;
      const float scale = d * centred(low | high << 4, 32);
      const std::size_t lane = group % 2 * 16;
      const std::size_t codes = 32 + group / 8 * 32 + lane;
      const std::size_t shift = group % 8 / 2 * 2;
      for (std::size_t i = 0; i < 16; ++i) {
        const std::uint32_t third = in.u8(lane + i) >> (group / 2) & 1u;
        *out++ = scale * centred((in.u8(codes + i) >> shift & 3u) | third << 2, 4);
      }
    }
  }
};

// The 8 pairs of 6-bit scale and minimum that Q4_K and Q5_K pack into 12 bytes.
struct ScaleAndMinimum {
  float scale;
  float minimum;
};
inline ScaleAndMinimum packed_scale_and_minimum(BlockBytes in, std::size_t at, std::size_t group) noexcept {
  if (group < 4) return {as_float(in.u8(at + group) & 63u), as_float(in.u8(at + group + 4) & 63u)};
  const std::uint32_t low = in.u8(at + group + 4);
  return {as_float((low & 15u) | in.u8(at + group - 4) >> 6 << 4), as_float(low >> 4 | in.u8(at + group) >> 6 << 4)};
}

struct LayoutQ4_K {  // d, dmin, 12 bytes of scales and minima, 256 x 4 bits
  static constexpr std::size_t kElements = 256, kBytes = 144;
  static constexpr std::array<std::size_t, 2> kScales = {0, 2};
  static void decode(BlockBytes in, float* out) noexcept {
    const float d = in.f16(0);
    const float dmin = in.f16(2);
    for (std::size_t group = 0; group < 8; ++group) {
      const ScaleAndMinimum small = packed_scale_and_minimum(in, 4, group);
      const float scale = d * small.scale;
      const float minimum = dmin * small.minimum;
      const std::size_t codes = 16 + group / 2 * 32;
      const std::size_t shift = group % 2 * 4;
      for (std::size_t i = 0; i < 32; ++i) *out++ = scale * as_float(in.u8(codes + i) >> shift & 15u) - minimum;
    }
  }
};

struct LayoutQ5_K {  // d, dmin, 12 bytes of scales and minima, 256 fifth bits, 256 x 4 bits
  static constexpr std::size_t kElements = 256, kBytes = 176;
  static constexpr std::array<std::size_t, 2> kScales = {0, 2};
  static void decode(BlockBytes in, float* out) noexcept {
    const float d = in.f16(0);
    const float dmin = in.f16(2);
    for (std::size_t group = 0; group < 8; ++group) {
      const ScaleAndMinimum small = packed_scale_and_minimum(in, 4, group);
      const float scale = d * small.scale;
      const float minimum = dmin * small.minimum;
      const std::size_t codes = 48 + group / 2 * 32;
      const std::size_t shift = group % 2 * 4;
      for (std::size_t i = 0; i < 32; ++i) {
        const std::uint32_t fifth = in.u8(16 + i) >> group & 1u;
        *out++ = scale * as_float((in.u8(codes + i) >> shift & 15u) | fifth << 4) - minimum;
      }
    }
  }
};

struct LayoutQ6_K {  // 256 x low 4 bits, 256 x high 2 bits, 16 x int8 scale, d
  static constexpr std::size_t kElements = 256, kBytes = 210;
  static constexpr std::array<std::size_t, 1> kScales = {208};
  static void decode(BlockBytes in, float* out) noexcept {
    const float d = in.f16(208);
    for (std::size_t row = 0; row < 8; ++row) {  // 32 values each
      const std::size_t half = row / 4;
      const std::size_t low = half * 64 + row % 2 * 32;
      const std::size_t low_shift = row % 4 / 2 * 4;
      const std::size_t high = 128 + half * 32;
      const std::size_t high_shift = row % 4 * 2;
      for (std::size_t i = 0; i < 32; ++i) {
        const float scale = d * in.i8(192 + row * 2 + i / 16);
        const std::uint32_t code = (in.u8(low + i) >> low_shift & 15u) | (in.u8(high + i) >> high_shift & 3u) << 4;
        *out++ = scale * centred(code, 32);
      }
    }
  }
};

template <class Layout>
void dequantize_blocks(const std::byte* in, float* out, std::size_t num_blocks) {
  for (std::size_t block = 0; block < num_blocks; ++block) {
    Layout::decode(BlockBytes(in + block * Layout::kBytes), out + block * Layout::kElements);
  }
}

template <class Layout>
std::size_t first_non_finite_block(const std::byte* in, std::size_t num_blocks) {
  for (std::size_t block = 0; block < num_blocks; ++block) {
    const BlockBytes bytes(in + block * Layout::kBytes);
    if constexpr (Layout::kElements == 1) {
      float value = 0;
      Layout::decode(bytes, &value);
      if ((std::bit_cast<std::uint32_t>(value) & 0x7F800000u) == 0x7F800000u) return block;
    } else {
      for (const std::size_t at : Layout::kScales) {
        if ((bytes.u16(at) & 0x7C00u) == 0x7C00u) return block;
      }
    }
  }
  return num_blocks;
}

template <class Layout>
constexpr DTypeTraits dtype_row(DType dtype, const char* name, std::uint32_t ggml_id) {
  return {dtype,
          name,
          ggml_id,
          Layout::kElements,
          Layout::kBytes,
          &dequantize_blocks<Layout>,
          &first_non_finite_block<Layout>};
}

inline constexpr DTypeTraits kDTypes[] = {
    dtype_row<LayoutF32>(DType::kF32, "F32", 0),     dtype_row<LayoutF16>(DType::kF16, "F16", 1),
    dtype_row<LayoutBF16>(DType::kBF16, "BF16", 30), dtype_row<LayoutQ4_0>(DType::kQ4_0, "Q4_0", 2),
    dtype_row<LayoutQ4_1>(DType::kQ4_1, "Q4_1", 3),  dtype_row<LayoutQ5_0>(DType::kQ5_0, "Q5_0", 6),
    dtype_row<LayoutQ5_1>(DType::kQ5_1, "Q5_1", 7),  dtype_row<LayoutQ8_0>(DType::kQ8_0, "Q8_0", 8),
    dtype_row<LayoutQ2_K>(DType::kQ2_K, "Q2_K", 10), dtype_row<LayoutQ3_K>(DType::kQ3_K, "Q3_K", 11),
    dtype_row<LayoutQ4_K>(DType::kQ4_K, "Q4_K", 12), dtype_row<LayoutQ5_K>(DType::kQ5_K, "Q5_K", 13),
    dtype_row<LayoutQ6_K>(DType::kQ6_K, "Q6_K", 14),
};
static_assert(std::size(kDTypes) == static_cast<std::size_t>(DType::kQ6_K) + 1);

}  // namespace detail

CORBEL_INLINE std::span<const DTypeTraits> all_dtypes() noexcept { return detail::kDTypes; }

CORBEL_INLINE const DTypeTraits& traits(DType dtype) noexcept {
  return detail::kDTypes[static_cast<std::size_t>(dtype)];
}

CORBEL_INLINE const DTypeTraits* find_dtype_by_ggml_id(std::uint32_t id) noexcept {
  for (const DTypeTraits& row : detail::kDTypes) {
    if (row.ggml_id == id) return &row;
  }
  return nullptr;
}

CORBEL_INLINE const DTypeTraits* find_dtype_by_name(std::string_view name) noexcept {
  for (const DTypeTraits& row : detail::kDTypes) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

CORBEL_NAMESPACE_END

CORBEL_EXACT_FP_END
