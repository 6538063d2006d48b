// What the decoders of dtype.ipp read blocks with.
#pragma once

#include <corbel/detail/compiler.hpp>
#include <corbel/dtype.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace detail {

// One block in its file layout: bytes, read without alignment, little-endian.
class BlockBytes {
 public:
  explicit BlockBytes(const std::byte* bytes) noexcept : bytes_(bytes) {}
  std::uint32_t u8(std::size_t at) const noexcept { return static_cast<std::uint32_t>(bytes_[at]); }
  std::int8_t i8(std::size_t at) const noexcept { return static_cast<std::int8_t>(bytes_[at]); }
  std::uint16_t u16(std::size_t at) const noexcept { return static_cast<std::uint16_t>(u8(at) | u8(at + 1) << 8); }
  std::uint32_t u32(std::size_t at) const noexcept {
    return u8(at) | u8(at + 1) << 8 | u8(at + 2) << 16 | u8(at + 3) << 24;
  }
  std::uint64_t u64(std::size_t at) const noexcept { return u32(at) | std::uint64_t{u32(at + 4)} << 32; }
  void copy(std::size_t at, std::int8_t* to, std::size_t count) const noexcept { std::memcpy(to, bytes_ + at, count); }
  float f16(std::size_t at) const noexcept { return f16_to_f32(u16(at)); }

 private:
  const std::byte* bytes_;
};

inline float as_float(std::uint32_t code) noexcept { return static_cast<float>(static_cast<std::int32_t>(code)); }

// A code that stands for code - offset.
inline float centred(std::uint32_t code, std::int32_t offset) noexcept {
  return static_cast<float>(static_cast<std::int32_t>(code) - offset);
}

inline std::int8_t code(std::uint32_t stored, std::int32_t offset = 0) noexcept {
  return static_cast<std::int8_t>(static_cast<std::int32_t>(stored) - offset);
}

// Codes are worked on eight at a time, one in each byte of a word, the first lowest: fast without a vectorizing
// compiler.

// Bits [shift, shift + count) of each of eight bytes.
inline std::uint64_t eight(std::uint64_t bytes, std::size_t shift, std::size_t count) noexcept {
  return bytes >> shift & ((std::uint64_t{1} << count) - 1) * 0x0101010101010101u;
}
// Bit i of eight as the code in byte i.
inline std::uint64_t spread_bits(std::uint32_t bits) noexcept {
  const std::uint64_t picked = std::uint64_t{bits & 0xffu} * 0x0101010101010101u & 0x8040201008040201u;
  return eight(picked + 0x7f7f7f7f7f7f7f7fu, 7, 1);
}
// Writes eight codes below 128, each less `offset`, which is at most 128.
inline void store_eight(std::uint64_t codes, std::int8_t* to, std::uint8_t offset = 0) noexcept {
  const std::uint64_t high = 0x8080808080808080u;
  const std::uint64_t moved = ((codes | high) - offset * 0x0101010101010101u) ^ high;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(to, &moved, sizeof moved);
  } else {
    for (std::size_t i = 0; i < 8; ++i) to[i] = static_cast<std::int8_t>(moved >> (8 * i) & 0xffu);
  }
}

// What a layout of a quantized type says of itself: values and bytes of a block, values that share a scale, minima.
template <std::size_t kElementsOf, std::size_t kBytesOf, std::size_t kScaleElementsOf = 32, bool kMinimum = false>
struct Blocks {
  static constexpr std::size_t kElements = kElementsOf, kBytes = kBytesOf, kScaleElements = kScaleElementsOf;
  static constexpr bool kHasMinimum = kMinimum;
};

// For blocks with one scale for more than 32 values.
inline void set_all_scales(IntegerBlock& out, float scale) noexcept {
  for (float& each : out.scales) each = scale;
}

}  // namespace detail
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
