// Definitions of Candidates: selection of the best by count or by share of the probability, without sorting the
// vocabulary.
//
// Both are one radix selection: entries fall into bins by the leading bits of their keys, the masses of the bins are
// summed from the top until the target is reached, and the bin in which that happens is split by its next bits, until
// it is small enough to sort. What is equal after the last bits is taken in ascending id.
#pragma once

#include <corbel/detail/compiler.hpp>
#include <corbel/detail/exact_math.hpp>
#include <corbel/sampling/candidates.hpp>

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <iterator>
#include <limits>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace sampling {

CORBEL_INLINE std::uint64_t ordered_key(double value) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(value + 0.0);  // -0 becomes +0
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

CORBEL_INLINE Status Candidates::assign(std::span<const float> logits) {
  if (logits.empty()) return Status(Errc::kInvalidArgument, "no logits to sample from");
  if (logits.size() > static_cast<std::size_t>(std::numeric_limits<TokenId>::max())) {
    return Status(Errc::kInvalidArgument, fmt::format("{} logits are more than there are token ids", logits.size()));
  }
  const std::size_t n = logits.size();
  if (logits_.size() < n) {
    ids_.resize(n);
    logits_.resize(n);
    weights_.resize(n);
    active_.resize(n);
    block_maxima_.resize(n / kBlock);
    bins_.reserve(std::size_t{1} << 11);
  }
  vocab_ = n;
  size_ = n;
  all_ = true;
  has_weights_ = false;
  unsigned nan = 0;
  unsigned usable = 0;
  const float* const source = logits.data();
  double* const target = logits_.data();
  for (std::size_t i = 0; i < n; ++i) {
    nan |= static_cast<unsigned>(source[i] != source[i]);
    usable |= static_cast<unsigned>(source[i] >= std::numeric_limits<float>::lowest());
    target[i] = static_cast<double>(source[i]);
  }
  if (nan != 0) {
    std::size_t i = 0;
    while (source[i] == source[i]) ++i;
    return Status(Errc::kBadValue, fmt::format("the logit of token {} is NaN", i));
  }
  if (usable == 0) return Status(Errc::kBadValue, fmt::format("all {} logits are -infinity", n));
  return {};
}

CORBEL_INLINE std::size_t Candidates::find(TokenId id) const noexcept {
  if (id < 0) return size_;
  if (all_) return std::min(static_cast<std::size_t>(id), size_);
  const TokenId* const end = ids_.data() + size_;
  const TokenId* const found = std::lower_bound(ids_.data(), end, id);
  return found != end && *found == id ? static_cast<std::size_t>(found - ids_.data()) : size_;
}

CORBEL_INLINE double Candidates::max_logit() const noexcept {
  // Four chains of comparisons instead of one that waits for itself.
  double largest[4];
  std::fill(std::begin(largest), std::end(largest), -std::numeric_limits<double>::infinity());
  const double* const values = logits_.data();
  std::size_t i = 0;
  for (; i + 4 <= size_; i += 4) {
    for (std::size_t lane = 0; lane < 4; ++lane) {
      largest[lane] = values[i + lane] > largest[lane] ? values[i + lane] : largest[lane];
    }
  }
  for (; i < size_; ++i) largest[0] = values[i] > largest[0] ? values[i] : largest[0];
  return std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]));
}

CORBEL_INLINE std::span<const double> Candidates::weights() {
  if (!has_weights_) {
    weigh(max_logit());
    has_weights_ = true;
  }
  return {weights_.data(), size_};
}

CORBEL_INLINE void Candidates::weigh(double largest) noexcept {
  const double* const values = logits_.data();
  double* const weights = weights_.data();
  if (largest == std::numeric_limits<double>::infinity()) {
    for (std::size_t i = 0; i < size_; ++i) weights[i] = values[i] == largest ? 1.0 : 0.0;
    return;
  }
  // detail::exact_exp(x) for x <= 0, without its branches, so that compilers can do several at a time. Below exp(-708),
  // where powers of two get subnormal, a weight is 0.
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fee00000p-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kShift = 0x1.8p52;
  constexpr double kLowest = -708.0;
  for (std::size_t i = 0; i < size_; ++i) {
    const double difference = values[i] - largest;
    const double x = difference < kLowest ? kLowest : difference;
    const double shifted = x * kLog2E + kShift;  // its low bits are the rounded exponent
    const double n = shifted - kShift;
    const double r = (x - n * kLn2High) - n * kLn2Low;
    const double power = std::bit_cast<double>((std::bit_cast<std::uint64_t>(shifted) + 1023) << 52);
    const double weight = (detail::exact_expm1_over_r(r) * r + 1.0) * power;
    weights[i] = difference < kLowest ? 0.0 : weight;
  }
}

