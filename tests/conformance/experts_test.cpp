// route, expert_linear, expert_sum and grouped_linear on every backend, against plain double arithmetic.
#include <numeric>
#include <support/backend_matrix.hpp>

namespace corbel_test {
namespace {

using corbel::DType;

// ---- route
// -----------------------------------------------------------------------------------------------------------

struct Route {
  OpProgram p;
  hal::ValueId x, y;
  hal::RouteSpec spec;
  std::vector<float> bias;

  Route(const hal::RouteSpec& route, const std::vector<float>& bias_in) : spec(route), bias(bias_in) {
    x = p.view(p.value("x", spec.experts + 9), 5, spec.experts);
    y = p.value("y", 2 * spec.top_k);
    const hal::WeightId id = bias.empty() ? hal::kNone : p.vector(bias);
    hal::Op& op = p.add(hal::OpKind::kRoute, {x, hal::kNone}, y);
    op.route = spec;
    op.bias = id;
  }
};

/// What hal::RouteSpec says, by sorting.
std::vector<double> expected_route(const Route& route, const float* x) {
  const hal::RouteSpec& s = route.spec;
  std::vector<double> scores(x, x + s.experts), choices;
  double sum = 0;
  for (double& score : scores) {
    score = s.score == hal::ScoreKind::kSigmoid ? 1 / (1 + std::exp(-score)) : std::exp(score);
    sum += score;
  }
  for (std::size_t e = 0; e < s.experts; ++e) {
    if (s.score == hal::ScoreKind::kSoftmax) scores[e] /= sum;
    choices.push_back(scores[e] + (route.bias.empty() ? 0.0 : static_cast<double>(route.bias[e])));
  }
  const auto order = [](const std::vector<double>& values) {
    std::vector<std::size_t> index(values.size());
    std::iota(index.begin(), index.end(), std::size_t{0});
    std::stable_sort(index.begin(), index.end(), [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
    return index;
  };
  const std::size_t size = s.experts / s.groups;
  std::vector<double> groups;
  for (std::size_t g = 0; g < s.groups; ++g) {
    const auto first = choices.begin() + static_cast<std::ptrdiff_t>(g * size);
    std::vector<double> own(first, first + static_cast<std::ptrdiff_t>(size));
    std::sort(own.rbegin(), own.rend());
    groups.push_back(
        std::accumulate(own.begin(), own.begin() + std::min<std::ptrdiff_t>(s.group_top, std::ssize(own)), 0.0));
  }
  const std::vector<std::size_t> best_groups = order(groups);
  std::vector<std::size_t> chosen;
  for (const std::size_t e : order(choices)) {
    const auto end = best_groups.begin() + s.top_groups;
    if (chosen.size() < s.top_k && std::find(best_groups.begin(), end, e / size) != end) chosen.push_back(e);
  }
  double total = 1e-20;
  for (const std::size_t e : chosen) total += scores[e];
  std::vector<double> out;
  for (const std::size_t e : chosen) out.push_back(static_cast<double>(e));
  for (const std::size_t e : chosen)
    out.push_back(scores[e] / (s.normalize ? total : 1) * static_cast<double>(s.scale));
  return out;
}

std::vector<Route> routes(Rng& rng) {
  std::vector<Route> all;
  const auto bias = [&](std::size_t n) { return random_matrix(1, n, rng, 0.3).data; };
  using enum hal::ScoreKind;
  all.push_back(Route({8, 2, kSoftmax, true}, {}));
  all.push_back(Route({60, 4, kSoftmax, false}, {}));
  all.push_back(Route({5, 5, kSoftmax, false, 0.5f}, {}));
  all.push_back(Route({1, 1, kSigmoid, true}, {}));
  all.push_back(Route({128, 8, kSigmoid, true, 2.5f}, bias(128)));
  all.push_back(Route({64, 6, kSoftmax, false, 1, 8, 3, 1}, {}));
  all.push_back(Route({256, 8, kSigmoid, true, 2.5f, 8, 4, 2}, bias(256)));
  all.push_back(Route({12, 3, kSigmoid, false, 1, 4, 1, 2}, bias(12)));
  return all;
}

TEST_CASE("route: experts and weights, groups, bias and ties") {
  Rng rng(91);
  for (const Route& route : routes(rng)) {
    INFO(route.spec.experts << " experts, top " << route.spec.top_k << ", " << route.spec.groups << " groups");
    Matrix x = random_matrix(40, route.spec.experts, rng, 2);
    for (std::size_t r = 20; r < 40; ++r)  // ties
      for (std::size_t e = 0; e < x.cols; ++e) x.at(r, e) = static_cast<float>(rng() % 4);
    std::vector<double> expected;
    for (std::size_t r = 0; r < x.rows; ++r) {
      const std::vector<double> row = expected_route(route, x.row(r));
      expected.insert(expected.end(), row.begin(), row.end());
    }
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> one(target.context(1), route.p.program), two(target.context(2), route.p.program);
      const Matrix out = one.run(BatchRows::range(40), {{route.x, x}}, {route.y})[0];
      check_near(out, expected, [&](std::size_t r, std::size_t c) {
        return c < route.spec.top_k ? 1e-9 : 0x1p-23 * std::fabs(expected[r * out.cols + c]) + 1e-30;
      });
      CHECK(two.run(BatchRows::range(40), {{route.x, x}}, {route.y})[0].same_bits(out));
      CHECK(two.run(BatchRows::range(1), {{route.x, x.slice(17, 1)}}, {route.y})[0].same_bits(out.slice(17, 1)));
    });
  }
}

TEST_CASE("route: NaN scores name experts that exist, and weigh NaN") {
  Rng rng(92);
  for (const Route& route : routes(rng)) {
    Matrix x = random_matrix(3, route.spec.experts, rng);
    for (std::size_t e = 0; e < x.cols; ++e) x.at(1, e) = std::numeric_limits<float>::quiet_NaN();
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> runner(target.context(), route.p.program);
      const Matrix out = runner.run(BatchRows::range(3), {{route.x, x}}, {route.y})[0];
      for (std::size_t j = 0; j < route.spec.top_k; ++j) {
        CHECK((out.at(1, j) >= 0 && out.at(1, j) < static_cast<float>(route.spec.experts)));
        CHECK(std::isnan(out.at(1, route.spec.top_k + j)));
      }
      CHECK(runner.run(BatchRows::range(1), {{route.x, x.slice(2, 1)}}, {route.y})[0].same_bits(out.slice(2, 1)));
    });
  }
}

