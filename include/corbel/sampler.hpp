// Sampler: chooses the next token from a row of logits.
//
//   auto sampler = corbel::Sampler<>::create({.temperature = 0.7f, .top_p = 0.9f, .seed = 42}).value();
//   sampler.start(prompt);                                       // a new reply; generate() does all of this itself
//   corbel::TokenId token = sampler.sample(logits).value();      // logits: std::span<const float> [vocab]
//   sampler.accept(token);                                       // the next sample() is the next draw
//
// A sampler of your own order: corbel::Sampler<corbel::sampling::Temperature, corbel::sampling::TopK>::create({0.7f},
// {40}, seed).
#pragma once

#include <corbel/config.hpp>
#include <corbel/detail/fp_environment.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/error.hpp>
#include <corbel/sampling/candidates.hpp>
#include <corbel/sampling/random.hpp>
#include <corbel/sampling/stages.hpp>
#include <corbel/tokenizer.hpp>

#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// A token and its probability.
struct TokenProbability {
  TokenId id = kNoToken;
  double probability = 0.0;
};

namespace sampling {

/// The candidate on which `uniform` in [0, 1) falls when the weights are laid end to end in ascending id. kBadValue
/// where the weights have no finite positive sum (a stage left nothing, or made a NaN).
CORBEL_API Result<TokenId> draw(Candidates& candidates, double uniform);
/// All candidates that can be drawn, in ascending id; the probabilities sum to 1 within rounding.
CORBEL_API Result<std::vector<TokenProbability>> probabilities(Candidates& candidates);

}  // namespace sampling

/// A chain of stages, applied in the order of the template arguments, and a draw at its end. A value: a copy goes on
/// exactly as the original would. One thread at a time. With the same stages and seed, the reply to the same logits is
/// the same on every machine: all arithmetic is double in one order, and the number behind a draw depends on (seed,
/// choice, index of the token) alone. After the first calls sampling allocates nothing, but
/// where all tokens are counted without a window.
template <class... Stages>
class Sampler {
  static_assert((sampling::Stage<Stages> && ...),
                "a stage needs State, validate() and apply(): see corbel/sampling/stages.hpp");

 public:
  /// kInvalidArgument where a stage's parameters are out of range; names the parameter, its value and the range.
  static Result<Sampler> create(Stages... stages, std::uint64_t seed = 0) {
    return detail::guard([&]() -> Result<Sampler> {
      Status status;
      static_cast<void>(((status = stages.validate()).ok() && ...));
      if (!status.ok()) return status;
      Sampler sampler(std::move(stages)..., seed);
      CORBEL_RETURN_IF_ERROR(sampler.start());
      return sampler;
    });
  }

  /// Begins a reply: forgets the tokens accepted so far; the next draw is that of token 0. `prompt` is what the reply
  /// follows, for stages that look at it. `choice` tells several replies to one request apart.
  Status start(std::span<const TokenId> prompt = {}, std::uint32_t choice = 0) {
    return detail::guard([&]() -> Status {
      choice_ = choice;
      index_ = 0;
      return each([&](const auto& stage, auto& state) {
        state = {};
        if constexpr (requires { stage.start(state, prompt); }) stage.start(state, prompt);
        return Status();
      });
    });
  }

  /// The next token for logits [vocab]; changes nothing but scratch memory, so asking again gives the same token.
  /// kBadValue: a logit is NaN (names the token), or no token has any probability. kInvalidArgument: no logits, or a
  /// biased token that the vocabulary does not have.
  Result<TokenId> sample(std::span<const float> logits) {
    return detail::guard([&]() -> Result<TokenId> {
      const detail::ScopedFpEnvironment fp_environment;
      CORBEL_RETURN_IF_ERROR(apply(logits));
      return sampling::draw(candidates_, sampling::uniform(seed_, choice_, index_));
    });
  }

  /// Tells the stages which token was added to the reply, and moves on to the next draw.
  Status accept(TokenId token) {
    return detail::guard([&]() -> Status {
      ++index_;
      return each([&](const auto& stage, auto& state) {
        if constexpr (requires { stage.accept(state, token); }) stage.accept(state, token);
        return Status();
      });
    });
  }

