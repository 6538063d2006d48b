// Every backend that the conformance tests run on, and how far each may be from exact arithmetic.
#pragma once

#include <corbel/backends.hpp>
#include <corbel/context.hpp>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <fake_device/fake_backend.hpp>
#include <string>
#include <support/isa.hpp>
#include <support/op_harness.hpp>
#include <utility>
#include <vector>

namespace corbel_test {

/// One backend at one ISA level.
struct Target {
  std::string name;
  corbel::ContextOptions options;
  /// Double inside an op and one rounding at its end; else float32 sums, and 8-bit activations (one scale per 32)
  /// against quantized weights.
  bool is_exact = false;
  /// Rows of prompts meet weights on tiles of bfloat16: both factors are rounded to 8 significant bits, see on_tiles().
  bool has_tiles = false;

  corbel::Context context(int threads = 2) const {
    corbel::ContextOptions copy = options;
    copy.threads = threads;
    return corbel::Context(copy);
  }

  /// How far a result may be from `expected`, a sum of `terms` terms whose absolute values add up to `magnitude`.
  /// First-order rounding analysis: each of the additions, and a few operations around them (products, scales, exp,
  /// division), costs half a unit of the last place of at most `magnitude`.
  double bound(double expected, double magnitude, std::size_t terms) const {
    constexpr double kFloatUnit = 0x1p-24, kDoubleUnit = 0x1p-53;
    const double operations = static_cast<double>(terms) + 16;
    if (is_exact) return kFloatUnit * std::fabs(expected) + kDoubleUnit * operations * magnitude + 0x1p-149;
    return kFloatUnit * operations * magnitude + 0x1p-126;
  }
  /// How far a row of a prompt of a linear may be besides, for weights of this type; `magnitude` is that of the
  /// products.
  double tile_slack(corbel::DType dtype, double magnitude) const { return on_tiles(dtype) ? 0x1.01p-7 * magnitude : 0; }
  bool on_tiles([[maybe_unused]] corbel::DType dtype) const {
#if CORBEL_HAS_CPU
    const corbel::cpu::PackedFormat format = corbel::cpu::packed_format(dtype);
    return has_tiles && (format.quantized() || format.coded() || format.plain == corbel::DType::kBF16);
#else
    return false;
#endif
  }
};

#if CORBEL_HAS_CPU
/// The target of a level of the CPU backend; tiles are emulated where the processor has none.
inline Target cpu_target(corbel::IsaLevel level) {
  Target target;
  target.name = std::string("cpu at ") + corbel::isa_name(level);
  target.options = options_at(level, 0);
  target.has_tiles = level == corbel::IsaLevel::kAmx;
  return target;
}
#endif

/// Calls body.template operator()<B>(target) for each backend and each ISA level that this CPU has.
template <class Body>
void for_each_backend(const Body& body) {
  {
    const Target target = {"ref", {}, true};
    INFO(target.name);
    body.template operator()<corbel::RefBackend>(target);
  }
  {
    const Target target = {"fake", {}, true};
    INFO(target.name);
    body.template operator()<FakeBackend>(target);
  }
#if CORBEL_HAS_CPU
  for (const corbel::IsaLevel level : kAllLevels) {
    if (!has_level(level)) continue;  // isa_levels_test.cpp says which
    const Target target = cpu_target(level);
    INFO(target.name);
    body.template operator()<corbel::CpuBackend>(target);
  }
#endif
}

/// Fails where an element is further from `expected` than bound(row, column) says, naming the worst one.
template <class Bound>
void check_near(const Matrix& actual, const std::vector<double>& expected, const Bound& bound) {
  REQUIRE(expected.size() == actual.data.size());
  double worst = -1;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::fabs(static_cast<double>(actual.data[i]) - expected[i]);
    const double ratio = error / bound(i / actual.cols, i % actual.cols);
    if (!(ratio <= worst)) worst = ratio, worst_at = i;  // NaN counts as worst
    if (std::isnan(ratio)) break;
  }
  if (expected.empty()) return;
  INFO("row " << worst_at / actual.cols << ", column " << worst_at % actual.cols << ": " << actual.data[worst_at]
              << ", expected " << expected[worst_at]);
  CHECK(worst <= 1);
}

/// Fails where rows of prompts and of generated tokens in one run have other bits than in runs of one role; `count`
/// rows.
template <class B>
void check_roles(OpRunner<B>& runner, std::size_t count, const std::vector<std::pair<hal::ValueId, Matrix>>& inputs,
                 hal::ValueId output) {
  BatchRows mixed;
  for (std::size_t r = 0; r < count; ++r)
    mixed.add(0, static_cast<std::int32_t>(r), 0,
              r % 5 == 1 || r % 7 == 2 ? hal::Role::kGenerated : hal::Role::kPrompt);
  const Matrix prompts = runner.run(BatchRows::range(count), inputs, {output})[0];
  const Matrix generated = runner.run(BatchRows::range(count, 0, 0, hal::Role::kGenerated), inputs, {output})[0];
  const Matrix both = runner.run(mixed, inputs, {output})[0];
  bool same = true;
  for (std::size_t r = 0; r < count; ++r)
    same = same && both.slice(r, 1).same_bits((mixed.roles[r] == hal::Role::kPrompt ? prompts : generated).slice(r, 1));
  CHECK(same);
}

/// The given rows of a matrix.
inline Matrix take_rows(const Matrix& m, const std::vector<std::int32_t>& rows) {
  Matrix out(rows.size(), m.cols);
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy_n(m.row(static_cast<std::size_t>(rows[i])), m.cols,
                out.data.begin() + static_cast<std::ptrdiff_t>(i * m.cols));
  return out;
}

}  // namespace corbel_test
