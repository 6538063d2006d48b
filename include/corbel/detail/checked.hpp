// Arithmetic on numbers from files that says when it does not fit.
#pragma once

#include <corbel/config.hpp>

#include <cstdint>
#include <optional>

CORBEL_NAMESPACE_BEGIN
namespace detail {

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// `value` rounded up to a multiple of `alignment` (a power of two).
inline std::optional<std::uint64_t> checked_align(std::uint64_t value, std::uint64_t alignment) noexcept {
  const std::optional<std::uint64_t> sum = checked_add(value, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

}  // namespace detail
CORBEL_NAMESPACE_END
