// Definitions of sampler.hpp and sampling/stages.hpp; those of Candidates are in impl/sampling/candidates.ipp.
#pragma once

#include <corbel/detail/compiler.hpp>
#include <corbel/impl/sampling/candidates.ipp>
#include <corbel/sampler.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fmt/format.h>
#include <limits>
#include <string_view>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace sampling {
namespace stage_detail {

inline constexpr std::uint32_t kMaxWindow = 1u << 20;

inline Status out_of_range(std::string_view field, float value, std::string_view range) {
  return Status(Errc::kInvalidArgument, fmt::format("{} must be {}, and is {}", field, range, value));
}

/// For shares and ratios; false for NaN.
inline Status check_unit(std::string_view field, float value) {
  return value >= 0.0f && value <= 1.0f ? Status() : out_of_range(field, value, "in [0, 1]");
}

inline Status check_finite(std::string_view field, float value) {
  return std::isfinite(value) ? Status() : out_of_range(field, value, "finite");
}

}  // namespace stage_detail

CORBEL_INLINE Status LogitBias::validate() const {
  std::vector<TokenId> ids;
  ids.reserve(biases.size());
  for (const TokenBias& entry : biases) {
    if (entry.id < 0) {
      return Status(Errc::kInvalidArgument, fmt::format("logit_bias: token {} does not exist", entry.id));
    }
    if (!std::isfinite(entry.bias)) {
      return Status(Errc::kInvalidArgument,
                    fmt::format("logit_bias of token {} must be finite, and is {}", entry.id, entry.bias));
    }
    ids.push_back(entry.id);
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice != ids.end()) {
    return Status(Errc::kInvalidArgument, fmt::format("logit_bias names token {} twice", *twice));
  }
  return {};
}

CORBEL_INLINE Status LogitBias::apply(const State&, Candidates& candidates) const {
  for (const TokenBias& entry : biases) {
    if (static_cast<std::size_t>(entry.id) >= candidates.vocab()) {
      return Status(Errc::kInvalidArgument,
                    fmt::format("logit_bias: token {} is outside the vocabulary of {}", entry.id, candidates.vocab()));
    }
    const std::size_t i = candidates.find(entry.id);
    if (i < candidates.size()) candidates.set_logit(i, candidates.logit(i) + double{entry.bias});
  }
  return {};
}

/// Entries of a table for `live` tokens, a quarter full at most.
inline std::size_t table_capacity(std::size_t live) noexcept {
  std::size_t capacity = 64;
  while (capacity < 4 * (live + 1)) capacity *= 2;
  return capacity;
}

CORBEL_INLINE void TokenCounts::clear(std::uint32_t window) {
  constexpr std::uint32_t kReserved = 1024;  // larger windows grow as they fill
  window_ = window;
  ring_.clear();
  next_ = 0;
  table_.clear();
  used_ = 0;
  if (window == 0) return;
  const std::size_t capacity = table_capacity(std::min(window, kReserved));
  ring_.reserve(std::min(window, kReserved));
  table_.resize(capacity);
  old_.reserve(capacity);
}

CORBEL_INLINE TokenCounts::Entry& TokenCounts::slot(TokenId id) noexcept {
  const std::size_t mask = table_.size() - 1;
  std::size_t i = (static_cast<std::uint32_t>(id) * 0x9E3779B1u >> 7) & mask;
  while (table_[i].id != kNoToken && table_[i].id != id) i = (i + 1) & mask;
  return table_[i];
}

CORBEL_INLINE void TokenCounts::grow() {
  const std::size_t live = static_cast<std::size_t>(
      std::count_if(table_.begin(), table_.end(), [](const Entry& entry) { return entry.count > 0; }));
  old_.assign(std::max(table_.size(), table_capacity(live)), {});
  old_.swap(table_);
  used_ = live;
  for (const Entry& entry : old_) {
    if (entry.count > 0) slot(entry.id) = entry;
  }
}

