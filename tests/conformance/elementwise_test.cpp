// activation, add, scale and softcap on every backend.
#include <support/backend_matrix.hpp>

namespace corbel_test {
namespace {

/// Values around zero, on both sides of every branch, and at the ends of the range.
std::vector<float> edge_values() {
  std::vector<float> values = {0.0f,   -0.0f,  1e-30f,  -1e-30f, 1e-8f, -1e-8f, 88.0f,
                               -88.0f, 104.0f, -104.0f, 1e4f,    -1e4f, 1e30f,  -1e30f};
  for (int i = -400; i <= 400; ++i) values.push_back(static_cast<float>(i) / 37.0f);
  return values;
}

struct Elementwise {
  OpProgram p;
  hal::ValueId a, b, y;

  Elementwise(hal::OpKind kind, std::uint32_t width, bool two) {
    const hal::ValueId both = p.value("both", 2 * width);  // gate and up after a merged linear
    a = p.view(both, 0, width);
    b = two ? p.view(both, width, width) : hal::kNone;
    y = p.value("y", width);
    p.add(kind, {a, b}, y);
  }
  hal::Op& op() { return p.program.ops[0]; }
};

/// Checks y = f(a, b) for edge values up to `largest` in rows of odd width, and that a row alone gives the same bits. f
/// answers (value, magnitude).
template <class F>
void check_elementwise(Elementwise& e, const F& f, float largest = 1e30f) {
  Rng rng(51);
  const std::size_t width = e.p.program.values[static_cast<std::size_t>(e.y)].width, count = 27;
  const std::vector<float> edges = edge_values();
  Matrix a(count, width), b = random_matrix(count, width, rng);
  for (std::size_t i = 0; i < a.data.size(); ++i) a.data[i] = std::clamp(edges[i % edges.size()], -largest, largest);
  std::vector<std::pair<hal::ValueId, Matrix>> inputs = {{e.a, a}}, alone = {{e.a, a.slice(7, 1)}};
  if (e.b != hal::kNone) {
    inputs.emplace_back(e.b, b);
    alone.emplace_back(e.b, b.slice(7, 1));
  }
  std::vector<double> expected, magnitudes;
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    const auto [value, magnitude] = f(static_cast<double>(a.data[i]), static_cast<double>(b.data[i]));
    expected.push_back(value);
    magnitudes.push_back(magnitude);
  }
  for_each_backend([&]<class B>(const Target& target) {
    OpRunner<B> runner(target.context(), e.p.program);
    const Matrix out = runner.run(BatchRows::range(count), inputs, {e.y})[0];
    check_near(out, expected, [&](std::size_t r, std::size_t c) {
      const std::size_t i = r * width + c;
      return target.bound(expected[i], magnitudes[i], 8);
    });
    CHECK(runner.run(BatchRows::range(1), alone, {e.y})[0].same_bits(out.slice(7, 1)));
  });
}

double silu(double x) { return x >= 0 ? x / (1 + std::exp(-x)) : x * std::exp(x) / (1 + std::exp(x)); }
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028653559 * (x + 0.044715 * x * x * x))); }

TEST_CASE("activation: silu and gelu, gated and plain") {
  for (const std::uint32_t width : {1u, 33u, 160u}) {
    for (const bool gated : {false, true}) {
      INFO("width " << width << (gated ? ", gated" : ""));
      Elementwise e(hal::OpKind::kActivation, width, gated);
      e.op().activation = hal::ActivationKind::kSilu;
      check_elementwise(e, [&](double x, double g) {
        const double value = silu(x) * (gated ? g : 1);
        // The exponent |x| is rounded before exp: that many more units. In float32 the sigmoid may end at its smallest
        // value instead of 0.
        const double smallest = 0x1p-104 * std::fabs(x * (gated ? g : 1));
        return std::pair(value, std::fabs(value) * (1 + std::min(std::fabs(x), 104.0)) + smallest);
      });
      e.op().activation = hal::ActivationKind::kGeluTanh;
      check_elementwise(e, [&](double x, double g) {
        const double value = gelu_tanh(x) * (gated ? g : 1);
        return std::pair(value, std::fabs(x * (gated ? g : 1)));  // 1 + tanh cancels for negative x
      });
      e.op().activation = hal::ActivationKind::kGelu;
      check_elementwise(e, [&](double x, double g) {
        const double factor = gated ? g : 1, value = 0.5 * x * std::erfc(-x * 0.70710678118654752) * factor;
        // The exponent x^2 / 2 is rounded before exp; ref computes 1 + erf, which cancels for negative x.
        return std::pair(value, std::fabs(value) * (1 + std::min(x * x, 200.0)) + std::fabs(x * factor) / 16);
      });
      e.op().activation = hal::ActivationKind::kGeluQuick;
      check_elementwise(e, [&](double x, double g) {
        const double factor = gated ? g : 1, u = 1.702 * x, value = x / u * silu(u) * factor;
        if (x == 0) return std::pair(0.0, 1e-300);
        return std::pair(value,
                         std::fabs(value) * (1 + std::min(std::fabs(u), 104.0)) + 0x1p-104 * std::fabs(x * factor));
      });
      e.op().activation = hal::ActivationKind::kRelu;
      check_elementwise(e, [&](double x, double g) {
        const double value = (x > 0 ? x : 0) * (gated ? g : 1);
        return std::pair(value, std::fabs(value));
      });
      e.op().activation = hal::ActivationKind::kReluSquared;
      check_elementwise(
          e,
          [&](double x, double g) {
            const double value = (x > 0 ? x * x : 0) * (gated ? g : 1);
            return std::pair(value, std::fabs(value));
          },
          1e15f);
    }
  }
}

