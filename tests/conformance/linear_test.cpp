// The linear op on every backend, for every weight type, against sums in long double.
#include <support/backend_matrix.hpp>

namespace corbel_test {
namespace {

using corbel::DType;

/// A linear with its input and output as views into wider values, so that strides and columns count.
struct Linear {
  OpProgram p;
  hal::ValueId x_root, x, y_root, y;

  Linear(std::vector<hal::WeightPart> parts, std::uint32_t in, std::uint32_t out, const std::vector<float>& bias) {
    x_root = p.value("x_root", in + 32);
    x = p.view(x_root, 32, in);
    y_root = p.value("y_root", out + 16);
    y = p.view(y_root, 16, out);
    const hal::WeightId weight = p.weight(std::move(parts), hal::kUseLinear);
    const hal::WeightId bias_id = bias.empty() ? hal::kNone : p.vector(bias);
    hal::Op& op = p.add(hal::OpKind::kLinear, {x, hal::kNone}, y);
    op.weight = weight;
    op.bias = bias_id;
  }
};

struct Expected {
  std::vector<double> values, magnitudes, quantization;
};

/// The type of the part that row `row` of a weight lies in.
DType type_of_row(const std::vector<hal::WeightPart>& parts, std::size_t row) {
  std::size_t i = 0;
  for (; row >= parts[i].rows; ++i) row -= static_cast<std::size_t>(parts[i].rows);
  return parts[i].dtype;
}

// `quantization`: how far the result can move when each x moves by half a step of its block's 8-bit scale, max / 127.
Expected oracle(const Matrix& x, const hal::WeightSpec& weight, const std::vector<float>& bias) {
  const Matrix w = dequantized(weight);
  Expected e;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t o = 0; o < w.rows; ++o) {
      long double sum = bias.empty() ? 0 : static_cast<long double>(bias[o]);
      double magnitude = std::fabs(static_cast<double>(sum)), moved = 0;
      for (std::size_t first = 0; first < x.cols; first += 32) {
        double largest = 0, weights = 0;
        for (std::size_t k = first; k < std::min(first + 32, x.cols); ++k) {
          const double a = static_cast<double>(x.at(r, k)), b = static_cast<double>(w.at(o, k));
          sum += static_cast<long double>(a) * static_cast<long double>(b);
          magnitude += std::fabs(a * b);
          largest = std::max(largest, std::fabs(a));
          weights += std::fabs(b);
        }
        moved += largest / 254 * weights;
      }
      e.values.push_back(static_cast<double>(sum));
      e.magnitudes.push_back(magnitude);
      e.quantization.push_back(moved);
    }
  }
  return e;
}

/// Types with minima are rounded as scale * sum(codes) + minimum * sum: their parts can be larger than the product.
/// This bounds both.
double float_slack(const hal::WeightSpec& weight, const Matrix& x, std::size_t r) {
  if (std::all_of(weight.parts.begin(), weight.parts.end(),
                  [](const hal::WeightPart& part) { return corbel::traits(part.dtype).unpack == nullptr; }))
    return 0;
  double sum = 0, largest = 0;
  for (std::size_t k = 0; k < x.cols; ++k) sum += std::fabs(static_cast<double>(x.at(r, k)));
  for (const float value : dequantized(weight).data) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  return 0x1p-24 * static_cast<double>(x.cols + 16) * 4 * largest * sum;
}

