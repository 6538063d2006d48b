// The IQ types: values from codebooks (codebooks.ipp) or from a table of 16 levels, with scales as the K types have.
#pragma once

#include <corbel/impl/dtype/block_bytes.ipp>
#include <corbel/impl/dtype/codebooks.ipp>

#include <array>
#include <cstddef>
#include <cstdint>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace detail {

// Writes the 8 values of a codeword of 2-bit levels; a set bit of `signs` negates.
inline void put_word_of_8(std::uint32_t word, std::uint32_t signs, std::int8_t* out) noexcept {
  for (std::size_t i = 0; i < 8; ++i) {
    const std::int32_t level = kLevelsIQ2[word >> (2 * i) & 3u];
    out[i] = static_cast<std::int8_t>((signs >> i & 1u) != 0 ? -level : level);
  }
}

// Two codewords of four 3-bit levels.
inline void put_words_of_4(const std::array<std::int8_t, 8>& levels, std::uint32_t first, std::uint32_t second,
                           std::uint32_t signs, std::int8_t* out) noexcept {
  const std::uint32_t word = first | second << 12;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::int32_t level = levels[word >> (3 * i) & 7u];
    out[i] = static_cast<std::int8_t>((signs >> i & 1u) != 0 ? -level : level);
  }
}

// Seven stored signs; the eighth makes their number even.
inline std::uint32_t even_signs(std::uint32_t seven) noexcept {
  seven &= 127u;
  return seven | (static_cast<std::uint32_t>(std::popcount(seven)) & 1u) << 7;
}

// IQ1: levels -1, 0, 1 moved by an eighth up or down, in eighths: -9, -7, -1, 1, 7, 9. Scales are divided by 8, which
// is exact.
inline void put_word_of_iq1(std::uint32_t word, bool down, std::int8_t* out) noexcept {
  for (std::size_t i = 0; i < 8; ++i) out[i] = code((word >> (2 * i) & 3u) * 8, down ? 9 : 7);
}

inline float eighth_of_odd(float d, std::uint32_t scale) noexcept { return d * as_float(2 * scale + 1) * 0.125f; }

struct LayoutIQ1_S : Blocks<256, 50> {  // d, 32 x low 8 bits, 8 x (4 x high 3 bits, 3 bits scale, direction)
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    const float d = in.f16(0);
    for (std::size_t group = 0; group < 8; ++group) {
      const std::uint32_t high = in.u16(34 + group * 2);
      out.scales[group] = eighth_of_odd(d, high >> 12 & 7u);
      for (std::size_t i = 0; i < 4; ++i) {
        const std::uint32_t index = in.u8(2 + group * 4 + i) | (high >> (3 * i) & 7u) << 8;
        put_word_of_iq1(kGridIQ1[index], (high & 0x8000u) != 0, out.codes + group * 32 + i * 8);
      }
    }
  }
};

struct LayoutIQ1_M : Blocks<256, 56, 16> {  // 32 x low 8 bits, 32 x (high 3 bits, direction), 16 x 3 bits scale and d
  // The four bits of d are the upper ones of four words of scales.
  static std::uint16_t d_bits(BlockBytes in) noexcept {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 4; ++i) bits |= static_cast<std::uint32_t>(in.u16(48 + 2 * i) >> 12) << (4 * i);
    return static_cast<std::uint16_t>(bits);
  }
  static bool is_finite(BlockBytes in) noexcept { return (d_bits(in) & 0x7C00u) != 0x7C00u; }
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    const float d = f16_to_f32(d_bits(in));
    for (std::size_t group = 0; group < 16; ++group) {
      const std::uint32_t scales = in.u16(48 + group / 4 * 2);
      out.scales[group] = eighth_of_odd(d, scales >> (group % 4 * 3) & 7u);
    }
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t high = static_cast<std::uint32_t>(in.u8(32 + i / 2)) >> (i % 2 * 4);
      put_word_of_iq1(kGridIQ1[in.u8(i) | (high & 7u) << 8], (high & 8u) != 0, out.codes + i * 8);
    }
  }
};

struct LayoutIQ2_XXS : Blocks<256, 66> {  // d, 8 x (4 x 8 bits index, 4 x 7 signs, 4 bits scale)
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    const float d = in.f16(0);
    for (std::size_t group = 0; group < 8; ++group) {
      const std::uint32_t rest = in.u32(2 + group * 8 + 4);
      out.scales[group] = d * (0.5f + as_float(rest >> 28)) * 0.25f;
      for (std::size_t i = 0; i < 4; ++i) {
        put_word_of_8(kGridIQ2_XXS[in.u8(2 + group * 8 + i)], even_signs(rest >> (7 * i)),
                      out.codes + group * 32 + i * 8);
      }
    }
  }
};