CORBEL_INLINE double Candidates::total_weight() {
  const std::span<const double> masses = weights();
  double sums[4] = {0.0, 0.0, 0.0, 0.0};  // a fixed order of additions, in four chains
  std::size_t i = 0;
  for (; i + 4 <= masses.size(); i += 4) {
    for (std::size_t lane = 0; lane < 4; ++lane) sums[lane] += masses[i + lane];
  }
  for (; i < masses.size(); ++i) sums[0] += masses[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

CORBEL_INLINE void Candidates::set_logit(std::size_t i, double logit) noexcept {
  logits_[i] = logit;
  has_weights_ = false;
}

CORBEL_INLINE void Candidates::divide_logits(double divisor) noexcept {
  for (std::size_t i = 0; i < size_; ++i) logits_[i] /= divisor;
  has_weights_ = false;
}

CORBEL_INLINE std::span<std::uint64_t> Candidates::key_buffer() {
  if (keys_.size() < logits_.size()) keys_.resize(logits_.size());
  return {keys_.data(), size_};
}

template <class Key, class Mass>
Candidates::Cut Candidates::select(std::size_t count, const Key& key, const Mass& mass, double target) {
  constexpr unsigned kBits = 11;
  constexpr std::size_t kSortable = 128;  // sorting so few costs less than clearing the bins
  std::size_t active = count;             // entries of the bin that is being split: active_[0, active)
  for (std::size_t i = 0; i < count; ++i) active_[i] = static_cast<std::uint32_t>(i);
  double above = 0.0;  // mass of all entries whose keys are above that bin
  unsigned shift = 64;
  while (shift > 0 && active > kSortable) {
    const unsigned bits = std::min(shift, kBits);
    shift -= bits;
    const std::size_t num_bins = std::size_t{1} << bits;
    const auto bin_of = [&](std::size_t i) { return static_cast<std::size_t>(key(i) >> shift) & (num_bins - 1); };
    bins_.assign(num_bins, 0.0);
    double* const bins = bins_.data();
    for (std::size_t j = 0; j < active; ++j) bins[bin_of(active_[j])] += mass(active_[j]);
    std::size_t chosen = num_bins;
    double above_chosen = above;
    for (std::size_t bin = num_bins; bin-- > 0 && !(chosen < num_bins && above >= target);) {
      if (!(bins[bin] > 0.0)) continue;
      chosen = bin;  // the lowest bin with mass, where rounding puts the target out of reach
      above_chosen = above;
      above += bins[bin];
    }
    if (chosen == num_bins) return {0, count};  // no mass at all
    above = above_chosen;
    std::size_t kept = 0;
    for (std::size_t j = 0; j < active; ++j) {
      if (bin_of(active_[j]) == chosen) active_[kept++] = active_[j];
    }
    active = kept;
  }
  if (shift > 0) {
    std::sort(active_.begin(), active_.begin() + static_cast<std::ptrdiff_t>(active),
              [&](std::uint32_t a, std::uint32_t b) { return key(a) != key(b) ? key(a) > key(b) : a < b; });
  }
  Cut cut;
  for (std::size_t j = 0; j < active; ++j) {
    const std::uint64_t next = key(active_[j]);
    cut = {next, j > 0 && next == cut.key ? cut.ties + 1 : 1};
    above += mass(active_[j]);
    if (above >= target) break;
  }
  return cut;
}

template <class Key>
void Candidates::keep(const Key& key, Cut cut) {
  keep_if([&](std::size_t i) {
    const std::uint64_t k = key(i);
    if (k != cut.key) return k > cut.key;
    if (cut.ties == 0) return false;
    --cut.ties;
    return true;
  });
}

CORBEL_INLINE void Candidates::keep_largest(std::size_t count) {
  if (count >= size_) return;
  const double* const values = logits_.data();
  if (count == 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < size_; ++i) best = values[i] > values[best] ? i : best;
    ids_[0] = id(best);
    logits_[0] = values[best];
    all_ = false;
    size_ = 1;
    has_weights_ = false;
    return;
  }
  // The count-th largest of the maxima of blocks is a threshold that at least `count` candidates reach, and few others.
  const std::size_t num_blocks = size_ / kBlock;
  const auto one = [](std::size_t) { return 1.0; };
  const auto target = static_cast<double>(count);
  if (num_blocks > count) {
    for (std::size_t block = 0; block < num_blocks; ++block) {
      double largest[4];
      std::copy_n(values + block * kBlock, 4, largest);
      for (std::size_t i = 4; i < kBlock; i += 4) {
        for (std::size_t lane = 0; lane < 4; ++lane) {
          const double value = values[block * kBlock + i + lane];
          largest[lane] = value > largest[lane] ? value : largest[lane];
        }
      }
      block_maxima_[block] = std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]));
    }
    const std::uint64_t key = select(
                                  num_blocks, [&](std::size_t b) { return ordered_key(block_maxima_[b]); }, one, target)
                                  .key;
    double threshold = std::numeric_limits<double>::infinity();
    for (std::size_t block = 0; block < num_blocks; ++block) {
      if (ordered_key(block_maxima_[block]) >= key) threshold = std::min(threshold, block_maxima_[block]);
    }
    keep_if([&](std::size_t i) { return values[i] >= threshold; });
  }
  const auto key = [&](std::size_t i) { return ordered_key(values[i]); };
  keep(key, select(size_, key, one, target));
}

CORBEL_INLINE void Candidates::keep_likeliest(double share) {
  if (size_ <= 1) return;
  const std::span<const double> all_masses = weights();
  const double* const masses = all_masses.data();
  const double total = total_weight();
  // All candidates below this weight together are less than what the share leaves out (half of it, against rounding).
  const double least = 0.5 * (1.0 - share) * total / static_cast<double>(size_);
  keep_if([&](std::size_t i) { return masses[i] >= least; });
  const auto key = [&](std::size_t i) { return ordered_key(logits_[i]); };
  keep(key, select(
                size_, key, [&](std::size_t i) { return masses[i]; }, share * total));
}

CORBEL_INLINE void Candidates::keep_share(std::span<const std::uint64_t> keys, double share) {
  if (size_ <= 1) return;
  const double target = share * total_weight();
  const double* const masses = weights_.data();
  const auto key = [&](std::size_t i) { return keys[i]; };
  keep(key, select(
                size_, key, [&](std::size_t i) { return masses[i]; }, target));
}

}  // namespace sampling
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