CORBEL_INLINE void TokenCounts::add(TokenId id) {
  if (id < 0) return;
  if (2 * (used_ + 1) > table_.size()) grow();
  if (window_ > 0) {
    if (ring_.size() < window_) {
      ring_.push_back(id);
    } else {
      --slot(ring_[next_]).count;  // the entry stays, with count 0, until the table is rebuilt
      ring_[next_] = id;
      next_ = (next_ + 1) % window_;
    }
  }
  Entry& entry = slot(id);
  if (entry.id == kNoToken) {
    entry.id = id;
    ++used_;
  }
  ++entry.count;
}

CORBEL_INLINE Status Penalties::validate() const {
  if (!std::isfinite(repetition) || repetition <= 0.0f) {
    return stage_detail::out_of_range("repetition_penalty", repetition, "finite and above 0");
  }
  CORBEL_RETURN_IF_ERROR(stage_detail::check_finite("frequency_penalty", frequency));
  CORBEL_RETURN_IF_ERROR(stage_detail::check_finite("presence_penalty", presence));
  if (window > stage_detail::kMaxWindow) {
    return Status(Errc::kInvalidArgument,
                  fmt::format("penalty_window must be at most {}, and is {}", stage_detail::kMaxWindow, window));
  }
  return {};
}

CORBEL_INLINE void Penalties::start(State& state, std::span<const TokenId> prompt) const {
  state.clear(enabled() ? window : 0);
  if (!enabled() || !count_prompt) return;
  if (window > 0 && prompt.size() > window) prompt = prompt.last(window);
  for (const TokenId id : prompt) state.add(id);
}

CORBEL_INLINE void Penalties::accept(State& state, TokenId id) const {
  if (enabled()) state.add(id);
}

CORBEL_INLINE Status Penalties::apply(const State& state, Candidates& candidates) const {
  for (const TokenCounts::Entry& entry : state.entries()) {
    if (entry.count == 0) continue;
    const std::size_t i = candidates.find(entry.id);
    if (i == candidates.size()) continue;
    double logit = candidates.logit(i);
    logit = logit > 0.0 ? logit / double{repetition} : logit * double{repetition};
    logit -= static_cast<double>(entry.count) * double{frequency};
    logit -= double{presence};
    candidates.set_logit(i, logit);
  }
  return {};
}

CORBEL_INLINE Status TopK::validate() const {
  if (k >= 0) return {};
  return Status(Errc::kInvalidArgument, fmt::format("top_k must be at least 0, and is {}", k));
}

CORBEL_INLINE Status TopK::apply(const State&, Candidates& candidates) const {
  if (k > 0) candidates.keep_largest(static_cast<std::size_t>(k));
  return {};
}

CORBEL_INLINE Status TopP::validate() const { return stage_detail::check_unit("top_p", p); }

CORBEL_INLINE Status TopP::apply(const State&, Candidates& candidates) const {
  if (p < 1.0f) candidates.keep_likeliest(double{p});
  return {};
}

CORBEL_INLINE Status MinP::validate() const { return stage_detail::check_unit("min_p", ratio); }

CORBEL_INLINE Status MinP::apply(const State&, Candidates& candidates) const {
  if (ratio <= 0.0f) return {};
  const std::span<const double> weights = candidates.weights();
  double largest = 0.0;
  for (const double weight : weights) largest = std::max(largest, weight);
  const double threshold = double{ratio} * largest;
  candidates.keep_if([&](std::size_t i) { return weights[i] >= threshold; });
  return {};
}

CORBEL_INLINE Status Typical::validate() const { return stage_detail::check_unit("typical_p", p); }

