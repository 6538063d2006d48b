// What the encoders share: a block made fit for arithmetic, and searches for the scale (and minimum) with the smallest
// sum of squared errors. All sums run in eight fixed lanes, so that they can be vectorized and yet have one order.
#pragma once

#include <corbel/detail/compiler.hpp>
#include <corbel/dtype.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace detail {

// Nearest integer, ties to even, of a value far below 2^22.
inline float round_even(float value) noexcept { return (value + 12582912.0f) - 12582912.0f; }

struct LaneSum {
  float lanes[8] = {};
  float total() const noexcept {
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  }
};

// An f16 value in the units of a block.
struct Half {
  std::uint16_t bits = 0;
  float value = 0;
};

// The values of a block over the power of two at their largest magnitude: squares neither overflow nor vanish.
// NaN is 0, an infinity the largest finite value.
struct EncoderBlock {
  float x[256];
  float unit = 1;

  EncoderBlock(const float* in, std::size_t count) noexcept {
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(in[i]);
      const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
      const std::uint32_t finite = magnitude > 0x7F800000u ? 0u : std::min(magnitude, 0x7F7FFFFFu);
      largest = std::max(largest, finite);
      x[i] = std::bit_cast<float>(finite | (bits & 0x80000000u));
    }
    // Below 2^-60 no f16 scale but 0 is of use; the block becomes zeros.
    const std::uint32_t exponent = largest >> 23;
    const bool tiny = exponent < 127 - 60;
    const float down = tiny ? 0.0f : power_of_two(127 - static_cast<std::int32_t>(exponent));
    if (!tiny) unit = std::bit_cast<float>(exponent << 23);
    for (std::size_t i = 0; i < count; ++i) x[i] *= down;
  }

  // The f16 nearest to a scale or minimum, at most 65504.
  Half half(float in_units) const noexcept {
    const float stored = std::clamp(in_units * unit, -65504.0f, 65504.0f);
    Half result;
    result.bits = f32_to_f16(stored);
    result.value = f16_to_f32(result.bits) / unit;
    return result;
  }

 private:
  static float power_of_two(std::int32_t exponent) noexcept {  // from -127 on
    return exponent > -127 ? std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23)
                           : std::bit_cast<float>(0x00400000u);
  }
};

// 1 / scale, or 0 where that makes no sense.
inline float inverse(float scale) noexcept { return scale > 1e-30f || scale < -1e-30f ? 1.0f / scale : 0.0f; }

// The codes nearest to x / scale within [lo, hi], and their squared error.
template <std::size_t kCount>
float symmetric_codes(const float* x, float scale, float lo, float hi, float* codes) noexcept {
  const float inv = inverse(scale);
  LaneSum error;
  for (std::size_t i = 0; i < kCount; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) {
      const float value = x[i + lane];
      const float q = round_even(std::min(std::max(value * inv, lo), hi));
      const float rest = value - scale * q;
      codes[i + lane] = q;
      error.lanes[lane] += rest * rest;
    }
  }
  return error.total();
}

// Of all scales tried, the one whose codes, with the scale that suits them best, leave the smallest error. Tried are
// those that put the value of largest magnitude at one end of the codes or `kSteps` tenths of a code around it.
template <std::size_t kCount, int kSteps>
float symmetric_scale(const float* x, float lo, float hi) noexcept {
  float top = 0;
  for (std::size_t i = 0; i < kCount; ++i) top = std::max(top, x[i] < 0 ? -x[i] : x[i]);
  if (top == 0) return 0;
  float best_gain = 0, best_scale = 0;
  for (int step = -kSteps; step <= kSteps; ++step) {
    for (const float end : {lo, hi}) {
      const float moved = end < 0 ? end - 0.1f * static_cast<float>(step) : end + 0.1f * static_cast<float>(step);
      for (const float sign : {1.0f, -1.0f}) {
        if (-lo == hi && sign < 0) break;
        const float inv = sign * moved / top;
        LaneSum products, squares;
        for (std::size_t i = 0; i < kCount; i += 8) {
          for (std::size_t lane = 0; lane < 8; ++lane) {
            const float value = x[i + lane];
            const float q = round_even(std::min(std::max(value * inv, lo), hi));
            products.lanes[lane] += value * q;
            squares.lanes[lane] += q * q;
          }
        }
        const float product = products.total(), square = squares.total();
        if (square > 0 && product * product > best_gain * square) {
          best_gain = product * product / square;
          best_scale = product / square;
        }
      }
    }
  }
  return best_scale;
}

struct Affine {
  float scale = 0;
  float minimum = 0;  // value = scale * code + minimum
};

// The codes nearest to (x - minimum) / scale within [0, hi], and their squared error.
template <std::size_t kCount>
float affine_codes(const float* x, Affine fit, float hi, float* codes) noexcept {
  const float inv = inverse(fit.scale);
  LaneSum error;
  for (std::size_t i = 0; i < kCount; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) {
      const float value = x[i + lane];
      const float q = round_even(std::min(std::max((value - fit.minimum) * inv, 0.0f), hi));
      const float rest = value - (fit.scale * q + fit.minimum);
      codes[i + lane] = q;
      error.lanes[lane] += rest * rest;
    }
  }
  return error.total();
}

// The best scale and minimum for given codes; `at_most_zero`: the minimum is not above 0.
template <std::size_t kCount>
Affine affine_fit(const float* x, const float* codes, bool at_most_zero) noexcept {
  LaneSum of_x, of_q, of_qq, of_xq;
  for (std::size_t i = 0; i < kCount; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) {
      const float value = x[i + lane], q = codes[i + lane];
      of_x.lanes[lane] += value;
      of_q.lanes[lane] += q;
      of_qq.lanes[lane] += q * q;
      of_xq.lanes[lane] += value * q;
    }
  }
  constexpr float kN = static_cast<float>(kCount);
  const float sum_x = of_x.total(), sum_q = of_q.total(), sum_qq = of_qq.total(), sum_xq = of_xq.total();
  const float determinant = kN * sum_qq - sum_q * sum_q;
  Affine fit;
  if (determinant > 0) {
    fit.scale = (kN * sum_xq - sum_x * sum_q) / determinant;
    fit.minimum = (sum_qq * sum_x - sum_q * sum_xq) / determinant;
  } else {
    fit.minimum = sum_x / kN;
  }
  if (at_most_zero && fit.minimum > 0) {
    fit.minimum = 0;
    fit.scale = sum_qq > 0 ? sum_xq / sum_qq : 0.0f;
  }
  return fit;
}

// As symmetric_scale(), for a scale and a minimum.
template <std::size_t kCount, int kSteps>
Affine affine_search(const float* x, float hi, bool at_most_zero) noexcept {
  float low = x[0], high = x[0];
  for (std::size_t i = 1; i < kCount; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  if (at_most_zero) low = std::min(low, 0.0f);
  Affine best;
  best.minimum = low;
  if (high <= low) return best;
  float codes[kCount];
  best.scale = (high - low) / hi;
  float best_error = affine_codes<kCount>(x, best, hi, codes);
  for (int step = -kSteps; step <= kSteps; ++step) {
    const Affine start = {(high - low) / (hi + 0.2f * static_cast<float>(step)), low};
    affine_codes<kCount>(x, start, hi, codes);
    // The fit moves the codes, and those the fit.
    for (int round = 0; round < 2; ++round) {
      const Affine fit = affine_fit<kCount>(x, codes, at_most_zero);
      const float error = affine_codes<kCount>(x, fit, hi, codes);
      if (error < best_error) {
        best_error = error;
        best = fit;
      }
    }
  }
  return best;
}

}  // namespace detail
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
