// The hash of the tokenizer's flat tables. Fixed seed: the same tables on every run and machine.
#pragma once

#include <corbel/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace text {

inline std::uint64_t mix_hash(std::uint64_t value) noexcept {
  value ^= value >> 32;
  value *= 0x9E3779B97F4A7C15u;
  value ^= value >> 29;
  value *= 0xBF58476D1CE4E5B9u;
  return value ^ value >> 32;
}

/// Reads eight bytes at a time: pieces are short, and most look-ups of a tokenizer fail.
inline std::uint64_t hash_bytes(std::string_view bytes) noexcept {
  std::uint64_t hash = bytes.size() * 0x9E3779B97F4A7C15u;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    hash = (hash ^ word) * 0xBF58476D1CE4E5B9u;
    hash ^= hash >> 31;
  }
  if (at < bytes.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, bytes.size() - at);
    hash ^= word;
  }
  return mix_hash(hash);
}

/// A power of two with room for `count` entries at a load of at most two thirds.
inline std::size_t table_capacity(std::size_t count) noexcept {
  std::size_t capacity = 16;
  while (capacity < count + count / 2) capacity *= 2;
  return capacity;
}

}  // namespace text
CORBEL_NAMESPACE_END
