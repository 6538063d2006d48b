// Rows that every level computes alike, in scalar code: rope tables, position factors, routing. Private to the backend.
#pragma once

#include <corbel/config.hpp>
#include <corbel/detail/compiler.hpp>
#include <corbel/detail/exact_math.hpp>
#include <corbel/hal/program.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace cpu {

/// out[i] = scale * cos(p f[i]), out[count + i] = scale * sin(p f[i]). The angle is a float32 product: models are
/// trained with that rounding.
inline void rope_table_row(std::int32_t position, const float* frequencies, std::size_t count, float scale,
                           float* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    const detail::SinCos value = detail::exact_sincos(double{angle});
    out[i] = static_cast<float>(double{scale} * value.cos);
    out[count + i] = static_cast<float>(double{scale} * value.sin);
  }
}

/// The factor of kPositionScale.
inline float position_factor(float scale, float period, std::int32_t position) noexcept {
  const double steps = std::floor(static_cast<double>(position) / double{period});
  return static_cast<float>(1.0 + double{scale} * detail::exact_log(1.0 + steps));
}

/// kJoin of one row: groups of a_cols and of b_cols columns in turn. `out` lies apart from both.
inline void join_row(std::size_t groups, const float* a, std::size_t a_cols, const float* b, std::size_t b_cols,
                     float* out) noexcept {
  for (std::size_t g = 0; g < groups; ++g) {
    out = std::copy_n(a + g * a_cols, a_cols, out);
    out = std::copy_n(b + g * b_cols, b_cols, out);
  }
}

/// out[c] = in[columns[c]], NaN for a number that is no column. `out` lies apart from `in`.
inline void permute_row(const float* columns, const float* in, std::size_t in_cols, float* out,
                        std::size_t out_cols) noexcept {
  const auto limit = static_cast<float>(in_cols);
  for (std::size_t c = 0; c < out_cols; ++c) {
    const float column = columns[c];
    out[c] =
        column >= 0 && column < limit ? in[static_cast<std::size_t>(column)] : std::numeric_limits<float>::quiet_NaN();
  }
}

/// Memory for route_row.
struct RouteScratch {
  double* scores;   ///< [experts]
  double* choices;  ///< [experts]
  double* groups;   ///< [groups]

  RouteScratch(const hal::RouteSpec& route, std::byte* memory) noexcept
      : scores(reinterpret_cast<double*>(memory)), choices(scores + route.experts), groups(choices + route.experts) {}
  static std::uint64_t bytes(const hal::RouteSpec& route) noexcept {
    return (2 * std::uint64_t{route.experts} + route.groups) * sizeof(double);
  }
};

/// The scores of one row, in double: which experts are chosen depends on no instruction level.
inline void score_experts(const hal::RouteSpec& route, const float* in, double* scores) noexcept {
  if (route.score == hal::ScoreKind::kSigmoid) {
    for (std::size_t e = 0; e < route.experts; ++e) scores[e] = detail::exact_sigmoid(double{in[e]});
    return;
  }
  const double highest = double{*std::max_element(in, in + route.experts)};
  double sum = 0;
  for (std::size_t e = 0; e < route.experts; ++e) sum += scores[e] = detail::exact_exp(double{in[e]} - highest);
  for (std::size_t e = 0; e < route.experts; ++e) scores[e] /= sum;
}

/// Below every choice: an expert that has been chosen or cannot be.
inline constexpr double kNotEligible = -1e300;

/// The index of the first of the greatest values.
inline std::size_t first_greatest(const double* values, std::size_t count) noexcept {
  return static_cast<std::size_t>(std::max_element(values, values + count) - values);
}

/// The sum of the `top` greatest values, from the greatest on. Reorders them.
inline double sum_of_greatest(double* values, std::size_t count, std::size_t top) noexcept {
  top = std::min(top, count);
  double sum = 0;
  for (std::size_t n = 0; n < top; ++n) {
    std::swap(values[n], values[n + first_greatest(values + n, count - n)]);
    sum += values[n];
  }
  return sum;
}

/// kRoute of one row; `bias` may be null. Where scores are NaN the experts are some, and the weights NaN.
inline void route_row(const hal::RouteSpec& route, const float* in, const float* bias, float* out,
                      const RouteScratch& scratch) noexcept {
  const std::size_t experts = route.experts, top_k = route.top_k;
  double* const choices = scratch.choices;
  score_experts(route, in, scratch.scores);
  const auto choice = [&](std::size_t e) {
    return bias == nullptr ? scratch.scores[e] : scratch.scores[e] + double{bias[e]};
  };
  for (std::size_t e = 0; e < experts; ++e) choices[e] = choice(e);
  if (route.groups > 1) {
    const std::size_t size = experts / route.groups;
    for (std::size_t g = 0; g < route.groups; ++g)
      scratch.groups[g] = sum_of_greatest(choices + g * size, size, route.group_top);
    std::fill_n(choices, experts, kNotEligible);
    for (std::size_t n = 0; n < route.top_groups; ++n) {
      const std::size_t best = first_greatest(scratch.groups, route.groups);
      scratch.groups[best] = kNotEligible;
      for (std::size_t e = best * size; e < (best + 1) * size; ++e) choices[e] = choice(e);
    }
  }
  double sum = 1e-20;
  for (std::size_t j = 0; j < top_k; ++j) {
    const std::size_t best = first_greatest(choices, experts);
    choices[best] = kNotEligible;
    out[j] = static_cast<float>(best);
    sum += scratch.scores[best];
  }
  for (std::size_t j = 0; j < top_k; ++j) {
    const double score = scratch.scores[static_cast<std::size_t>(out[j])];
    out[top_k + j] = static_cast<float>((route.normalize ? score / sum : score) * double{route.scale});
  }
}

}  // namespace cpu
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
