// Blocks that no file has: what models/quantized_linear.hpp makes of the linears of quantized checkpoints. A float32
// scale, then what a block of the scheme's group needs; the value is (code's value) * scale, rounded once.
#pragma once

#include <corbel/impl/dtype/block_bytes.ipp>
#include <corbel/impl/dtype/plain.ipp>

#include <array>
#include <bit>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace detail {

inline float group_scale(BlockBytes in, std::size_t at = 0) noexcept { return std::bit_cast<float>(in.u32(at)); }
// Below 2^112: what such a scale multiplies (a code, an int16 zero point, an E4M3 value) cannot make it infinite.
inline bool group_is_finite(BlockBytes in, std::size_t at = 0) noexcept {
  return (in.u32(at) & 0x7F800000u) < 0x77800000u;
}
// Zero points become minima; products with scales that came from 16 bits are exact.
inline float group_minimum(BlockBytes in, std::int32_t offset) noexcept {
  return static_cast<float>(offset - static_cast<std::int16_t>(in.u16(4))) * group_scale(in);
}

struct LayoutGroupI4 : Blocks<32, 20> {  // scale, 32 x 4 bits that stand for code - 8: low halves first
  static bool is_finite(BlockBytes in) noexcept { return group_is_finite(in); }
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scales[0] = group_scale(in);
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint32_t pair = in.u8(4 + i);
      out.codes[i] = code(pair & 15u, 8);
      out.codes[i + 16] = code(pair >> 4, 8);
    }
  }
};

struct LayoutGroupU4 : Blocks<32, 22, 32, true> {  // scale, int16 zero, 32 x 4 bits: low halves first
  static bool is_finite(BlockBytes in) noexcept { return group_is_finite(in); }
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scales[0] = group_scale(in);
    out.minima[0] = group_minimum(in, 0);
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint32_t pair = in.u8(6 + i);
      out.codes[i] = code(pair & 15u);
      out.codes[i + 16] = code(pair >> 4);
    }
  }
};

struct LayoutGroupI8 : Blocks<32, 36> {  // scale, 32 x int8
  static bool is_finite(BlockBytes in) noexcept { return group_is_finite(in); }
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scales[0] = group_scale(in);
    in.copy(4, out.codes, 32);
  }
};

struct LayoutGroupU8 : Blocks<32, 38, 32, true> {  // scale, int16 zero, 32 x 8 bits
  static bool is_finite(BlockBytes in) noexcept { return group_is_finite(in); }
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scales[0] = group_scale(in);
    out.minima[0] = group_minimum(in, 128);
    for (std::size_t i = 0; i < 32; ++i) out.codes[i] = code(in.u8(6 + i), 128);
  }
};

struct LayoutGroupF8 {  // scale, 32 x E4M3
  static constexpr std::size_t kElements = 32, kBytes = 36;
  static bool is_finite(BlockBytes in) noexcept {
    for (std::size_t i = 0; i < kElements; ++i)
      if ((in.u8(4 + i) & 0x7Fu) == 0x7Fu) return false;
    return group_is_finite(in);
  }
  static void decode(BlockBytes in, float* out) noexcept {
    const float scale = group_scale(in);
    for (std::size_t i = 0; i < kElements; ++i) {
      const std::uint32_t bits = in.u8(4 + i);
      out[i] = ((bits & 0x7Fu) == 0x7Fu ? std::bit_cast<float>(0x7FC00000u) : small_float<4, 3>(bits)) * scale;
    }
  }
};

struct LayoutGroupE2M1 : Blocks<32, 24, 16> {  // 2 scales of 16 values each, 32 x E2M1: low halves first
  static bool is_finite(BlockBytes in) noexcept { return group_is_finite(in) && group_is_finite(in, 4); }
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    static constexpr std::int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    out.scales[0] = 0.5f * group_scale(in);
    out.scales[1] = 0.5f * group_scale(in, 4);
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint32_t pair = in.u8(8 + i);
      out.codes[i] = kTwice[pair & 15u];
      out.codes[i + 16] = kTwice[pair >> 4];
    }
  }
  // The integers have no negative zero.
  static void decode(BlockBytes in, float* out) noexcept {
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint32_t pair = in.u8(8 + i);
      out[i] = small_float<2, 1>(pair & 15u) * group_scale(in);
      out[i + 16] = small_float<2, 1>(pair >> 4) * group_scale(in, 4);
    }
  }
};

/// The values of NF4 (Dettmers et al. 2023, arXiv 2305.14314, appendix E).
inline constexpr std::array<float, 16> kNf4Values = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

struct LayoutGroupNF4 {  // scale, 32 x NF4: low halves first
  static constexpr std::size_t kElements = 32, kBytes = 20;
  static bool is_finite(BlockBytes in) noexcept { return group_is_finite(in); }
  static void decode(BlockBytes in, float* out) noexcept {
    const float scale = group_scale(in);
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint32_t pair = in.u8(4 + i);
      out[i] = kNf4Values[pair & 15u] * scale;
      out[i + 16] = kNf4Values[pair >> 4] * scale;
    }
  }
};

}  // namespace detail
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
