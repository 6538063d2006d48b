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

/// Checks y = f(a, b) for edge values in rows of odd width, and that a row alone gives the same bits. f answers (value,
/// magnitude).
template <class F>
void check_elementwise(Elementwise& e, const F& f) {
  Rng rng(51);
  const std::size_t width = e.p.program.values[static_cast<std::size_t>(e.y)].width, count = 27;
  const std::vector<float> edges = edge_values();
  Matrix a(count, width), b = random_matrix(count, width, rng);
  for (std::size_t i = 0; i < a.data.size(); ++i) a.data[i] = edges[i % edges.size()];
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
    }
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