CORBEL_INLINE Status Typical::apply(const State&, Candidates& candidates) const {
  if (p >= 1.0f) return {};
  const std::span<const double> weights = candidates.weights();
  const double max_logit = candidates.max_logit();
  // With x = logit - max, w = exp(x) and Z = sum of w: the surprise is log Z - x and the entropy log Z - (sum of w x) /
  // Z. Their difference needs no logarithm.
  const auto relative = [&](std::size_t i) {
    const double logit = candidates.logit(i);
    return logit == max_logit ? 0.0 : logit - max_logit;  // also where both are infinite
  };
  const double total = candidates.total_weight();
  double weighted = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0.0) weighted += weights[i] * relative(i);
  }
  const double mean = weighted / total;
  const std::span<std::uint64_t> keys = candidates.key_buffer();
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = ~ordered_key(std::fabs(mean - relative(i)));
  candidates.keep_share(keys, double{p});
  return {};
}

CORBEL_INLINE Status Temperature::validate() const {
  if (std::isfinite(temperature) && temperature >= 0.0f) return {};
  return stage_detail::out_of_range("temperature", temperature, "finite and at least 0");
}

CORBEL_INLINE Status Temperature::apply(const State&, Candidates& candidates) const {
  if (temperature == 0.0f) {
    candidates.keep_largest(1);
  } else if (temperature != 1.0f) {
    candidates.divide_logits(double{temperature});
  }
  return {};
}

CORBEL_INLINE Status Greedy::apply(const State&, Candidates& candidates) const {
  candidates.keep_largest(1);
  return {};
}

namespace stage_detail {
inline Result<double> total_weight(Candidates& candidates) {
  const double total = candidates.total_weight();
  if (total > 0.0 && std::isfinite(total)) return total;
  return Status(Errc::kBadValue,
                fmt::format("the sampling stages left no usable probabilities ({} candidates)", candidates.size()));
}
}  // namespace stage_detail

CORBEL_INLINE Result<TokenId> draw(Candidates& candidates, double uniform) {
  CORBEL_ASSIGN_OR_RETURN(const double total, stage_detail::total_weight(candidates));
  const std::span<const double> weights = candidates.weights();
  const double target = uniform * total;
  double sum = 0.0;
  std::size_t last =
      0;  // rounding can leave the whole sum at or below the target: then the last token that has a weight is drawn
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0.0) continue;
    sum += weights[i];
    last = i;
    if (sum > target) break;
  }
  return candidates.id(last);
}

CORBEL_INLINE Result<std::vector<TokenProbability>> probabilities(Candidates& candidates) {
  CORBEL_ASSIGN_OR_RETURN(const double total, stage_detail::total_weight(candidates));
  const std::span<const double> weights = candidates.weights();
  std::vector<TokenProbability> result;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0.0) result.push_back({candidates.id(i), weights[i] / total});
  }
  return result;
}

}  // namespace sampling

CORBEL_INLINE Result<Sampler<>> Sampler<>::create(const SamplerOptions& options) {
  return detail::guard([&]() -> Result<Sampler<>> {
    // The cuts could only remove the likeliest token at temperature 0 (typical_p can): they are checked, and left out.
    const bool greedy = options.temperature == 0.0f;
    const sampling::TopK top_k{options.top_k};
    const sampling::Typical typical{options.typical_p};
    const sampling::TopP top_p{options.top_p};
    const sampling::MinP min_p{options.min_p};
    CORBEL_RETURN_IF_ERROR(top_k.validate());
    CORBEL_RETURN_IF_ERROR(typical.validate());
    CORBEL_RETURN_IF_ERROR(top_p.validate());
    CORBEL_RETURN_IF_ERROR(min_p.validate());
    auto chain = Chain::create(
        sampling::LogitBias{options.logit_bias},
        sampling::Penalties{options.repetition_penalty, options.frequency_penalty, options.presence_penalty,
                            options.penalty_window, options.penalize_prompt},
        greedy ? sampling::TopK{} : top_k, greedy ? sampling::Typical{} : typical, greedy ? sampling::TopP{} : top_p,
        greedy ? sampling::MinP{} : min_p, sampling::Temperature{options.temperature}, options.seed);
    if (!chain.ok()) return chain.status();
    return Sampler<>(*std::move(chain), options);
  });
}

CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