template <class B>
void check_linear(const Target& target, const std::vector<hal::WeightPart>& parts, const Matrix& x,
                  const std::vector<float>& bias) {
  const hal::WeightSpec spec = {parts, hal::kUseLinear};
  const auto out = static_cast<std::uint32_t>(spec.rows());
  Linear linear(parts, static_cast<std::uint32_t>(x.cols), out, bias);
  const bool quantized = std::any_of(parts.begin(), parts.end(), [](const hal::WeightPart& part) {
    return corbel::traits(part.dtype).unpack != nullptr;
  });
  OpRunner<B> runner(target.context(), linear.p.program);
  Rng rng(3);
  const Matrix around = random_matrix(x.rows, x.cols + 32, rng);
  const Matrix before = random_matrix(x.rows, out + 16, rng);
  const std::vector<Matrix> results =
      runner.run(BatchRows::range(x.rows), {{linear.x_root, around}, {linear.x, x}, {linear.y_root, before}},
                 {linear.y, linear.y_root});
  const Expected expected = oracle(x, spec, bias);
  std::vector<double> slack(x.rows, 0.0);
  if (!target.is_exact) {
    for (std::size_t r = 0; r < x.rows; ++r) slack[r] = float_slack(spec, x, r);
  }
  check_near(results[0], expected.values, [&](std::size_t r, std::size_t c) {
    const std::size_t i = r * out + c;
    const DType type = type_of_row(parts, c);
    const double rounding = target.bound(expected.values[i], expected.magnitudes[i], x.cols) +
                            target.tile_slack(type, expected.magnitudes[i]);
    if (target.on_tiles(type)) return rounding;
    return target.is_exact || !quantized ? rounding : rounding + slack[r] + 1.001 * expected.quantization[i];
  });
  // Columns outside the view stay as they were.
  bool untouched = true;
  for (std::size_t r = 0; r < x.rows; ++r)
    for (std::size_t c = 0; c < 16; ++c) untouched = untouched && results[1].at(r, c) == before.at(r, c);
  CHECK(untouched);
}

TEST_CASE("linear: every weight type") {
  Rng rng(11);
  for (const corbel::DTypeTraits& type : corbel::all_dtypes()) {
    INFO(type.name);
    const std::uint32_t in = std::max<std::uint32_t>(type.block_elements, 32) * 2;
    const std::vector<hal::WeightPart> parts = {quantized_part(type.dtype, 37, in, rng)};
    const Matrix bias = random_matrix(1, 37, rng);
    for (const std::size_t rows : {std::size_t{1}, std::size_t{2}, std::size_t{21}}) {
      INFO(rows << " rows");
      const Matrix x = random_matrix(rows, in, rng);
      for_each_backend([&]<class B>(const Target& target) {
        check_linear<B>(target, parts, x, {});
        check_linear<B>(target, parts, x, bias.data);
      });
    }
  }
}

TEST_CASE("linear: odd sizes") {
  Rng rng(12);
  for (const auto& [out, in] :
       std::vector<std::pair<std::uint32_t, std::uint32_t>>{{1, 32}, {3, 96}, {16, 32}, {17, 160}, {65, 576}}) {
    INFO(out << " x " << in);
    const Matrix x = random_matrix(9, in, rng);
    const std::vector<hal::WeightPart> q4 = {quantized_part(DType::kQ4_1, out, in, rng)};
    const std::vector<hal::WeightPart> f32 = {quantized_part(DType::kF32, out, in - 1, rng)};
    const Matrix narrow = random_matrix(9, in - 1, rng);
    for_each_backend([&]<class B>(const Target& target) {
      check_linear<B>(target, q4, x, {});
      check_linear<B>(target, f32, narrow, {});
    });
  }
}

TEST_CASE("linear: QN-07: a column of 0 to 31 times one block of each type") {
  Rng rng(18);
  Matrix x = random_matrix(1, 256, rng);
  for (std::size_t k = 0; k < 256; ++k) x.at(0, k) = static_cast<float>(k % 32);
  for (const corbel::DTypeTraits& type : corbel::all_dtypes()) {
    INFO(type.name);
    const std::uint32_t in = std::max<std::uint32_t>(type.block_elements, 32);
    const std::vector<hal::WeightPart> parts = {quantized_part(type.dtype, 1, in, rng)};
    Matrix row = x;
    row.cols = in;
    row.data.resize(in);
    for_each_backend([&]<class B>(const Target& target) { check_linear<B>(target, parts, row, {}); });
  }
}

TEST_CASE("linear: merged parts of different types") {
  Rng rng(13);
  const std::vector<hal::WeightPart> parts = {
      quantized_part(DType::kQ4_K, 48, 256, rng), quantized_part(DType::kQ6_K, 5, 256, rng),
      quantized_part(DType::kF32, 19, 256, rng), quantized_part(DType::kQ8_0, 32, 256, rng)};
  const Matrix bias = random_matrix(1, 104, rng);
  const Matrix x = random_matrix(7, 256, rng);
  for_each_backend([&]<class B>(const Target& target) { check_linear<B>(target, parts, x, bias.data); });
}

