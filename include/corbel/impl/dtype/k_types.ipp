// The K types: 256 values in groups of 16 or 32, each with its own small scale (and minimum) times the block's d (and
// dmin).
#pragma once

#include <corbel/impl/dtype/block_bytes.ipp>

#include <array>
#include <cstddef>
#include <cstdint>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace detail {

inline void set_scale(IntegerBlock& out, std::size_t group, std::int32_t code) noexcept {
  out.scale_codes[group] = static_cast<std::int8_t>(code);
  out.scales[group] = out.scale * static_cast<float>(code);
}
inline void set_minimum(IntegerBlock& out, std::size_t group, std::uint32_t code) noexcept {
  out.minimum_codes[group] = static_cast<std::int8_t>(code);
  out.minima[group] = out.minimum * as_float(code);
}

struct LayoutQ2_K : Blocks<256, 84, 16, true> {  // 16 x (4 bits scale, 4 bits minimum), 256 x 2 bits, d, dmin
  static constexpr std::array<std::size_t, 2> kScales = {80, 82};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scale = in.f16(80);
    out.minimum = -in.f16(82);
    for (std::size_t group = 0; group < 16; ++group) {
      set_scale(out, group, static_cast<std::int32_t>(in.u8(group) & 15u));
      set_minimum(out, group, in.u8(group) >> 4);
      const std::size_t codes = 16 + group / 8 * 32 + group % 2 * 16;
      const std::size_t shift = group % 8 / 2 * 2;
      for (std::size_t i = 0; i < 16; i += 8)
        store_eight(eight(in.u64(codes + i), shift, 2), out.codes + group * 16 + i);
    }
  }
};

struct LayoutQ3_K : Blocks<256, 110, 16> {  // 256 third bits, 256 x 2 bits, 16 x 6 bits scale, d
  static constexpr std::array<std::size_t, 1> kScales = {108};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scale = in.f16(108);
    for (std::size_t group = 0; group < 16; ++group) {
      const std::uint32_t low = group < 8 ? in.u8(96 + group) & 15u : in.u8(96 + group - 8) >> 4;
      const std::uint32_t high = in.u8(104 + group % 4) >> (group / 4 * 2) & 3u;
      set_scale(out, group, static_cast<std::int32_t>(low | high << 4) - 32);
      const std::size_t lane = group % 2 * 16;
      const std::size_t codes = 32 + group / 8 * 32 + lane;
      const std::size_t shift = group % 8 / 2 * 2;
      for (std::size_t i = 0; i < 16; i += 8) {
        const std::uint64_t third = eight(in.u64(lane + i), group / 2, 1);
        store_eight(eight(in.u64(codes + i), shift, 2) | third << 2, out.codes + group * 16 + i, 4);
      }
    }
  }
};

// The 8 pairs of 6-bit scale and minimum that Q4_K and Q5_K pack into the 12 bytes after d and dmin.
inline void unpack_scales_and_minima(BlockBytes in, IntegerBlock& out) noexcept {
  out.scale = in.f16(0);
  out.minimum = -in.f16(2);
  for (std::size_t group = 0; group < 8; ++group) {
    std::uint32_t scale = in.u8(4 + group) & 63u;
    std::uint32_t minimum = in.u8(8 + group) & 63u;
    if (group >= 4) {
      scale = (in.u8(8 + group) & 15u) | in.u8(group) >> 6 << 4;
      minimum = in.u8(8 + group) >> 4 | in.u8(4 + group) >> 6 << 4;
    }
    set_scale(out, group, static_cast<std::int32_t>(scale));
    set_minimum(out, group, minimum);
  }
}

struct LayoutQ4_K : Blocks<256, 144, 32, true> {  // d, dmin, 12 bytes of scales and minima, 256 x 4 bits
  static constexpr std::array<std::size_t, 2> kScales = {0, 2};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    unpack_scales_and_minima(in, out);
    for (std::size_t i = 0; i < 128; i += 8) {
      const std::size_t at = i / 32 * 64 + i % 32;
      const std::uint64_t q = in.u64(16 + i);
      store_eight(eight(q, 0, 4), out.codes + at);
      store_eight(eight(q, 4, 4), out.codes + at + 32);
    }
  }
};

struct LayoutQ5_K
    : Blocks<256, 176, 32, true> {  // d, dmin, 12 bytes of scales and minima, 256 fifth bits, 256 x 4 bits
  static constexpr std::array<std::size_t, 2> kScales = {0, 2};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    unpack_scales_and_minima(in, out);
    for (std::size_t i = 0; i < 128; i += 8) {
      const std::size_t at = i / 32 * 64 + i % 32;
      const std::uint64_t fifths = in.u64(16 + i % 32);
      const std::uint64_t q = in.u64(48 + i);
      store_eight(eight(q, 0, 4) | eight(fifths, i / 32 * 2, 1) << 4, out.codes + at);
      store_eight(eight(q, 4, 4) | eight(fifths, i / 32 * 2 + 1, 1) << 4, out.codes + at + 32);
    }
  }
};

struct LayoutQ6_K : Blocks<256, 210, 16> {  // 256 x low 4 bits, 256 x high 2 bits, 16 x int8 scale, d
  static constexpr std::array<std::size_t, 1> kScales = {208};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scale = in.f16(208);
    for (std::size_t group = 0; group < 16; ++group) set_scale(out, group, in.i8(192 + group));
    for (std::size_t row = 0; row < 8; ++row) {  // 32 values each
      const std::size_t low = row / 4 * 64 + row % 2 * 32;
      const std::size_t low_shift = row % 4 / 2 * 4;
      const std::size_t high = 128 + row / 4 * 32;
      const std::size_t high_shift = row % 4 * 2;
      for (std::size_t i = 0; i < 32; i += 8) {
        const std::uint64_t codes = eight(in.u64(low + i), low_shift, 4) | eight(in.u64(high + i), high_shift, 2) << 4;
        store_eight(codes, out.codes + row * 32 + i, 32);
      }
    }
  }
};

struct LayoutQ8_K : Blocks<256, 292> {  // d in float32, 256 x int8, 16 x int16 sums of the codes
  static bool is_finite(BlockBytes in) noexcept { return (in.u32(0) & 0x7F800000u) < 0x7C000000u; }
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    set_all_scales(out, std::bit_cast<float>(in.u32(0)));
    in.copy(4, out.codes, 256);
  }
};

}  // namespace detail
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