struct LayoutIQ2_XS : Blocks<256, 74, 16> {  // d, 32 x (9 bits index, 7 signs), 16 x 4 bits scale
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    const float d = in.f16(0);
    for (std::size_t group = 0; group < 16; ++group)
      out.scales[group] = d * (0.5f + as_float(in.u8(66 + group / 2) >> (group % 2 * 4) & 15u)) * 0.25f;
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t word = in.u16(2 + 2 * i);
      put_word_of_8(kGridIQ2_XS[word & 511u], even_signs(word >> 9), out.codes + i * 8);
    }
  }
};

struct LayoutIQ2_S : Blocks<256, 82, 16> {  // d, 32 x low 8 bits, 32 x 8 signs, 32 x high 2 bits, 16 x 4 bits scale
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    const float d = in.f16(0);
    for (std::size_t group = 0; group < 16; ++group)
      out.scales[group] = d * (0.5f + as_float(in.u8(74 + group / 2) >> (group % 2 * 4) & 15u)) * 0.25f;
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t index = in.u8(2 + i) | (in.u8(66 + i / 4) >> (i % 4 * 2) & 3u) << 8;
      put_word_of_8(kGridIQ2_S[index], in.u8(34 + i), out.codes + i * 8);
    }
  }
};

struct LayoutIQ3_XXS : Blocks<256, 98> {  // d, 64 x 8 bits index, 8 x (4 x 7 signs, 4 bits scale)
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    const float d = in.f16(0);
    for (std::size_t group = 0; group < 8; ++group) {
      const std::uint32_t rest = in.u32(66 + group * 4);
      out.scales[group] = d * (0.5f + as_float(rest >> 28)) * 0.5f;
      for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t at = 2 + group * 8 + i * 2;
        put_words_of_4(kLevelsIQ3_XXS, kGridIQ3_XXS[in.u8(at)], kGridIQ3_XXS[in.u8(at + 1)],
                       even_signs(rest >> (7 * i)), out.codes + group * 32 + i * 8);
      }
    }
  }
};

struct LayoutIQ3_S : Blocks<256, 110> {  // d, 64 x low 8 bits, 64 x ninth bit, 32 x 8 signs, 8 x 4 bits scale
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    const float d = in.f16(0);
    for (std::size_t group = 0; group < 8; ++group)
      out.scales[group] = d * as_float(1 + 2 * (in.u8(106 + group / 2) >> (group % 2 * 4) & 15u));
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t ninths = in.u8(66 + i / 4) >> (i % 4 * 2);
      put_words_of_4(kLevelsIQ3_S, kGridIQ3_S[in.u8(2 + 2 * i) | (ninths & 1u) << 8],
                     kGridIQ3_S[in.u8(3 + 2 * i) | (ninths >> 1 & 1u) << 8], in.u8(74 + i), out.codes + i * 8);
    }
  }
};

struct LayoutIQ4_NL : Blocks<32, 18> {  // d, 32 x 4 bits: low halves first
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scales[0] = in.f16(0);
    for (std::size_t i = 0; i < 16; ++i) {
      out.codes[i] = kLevelsIQ4[in.u8(2 + i) & 15u];
      out.codes[i + 16] = kLevelsIQ4[in.u8(2 + i) >> 4];
    }
  }
};

struct LayoutIQ4_XS : Blocks<256, 136> {  // d, 8 x high 2 bits and 8 x low 4 bits of scale, 256 x 4 bits
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    const float d = in.f16(0);
    const std::uint32_t high = in.u16(2);
    for (std::size_t group = 0; group < 8; ++group) {
      const std::uint32_t low = in.u8(4 + group / 2) >> (group % 2 * 4) & 15u;
      out.scales[group] = d * centred(low | (high >> (2 * group) & 3u) << 4, 32);
      for (std::size_t i = 0; i < 16; ++i) {
        const std::uint32_t pair = in.u8(8 + group * 16 + i);
        out.codes[group * 32 + i] = kLevelsIQ4[pair & 15u];
        out.codes[group * 32 + i + 16] = kLevelsIQ4[pair >> 4];
      }
    }
  }
};

}  // namespace detail
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
