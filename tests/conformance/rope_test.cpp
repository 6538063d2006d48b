// rope_table and rope on every backend, up to large positions.
#include <support/backend_matrix.hpp>

namespace corbel_test {
namespace {

std::vector<float> inverse_frequencies(std::size_t count, double base) {
  std::vector<float> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(static_cast<float>(std::pow(base, -static_cast<double>(i) / static_cast<double>(count))));
  return out;
}

struct Table {
  OpProgram p;
  hal::ValueId out;
  std::vector<float> frequencies;

  Table(std::size_t count, double base, float scale) : frequencies(inverse_frequencies(count, base)) {
    out = p.value("table", static_cast<std::uint32_t>(2 * count));
    const hal::WeightId weight = p.vector(frequencies);
    hal::Op& op = p.add(hal::OpKind::kRopeTable, {hal::kNone, hal::kNone}, out);
    op.weight = weight;
    op.scale = scale;
  }
};

TEST_CASE("rope table: cosines and sines up to position 2^20") {
  for (const float scale : {1.0f, 1.19f}) {
    const Table table(37, 10000, scale);
    BatchRows rows;
    for (const std::int32_t position :
         {0, 1, 2, 3, 21, 22, 355, 710, 1000, 4095, 8191, 65535, 131071, 1000003, 1048576})
      rows.add(0, position);
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> runner(target.context(), table.p.program);
      const Matrix out = runner.run(rows, {}, {table.out})[0];
      std::vector<double> expected;
      for (const std::int32_t position : rows.positions) {
        for (const bool sine : {false, true}) {
          for (const float frequency : table.frequencies) {
            const long double angle = static_cast<long double>(static_cast<float>(position) * frequency);
            expected.push_back(
                static_cast<double>(static_cast<long double>(scale) * (sine ? std::sin(angle) : std::cos(angle))));
          }
        }
      }
      check_near(out, expected, [&](std::size_t r, std::size_t c) {
        const double value = expected[r * out.cols + c];
        return target.bound(value, std::fabs(value), 1) + (target.is_exact ? 0x1p-52 : 0x1p-24);
      });
    });
  }
}

TEST_CASE("rope table: frequencies that come with the batch") {
  const std::vector<float> frequencies = inverse_frequencies(16, 500);
  OpProgram own, batch;
  const hal::ValueId expected = own.value("table", 24), table = batch.value("table", 24);
  const hal::WeightId weight = own.vector({frequencies.begin() + 3, frequencies.begin() + 15});
  own.add(hal::OpKind::kRopeTable, {hal::kNone, hal::kNone}, expected).weight = weight;
  batch.add(hal::OpKind::kRopeTable, {hal::kNone, hal::kNone}, table).first = 3;
  RunnerOptions options;
  options.frequencies = frequencies;
  for_each_backend([&]<class B>(const Target& target) {
    OpRunner<B> a(target.context(), own.program), b(target.context(), batch.program, options);
    CHECK(b.run(BatchRows::range(40, 1000), {}, {table})[0].same_bits(
        a.run(BatchRows::range(40, 1000), {}, {expected})[0]));
  });
}

struct Rope {
  OpProgram p;
  hal::ValueId x, table, y;

  Rope(const hal::RopeSpec& spec, std::uint32_t heads) {
    x = p.view(p.value("x", heads * spec.head_dim + 16), 16, heads * spec.head_dim);
    table = p.value("table", spec.rotary_dim);
    y = p.value("y", heads * spec.head_dim);
    p.add(hal::OpKind::kRope, {x, table}, y).rope = spec;
  }
};

TEST_CASE("rope: neighbours and halves, whole and partial heads") {
  Rng rng(41);
  const std::vector<hal::RopeSpec> specs = {{64, 64, false}, {64, 64, true}, {32, 16, false},  {32, 16, true},
                                            {80, 20, false}, {6, 2, true},   {256, 256, false}};
  for (const hal::RopeSpec& spec : specs) {
    INFO("head " << spec.head_dim << ", rotary " << spec.rotary_dim << (spec.interleaved ? ", interleaved" : ""));
    const std::uint32_t heads = 3;
    const Rope rope(spec, heads);
    const Matrix x = random_matrix(19, heads * spec.head_dim, rng);
    Matrix table(19, spec.rotary_dim);
    for (std::size_t r = 0; r < 19; ++r) {
      for (std::size_t i = 0; i < spec.rotary_dim / 2; ++i) {
        const double angle = static_cast<double>(normal(rng, 3));
        table.at(r, i) = static_cast<float>(std::cos(angle));
        table.at(r, i + spec.rotary_dim / 2) = static_cast<float>(std::sin(angle));
      }
    }
    std::vector<double> expected(x.data.begin(), x.data.end()), magnitudes(x.data.size(), 0.0);
    for (std::size_t r = 0; r < 19; ++r) {
      for (std::size_t h = 0; h < heads; ++h) {
        for (std::size_t i = 0; i < spec.rotary_dim / 2; ++i) {
          const std::size_t a = h * spec.head_dim + (spec.interleaved ? 2 * i : i);
          const std::size_t b = spec.interleaved ? a + 1 : a + spec.rotary_dim / 2;
          const double c = static_cast<double>(table.at(r, i)),
                       s = static_cast<double>(table.at(r, i + spec.rotary_dim / 2));
          const double first = static_cast<double>(x.at(r, a)), second = static_cast<double>(x.at(r, b));
          expected[r * x.cols + a] = first * c - second * s;
          expected[r * x.cols + b] = second * c + first * s;
          magnitudes[r * x.cols + a] = magnitudes[r * x.cols + b] = std::fabs(first) + std::fabs(second);
        }
      }
    }
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> one(target.context(1), rope.p.program), two(target.context(2), rope.p.program);
      const Matrix out = one.run(BatchRows::range(19), {{rope.x, x}, {rope.table, table}}, {rope.y})[0];
      check_near(out, expected, [&](std::size_t r, std::size_t c) {
        const std::size_t i = r * x.cols + c;
        return magnitudes[i] == 0
                   ? 1e-300
                   : target.bound(expected[i], magnitudes[i], 2);  // what is not rotated passes unchanged
      });
      CHECK(two.run(BatchRows::range(1), {{rope.x, x.slice(9, 1)}, {rope.table, table.slice(9, 1)}}, {rope.y})[0]
                .same_bits(out.slice(9, 1)));
    });
  }
}

}  // namespace
}  // namespace corbel_test
