// One, two and three levels, and 4-bit floats with a scale per block.
#pragma once

#include <corbel/impl/dtype/block_bytes.ipp>
#include <corbel/impl/dtype/codebooks.ipp>
#include <corbel/impl/dtype/plain.ipp>

#include <array>
#include <cstddef>
#include <cstdint>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace detail {

struct LayoutTQ1_0 : Blocks<256, 54> {  // 48 bytes of five base-3 digits, 4 of four, d
  static constexpr std::array<std::size_t, 1> kScales = {52};
  // Digit n of a byte that holds a fraction of 3^5: the upper digits are shifted out by a product modulo 256.
  static std::int8_t digit(std::uint32_t byte, std::size_t n) noexcept {
    constexpr std::array<std::uint32_t, 5> kPowers = {1, 3, 9, 27, 81};
    return code((byte * kPowers[n] & 255u) * 3u >> 8, 1);
  }
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    set_all_scales(out, in.f16(52));
    for (std::size_t i = 0; i < 160; ++i) out.codes[i] = digit(in.u8(i % 32), i / 32);
    for (std::size_t i = 0; i < 80; ++i) out.codes[160 + i] = digit(in.u8(32 + i % 16), i / 16);
    for (std::size_t i = 0; i < 16; ++i) out.codes[240 + i] = digit(in.u8(48 + i % 4), i / 4);
  }
};

struct LayoutTQ2_0 : Blocks<256, 66> {  // 256 x 2 bits, d
  static constexpr std::array<std::size_t, 1> kScales = {64};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    set_all_scales(out, in.f16(64));
    for (std::size_t i = 0; i < 256; ++i)
      out.codes[i] = code(in.u8(i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3u, 1);
  }
};

struct LayoutQ1_0 : Blocks<128, 18> {  // d, 128 x 1 bit: -1 or 1
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    set_all_scales(out, in.f16(0));
    for (std::size_t i = 0; i < 128; ++i) out.codes[i] = code((in.u8(2 + i / 8) >> (i % 8) & 1u) * 2, 1);
  }
};

struct LayoutQ2_0 : Blocks<64, 18> {  // d, 64 x 2 bits
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    set_all_scales(out, in.f16(0));
    for (std::size_t i = 0; i < 64; ++i) out.codes[i] = code(in.u8(2 + i / 4) >> (i % 4 * 2) & 3u, 1);
  }
};

// E2M1 values are kept doubled, so scales are halved.

struct LayoutMXFP4 : Blocks<32, 17> {  // a power of two, 32 x E2M1: low halves first
  // 255 is NaN by the OCP specification (the reference reads 2^127); from 253 on, products can be infinite.
  static bool is_finite(BlockBytes in) noexcept { return in.u8(0) < 253; }
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    const std::uint32_t exponent = in.u8(0);  // stands for 2^(exponent - 127)
    out.scales[0] = std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
    for (std::size_t i = 0; i < 16; ++i) {
      out.codes[i] = kLevelsFp4[in.u8(1 + i) & 15u];
      out.codes[i + 16] = kLevelsFp4[in.u8(1 + i) >> 4];
    }
  }
};

struct LayoutNVFP4 : Blocks<64, 36, 16> {  // 4 x E4M3 scale, per scale 16 x E2M1: low halves first
  // All ones is NaN in E4M3 (the reference reads 0).
  static bool is_finite(BlockBytes in) noexcept {
    for (std::size_t group = 0; group < 4; ++group) {
      if ((in.u8(group) & 0x7Fu) == 0x7Fu) return false;
    }
    return true;
  }
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    for (std::size_t group = 0; group < 4; ++group) {
      const std::uint32_t scale = in.u8(group);  // the sign bit is not read
      out.scales[group] = scale == 0x7Fu ? 0.0f : small_float<4, 3>(scale & 0x7Fu) * 0.5f;
      for (std::size_t i = 0; i < 8; ++i) {
        const std::uint32_t pair = in.u8(4 + group * 8 + i);
        out.codes[group * 16 + i] = kLevelsFp4[pair & 15u];
        out.codes[group * 16 + i + 8] = kLevelsFp4[pair >> 4];
      }
    }
  }
};

}  // namespace detail
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
