// Values that change the speed of the backend and no bit: the fixed ones, those of the options, and those that were
// measured for a context.
#pragma once

#include <corbel/config.hpp>
#include <corbel/context.hpp>

#include <cstddef>
#include <cstdint>

CORBEL_NAMESPACE_BEGIN
namespace cpu {

struct Tuning {
  /// Bytes that linears ask for ahead of where they read.
  std::size_t prefetch_distance = 4096;
  /// What is less than this is not shared out among threads, in float operations or so. The fixed value is some 1 us of
  /// vector work: twice the price of a region on a Zen 4 and a Sapphire Rapids.
  std::size_t region_cost = 12288;
  /// Whether one row reads several groups of long weights at a time.
  bool streams = true;
  bool measured = false;
};
inline constexpr std::size_t kMaxPrefetchDistance = std::size_t{1} << 20;

/// The measured values of a context are a word that it keeps: 0 where there are none.
inline constexpr std::uint64_t kOneStream = std::uint64_t{1} << 31;
constexpr std::uint64_t tuning_word(const Tuning& tuning) noexcept {
  return std::uint64_t{tuning.region_cost} << 32 | (tuning.streams ? 0 : kOneStream) |
         (std::uint64_t{tuning.prefetch_distance} + 1);
}

inline Tuning tuning_of(const Context& context) noexcept {
  Tuning tuning;
  if (const std::uint64_t word = context.measured(); word != 0) {
    tuning.prefetch_distance = static_cast<std::size_t>(word & (kOneStream - 1)) - 1;
    tuning.streams = (word & kOneStream) == 0;
    tuning.region_cost = static_cast<std::size_t>(word >> 32);
    tuning.measured = true;
  }
  const TuningOptions& fixed = context.options().tuning;
  if (fixed.prefetch_distance != 0)
    tuning.prefetch_distance =
        fixed.prefetch_distance < kMaxPrefetchDistance ? fixed.prefetch_distance : kMaxPrefetchDistance;
  if (fixed.region_cost != 0) tuning.region_cost = fixed.region_cost;
  if (fixed.streams != 0) tuning.streams = fixed.streams > 1;
  return tuning;
}

}  // namespace cpu
CORBEL_NAMESPACE_END
