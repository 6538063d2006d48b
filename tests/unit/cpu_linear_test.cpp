// Packing and linear layers of the CPU backend: exact for every type, and equal to the bit whatever the company of a
// row.
#include <corbel/backends/cpu/cpu_backend.hpp>
#include <corbel/context.hpp>
#include <corbel/dtype.hpp>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <support/op_harness.hpp>
#include <support/support.hpp>
#include <utility>
#include <vector>

using namespace corbel_test;
using corbel::CpuBackend;
using corbel::DType;
using corbel::IsaLevel;

namespace {

corbel::Context context_at(IsaLevel level, int threads = 2) {
  corbel::ContextOptions options;
  options.isa = level;
  options.force_isa = true;
  options.threads = threads;
  return corbel::Context(options);
}

/// Calls body(level) for each level that this CPU has, and names the others.
template <class Body>
void for_each_level(const char* test, const Body& body) {
  for (const IsaLevel level : {IsaLevel::kBase, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    if (level > corbel::detected_isa()) {
      skip(test, std::string("this CPU lacks ") + corbel::isa_name(level));
      continue;
    }
    INFO(corbel::isa_name(level));
    body(level);
  }
}

OpProgram linear_program(std::vector<hal::WeightPart> parts, const std::vector<float>& bias, hal::ValueId* x,
                         hal::ValueId* y) {
  OpProgram p;
  hal::WeightSpec spec{parts, hal::kUseLinear};
  *x = p.value("x", static_cast<std::uint32_t>(spec.cols()));
  *y = p.value("y", static_cast<std::uint32_t>(spec.rows()));
  hal::Op op;
  op.kind = hal::OpKind::kLinear;
  op.in[0] = *x;
  op.out = *y;
  op.weight = p.weight(std::move(parts), hal::kUseLinear);
  if (!bias.empty()) op.bias = p.vector(bias);
  p.program.ops = {op};
  return p;
}

/// A row of activations as the backend sees it beside quantized weights: 8-bit codes with one scale per 32.
std::vector<double> as_quantized(const float* x, std::size_t count) {
  std::vector<double> out(count);
  for (std::size_t block = 0; block < count; block += 32) {
    float peak = 0;
    for (std::size_t i = 0; i < 32; ++i) peak = std::max(peak, std::fabs(x[block + i]));
    const float scale = peak * (1.0f / 127.0f);
    const float inverse = peak == 0 ? 0.0f : 127.0f / peak;
    for (std::size_t i = 0; i < 32; ++i)
      out[block + i] = std::nearbyint(static_cast<double>(x[block + i] * inverse)) * static_cast<double>(scale);
  }
  return out;
}

Matrix run_linear(const corbel::Context& context, const std::vector<hal::WeightPart>& parts,
                  const std::vector<float>& bias, const Matrix& x) {
  hal::ValueId in = 0, out = 0;
  const OpProgram p = linear_program(parts, bias, &in, &out);
  OpRunner<CpuBackend> runner(context, p.program, {.max_rows = 128});
  return runner.run(BatchRows::range(x.rows), {{in, x}}, {out})[0];
}

}  // namespace

TEST_CASE("cpu: packed rows equal the reference dequantization bit for bit, for every type") {
  Rng rng(1);
  const corbel::Context context;
  auto backend = CpuBackend::create(context);
  REQUIRE(backend.ok());
  for (const corbel::DTypeTraits& type : corbel::all_dtypes()) {
    INFO(type.name);
    // 37 rows: two whole groups and a part of one.
    const std::uint64_t cols = type.unpack == nullptr ? 71 / type.block_elements * type.block_elements : 512;
    const hal::WeightSpec spec{{quantized_part(type.dtype, 37, cols, rng)}, hal::kUseEmbedding | hal::kUseLinear};
    Matrix expected = dequantized(spec);
    if (type.dtype == DType::kGroupE2M1)  // its codes are kept as integers, which have one zero
      for (float& value : expected.data) value += 0.0f;
    auto weight = backend->prepare(spec);
    REQUIRE(weight.ok());
    CHECK(weight->bytes() == backend->weight_bytes(spec));
    Matrix actual(expected.rows, expected.cols);
    for (std::size_t r = 0; r < actual.rows; ++r) weight->read_row(r, &actual.at(r, 0));
    CHECK(actual.same_bits(expected));
  }
}

TEST_CASE("cpu: packed 4-bit types take no more bytes than the file") {
  Rng rng(2);
  auto backend = CpuBackend::create(corbel::Context());
  REQUIRE(backend.ok());
  const auto bytes = [&](DType dtype) {
    return backend->weight_bytes({{quantized_part(dtype, 64, 512, rng)}, hal::kUseLinear});
  };
  CHECK(bytes(DType::kQ4_0) == 64 * 512 / 32 * 18);
  CHECK(bytes(DType::kQ4_1) == 64 * 512 / 32 * 20);
  CHECK(bytes(DType::kQ8_0) == 64 * 512 / 32 * 34);
  CHECK(bytes(DType::kIQ4_NL) == 64 * 512 / 32 * 18);
  CHECK(bytes(DType::kNVFP4) == 64 * 512 / 64 * 40);  // scales widen from 8 bits to 16
  CHECK(bytes(DType::kMXFP4) == 64 * 512 / 32 * 18);  // and here
  CHECK(bytes(DType::kF16) == 64 * 512 * 2);
}

TEST_CASE("cpu: linear of every type against exact arithmetic on the same quantized activations") {
  for_each_level("cpu: linear of every type", [](IsaLevel level) {
    const corbel::Context context = context_at(level);
    for (const corbel::DTypeTraits& type : corbel::all_dtypes()) {
      INFO(type.name);
      Rng rng(3);
      const bool plain = type.unpack == nullptr;
      const std::uint64_t cols = plain ? 77 / type.block_elements * type.block_elements : 512;
      const std::size_t rows = 45, num_x = 13;
      const hal::WeightSpec spec{{quantized_part(type.dtype, rows, cols, rng)}, hal::kUseLinear};
      const Matrix w = dequantized(spec);
      const Matrix x = random_matrix(num_x, static_cast<std::size_t>(cols), rng, 3);
      const Matrix bias = random_matrix(1, rows, rng);
      const Matrix y = run_linear(context, spec.parts, bias.data, x);
      double worst = 0;
      for (std::size_t r = 0; r < num_x; ++r) {
        std::vector<double> xs =
            plain ? std::vector<double>(x.row(r), x.row(r) + cols) : as_quantized(x.row(r), x.cols);
        for (std::size_t c = 0; c < rows; ++c) {
          double sum = static_cast<double>(bias.data[c]), magnitude = std::fabs(sum);
          for (std::size_t k = 0; k < w.cols; ++k) {
            sum += static_cast<double>(w.at(c, k)) * xs[k];
            magnitude += std::fabs(static_cast<double>(w.at(c, k)) * xs[k]);
          }
          // Types with a minimum add two terms that nearly cancel: their size is about that of all products with the
          // minimum.
          const double steps = plain ? static_cast<double>(cols) : 2.0 * static_cast<double>(cols) / 16;
          worst = std::max(worst,
                           std::fabs(static_cast<double>(y.at(r, c)) - sum) / (0x1p-24 * (steps + 8) * magnitude * 4));
        }
      }
      CHECK(worst <= 1);
      CHECK(worst > 0);
    }
  });
}

TEST_CASE("cpu: linear codes at their extremes do not saturate") {
  for_each_level("cpu: linear codes at their extremes", [](IsaLevel level) {
    for (const int code : {-128, -127, 127}) {
      std::vector<std::byte> bytes(16 * 34);
      for (std::size_t row = 0; row < 16; ++row) {
        const std::uint16_t one = 0x3c00;
        std::memcpy(bytes.data() + row * 34, &one, 2);
        for (std::size_t i = 0; i < 32; ++i) bytes[row * 34 + 2 + i] = static_cast<std::byte>(code);
      }
      Matrix x(2, 32);
      for (std::size_t i = 0; i < 32; ++i) x.at(0, i) = 127, x.at(1, i) = -127;
      const Matrix y = run_linear(context_at(level), {make_part("w", DType::kQ8_0, 16, 32, bytes)}, {}, x);
      for (std::size_t c = 0; c < 16; ++c) {
        CHECK(y.at(0, c) == static_cast<float>(code * 127 * 32));
        CHECK(y.at(1, c) == static_cast<float>(-code * 127 * 32));
      }
    }
    for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1}) {  // all codes 15 or 31
      const corbel::DTypeTraits& type = corbel::traits(dtype);
      std::vector<std::byte> bytes(16 * type.block_bytes, std::byte{0xff});
      const std::uint16_t one = 0x3c00, minus_two = 0xc000;
      const bool has_minimum = dtype == DType::kQ4_1 || dtype == DType::kQ5_1;
      for (std::size_t row = 0; row < 16; ++row) {
        std::memcpy(bytes.data() + row * type.block_bytes, &one, 2);
        if (has_minimum) std::memcpy(bytes.data() + row * type.block_bytes + 2, &minus_two, 2);
      }
      const int top = dtype == DType::kQ4_0 ? 7 : dtype == DType::kQ4_1 ? 13 : dtype == DType::kQ5_0 ? 15 : 29;
      Matrix x(1, 32);
      for (std::size_t i = 0; i < 32; ++i) x.at(0, i) = 127;
      const Matrix y = run_linear(context_at(level), {make_part("w", dtype, 16, 32, bytes)}, {}, x);
      for (std::size_t c = 0; c < 16; ++c) CHECK(y.at(0, c) == static_cast<float>(top * 127 * 32));
    }
  });
}

