// The arithmetic of routing, experts and rounded activations. Private to the reference backend; see ops.hpp.
#pragma once

#include <corbel/backends/ref/ops.hpp>
#include <corbel/config.hpp>
#include <corbel/detail/compiler.hpp>
#include <corbel/detail/exact_math.hpp>
#include <corbel/hal/program.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace ref {

/// sum over k of weight[k] * x[k]
inline double dot(const float* weight, const float* x, std::size_t count) noexcept {
  double sum = 0;
  for (std::size_t k = 0; k < count; ++k) sum += double{weight[k]} * double{x[k]};
  return sum;
}

// ---- routing -----------------------------------------------------

/// Scratch of one task: score and choice of each expert, value of each group.
struct RouteScratch {
  double* scores = nullptr;
  double* choices = nullptr;
  double* groups = nullptr;

  RouteScratch(const hal::RouteSpec& route, std::byte* memory) noexcept
      : scores(reinterpret_cast<double*>(memory)), choices(scores + route.experts), groups(choices + route.experts) {}
  static std::uint64_t bytes(const hal::RouteSpec& route) noexcept {
    return (2 * std::uint64_t{route.experts} + route.groups) * sizeof(double);
  }
};

/// Below every choice: what has been taken or is not allowed.
inline constexpr double kTaken = -1e300;