TEST_CASE("linear: values far from 1, and zeros") {
  Rng rng(14);
  Matrix x = random_matrix(4, 128, rng);
  for (std::size_t k = 0; k < 128; ++k) {
    x.at(0, k) *= 1e6f;
    x.at(1, k) *= 1e-6f;
    x.at(2, k) = 0;
  }
  x.at(3, 5) = 3000;  // an outlier takes the resolution of its block
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ4_0, DType::kQ8_0}) {
    INFO(corbel::traits(dtype).name);
    const std::vector<hal::WeightPart> parts = {quantized_part(dtype, 24, 128, rng)};
    for_each_backend([&]<class B>(const Target& target) { check_linear<B>(target, parts, x, {}); });
  }
}

TEST_CASE("linear: bits do not depend on other rows, threads or the role of company") {
  Rng rng(15);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ4_K, DType::kQ6_K}) {
    INFO(corbel::traits(dtype).name);
    const Linear linear({quantized_part(dtype, 50, 512, rng), quantized_part(DType::kF32, 20, 512, rng)}, 512, 70, {});
    const Matrix x = random_matrix(37, 512, rng);
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> one(target.context(1), linear.p.program), two(target.context(2), linear.p.program);
      const Matrix all = one.run(BatchRows::range(37), {{linear.x, x}}, {linear.y})[0];
      CHECK(two.run(BatchRows::range(37), {{linear.x, x}}, {linear.y})[0].same_bits(all));
      for (const std::size_t size : {std::size_t{1}, std::size_t{3}, std::size_t{8}, std::size_t{16}}) {
        INFO(size << " rows alone");
        const Matrix some = two.run(BatchRows::range(size), {{linear.x, x.slice(20, size)}}, {linear.y})[0];
        CHECK(some.same_bits(all.slice(20, size)));
      }
      check_roles(two, 37, {{linear.x, x}}, linear.y);
    });
  }
}

TEST_CASE("linear: no rows at all") {
  Rng rng(16);
  const Linear linear({quantized_part(DType::kQ4_1, 16, 64, rng)}, 64, 16, {});
  for_each_backend([&]<class B>(const Target& target) {
    OpRunner<B> runner(target.context(), linear.p.program);
    CHECK(runner.run(BatchRows(), {}, {linear.y})[0].rows == 0);
  });
}

TEST_CASE("linear: rows that are wanted") {
  Rng rng(17);
  OpProgram p;
  const hal::ValueId x = p.value("x", 64), picked = p.value("picked", 64, hal::Rows::kWanted),
                     y = p.value("y", 40, hal::Rows::kWanted), all = p.value("all", 40);
  const hal::WeightId weight = p.weight({quantized_part(DType::kQ5_1, 40, 64, rng)}, hal::kUseLinear);
  p.add(hal::OpKind::kSelectRows, {x, hal::kNone}, picked);
  p.add(hal::OpKind::kLinear, {picked, hal::kNone}, y).weight = weight;
  p.add(hal::OpKind::kLinear, {x, hal::kNone}, all).weight = weight;
  const Matrix input = random_matrix(12, 64, rng);
  for (const std::vector<std::int32_t>& wanted :
       {std::vector<std::int32_t>{}, {11}, {0, 3, 4, 11}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}) {
    BatchRows rows = BatchRows::range(8);
    for (std::int32_t r = 8; r < 12; ++r) rows.add(0, r, 0, hal::Role::kGenerated);
    rows.wanted = wanted;
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> runner(target.context(), p.program);
      const std::vector<Matrix> results = runner.run(rows, {{x, input}}, {picked, y, all});
      CHECK(results[0].same_bits(take_rows(input, wanted)));
      CHECK(results[1].same_bits(take_rows(results[2], wanted)));
    });
  }
}

}  // namespace
}  // namespace corbel_test