TEST_CASE("cpu: a linear row has the same bits alone, in company, and with any number of threads") {
  for_each_level("cpu: a linear row has the same bits", [](IsaLevel level) {
    for (const corbel::DTypeTraits& type : corbel::all_dtypes()) {
      INFO(type.name);
      Rng rng(4);
      const std::uint64_t cols = type.unpack == nullptr ? 100 / type.block_elements * type.block_elements : 768;
      // Merged from two tensors of different types, each with a partly used last group.
      const std::vector<hal::WeightPart> parts = {
          quantized_part(type.dtype, 200, cols, rng),
          quantized_part(type.unpack == nullptr ? DType::kF32 : DType::kQ8_0, 55, cols, rng)};
      const Matrix x = random_matrix(101, static_cast<std::size_t>(cols), rng);
      const Matrix all = run_linear(context_at(level, 2), parts, {}, x);
      CHECK(run_linear(context_at(level, 1), parts, {}, x).same_bits(all));
      for (const std::size_t count : {std::size_t{1}, std::size_t{3}, std::size_t{7}, std::size_t{64}})
        CHECK(run_linear(context_at(level, 2), parts, {}, x.slice(20, count)).same_bits(all.slice(20, count)));
    }
  });
}

TEST_CASE("cpu: NaN activations reach the outputs of their row alone") {
  for_each_level("cpu: NaN activations", [](IsaLevel level) {
    for (const DType dtype : {DType::kQ4_1, DType::kQ8_0, DType::kF32}) {
      Rng rng(5);
      const std::vector<hal::WeightPart> parts = {quantized_part(dtype, 32, 64, rng)};
      Matrix x = random_matrix(3, 64, rng);
      const Matrix before = run_linear(context_at(level), parts, {}, x);
      x.at(1, 40) = std::numeric_limits<float>::quiet_NaN();
      const Matrix after = run_linear(context_at(level), parts, {}, x);
      CHECK(after.slice(0, 1).same_bits(before.slice(0, 1)));
      CHECK(after.slice(2, 1).same_bits(before.slice(2, 1)));
      for (std::size_t c = 0; c < 32; ++c) CHECK(std::isnan(after.at(1, c)));
    }
  });
}

