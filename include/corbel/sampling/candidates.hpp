// Candidates: the tokens that may still be drawn, on which the stages of a Sampler work.
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace sampling {

/// Token ids in ascending order, each with its logit; `size()` begins as the vocabulary and shrinks as stages cut. All
/// values are double. The memory is kept from token to token; a copy starts without it. Not thread-safe.
class CORBEL_API Candidates {
 public:
  Candidates() noexcept = default;
  Candidates(const Candidates&) noexcept : Candidates() {}
  Candidates& operator=(const Candidates&) noexcept { return *this; }  // scratch: nothing in it outlives one token

  /// All tokens of a row of logits [vocab]. kInvalidArgument for an empty row, kBadValue for a NaN (names its token)
  /// and where nothing is above -infinity.
  Status assign(std::span<const float> logits);

  std::size_t size() const noexcept { return size_; }
  TokenId id(std::size_t i) const noexcept { return all_ ? static_cast<TokenId>(i) : ids_[i]; }
  double logit(std::size_t i) const noexcept { return logits_[i]; }
  /// The place of a token, or size() where it was cut or is no token of this vocabulary.
  std::size_t find(TokenId id) const noexcept;
  /// Tokens in the row that was assigned.
  std::size_t vocab() const noexcept { return vocab_; }

  /// The largest logit (none is NaN); -infinity where there are no candidates.
  double max_logit() const noexcept;
  /// Unnormalised probabilities [size()]: exp(logit - max_logit()), 0 where that is below exp(-708). Tokens
  /// at +infinity share 1 and leave 0 to all
  /// others.
  std::span<const double> weights();

  /// The sum of weights().
  double total_weight();

  /// Changing logits; weights() is computed anew afterwards.
  void set_logit(std::size_t i, double logit) noexcept;
  void divide_logits(double divisor) noexcept;

  /// Keeps the `count` largest logits (all, where there are fewer).
  void keep_largest(std::size_t count);
  /// Keeps the fewest candidates, largest logit first, whose weights sum to at least `share` of all; at least one.
  void keep_likeliest(double share);
  /// The same with an order of one's own: largest key first, the lowest id among equal keys. Keys [size()].
  void keep_share(std::span<const std::uint64_t> keys, double share);
  /// Keeps each i for which keep(i) is true.
  template <class Keep>
  void keep_if(Keep keep) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      if (!keep(i)) continue;
      ids_[kept] = id(i);
      logits_[kept] = logits_[i];
      if (has_weights_) weights_[kept] = weights_[i];
      ++kept;
    }
    all_ = all_ && kept == size_;
    size_ = kept;
  }

  /// Scratch for a stage's keys [size()]; uninitialised, valid until the next assign().
  std::span<std::uint64_t> key_buffer();

 private:
  struct Cut {  // keeps keys above `key`, and the first `ties` that equal it
    std::uint64_t key = 0;
    std::size_t ties = 0;
  };
  template <class Key, class Mass>
  Cut select(std::size_t count, const Key& key, const Mass& mass, double target);
  template <class Key>
  void keep(const Key& key, Cut cut);
  void weigh(double largest) noexcept;

  static constexpr std::size_t kBlock =
      64;  // logits per maximum: 256,000 logits give 4,000 maxima, of which selecting costs little

  std::size_t vocab_ = 0;
  std::size_t size_ = 0;
  bool all_ = true;  // nothing was cut yet: ids_ is not filled and id i is i
  bool has_weights_ = false;
  std::vector<TokenId> ids_;  // these and active_ are as long as the largest vocabulary so far
  std::vector<double> logits_;
  std::vector<double> weights_;
  std::vector<std::uint64_t> keys_;  // empty until asked for
  std::vector<double> block_maxima_;
  std::vector<double> bins_;
  std::vector<std::uint32_t> active_;
};

/// A key for keep_share that orders doubles as numbers; -0 equals +0. No NaN.
CORBEL_API std::uint64_t ordered_key(double value) noexcept;

}  // namespace sampling
CORBEL_NAMESPACE_END
