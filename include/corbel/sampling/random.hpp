// The counter-based random numbers behind every draw. A number depends on its key and counter alone, so a draw is the
// same on every machine, and it does not matter what was drawn before or beside it.
#pragma once

#include <corbel/config.hpp>

#include <array>
#include <cstdint>

CORBEL_NAMESPACE_BEGIN
namespace sampling {

/// Philox 4x32 with 10 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011): 128
/// random bits from a 128-bit counter and a 64-bit key.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                              std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t odd = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(odd >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(odd),
               static_cast<std::uint32_t>(even >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(even)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

/// A number in [0, 1), a multiple of 2^-53, for the `index`-th token of the `choice`-th reply of a request with this
/// seed. The key is the seed (low word first), the counter is (index low, index high, choice, 0), and the number is the
/// upper 53 bits of output words 1 and 0.
constexpr double uniform(std::uint64_t seed, std::uint32_t choice, std::uint64_t index) noexcept {
  const std::array<std::uint32_t, 4> bits =
      philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), choice, 0},
             {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return static_cast<double>(((std::uint64_t{bits[1]} << 32) | bits[0]) >> 11) * 0x1p-53;
}

}  // namespace sampling
CORBEL_NAMESPACE_END