// ---- linears
// -----------------------------------------------------------------------------------------------------------

/// Expected outputs, in the order of the output matrix, and their bounds.
struct Products {
  std::vector<double> values, bounds;

  void add(const Target& target, const float* x, const Matrix& w, std::size_t row, DType type, bool quantized,
           double bias) {
    double value = bias, magnitude = std::fabs(bias), moved = 0, size = 0, widest = 0;
    for (std::size_t first = 0; first < w.cols; first += 32) {
      double largest = 0, weights = 0;
      for (std::size_t k = first; k < std::min(first + 32, w.cols); ++k) {
        const double a = static_cast<double>(x[k]), b = static_cast<double>(w.at(row, k));
        value += a * b;
        magnitude += std::fabs(a * b);
        size += std::fabs(a);
        largest = std::max(largest, std::fabs(a));
        weights += std::fabs(b);
        widest = std::max(widest, std::fabs(b));
      }
      moved += largest / 254 * weights;  // each x moves by up to half a step of its 8-bit scale
    }
    double bound = target.bound(value, magnitude, w.cols) + target.tile_slack(type, magnitude);
    // Types with minima add parts that are larger than their sum.
    if (quantized && !target.is_exact && !target.on_tiles(type))
      bound += 1.001 * moved + 0x1p-24 * static_cast<double>(w.cols + 16) * 8 * widest * size;
    values.push_back(value);
    bounds.push_back(bound);
  }
};

struct ExpertCase {
  const char* name;
  hal::RouteSpec route;
  std::uint32_t in, out;
  std::vector<DType> types;  // one: a stacked tensor; else one tensor per expert
  bool bias = false;
  bool slots = false;  // each slot has an input of its own
};

