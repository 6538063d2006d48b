// Plain values: floats of 64 to 4 bits, integers and booleans.
#pragma once

#include <corbel/impl/dtype/block_bytes.ipp>

#include <bit>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace detail {

// The nearest float32, ties to even, whatever the host's rounding and flush modes; NaN stays NaN.
inline float f64_to_f32(std::uint64_t bits) noexcept {
  const auto sign = static_cast<std::uint32_t>(bits >> 32 & 0x80000000u);
  const auto exponent = static_cast<std::int32_t>(bits >> 52 & 0x7FFu) - 1023;
  const std::uint64_t fraction = bits & 0xFFFFFFFFFFFFFu;
  if (exponent == 1024) {
    if (fraction == 0) return std::bit_cast<float>(sign | 0x7F800000u);
    return std::bit_cast<float>(sign | 0x7FC00000u | static_cast<std::uint32_t>(fraction >> 29));
  }
  if (exponent > 127) return std::bit_cast<float>(sign | 0x7F800000u);
  if (exponent < -150) return std::bit_cast<float>(sign);
  // Drop 29 bits, more below the smallest normal; a carry out of the mantissa goes into the exponent.
  const std::uint64_t mantissa = fraction | std::uint64_t{1} << 52;
  const auto drop = static_cast<std::uint32_t>(exponent >= -126 ? 29 : 29 - 126 - exponent);
  const std::uint64_t kept = mantissa >> drop;
  const std::uint64_t rest = mantissa & ((std::uint64_t{1} << drop) - 1);
  const std::uint64_t tie = std::uint64_t{1} << (drop - 1);
  const std::uint64_t rounded = kept + (rest > tie || (rest == tie && (kept & 1u) != 0) ? 1u : 0u);
  const auto base = exponent >= -126 ? static_cast<std::uint32_t>(exponent + 126) << 23 : 0u;
  return std::bit_cast<float>(sign | (base + static_cast<std::uint32_t>(rounded)));
}

struct LayoutF32 {
  static constexpr std::size_t kElements = 1, kBytes = 4;
  static void decode(BlockBytes in, float* out) noexcept { *out = std::bit_cast<float>(in.u32(0)); }
};

struct LayoutF16 {
  static constexpr std::size_t kElements = 1, kBytes = 2;
  static void decode(BlockBytes in, float* out) noexcept { *out = in.f16(0); }
  static bool is_finite(BlockBytes in) noexcept { return (in.u16(0) & 0x7C00u) != 0x7C00u; }
};

struct LayoutBF16 {
  static constexpr std::size_t kElements = 1, kBytes = 2;
  static void decode(BlockBytes in, float* out) noexcept { *out = bf16_to_f32(in.u16(0)); }
};

struct LayoutF64 {
  static constexpr std::size_t kElements = 1, kBytes = 8;
  static void decode(BlockBytes in, float* out) noexcept { *out = f64_to_f32(in.u64(0)); }
};

// Integers become the nearest float32, ties to even.
template <class Int>
struct LayoutInt {
  static constexpr std::size_t kElements = 1, kBytes = sizeof(Int);
  static void decode(BlockBytes in, float* out) noexcept {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < kBytes; ++i) bits |= std::uint64_t{in.u8(i)} << (8 * i);
    *out = static_cast<float>(static_cast<Int>(bits));
  }
};

struct LayoutBool {  // 0 is false, anything else true
  static constexpr std::size_t kElements = 1, kBytes = 1;
  static void decode(BlockBytes in, float* out) noexcept { *out = in.u8(0) != 0 ? 1.0f : 0.0f; }
};

// Small floats of OCP's 8-bit and MX formats. `small_float` reads sign, exponent and mantissa with subnormals; the
// codes that are not numbers are handled by the callers.
template <std::uint32_t kExponentBits, std::uint32_t kMantissaBits>
float small_float(std::uint32_t code) noexcept {
  constexpr std::uint32_t kBias = (1u << (kExponentBits - 1)) - 1;
  const std::uint32_t sign = code >> (kExponentBits + kMantissaBits) & 1u;
  const std::uint32_t exponent = code >> kMantissaBits & ((1u << kExponentBits) - 1);
  const std::uint32_t mantissa = code & ((1u << kMantissaBits) - 1);
  // (hidden bit and mantissa) * 2^(exponent - bias - mantissa bits), all exact.
  const std::uint32_t units = exponent == 0 ? mantissa : mantissa | 1u << kMantissaBits;
  const std::uint32_t power = (exponent == 0 ? 1u : exponent) + 127u - kBias - kMantissaBits;
  const float magnitude = as_float(units) * std::bit_cast<float>(power << 23);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign << 31);
}

struct LayoutF8_E4M3 {  // no infinity; all ones is NaN
  static constexpr std::size_t kElements = 1, kBytes = 1;
  static void decode(BlockBytes in, float* out) noexcept {
    const std::uint32_t code = in.u8(0);
    *out = (code & 0x7Fu) == 0x7Fu ? std::bit_cast<float>(0x7FC00000u | code >> 7 << 31) : small_float<4, 3>(code);
  }
};

struct LayoutF8_E5M2 {  // the upper byte of an f16
  static constexpr std::size_t kElements = 1, kBytes = 1;
  static void decode(BlockBytes in, float* out) noexcept {
    *out = f16_to_f32(static_cast<std::uint16_t>(in.u8(0) << 8));
  }
};

struct LayoutF8_E8M0 {  // 2^(code - 127); 255 is NaN
  static constexpr std::size_t kElements = 1, kBytes = 1;
  static void decode(BlockBytes in, float* out) noexcept {
    const std::uint32_t code = in.u8(0);
    *out = std::bit_cast<float>(code == 255u ? 0x7FC00000u : code == 0 ? 0x00400000u : code << 23);
  }
};

// Four 6-bit values in three bytes, the first in the lowest bits.
template <std::uint32_t kExponentBits, std::uint32_t kMantissaBits>
struct LayoutF6 {
  static constexpr std::size_t kElements = 4, kBytes = 3;
  static void decode(BlockBytes in, float* out) noexcept {
    const std::uint32_t bits = in.u8(0) | in.u8(1) << 8 | in.u8(2) << 16;
    for (std::uint32_t i = 0; i < 4; ++i) out[i] = small_float<kExponentBits, kMantissaBits>(bits >> (6 * i) & 63u);
  }
};

struct LayoutF4 {  // two E2M1 values in a byte, the first in the low half
  static constexpr std::size_t kElements = 2, kBytes = 1;
  static void decode(BlockBytes in, float* out) noexcept {
    out[0] = small_float<2, 1>(in.u8(0) & 15u);
    out[1] = small_float<2, 1>(in.u8(0) >> 4);
  }
};

}  // namespace detail
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