  /// The distribution from which sample() would draw, in ascending id; tokens that cannot be drawn are left out. Errors
  /// as sample().
  Result<std::vector<TokenProbability>> distribution(std::span<const float> logits) {
    return detail::guard([&]() -> Result<std::vector<TokenProbability>> {
      const detail::ScopedFpEnvironment fp_environment;
      CORBEL_RETURN_IF_ERROR(apply(logits));
      return sampling::probabilities(candidates_);
    });
  }

  /// Tokens accepted since start().
  std::uint64_t index() const noexcept { return index_; }

 private:
  explicit Sampler(Stages... stages, std::uint64_t seed) : stages_(std::move(stages)...), seed_(seed) {}

  /// Calls function(stage, state) in order until one fails.
  template <class Function>
  Status each(Function function) {
    return std::apply(
        [&](const auto&... stages) {
          return std::apply(
              [&](auto&... states) {
                Status status;
                static_cast<void>(((status = function(stages, states)).ok() && ...));
                return status;
              },
              states_);
        },
        stages_);
  }
  Status apply(std::span<const float> logits) {
    CORBEL_RETURN_IF_ERROR(candidates_.assign(logits));
    return each([&](const auto& stage, auto& state) { return stage.apply(state, candidates_); });
  }

  std::tuple<Stages...> stages_;
  std::tuple<typename Stages::State...> states_;
  std::uint64_t seed_ = 0;
  std::uint32_t choice_ = 0;
  std::uint64_t index_ = 0;
  sampling::Candidates candidates_;
};

/// Parameters of the usual chain. Each default leaves its stage out; with all defaults tokens are drawn from the
/// model's own distribution.
///
/// Order of the stages: bias, penalties, top-k, typical, top-p, min-p, temperature. Temperature is last so that the
/// cuts see the model's own probabilities: a high temperature then never lets back in what they cut.
struct SamplerOptions {
  float temperature =
      1.0f;  ///< logits are divided by it; finite, at least 0. 0: the likeliest token after bias and penalties. 1: off
  std::int32_t top_k = 0;            ///< keep the k most likely tokens; at least 0. 0: off
  float top_p = 1.0f;                ///< keep the most likely tokens up to this mass; in [0, 1]. 1: off
  float min_p = 0.0f;                ///< keep tokens at least so likely relative to the likeliest; in [0, 1]. 0: off
  float typical_p = 1.0f;            ///< keep the most typical tokens up to this mass; in [0, 1]. 1: off
  float repetition_penalty = 1.0f;   ///< logits of seen tokens: divided where above 0, else multiplied; above 0. 1: off
  float frequency_penalty = 0.0f;    ///< subtracted from a token's logit once per occurrence; finite. 0: off
  float presence_penalty = 0.0f;     ///< subtracted from the logits of seen tokens; finite. 0: off
  std::uint32_t penalty_window = 0;  ///< penalties look at so many last tokens, at most 2^20. 0: at all
  bool penalize_prompt = false;      ///< penalties count the prompt too. false: the reply only
  std::vector<TokenBias> logit_bias = {};  ///< added to logits; finite, each id once. Empty: off
  std::uint64_t seed = 0;                  ///< of the draws: the same seed gives the same reply
};

/// The usual chain, with parameters chosen at run time. See Sampler<Stages...> for what every member does.
template <>
class CORBEL_API Sampler<> {
 public:
  /// kInvalidArgument: names the field, its value and the range.
  static Result<Sampler> create(const SamplerOptions& options = {});

  Status start(std::span<const TokenId> prompt = {}, std::uint32_t choice = 0) { return chain_.start(prompt, choice); }
  Result<TokenId> sample(std::span<const float> logits) { return chain_.sample(logits); }
  Status accept(TokenId token) { return chain_.accept(token); }
  Result<std::vector<TokenProbability>> distribution(std::span<const float> logits) {
    return chain_.distribution(logits);
  }
  std::uint64_t index() const noexcept { return chain_.index(); }
  const SamplerOptions& options() const noexcept { return options_; }

 private:
  using Chain = Sampler<sampling::LogitBias, sampling::Penalties, sampling::TopK, sampling::Typical, sampling::TopP,
                        sampling::MinP, sampling::Temperature>;
  Sampler(Chain chain, SamplerOptions options) : chain_(std::move(chain)), options_(std::move(options)) {}

  Chain chain_;
  SamplerOptions options_;
};

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/sampler.ipp>
#endif
