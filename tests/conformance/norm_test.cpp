// The norm op on every backend: both kinds, groups, views, with and without weight and bias.
#include <support/backend_matrix.hpp>

namespace corbel_test {
namespace {

struct Norm {
  OpProgram p;
  hal::ValueId x, y;

  Norm(const hal::NormSpec& spec, std::uint32_t width, const std::vector<float>& weight,
       const std::vector<float>& bias) {
    x = p.view(p.value("x", width + 48), 16, width);
    y = p.value("y", width);
    const hal::WeightId weight_id = weight.empty() ? hal::kNone : p.vector(weight);
    const hal::WeightId bias_id = bias.empty() ? hal::kNone : p.vector(bias);
    hal::Op& op = p.add(hal::OpKind::kNorm, {x, hal::kNone}, y);
    op.weight = weight_id;
    op.bias = bias_id;
    op.norm = spec;
  }
};

/// A weight and a bias of so many elements: none, a group's, or those of all columns.
void check_norm(const hal::NormSpec& spec, const Matrix& x, Rng& rng, std::size_t weights, std::size_t biases) {
  const std::size_t n = spec.group;
  const std::vector<float> weight = random_matrix(1, weights, rng).data, bias = random_matrix(1, biases, rng).data;
  const auto at = [n](const std::vector<float>& vector, std::size_t column, float none) {
    return static_cast<double>(vector.empty() ? none : vector[vector.size() == n ? column % n : column]);
  };
  const Norm norm(spec, static_cast<std::uint32_t>(x.cols), weight, bias);
  for_each_backend([&]<class B>(const Target& target) {
    OpRunner<B> runner(target.context(), norm.p.program);
    const Matrix out = runner.run(BatchRows::range(x.rows), {{norm.x, x}}, {norm.y})[0];
    std::vector<double> expected, bounds;
    for (std::size_t r = 0; r < x.rows; ++r) {
      for (std::size_t first = 0; first < x.cols; first += n) {
        long double mean = 0, square = 0, size = 0;
        for (std::size_t i = 0; i < n; ++i) {
          mean += static_cast<long double>(x.at(r, first + i));
          size = std::max(size, std::fabs(static_cast<long double>(x.at(r, first + i))));
        }
        mean = spec.kind == hal::NormKind::kLayer ? mean / static_cast<long double>(n) : 0;
        for (std::size_t i = 0; i < n; ++i) {
          const long double d = static_cast<long double>(x.at(r, first + i)) - mean;
          square += d * d;
        }
        const long double divisor =
            std::sqrt(square / static_cast<long double>(n) + static_cast<long double>(spec.epsilon));
        for (std::size_t i = 0; i < n; ++i) {
          const double scaled = static_cast<double>((static_cast<long double>(x.at(r, first + i)) - mean) / divisor);
          const double w = at(weight, first + i, 1), b = at(bias, first + i, 0);
          expected.push_back(scaled * w + b);
          // A mean that is subtracted leaves its own rounding behind: relative to the largest element.
          const double subtracted = spec.kind == hal::NormKind::kLayer ? static_cast<double>(size / divisor) : 0.0;
          const double magnitude = std::fabs(scaled * w) + std::fabs(b) + 2 * subtracted * std::fabs(w);
          bounds.push_back(target.bound(expected.back(), magnitude, n));
        }
      }
    }
    check_near(out, expected, [&](std::size_t r, std::size_t c) { return bounds[r * out.cols + c]; });
  });
}

TEST_CASE("norm: sizes, groups, kinds") {
  Rng rng(31);
  for (const hal::NormKind kind : {hal::NormKind::kRms, hal::NormKind::kLayer}) {
    for (const auto& [group, groups] :
         std::vector<std::pair<std::uint32_t, std::uint32_t>>{{1, 1}, {7, 3}, {16, 9}, {64, 1}, {576, 1}, {129, 2}}) {
      INFO(groups << " groups of " << group);
      for (const std::size_t rows : {std::size_t{1}, std::size_t{33}}) {
        const Matrix x = random_matrix(rows, std::size_t{group} * groups, rng, 3);
        check_norm({kind, group, 1e-5f}, x, rng, group, 0);
        check_norm({kind, group, 1e-6f}, x, rng, group, group);
        check_norm({kind, group, 1e-6f}, x, rng, 0, 0);
        check_norm({kind, group, 1e-6f}, x, rng, x.cols, 0);
        check_norm({kind, group, 1e-6f}, x, rng, x.cols, group);
        check_norm({kind, group, 1e-6f}, x, rng, 0, x.cols);
      }
    }
  }
}

TEST_CASE("norm: tiny, huge and zero rows") {
  Rng rng(32);
  Matrix x = random_matrix(4, 64, rng);
  for (std::size_t c = 0; c < 64; ++c) {
    x.at(0, c) *= 1e-4f;
    x.at(1, c) *= 1e6f;
    x.at(2, c) = 0;
  }
  check_norm({hal::NormKind::kRms, 64, 1e-5f}, x, rng, 64, 0);
}

TEST_CASE("norm: bits do not depend on other rows or threads") {
  Rng rng(33);
  const Norm norm({hal::NormKind::kRms, 96, 1e-6f}, 192, random_matrix(1, 96, rng).data, {});
  const Matrix x = random_matrix(40, 192, rng);
  for_each_backend([&]<class B>(const Target& target) {
    OpRunner<B> one(target.context(1), norm.p.program), two(target.context(2), norm.p.program);
    const Matrix all = one.run(BatchRows::range(40), {{norm.x, x}}, {norm.y})[0];
    CHECK(two.run(BatchRows::range(40), {{norm.x, x}}, {norm.y})[0].same_bits(all));
    CHECK(two.run(BatchRows::range(1), {{norm.x, x.slice(17, 1)}}, {norm.y})[0].same_bits(all.slice(17, 1)));
  });
}

}  // namespace
}  // namespace corbel_test