TEST_CASE("cpu: prepare names what it refuses") {
  auto backend = CpuBackend::create(corbel::Context());
  REQUIRE(backend.ok());
  Rng rng(6);
  std::vector<std::byte> bytes(40 * 2 * 34, std::byte{1});
  bytes[(33 * 2 + 1) * 34 + 1] = std::byte{0x7c};  // the scale of row 33, block 1 is infinite or NaN
  const auto bad = backend->prepare({{make_part("blk.0.w", DType::kQ8_0, 40, 64, bytes)}, hal::kUseLinear});
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.status().code() == corbel::Errc::kBadValue);
  CHECK(bad.status().message().find("blk.0.w") != std::string::npos);
  CHECK(bad.status().message().find("block 67") != std::string::npos);

  hal::WeightPart ragged = quantized_part(DType::kQ4_K, 1, 256, rng);
  ragged.cols = 250;
  CHECK(backend->prepare({{ragged}, hal::kUseLinear}).status().code() == corbel::Errc::kUnsupported);

  hal::WeightPart truncated = quantized_part(DType::kQ4_0, 2, 64, rng);
  truncated.rows = 200;
  class Reader final : public hal::ByteSource {
   public:
    explicit Reader(std::shared_ptr<const hal::ByteSource> inner) : inner_(std::move(inner)) {}
    corbel::Status read(std::uint64_t offset, std::span<std::byte> out) const override {
      return inner_->read(offset, out);
    }

   private:
    std::shared_ptr<const hal::ByteSource> inner_;
  };
  truncated.source = std::make_shared<Reader>(truncated.source);
  CHECK(backend->prepare({{truncated}, hal::kUseLinear}).status().code() == corbel::Errc::kTruncated);
}

TEST_CASE("cpu: levels can be capped and forced") {
  corbel::ContextOptions options;
  options.isa = IsaLevel::kBase;
  auto base = CpuBackend::create(corbel::Context(options));
  REQUIRE(base.ok());
  CHECK(base->isa() == IsaLevel::kBase);
  CHECK(base->describe().find("base") != std::string::npos);
  for (const IsaLevel level : {IsaLevel::kBase, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmx}) {
    options.isa = level;
    options.force_isa = true;
    const auto forced = CpuBackend::create(corbel::Context(options));
    CHECK(forced.ok() == (level <= corbel::detected_isa()));
    if (!forced.ok()) CHECK(forced.status().code() == corbel::Errc::kUnsupported);
  }
}
