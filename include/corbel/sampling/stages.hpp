// The built-in stages of a Sampler. Each is a plain record of parameters and a copyable record of state.
//
// A type of your own is a stage where it has
//   struct State                                        copyable; what changes from token to token of one reply
//   Status validate() const                             called once, in create
//   Status apply(const State&, Candidates&) const       changes logits or cuts candidates; deterministic, keeps at
//   least one
// and, where it has state,
//   void start(State&, std::span<const TokenId> prompt) const     a new reply begins
//   void accept(State&, TokenId) const                            a token was added to it
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/sampling/candidates.hpp>
#include <corbel/tokenizer.hpp>

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// A number that is added to one token's logit.
struct TokenBias {
  TokenId id = kNoToken;
  float bias = 0.0f;
};

namespace sampling {

template <class S>
concept Stage = std::copyable<S> && std::copyable<typename S::State> &&
    requires(const S& stage, const typename S::State& state, Candidates& candidates) {
  { stage.validate() } -> std::same_as<Status>;
  { stage.apply(state, candidates) } -> std::same_as<Status>;
};

/// The state of a stage that has none.
struct NoState {};

/// Adds a bias to the logits of some tokens.
struct CORBEL_API LogitBias {
  std::vector<TokenBias> biases;  ///< finite, each id once; empty: disabled

  using State = NoState;
  Status validate() const;
  /// kInvalidArgument for an id outside the vocabulary.
  Status apply(const State& state, Candidates& candidates) const;
};

/// How often each token occurs among the last `window` tokens; adding one takes constant time.
class CORBEL_API TokenCounts {
 public:
  struct Entry {
    TokenId id = kNoToken;
    std::uint32_t count = 0;
  };
  /// Forgets all tokens. `window` 0 counts without limit.
  void clear(std::uint32_t window);
  void add(TokenId id);
  /// The hash table, in no useful order; entries of count 0 are free or forgotten.
  std::span<const Entry> entries() const noexcept { return table_; }

 private:
  Entry& slot(TokenId id) noexcept;
  void grow();

  std::uint32_t window_ = 0;
  std::vector<TokenId> ring_;  // the last `window_` tokens; next_ is the oldest once it is full
  std::size_t next_ = 0;
  std::vector<Entry> table_;  // open addressing; a power of two, at most half used
  std::vector<Entry> old_;    // scratch memory of grow()
  std::size_t used_ = 0;
};

/// Lowers the logits of tokens that already occurred. For a token that was counted c > 0 times, logit l becomes
///   (l > 0 ? l / repetition : l * repetition) - c * frequency - presence.
struct CORBEL_API Penalties {
  float repetition = 1.0f;    ///< finite, above 0; 1: disabled
  float frequency = 0.0f;     ///< finite; 0: disabled
  float presence = 0.0f;      ///< finite; 0: disabled
  std::uint32_t window = 0;   ///< count the last `window` tokens, at most 2^20; 0: all of them
  bool count_prompt = false;  ///< count the prompt's tokens too, not only the reply's

  using State = TokenCounts;
  Status validate() const;
  void start(State& state, std::span<const TokenId> prompt) const;
  void accept(State& state, TokenId id) const;
  Status apply(const State& state, Candidates& candidates) const;

 private:
  bool enabled() const noexcept { return repetition != 1.0f || frequency != 0.0f || presence != 0.0f; }
};

/// Keeps the k most likely tokens.
struct CORBEL_API TopK {
  std::int32_t k = 0;  ///< at least 0; 0: disabled; more than there are: all

  using State = NoState;
  Status validate() const;
  Status apply(const State& state, Candidates& candidates) const;
};

/// Keeps the fewest most likely tokens whose probabilities sum to at least p (nucleus sampling).
struct CORBEL_API TopP {
  float p = 1.0f;  ///< in [0, 1]; 1: disabled; 0: one token

  using State = NoState;
  Status validate() const;
  Status apply(const State& state, Candidates& candidates) const;
};

/// Keeps the tokens that are at least `ratio` times as likely as the most likely one.
struct CORBEL_API MinP {
  float ratio = 0.0f;  ///< in [0, 1]; 0: disabled

  using State = NoState;
  Status validate() const;
  Status apply(const State& state, Candidates& candidates) const;
};

/// Locally typical sampling (Meister et al. 2022): keeps the fewest tokens whose probabilities sum to at least p, those
/// first whose surprise -log(probability) is nearest to the distribution's entropy.
struct CORBEL_API Typical {
  float p = 1.0f;  ///< in [0, 1]; 1: disabled; 0: one token

  using State = NoState;
  Status validate() const;
  Status apply(const State& state, Candidates& candidates) const;
};

/// Divides the logits. 0 keeps the most likely token alone.
struct CORBEL_API Temperature {
  float temperature = 1.0f;  ///< finite, at least 0; 1: disabled

  using State = NoState;
  Status validate() const;
  Status apply(const State& state, Candidates& candidates) const;
};

/// Keeps the most likely token alone, the one with the lowest id where several are.
struct CORBEL_API Greedy {
  using State = NoState;
  Status validate() const { return {}; }
  Status apply(const State& state, Candidates& candidates) const;
};

}  // namespace sampling
CORBEL_NAMESPACE_END