TEST_CASE("gate: limited on both sides") {
  for (const std::uint32_t width : {1u, 33u, 160u}) {
    for (const float limit : {7.0f, 1.0f}) {
      Elementwise e(hal::OpKind::kGate, width, true);
      e.op().scale = 1.702f;
      e.op().limit = limit;
      check_elementwise(e, [&](double x, double up) {
        const double edge = static_cast<double>(limit), g = std::min(x, edge);
        const double u = std::min(std::max(up, -edge), edge), inner = static_cast<double>(1.702f) * g;
        const double sigmoid = inner >= 0 ? 1 / (1 + std::exp(-inner)) : std::exp(inner) / (1 + std::exp(inner));
        const double value = (u + 1) * g * sigmoid;
        // u + 1 is rounded, and cancels near -1.
        const double size = (std::fabs(u) + 1) * std::fabs(g);
        return std::pair(value, size * sigmoid * (1 + std::min(std::fabs(inner), 104.0)) + 0x1p-104 * size);
      });
    }
  }
}

TEST_CASE("clamp: values and edges come through unchanged") {
  for (const std::uint32_t width : {1u, 33u}) {
    Elementwise e(hal::OpKind::kClamp, width, false);
    e.op().limit = 6.5f;
    check_elementwise(e, [](double x, double) { return std::pair(std::min(std::max(x, -6.5), 6.5), 0.0); });
  }
}

TEST_CASE("elementwise: NaN and infinity go in, and out where the function says so") {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto run = [&](hal::OpKind kind, bool two, const auto& set, const std::vector<float>& expected) {
    Elementwise e(kind, 3, two);
    set(e.op());
    Matrix a(1, 3), b(1, 3);
    a.data = {nan, inf, -inf};
    b.data = {1, 1, 1};
    std::vector<std::pair<hal::ValueId, Matrix>> inputs = {{e.a, a}};
    if (two) inputs.emplace_back(e.b, b);
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> runner(target.context(), e.p.program);
      const Matrix out = runner.run(BatchRows::range(1), inputs, {e.y})[0];
      for (std::size_t c = 0; c < 3; ++c) {
        INFO("column " << c << ": " << out.at(0, c) << ", expected " << expected[c]);
        CHECK((std::isnan(expected[c]) ? std::isnan(out.at(0, c)) : out.at(0, c) == expected[c]));
      }
    });
  };
  const auto activation = [](hal::ActivationKind kind) { return [kind](hal::Op& op) { op.activation = kind; }; };
  run(hal::OpKind::kActivation, false, activation(hal::ActivationKind::kRelu), {nan, inf, 0});
  run(hal::OpKind::kActivation, false, activation(hal::ActivationKind::kReluSquared), {nan, inf, 0});
  run(hal::OpKind::kActivation, false, activation(hal::ActivationKind::kGelu), {nan, inf, nan});
  run(hal::OpKind::kClamp, false, [](hal::Op& op) { op.limit = 2; }, {nan, 2, -2});
  run(hal::OpKind::kGate, true, [](hal::Op& op) { op.limit = 2, op.scale = 0; }, {nan, 2, nan});
  run(hal::OpKind::kScale, false, [](hal::Op& op) { op.scale = -1; }, {nan, -inf, inf});
}

TEST_CASE("position scale: steps of a logarithm") {
  Rng rng(53);
  OpProgram p;
  const hal::ValueId x = p.value("x", 33), y = p.value("y", 33);
  hal::Op& op = p.add(hal::OpKind::kPositionScale, {x, hal::kNone}, y);
  op.scale = 0.1f;
  op.limit = 8192;
  BatchRows rows;
  for (const std::int32_t position : {0, 1, 8191, 8192, 16383, 16384, 100000, 1 << 30}) rows.add(0, position);
  const Matrix in = random_matrix(rows.size(), 33, rng);
  std::vector<double> expected;
  for (std::size_t r = 0; r < in.rows; ++r) {
    const double factor =
        1 + static_cast<double>(0.1f) * std::log(1 + std::floor(static_cast<double>(rows.positions[r]) / 8192));
    for (std::size_t c = 0; c < in.cols; ++c) expected.push_back(factor * static_cast<double>(in.at(r, c)));
  }
  for_each_backend([&]<class B>(const Target& target) {
    OpRunner<B> runner(target.context(), p.program);
    check_near(runner.run(rows, {{x, in}}, {y})[0], expected, [&](std::size_t r, std::size_t c) {
      return 0x1p-22 * std::fabs(expected[r * in.cols + c]);  // the factor is rounded to float32, too
    });
  });
}