const std::vector<ExpertCase>& expert_cases() {
  static const std::vector<ExpertCase> cases = {
      {"one expert", {1, 1}, 64, 16, {DType::kF32}},
      {"f32", {4, 2}, 48, 32, {DType::kF32}},
      {"f32, odd", {5, 3}, 41, 37, {DType::kF32}, true},
      {"bf16, odd, slots", {7, 2}, 33, 21, {DType::kBF16}, true, true},
      {"q4_0", {8, 2}, 64, 48, {DType::kQ4_0}},
      {"q8_0, odd, slots", {6, 4}, 96, 17, {DType::kQ8_0}, false, true},
      {"q4_k", {16, 4}, 256, 64, {DType::kQ4_K}, true},
      {"q6_k, narrower than a group", {9, 2}, 256, 5, {DType::kQ6_K}, false, true},
      {"a tensor each, of different types", {3, 2}, 256, 40, {DType::kQ4_K, DType::kF32, DType::kQ5_1}, true},
      {"many", {60, 6}, 64, 32, {DType::kF16}},
  };
  return cases;
}

struct ExpertLinear {
  OpProgram p;
  hal::ValueId x, routed, y;
  Matrix weights;           // [experts * out, in]
  std::vector<float> bias;  // [experts * out], or none
  const ExpertCase& c;

  ExpertLinear(const ExpertCase& expert_case, Rng& rng) : c(expert_case) {
    const std::uint32_t top_k = c.route.top_k, rows = c.route.experts * c.out;
    const std::uint32_t width = c.slots ? top_k * c.in : c.in;
    x = p.view(p.value("x_root", width + 7), 3, width);
    routed = p.value("routed", 2 * top_k);
    y = p.view(p.value("y_root", top_k * c.out + 5), 2, top_k * c.out);
    std::vector<hal::WeightPart> parts;
    for (const DType type : c.types)
      parts.push_back(quantized_part(type, c.types.size() == 1 ? rows : c.out, c.in, rng));
    const hal::WeightId weight = p.weight(parts, hal::kUseLinear);
    weights = dequantized(p.program.weights[0]);
    if (c.bias) bias = random_matrix(1, rows, rng).data;
    const hal::WeightId bias_id = c.bias ? p.vector(bias) : hal::kNone;
    hal::Op& op = p.add(hal::OpKind::kExpertLinear, {x, routed}, y);
    op.route = c.route;
    op.weight = weight;
    op.bias = bias_id;
  }
  DType type(std::size_t row) const { return c.types.size() == 1 ? c.types[0] : c.types[row / c.out]; }
  bool quantized() const {
    return std::any_of(c.types.begin(), c.types.end(),
                       [](DType type) { return corbel::traits(type).block_elements != 1; });
  }
};

/// Different experts in each row, some of them chosen by nobody.
Matrix random_routes(const hal::RouteSpec& route, std::size_t rows, Rng& rng) {
  Matrix out(rows, 2 * route.top_k);
  for (std::size_t r = 0; r < rows; ++r) {
    std::vector<std::uint32_t> experts(route.experts);
    std::iota(experts.begin(), experts.end(), 0u);
    for (std::size_t j = 0; j < route.top_k; ++j) {
      std::swap(experts[j], experts[j + rng() % std::max<std::size_t>(1, (route.experts - j) / 2 + 1)]);
      out.at(r, j) = static_cast<float>(experts[j]);
      out.at(r, route.top_k + j) = normal(rng);
    }
  }
  return out;
}

