// A fast 128-bit digest of bytes, to tell whether two are the same. It is not cryptographic: who wants two that collide
// finds them.
#pragma once

#include <corbel/config.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace detail {

/// The same bytes give the same digest in every process and at every level, on machines of one byte order.
struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const Digest&) const = default;
};

/// Bijective in `value`.
constexpr std::uint64_t mix_bits(std::uint64_t value) noexcept {
  value ^= value >> 32;
  value *= 0xd6e8feb86659fd93u;
  value ^= value >> 32;
  value *= 0xd6e8feb86659fd93u;
  return value ^ value >> 32;
}

/// Eight lanes of 64 bits, each of which takes a word of every 64 bytes by steps that are bijective in the lane and in
/// the word: bytes that differ in one lane only have different digests for certain, others but for one pair in 2^64 or
/// so. Some 8 bytes a cycle.
inline Digest digest(std::span<const std::byte> bytes) noexcept {
  constexpr std::uint64_t kFactors[8] = {0x9fb21c651e98df25u, 0xa0761d6478bd642fu, 0xe7037ed1a0b428dbu,
                                         0x8ebc6af09c88c6e3u, 0x589965cc75374cc3u, 0x1d8e4e27c47d124fu,
                                         0xeb44accab455d165u, 0xc2b2ae3d27d4eb4fu};
  std::uint64_t lanes[8];
  for (std::size_t i = 0; i < 8; ++i) lanes[i] = mix_bits(kFactors[i] + i);
  const auto take = [&]<std::size_t... kLanes>(const std::byte* from, std::index_sequence<kLanes...>) {
    std::uint64_t words[8];
    std::memcpy(words, from, sizeof words);
    ((lanes[kLanes] = std::rotl((lanes[kLanes] ^ words[kLanes]) * kFactors[kLanes], 31)), ...);
  };
  std::size_t at = 0;
  for (; at + 64 <= bytes.size(); at += 64) take(bytes.data() + at, std::make_index_sequence<8>());
  if (at < bytes.size()) {
    std::byte last[64] = {};
    std::memcpy(last, bytes.data() + at, bytes.size() - at);
    take(last, std::make_index_sequence<8>());
  }
  Digest result = {mix_bits(bytes.size() + 1), ~std::uint64_t{bytes.size()}};
  for (std::size_t i = 0; i < 8; ++i) {
    result.low = mix_bits(result.low ^ lanes[i]);
    result.high = mix_bits(result.high + lanes[7 - i]) * kFactors[i];
  }
  return result;
}
inline Digest digest(std::string_view text) noexcept {
  return digest(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

/// 32 hexadecimal digits.
inline std::string to_hex(const Digest& value) {
  std::string text;
  for (const std::uint64_t half : {value.high, value.low})
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[half >> shift & 15];
  return text;
}

/// Collects what a digest is taken of: numbers, texts with their lengths, other digests.
class DigestInput {
 public:
  DigestInput& add(std::uint64_t number) {
    char raw[sizeof number];
    std::memcpy(raw, &number, sizeof number);
    bytes_.append(raw, sizeof raw);
    return *this;
  }
  DigestInput& add(std::string_view text) {
    add(std::uint64_t{text.size()});
    bytes_ += text;
    return *this;
  }
  DigestInput& add(const Digest& part) { return add(part.low).add(part.high); }
  Digest digest() const noexcept { return detail::digest(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace detail
CORBEL_NAMESPACE_END