TEST_CASE("join and permute: columns move, bits stay") {
  Rng rng(54);
  for (const std::uint32_t groups : {1u, 3u}) {
    OpProgram p;
    const hal::ValueId both = p.value("both", 60), a = p.view(both, 0, 15), b = p.view(both, 21, 36),
                       y = p.value("y", 51);
    p.add(hal::OpKind::kJoin, {a, b}, y).groups = groups;
    const Matrix left = random_matrix(7, 15, rng), right = random_matrix(7, 36, rng);
    Matrix expected(7, 51);
    for (std::size_t r = 0; r < 7; ++r) {
      std::size_t c = 0;
      for (std::size_t g = 0; g < groups; ++g) {
        for (std::size_t i = 0; i < 15 / groups; ++i) expected.at(r, c++) = left.at(r, g * (15 / groups) + i);
        for (std::size_t i = 0; i < 36 / groups; ++i) expected.at(r, c++) = right.at(r, g * (36 / groups) + i);
      }
    }
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> runner(target.context(), p.program);
      CHECK(runner.run(BatchRows::range(7), {{a, left}, {b, right}}, {y})[0].same_bits(expected));
    });
  }
  OpProgram p;
  const hal::ValueId x = p.value("x", 100), y = p.value("y", 100);
  std::vector<float> columns(100);
  for (std::size_t c = 0; c < 100; ++c) columns[c] = static_cast<float>(c * 37 % 100);
  const hal::WeightId order = p.vector(columns);
  p.add(hal::OpKind::kPermute, {x, hal::kNone}, y).weight = order;
  const Matrix in = random_matrix(30, 100, rng);
  Matrix expected(30, 100);
  for (std::size_t r = 0; r < 30; ++r)
    for (std::size_t c = 0; c < 100; ++c) expected.at(r, c) = in.at(r, c * 37 % 100);
  for_each_backend([&]<class B>(const Target& target) {
    OpRunner<B> runner(target.context(), p.program);
    CHECK(runner.run(BatchRows::range(30), {{x, in}}, {y})[0].same_bits(expected));
  });
}

/// x rounded as hal::RoundSpec says, E4M3 by a search over its values.
float rounded(hal::RoundKind kind, float x, float scale, float zero) {
  if (scale == 0) return 0;
  if (kind == hal::RoundKind::kInt8) {
    const float code = std::nearbyint(std::min(std::max(x / scale, -1000.0f), 1000.0f)) + zero;
    return (std::min(std::max(code, -128.0f), 127.0f) - zero) * scale;
  }
  const float target = std::min(std::max(x / scale, -448.0f), 448.0f);
  float best = 0;
  int best_code = 0;
  for (int code = 0; code < 127; ++code) {
    const int exponent = code >> 3, mantissa = code & 7;
    const float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                      : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    const float distance = std::fabs(std::fabs(target) - value), so_far = std::fabs(std::fabs(target) - best);
    if (distance < so_far || (distance == so_far && best_code % 2 != 0)) best = value, best_code = code;
  }
  return std::copysign(best, target) * scale;
}

