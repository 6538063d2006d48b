// exp, log, tanh, erf, sigmoid, sin and cos in double, made of IEEE additions, multiplications and divisions alone: the
// same bits from every compiler, flag set and C library. Errors are a few units of the last place of double, far below
// half of one of float32.
#pragma once

#include <corbel/config.hpp>
#include <corbel/detail/compiler.hpp>

#include <bit>
#include <cstdint>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace detail {

/// The nearest integer, halves to even, for |x| < 2^51.
inline double exact_round(double x) noexcept {
  constexpr double kShift = 0x1.8p52;  // above it doubles are whole numbers
  return (x + kShift) - kShift;
}

/// 2^n for -1022 <= n <= 1023.
inline double exact_power_of_two(std::int64_t n) noexcept {
  return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

/// (exp(r) - 1) / r for |r| <= 0.35, a Taylor polynomial whose first missing term is below 1e-17.
inline double exact_expm1_over_r(double r) noexcept {
  double sum = 1.0 / 87178291200.0;  // 1/14!
  sum = sum * r + 1.0 / 6227020800.0;
  sum = sum * r + 1.0 / 479001600.0;
  sum = sum * r + 1.0 / 39916800.0;
  sum = sum * r + 1.0 / 3628800.0;
  sum = sum * r + 1.0 / 362880.0;
  sum = sum * r + 1.0 / 40320.0;
  sum = sum * r + 1.0 / 5040.0;
  sum = sum * r + 1.0 / 720.0;
  sum = sum * r + 1.0 / 120.0;
  sum = sum * r + 1.0 / 24.0;
  sum = sum * r + 1.0 / 6.0;
  sum = sum * r + 0.5;
  return sum * r + 1.0;
}

/// e^x. Overflows to infinity above 709.78, underflows gradually to 0 below -745.1; NaN stays NaN.
inline double exact_exp(double x) noexcept {
  if (!(x == x)) return x;
  if (x > 710.0) return std::bit_cast<double>(std::uint64_t{0x7ff0000000000000});
  if (x < -746.0) return 0.0;
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2High = 0x1.62e42fee00000p-1;  // 32 bits: n * kLn2High is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const double n = exact_round(x * kLog2E);
  const double r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= ln(2) / 2
  const double e = exact_expm1_over_r(r) * r + 1.0;
  const std::int64_t half = static_cast<std::int64_t>(n) / 2;  // two steps: 2^n itself may be out of range
  return e * exact_power_of_two(half) * exact_power_of_two(static_cast<std::int64_t>(n) - half);
}

/// tanh(x); relative error stays small near 0.
inline double exact_tanh(double x) noexcept {
  const double a = x < 0 ? -x : x;
  if (a < 0.17) {
    const double t = exact_expm1_over_r(2.0 * x) * (2.0 * x);  // exp(2x) - 1
    return t / (t + 2.0);
  }
  if (a > 20.0) return x < 0 ? -1.0 : 1.0;
  const double t = 1.0 - 2.0 / (exact_exp(2.0 * a) + 1.0);  // NaN passes through here
  return x < 0 ? -t : t;
}

/// The natural logarithm of a positive finite number: with x = m * 2^e and m around 1, 2 artanh((m-1)/(m+1)) + e ln 2.
inline double exact_log(double x) noexcept {
  constexpr double kLn2High = 0x1.62e42fee00000p-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  std::int64_t exponent = 0;
  if (x < 0x1p-1022) {  // a subnormal
    x *= 0x1p54;
    exponent = -54;
  }
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  exponent += static_cast<std::int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double t = (m - 1.0) / (m + 1.0);  // |t| <= 0.1716
  const double z = t * t;
  double sum = 1.0 / 21.0;
  for (int odd = 19; odd >= 3; odd -= 2) sum = sum * z + 1.0 / static_cast<double>(odd);
  const double e = static_cast<double>(exponent);
  return e * kLn2High + (2.0 * t + (2.0 * t * z * sum + e * kLn2Low));
}

/// erf(x): its Taylor series below 2.5, above that 1 minus the continued fraction of erfc.
inline double exact_erf(double x) noexcept {
  constexpr double kTwoOverSqrtPi = 1.12837916709551257390;
  constexpr double kOneOverSqrtPi = 0.56418958354775628695;
  if (!(x == x)) return x;
  const double a = x < 0 ? -x : x;
  double result = 1.0;
  if (a < 2.5) {
    // erf(a) = 2/sqrt(pi) e^(-a^2) sum of 2^n a^(2n+1) / (1 3 5 ... (2n+1)): all terms positive, nothing cancels
    double term = a, sum = a;
    for (int n = 1; n < 48; ++n) {
      term = term * (2.0 * a * a) / static_cast<double>(2 * n + 1);
      sum += term;
    }
    result = kTwoOverSqrtPi * exact_exp(-a * a) * sum;
  } else if (a < 6.0) {
    double fraction = a;
    for (int n = 60; n >= 1; --n) fraction = a + 0.5 * static_cast<double>(n) / fraction;
    result = 1.0 - kOneOverSqrtPi * exact_exp(-a * a) / fraction;
  }
  return x < 0 ? -result : result;
}

/// 1 / (1 + e^-x), without overflow on either side.
inline double exact_sigmoid(double x) noexcept {
  if (x >= 0) return 1.0 / (1.0 + exact_exp(-x));
  const double e = exact_exp(x);
  return e / (1.0 + e);
}

struct SinCos {
  double sin;
  double cos;
};

/// sin(x) and cos(x) for |x| < 2^31. pi/2 is subtracted in three pieces of 22 bits, whose products with the quotient
/// are exact, and a rest.
inline SinCos exact_sincos(double x) noexcept {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kPiece0 = 0x1.921fb00000000p+0;
  constexpr double kPiece1 = 0x1.5110b00000000p-22;
  constexpr double kPiece2 = 0x1.1846980000000p-44;
  constexpr double kRest = 0x1.3198a2e037073p-69;
  const double n = exact_round(x * kTwoOverPi);
  const double r = (((x - n * kPiece0) - n * kPiece1) - n * kPiece2) - n * kRest;  // |r| <= pi/4
  const double z = r * r;

  double s = 1.0 / 355687428096000.0;  // 1/17!
  s = s * z - 1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  s = s * z * r + r;

  double c = 1.0 / 20922789888000.0;  // 1/16!
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 0.5;
  c = c * z + 1.0;

  switch (static_cast<std::int64_t>(n) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

}  // namespace detail
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