TEST_CASE("expert linear: types, odd sizes, slots and biases") {
  Rng rng(93);
  for (const ExpertCase& c : expert_cases()) {
    INFO(c.name);
    const ExpertLinear linear(c, rng);
    for (const std::size_t rows : {std::size_t{1}, std::size_t{3}, std::size_t{45}}) {
      INFO(rows << " rows");
      const Matrix x = random_matrix(rows, c.slots ? c.route.top_k * c.in : c.in, rng);
      const Matrix routed = random_routes(c.route, rows, rng);
      for_each_backend([&]<class B>(const Target& target) {
        OpRunner<B> runner(target.context(), linear.p.program);
        const Matrix out = runner.run(BatchRows::range(rows), {{linear.x, x}, {linear.routed, routed}}, {linear.y})[0];
        Products expected;
        for (std::size_t r = 0; r < rows; ++r) {
          for (std::size_t j = 0; j < c.route.top_k; ++j) {
            for (std::size_t o = 0; o < c.out; ++o) {
              const std::size_t row = static_cast<std::size_t>(routed.at(r, j)) * c.out + o;
              expected.add(target, x.row(r) + (c.slots ? j * c.in : 0), linear.weights, row, linear.type(row),
                           linear.quantized(), linear.bias.empty() ? 0.0 : static_cast<double>(linear.bias[row]));
            }
          }
        }
        check_near(out, expected.values,
                   [&](std::size_t r, std::size_t i) { return expected.bounds[r * out.cols + i]; });
      });
    }
  }
}

TEST_CASE("expert linear: bits do not depend on other rows, on who else chose an expert, or on threads") {
  Rng rng(94);
  for (const ExpertCase& c : expert_cases()) {
    INFO(c.name);
    const ExpertLinear linear(c, rng);
    const Matrix x = random_matrix(50, c.slots ? c.route.top_k * c.in : c.in, rng);
    const Matrix routed = random_routes(c.route, 50, rng);
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> one(target.context(1), linear.p.program), two(target.context(2), linear.p.program);
      const Matrix all = one.run(BatchRows::range(50), {{linear.x, x}, {linear.routed, routed}}, {linear.y})[0];
      CHECK(two.run(BatchRows::range(50), {{linear.x, x}, {linear.routed, routed}}, {linear.y})[0].same_bits(all));
      for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{9}, std::size_t{17}}) {
        INFO(count << " rows");
        CHECK(two.run(BatchRows::range(count),
                      {{linear.x, x.slice(30, count)}, {linear.routed, routed.slice(30, count)}}, {linear.y})[0]
                  .same_bits(all.slice(30, count)));
      }
      // All rows choose what row 30 chose: its own result stays.
      Matrix crowd = routed;
      for (std::size_t r = 0; r < 50; ++r) std::copy_n(routed.row(30), routed.cols, &crowd.at(r, 0));
      CHECK(
          two.run(BatchRows::range(50), {{linear.x, x}, {linear.routed, crowd}}, {linear.y})[0].slice(30, 1).same_bits(
              all.slice(30, 1)));
      CHECK(two.run(BatchRows(), {}, {linear.y})[0].rows == 0);
      check_roles(two, 50, {{linear.x, x}, {linear.routed, routed}}, linear.y);
    });
  }
}

TEST_CASE("expert linear: a NaN stays in the slots that read it") {
  Rng rng(95);
  for (const ExpertCase& c : expert_cases()) {
    INFO(c.name);
    const ExpertLinear linear(c, rng);
    Matrix x = random_matrix(6, c.slots ? c.route.top_k * c.in : c.in, rng);
    const Matrix routed = random_routes(c.route, 6, rng);
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> runner(target.context(), linear.p.program);
      const Matrix clean = runner.run(BatchRows::range(6), {{linear.x, x}, {linear.routed, routed}}, {linear.y})[0];
      Matrix poisoned = x;
      poisoned.at(2, 3) = std::numeric_limits<float>::quiet_NaN();
      const Matrix out =
          runner.run(BatchRows::range(6), {{linear.x, poisoned}, {linear.routed, routed}}, {linear.y})[0];
      CHECK(out.slice(0, 2).same_bits(clean.slice(0, 2)));
      CHECK(out.slice(3, 3).same_bits(clean.slice(3, 3)));
      for (std::size_t i = 0; i < out.cols; ++i)
        CHECK((!c.slots || i < c.out ? std::isnan(out.at(2, i)) : out.at(2, i) == clean.at(2, i)));
    });
  }
}