TEST_CASE("round activations: int8 and e4m3, dynamic and static, bit for bit") {
  Rng rng(55);
  struct Case {
    hal::RoundSpec spec;
    std::vector<float> scale, zero;
  };
  const std::vector<Case> cases = {
      {{hal::RoundKind::kInt8, 0}, {}, {}},        {{hal::RoundKind::kInt8, 32}, {}, {}},
      {{hal::RoundKind::kInt8, 0}, {0.02f}, {}},   {{hal::RoundKind::kInt8, 0}, {0.02f}, {-11.0f}},
      {{hal::RoundKind::kInt8, 40}, {}, {}},       {{hal::RoundKind::kFp8E4M3, 0}, {}, {}},
      {{hal::RoundKind::kFp8E4M3, 32}, {}, {}},    {{hal::RoundKind::kFp8E4M3, 0}, {0.013f}, {}},
      {{hal::RoundKind::kFp8E4M3, 100}, {}, {}},   {{hal::RoundKind::kInt8, 0, true}, {}, {}},
      {{hal::RoundKind::kInt8, 40, true}, {}, {}}, {{hal::RoundKind::kFp8E4M3, 0, false, 0.75f}, {}, {}},
  };
  for (const Case& c : cases) {
    INFO((c.spec.kind == hal::RoundKind::kInt8 ? "int8" : "e4m3") << " groups of " << c.spec.group);
    constexpr std::uint32_t kWidth = 150;
    OpProgram p;
    const hal::ValueId x = p.value("x", kWidth), y = p.value("y", kWidth);
    const hal::WeightId scale_id = c.scale.empty() ? hal::kNone : p.vector(c.scale);
    const hal::WeightId zero_id = c.zero.empty() ? hal::kNone : p.vector(c.zero);
    hal::Op& op = p.add(hal::OpKind::kRoundActivations, {x, hal::kNone}, y);
    op.round = c.spec;
    op.weight = scale_id;
    op.bias = zero_id;
    Matrix in = random_matrix(40, kWidth, rng);
    for (std::size_t i = 0; i < kWidth; ++i) {
      in.at(1, i) = 0;                                                     // a row of zeros
      in.at(2, i) = static_cast<float>(static_cast<int>(i) - 70) * 0.25f;  // int8: ties
      in.at(3, i) *= static_cast<float>(std::pow(2.0, static_cast<double>(i % 24) - 20));
      in.at(4, i) *= 1e-38f;
    }
    in.at(2, 0) = 63.5f;
    Matrix expected(40, kWidth);
    const std::size_t group = c.spec.group == 0 ? kWidth : c.spec.group;
    for (std::size_t r = 0; r < 40; ++r) {
      for (std::size_t first = 0; first < kWidth; first += group) {
        const std::size_t end = std::min<std::size_t>(first + group, kWidth);
        float s = 0;
        for (std::size_t i = first; i < end; ++i) s = std::max(s, std::fabs(in.at(r, i)));
        if (c.spec.bound != 0) s = std::min(s, c.spec.bound);
        s = c.scale.empty() ? s / (c.spec.kind == hal::RoundKind::kInt8 ? 127.0f : 448.0f) : c.scale[0];
        float offset = c.zero.empty() ? 0.0f : c.zero[0];
        if (c.spec.asymmetric) {
          float low = 0, high = 0;
          for (std::size_t i = first; i < end; ++i) {
            low = std::min(low, in.at(r, i));
            high = std::max(high, in.at(r, i));
          }
          s = (high - low) / 255.0f;
          offset = s == 0 ? 0.0f : std::min(std::max(std::nearbyint(-128.0f - low / s), -128.0f), 127.0f);
        }
        for (std::size_t i = first; i < end; ++i) expected.at(r, i) = rounded(c.spec.kind, in.at(r, i), s, offset);
      }
    }
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> runner(target.context(), p.program);
      const Matrix out = runner.run(BatchRows::range(40), {{x, in}}, {y})[0];
      bool same = true;  // the sign of a zero does not count
      for (std::size_t i = 0; i < out.data.size(); ++i) same = same && out.data[i] == expected.data[i];
      CHECK(same);
      CHECK(runner.run(BatchRows::range(1), {{x, in.slice(3, 1)}}, {y})[0].same_bits(out.slice(3, 1)));
    });
  }
}

TEST_CASE("add, scale and softcap") {
  for (const std::uint32_t width : {1u, 33u, 160u}) {
    INFO("width " << width);
    Elementwise add(hal::OpKind::kAdd, width, true);
    check_elementwise(add, [](double x, double y) { return std::pair(x + y, std::fabs(x + y)); });
    Elementwise scale(hal::OpKind::kScale, width, false);
    scale.op().scale = 0.37f;
    check_elementwise(scale, [](double x, double) {
      const double value = static_cast<double>(0.37f) * x;
      return std::pair(value, std::fabs(value));
    });
    Elementwise cap(hal::OpKind::kSoftcap, width, false);
    cap.op().scale = 30;
    check_elementwise(cap, [](double x, double) {
      const double value = 30 * std::tanh(x / 30);
      return std::pair(value, std::fabs(value) + 1e-300);
    });
  }
}

TEST_CASE("add: over its own input") {
  Rng rng(52);
  OpProgram p;
  const hal::ValueId x = p.value("x", 40), y = p.value("y", 40);
  p.add(hal::OpKind::kAdd, {x, y}, x);
  const Matrix a = random_matrix(9, 40, rng), b = random_matrix(9, 40, rng);
  for_each_backend([&]<class B>(const Target& target) {
    OpRunner<B> runner(target.context(), p.program);
    const Matrix out = runner.run(BatchRows::range(9), {{x, a}, {y, b}}, {x})[0];
    bool same = true;
    for (std::size_t i = 0; i < out.data.size(); ++i) same = same && out.data[i] == a.data[i] + b.data[i];
    CHECK(same);
  });
}

}  // namespace
}  // namespace corbel_test
