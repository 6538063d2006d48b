// exp, tanh, sigmoid, sin and cos of our own against long double, in units of the last place of double; and the bits
// that every build must give.
#include <corbel/detail/exact_math.hpp>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>

namespace {

using namespace corbel::detail;

/// |actual - expected| in units of the last place of `expected`.
double units(double actual, long double expected) {
  const double near = std::fabs(static_cast<double>(expected));
  const double step = std::max(std::nextafter(near, std::numeric_limits<double>::infinity()) - near, 0x1p-1074);
  return static_cast<double>(std::fabs(static_cast<long double>(actual) - expected) / static_cast<long double>(step));
}

double uniform(std::mt19937& rng, double low, double high) {
  return low + (high - low) * (static_cast<double>(rng()) / 4294967296.0);
}

}  // namespace

TEST_CASE("exact exp, tanh and sigmoid are within 8 units of double") {
  std::mt19937 rng(1);
  double worst_exp = 0, worst_tanh = 0, worst_sigmoid = 0;
  for (int i = 0; i < 200000; ++i) {
    const double wide = uniform(rng, -700, 700), narrow = uniform(rng, -4, 4) * std::pow(10.0, uniform(rng, -9, 0));
    for (const double x : {wide, narrow}) {
      worst_exp = std::max(worst_exp, units(exact_exp(x), std::exp(static_cast<long double>(x))));
      worst_tanh = std::max(worst_tanh, units(exact_tanh(x), std::tanh(static_cast<long double>(x))));
      const long double e = std::exp(-std::fabs(static_cast<long double>(x)));
      worst_sigmoid = std::max(worst_sigmoid, units(exact_sigmoid(x), (x >= 0 ? 1.0L : e) / (1.0L + e)));
    }
  }
  CHECK(worst_exp < 4);
  CHECK(worst_tanh < 8);
  CHECK(worst_sigmoid < 4);
}

TEST_CASE("exact exp, tanh and sigmoid at the ends") {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(exact_exp(0) == 1);
  CHECK(exact_exp(infinity) == infinity);
  CHECK(exact_exp(709.9) == infinity);
  CHECK(exact_exp(-infinity) == 0);
  CHECK(exact_exp(-746) == 0);
  CHECK(exact_exp(-745) == 0x1p-1074);
  CHECK(std::isnan(exact_exp(nan)));
  CHECK(exact_tanh(0) == 0);
  CHECK(exact_tanh(infinity) == 1);
  CHECK(exact_tanh(-infinity) == -1);
  CHECK(std::isnan(exact_tanh(nan)));
  CHECK(exact_sigmoid(0) == 0.5);
  CHECK(exact_sigmoid(infinity) == 1);
  CHECK(exact_sigmoid(-infinity) == 0);
  CHECK(std::isnan(exact_sigmoid(nan)));
}

TEST_CASE("exact sin and cos are within 1e-15 for float32 angles up to 2^31") {
  std::mt19937 rng(2);
  double worst = 0;
  for (int i = 0; i < 400000; ++i) {
    const double angle = static_cast<double>(static_cast<float>(std::pow(2.0, uniform(rng, -20, 31))));
    const SinCos got = exact_sincos(i % 2 == 0 ? angle : -angle);
    const long double x = static_cast<long double>(i % 2 == 0 ? angle : -angle);
    worst = std::max(worst, static_cast<double>(std::fabs(static_cast<long double>(got.sin) - std::sin(x))));
    worst = std::max(worst, static_cast<double>(std::fabs(static_cast<long double>(got.cos) - std::cos(x))));
  }
  CHECK(worst < 1e-15);
  for (int p = 0; p < 20000; ++p) {  // all whole angles of a long context
    const SinCos got = exact_sincos(p);
    worst = std::max(worst, std::fabs(got.sin - static_cast<double>(std::sin(static_cast<long double>(p)))));
  }
  CHECK(worst < 1e-15);
}

TEST_CASE("exact functions give the same bits in every build") {
  std::mt19937 rng(3);
  std::uint64_t digest = 0xcbf29ce484222325u;
  const auto add = [&](double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, 8);
    digest = (digest ^ bits) * 0x100000001b3u;
  };
  for (int i = 0; i < 20000; ++i) {
    const double x = (static_cast<double>(rng()) - 2147483648.0) / 71582788.0;  // nothing here that could be fused
    const double angle = static_cast<double>(rng()) / 65536.0;
    add(exact_exp(x));
    add(exact_tanh(x));
    add(exact_sigmoid(x));
    const SinCos value = exact_sincos(angle);
    add(value.sin);
    add(value.cos);
  }
  CHECK(digest == 0xabdd3e6338b72046u);
}