/// The index of the greatest of `count` values, the first of equal ones.
inline std::size_t find_greatest(const double* values, std::size_t count) noexcept {
  std::size_t best = 0;
  for (std::size_t i = 1; i < count; ++i) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

/// The sum of the `top` greatest of `count` values.
inline double sum_greatest(const double* values, std::size_t count, std::size_t top) noexcept {
  double sum = 0, last = 0;
  std::size_t last_index = count;  // the value added last, ordered by (value falling, index rising)
  for (std::size_t n = 0; n < std::min(top, count); ++n) {
    std::size_t best = count;
    for (std::size_t i = 0; i < count; ++i) {
      const bool after = last_index == count || values[i] < last || (values[i] == last && i > last_index);
      if (after && (best == count || values[i] > values[best])) best = i;
    }
    if (best == count) break;  // NaN
    sum += values[best];
    last = values[best];
    last_index = best;
  }
  return sum;
}

inline void score_experts(const hal::RouteSpec& route, const float* in, double* scores) noexcept {
  if (route.score == hal::ScoreKind::kSigmoid) {
    for (std::size_t e = 0; e < route.experts; ++e) scores[e] = detail::exact_sigmoid(double{in[e]});
    return;
  }
  double highest = double{in[0]}, total = 0;
  for (std::size_t e = 1; e < route.experts; ++e) highest = std::max(highest, double{in[e]});
  for (std::size_t e = 0; e < route.experts; ++e) {
    scores[e] = detail::exact_exp(double{in[e]} - highest);
    total += scores[e];
  }
  for (std::size_t e = 0; e < route.experts; ++e) scores[e] /= total;
}

/// kRoute of one row; see hal::RouteSpec. `bias` may be null.
inline void route_row(const hal::RouteSpec& route, const float* in, const float* bias, float* out,
                      const RouteScratch& scratch) noexcept {
  score_experts(route, in, scratch.scores);
  for (std::size_t e = 0; e < route.experts; ++e) {
    scratch.choices[e] = bias == nullptr ? scratch.scores[e] : scratch.scores[e] + double{bias[e]};
  }
  if (route.groups > 1) {
    const std::size_t size = route.experts / route.groups;
    for (std::size_t g = 0; g < route.groups; ++g) {
      scratch.groups[g] = sum_greatest(scratch.choices + g * size, size, route.group_top);
    }
    for (std::size_t n = 0; n < route.top_groups; ++n) {
      scratch.groups[find_greatest(scratch.groups, route.groups)] = kTaken;
    }
    for (std::size_t g = 0; g < route.groups; ++g) {
      if (scratch.groups[g] != kTaken) std::fill_n(scratch.choices + g * size, size, kTaken);
    }
  }
  double sum = 1e-20;
  for (std::size_t j = 0; j < route.top_k; ++j) {
    const std::size_t best = find_greatest(scratch.choices, route.experts);
    scratch.choices[best] = kTaken;
    out[j] = static_cast<float>(best);
    sum += scratch.scores[best];
  }
  for (std::size_t j = 0; j < route.top_k; ++j) {
    const double score = scratch.scores[static_cast<std::size_t>(out[j])];
    out[route.top_k + j] = static_cast<float>((route.normalize ? score / sum : score) * double{route.scale});
  }
}

inline bool is_chosen(const Matrix& routed, std::size_t top_k, std::size_t expert) noexcept {
  for (std::size_t r = 0; r < routed.rows; ++r) {
    for (std::size_t j = 0; j < top_k; ++j) {
      if (static_cast<std::size_t>(routed.row(r)[j]) == expert) return true;
    }
  }
  return false;
}

/// out[c] = sum over slots j of weights[j] * in[j * count + c]
inline void expert_sum_row(std::size_t slots, const float* in, const float* weights, float* out,
                           std::size_t count) noexcept {
  for (std::size_t c = 0; c < count; ++c) {
    double sum = 0;
    for (std::size_t j = 0; j < slots; ++j) sum += double{weights[j]} * double{in[j * count + c]};
    out[c] = static_cast<float>(sum);  // out may be slot 0 of in: column c is read for the last time here
  }
}

// ---- rounded activations -----------------------------------------

/// The nearest integer, halves to even, for |x| < 2^22.
inline float round_to_even(float x) noexcept {
  constexpr float kShift = 0x1.8p23f;
  return (x + kShift) - kShift;
}

/// The nearest E4M3 value, halves to even, for |x| <= 448.
inline float round_to_e4m3(float x) noexcept {
  const float a = std::abs(x);
  // The spacing of E4M3 values around a is 2^(exponent - 3), at least 2^-9.
  int exponent = 0;
  std::frexp(a, &exponent);  // a = m * 2^exponent, m in [0.5, 1)
  const float step = std::ldexp(1.0f, std::max(exponent - 4, -9));
  return std::copysign(round_to_even(a / step) * step, x);
}

/// kRoundActivations of one group; see hal::RoundSpec.
inline void round_group(const hal::RoundSpec& spec, const float* scale, const float* zero_point, const float* in,
                        float* out, std::size_t count) noexcept {
  const bool integer = spec.kind == hal::RoundKind::kInt8;
  float s = 0;
  float zero = zero_point == nullptr ? 0.0f : *zero_point;
  if (scale != nullptr) {
    s = *scale;
  } else if (spec.asymmetric) {
    float low = 0, high = 0;
    for (std::size_t i = 0; i < count; ++i) {
      low = std::min(low, in[i]);
      high = std::max(high, in[i]);
    }
    s = (high - low) / 255.0f;
    if (s != 0) zero = std::min(std::max(round_to_even(-128.0f - low / s), -128.0f), 127.0f);
  } else {
    for (std::size_t i = 0; i < count; ++i) s = std::max(s, std::abs(in[i]));
    if (spec.bound != 0) s = std::min(s, spec.bound);
    s /= integer ? 127.0f : 448.0f;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (s == 0) {
      out[i] = 0;
    } else if (integer) {
      const float scaled =
          std::min(std::max(in[i] / s, -1000.0f), 1000.0f);  // beyond what is kept: round_to_even's range
      out[i] = (std::min(std::max(round_to_even(scaled) + zero, -128.0f), 127.0f) - zero) * s;
    } else {
      out[i] = round_to_e4m3(std::min(std::max(in[i] / s, -448.0f), 448.0f)) * s;
    }
  }
}

}  // namespace ref
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
