// Blocks of 32 values with one scale, perhaps a minimum: Q4_0 to Q8_1.
#pragma once

#include <corbel/impl/dtype/block_bytes.ipp>

#include <array>
#include <cstddef>
#include <cstdint>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace detail {

struct LayoutQ4_0 : Blocks<32, 18> {  // d, 32 x 4 bits: low halves first
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scales[0] = in.f16(0);
    for (std::size_t i = 0; i < 16; i += 8) {
      const std::uint64_t q = in.u64(2 + i);
      store_eight(eight(q, 0, 4), out.codes + i, 8);
      store_eight(eight(q, 4, 4), out.codes + i + 16, 8);
    }
  }
};

struct LayoutQ4_1 : Blocks<32, 20, 32, true> {  // d, m, 32 x 4 bits
  static constexpr std::array<std::size_t, 2> kScales = {0, 2};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scales[0] = in.f16(0);
    out.minima[0] = in.f16(2);
    for (std::size_t i = 0; i < 16; i += 8) {
      const std::uint64_t q = in.u64(4 + i);
      store_eight(eight(q, 0, 4), out.codes + i);
      store_eight(eight(q, 4, 4), out.codes + i + 16);
    }
  }
};

struct LayoutQ5_0 : Blocks<32, 22> {  // d, 32 fifth bits, 32 x 4 bits
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scales[0] = in.f16(0);
    const std::uint32_t high = in.u32(2);
    for (std::size_t i = 0; i < 16; i += 8) {
      const std::uint64_t q = in.u64(6 + i);
      store_eight(eight(q, 0, 4) | spread_bits(high >> i) << 4, out.codes + i, 16);
      store_eight(eight(q, 4, 4) | spread_bits(high >> (i + 16)) << 4, out.codes + i + 16, 16);
    }
  }
};

struct LayoutQ5_1 : Blocks<32, 24, 32, true> {  // d, m, 32 fifth bits, 32 x 4 bits
  static constexpr std::array<std::size_t, 2> kScales = {0, 2};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scales[0] = in.f16(0);
    out.minima[0] = in.f16(2);
    const std::uint32_t high = in.u32(4);
    for (std::size_t i = 0; i < 16; i += 8) {
      const std::uint64_t q = in.u64(8 + i);
      store_eight(eight(q, 0, 4) | spread_bits(high >> i) << 4, out.codes + i);
      store_eight(eight(q, 4, 4) | spread_bits(high >> (i + 16)) << 4, out.codes + i + 16);
    }
  }
};

struct LayoutQ8_0 : Blocks<32, 34> {  // d, 32 x int8
  static constexpr std::array<std::size_t, 1> kScales = {0};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scales[0] = in.f16(0);
    in.copy(2, out.codes, 32);
  }
};

struct LayoutQ8_1 : Blocks<32, 36> {  // d, d * sum of the codes, 32 x int8
  static constexpr std::array<std::size_t, 2> kScales = {0, 2};
  static void unpack(BlockBytes in, IntegerBlock& out) noexcept {
    out.scales[0] = in.f16(0);
    in.copy(4, out.codes, 32);
  }
};

}  // namespace detail
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