TEST_CASE("expert sum: weighted slots") {
  Rng rng(96);
  for (const auto& [slots, columns] :
       std::vector<std::pair<std::uint32_t, std::uint32_t>>{{1, 16}, {2, 33}, {8, 160}}) {
    const std::uint32_t top_k = slots, width = columns;
    OpProgram p;
    const hal::ValueId x = p.value("x", top_k * width), routed = p.value("routed", 2 * top_k), y = p.value("y", width);
    p.add(hal::OpKind::kExpertSum, {x, routed}, y).route = {16, top_k};
    const Matrix in = random_matrix(40, top_k * width, rng), weights = random_routes({16, top_k}, 40, rng);
    std::vector<double> expected, magnitudes;
    for (std::size_t r = 0; r < 40; ++r) {
      for (std::size_t c = 0; c < width; ++c) {
        double sum = 0, size = 0;
        for (std::size_t j = 0; j < top_k; ++j) {
          const double term =
              static_cast<double>(weights.at(r, top_k + j)) * static_cast<double>(in.at(r, j * width + c));
          sum += term;
          size += std::fabs(term);
        }
        expected.push_back(sum);
        magnitudes.push_back(size);
      }
    }
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> one(target.context(1), p.program), two(target.context(2), p.program);
      const Matrix out = one.run(BatchRows::range(40), {{x, in}, {routed, weights}}, {y})[0];
      check_near(out, expected, [&](std::size_t r, std::size_t c) {
        const std::size_t i = r * out.cols + c;
        return target.bound(expected[i], magnitudes[i], top_k);
      });
      CHECK(two.run(BatchRows::range(1), {{x, in.slice(9, 1)}, {routed, weights.slice(9, 1)}}, {y})[0].same_bits(
          out.slice(9, 1)));
    });
  }
}

TEST_CASE("grouped linear: a matrix for each group of columns") {
  Rng rng(97);
  struct Case {
    std::uint32_t groups, in, out;  // of a group
    DType type;
  };
  for (const Case& c : std::vector<Case>{{1, 48, 20, DType::kF32},
                                         {4, 32, 64, DType::kF32},
                                         {5, 23, 11, DType::kBF16},
                                         {16, 128, 48, DType::kQ8_0},
                                         {3, 96, 37, DType::kQ4_1},
                                         {2, 256, 16, DType::kQ5_K}}) {
    INFO(c.groups << " groups, " << c.out << " x " << c.in << ", " << corbel::traits(c.type).name);
    OpProgram p;
    const hal::ValueId x = p.view(p.value("x_root", c.groups * c.in + 6), 4, c.groups * c.in),
                       y = p.value("y", c.groups * c.out);
    const hal::WeightId weight = p.weight({quantized_part(c.type, c.groups * c.out, c.in, rng)}, hal::kUseLinear);
    hal::Op& op = p.add(hal::OpKind::kGroupedLinear, {x, hal::kNone}, y);
    op.weight = weight;
    op.groups = c.groups;
    const Matrix w = dequantized(p.program.weights[0]);
    const bool quantized = corbel::traits(c.type).block_elements != 1;
    const Matrix in = random_matrix(45, c.groups * c.in, rng);
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> one(target.context(1), p.program), two(target.context(2), p.program);
      const Matrix out = one.run(BatchRows::range(45), {{x, in}}, {y})[0];
      Products expected;
      for (std::size_t r = 0; r < in.rows; ++r)
        for (std::size_t i = 0; i < out.cols; ++i)
          expected.add(target, in.row(r) + i / c.out * c.in, w, i, c.type, quantized, 0);
      check_near(out, expected.values, [&](std::size_t r, std::size_t i) { return expected.bounds[r * out.cols + i]; });
      CHECK(two.run(BatchRows::range(45), {{x, in}}, {y})[0].same_bits(out));
      for (const std::size_t count : {std::size_t{1}, std::size_t{7}})
        CHECK(two.run(BatchRows::range(count), {{x, in.slice(20, count)}}, {y})[0].same_bits(out.slice(20, count)));
      check_roles(two, 45, {{x, in}}, y);
    });
  }
}

}  // namespace
}  // namespace corbel_test
