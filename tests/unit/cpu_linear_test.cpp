// Packing and linear layers of the CPU backend: exact for every type, and equal to the bit whatever the company of a
// row.
#include <corbel/backends/cpu/amx/permission.hpp>
#include <corbel/backends/cpu/amx/tiles.hpp>
#include <corbel/backends/cpu/cpu_backend.hpp>
#include <corbel/context.hpp>
#include <corbel/dtype.hpp>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <support/isa.hpp>
#include <support/op_harness.hpp>
#include <support/support.hpp>
#include <utility>
#include <vector>

using namespace corbel_test;
namespace cpu = corbel::cpu;
using corbel::CpuBackend;
using corbel::DType;
using corbel::IsaLevel;

namespace {

corbel::Context context_at(IsaLevel level, int threads = 2) { return corbel::Context(options_at(level, threads)); }

/// Calls body(level) for each level that this CPU has, and names the others.
template <class Body>
void for_each_level(const char* test, const Body& body) {
  for (const IsaLevel level : kAllLevels) {
    if (!has_level(level)) {
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
                  const std::vector<float>& bias, const Matrix& x, hal::Role role = hal::Role::kPrompt) {
  hal::ValueId in = 0, out = 0;
  const OpProgram p = linear_program(parts, bias, &in, &out);
  OpRunner<CpuBackend> runner(context, p.program, {.max_rows = static_cast<std::uint32_t>(x.rows)});
  return runner.run(BatchRows::range(x.rows, 0, 0, role), {{in, x}}, {out})[0];
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
      const Matrix y = run_linear(context, spec.parts, bias.data, x, hal::Role::kGenerated);
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
      const std::uint64_t cols = type.unpack == nullptr ? 300 / type.block_elements * type.block_elements : 768;
      // Merged from two tensors of different types, each with a partly used last group.
      const std::vector<hal::WeightPart> parts = {
          quantized_part(type.dtype, 200, cols, rng),
          quantized_part(type.unpack == nullptr ? DType::kF32 : DType::kQ8_0, 55, cols, rng)};
      // Few rows read the weights themselves, more go through panels; more than kLinearRows need several.
      const bool many = type.dtype == DType::kQ4_K || type.dtype == DType::kF16;
      const Matrix x = random_matrix(many ? cpu::kLinearRows + 30 : 67, static_cast<std::size_t>(cols), rng);
      const Matrix all = run_linear(context_at(level, 2), parts, {}, x);
      CHECK(run_linear(context_at(level, 1), parts, {}, x).same_bits(all));
      for (const std::size_t count : {1u, 3u, 7u, 23u, 24u, 32u, 47u})
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
    const bool refused = level == IsaLevel::kAmx && corbel::detected_isa() == level && !cpu::request_tiles();
    CHECK(forced.ok() == (level <= corbel::detected_isa() && !refused));
    if (!forced.ok()) CHECK(forced.status().code() == corbel::Errc::kUnsupported);
  }
  // Without tiles, or where the option forbids them, amx means avx512 unless it is forced.
  options.isa = IsaLevel::kAmx;
  options.amx = corbel::AmxUse::kNever;
  CHECK(CpuBackend::create(corbel::Context(options)).status().code() == corbel::Errc::kUnsupported);
  options.force_isa = false;
  CHECK(CpuBackend::create(corbel::Context(options)).value().isa() ==
        std::min(corbel::detected_isa(), IsaLevel::kAvx512));
  options.force_isa = true;
  options.amx = corbel::AmxUse::kEmulate;
  const auto emulated = CpuBackend::create(corbel::Context(options));
  REQUIRE(emulated.ok() == (corbel::detected_isa() >= IsaLevel::kAvx512));
  if (!emulated.ok()) return;
  CHECK(emulated->isa() == IsaLevel::kAmx);
  CHECK(emulated->describe().find("emulated tiles") != std::string::npos);
}

// ---- tiles
// -----------------------------------------------------------------------------------------------------------

namespace {

using PlainTiles = cpu::SoftwareTiles<cpu::PlainTileArithmetic>;

std::uint16_t to_bf16(float x) { return corbel::f32_to_bf16(x); }
float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// One output of one TDPBF16PS: sum + the products of the pairs, all other inputs zero.
float one_dot(float sum, const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b) {
  std::uint16_t rows[32] = {}, pairs[512] = {};
  for (std::size_t k = 0; k < a.size(); ++k) rows[k] = a[k], pairs[k / 2 * 32 + k % 2] = b[k];
  float sums[16] = {sum};
  cpu::PlainTileArithmetic::tdpbf16ps(sums, rows, pairs, 1);
  return sums[0];
}

struct TileCase {
  std::vector<std::uint16_t> a, b;
  std::vector<float> sums;
};

/// Numbers of all sizes; `kind` chooses which sizes are likely.
TileCase random_tiles(Rng& rng, int kind) {
  TileCase c;
  const auto word = [&](std::uint32_t low, std::uint32_t count) {
    return static_cast<std::uint16_t>((rng() & 0x807fu) | (low + rng() % count) << 7);
  };
  for (int i = 0; i < 1024; ++i) {
    auto& to = i < 512 ? c.a : c.b;
    to.push_back(kind == 0 ? word(120, 14) : kind == 1 ? word(0, 130) : kind == 2 ? word(55, 20) : word(60, 4));
  }
  for (int i = 0; i < 256; ++i)
    c.sums.push_back(from_bits(
        static_cast<std::uint32_t>((rng() & 0x807fffffu) | (kind == 0 ? 120 + rng() % 14 : rng() % 3) << 23)));
  return c;
}

template <class Tiles>
std::vector<float> multiply(const TileCase& c, std::size_t first, std::size_t second) {
  std::vector<float> sums = c.sums;
  sums.resize(512);
  Tiles tiles(first, second);
  tiles.template load<4>(sums.data(), 64);
  tiles.template load<7>(sums.data(), 64);
  tiles.template load<0>(c.a.data(), 64);
  tiles.template load<2>(c.b.data(), 64);
  tiles.template load<1>(c.a.data(), 64);
  tiles.template load<3>(c.b.data(), 64);
  tiles.template dot_bf16<4, 0, 2>();
  tiles.template dot_bf16<7, 1, 3>();
  tiles.template store<4>(sums.data(), 64);
  tiles.template store<7>(sums.data() + 256, 64);
  tiles.template zero<5>();
  return sums;
}

/// out[r][c] of a linear on tiles as the numerics contract defines it, by the plain twin.
Matrix on_plain_tiles(const Matrix& x, const Matrix& w, const std::vector<float>& bias) {
  Matrix out(x.rows, w.rows);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t first = 0; first < w.rows; first += 16) {
      float sums[16] = {};
      const std::size_t count = std::min<std::size_t>(16, w.rows - first);
      for (std::size_t step = 0; step < x.cols; step += 32) {
        std::uint16_t row[32] = {}, pairs[512] = {};
        for (std::size_t k = step; k < std::min(step + 32, x.cols); ++k) {
          row[k - step] = to_bf16(x.at(r, k));
          for (std::size_t n = 0; n < count; ++n)
            pairs[(k - step) / 2 * 32 + 2 * n + k % 2] = to_bf16(w.at(first + n, k));
        }
        cpu::PlainTileArithmetic::tdpbf16ps(sums, row, pairs, 1);
      }
      for (std::size_t n = 0; n < count; ++n) out.at(r, first + n) = sums[n] + bias[first + n];
    }
  }
  return out;
}

}  // namespace

TEST_CASE("cpu tiles: the twin's arithmetic, by hand") {
  const std::uint16_t one = to_bf16(1), two = to_bf16(2), tiny = 0x0080, half = to_bf16(0.5f);
  CHECK(one_dot(1, {two, two, one}, {two, one, one}) == 8);
  // Even columns and odd ones are added up apart: 2^24 + 1 is a tie that goes to even, 1 + 1 is not lost.
  const std::uint16_t large = to_bf16(0x1p24f);
  CHECK(one_dot(0, {large, one, one, one}, {one, one, one, one}) == 0x1p24f + 2);
  CHECK(one_dot(0, {large, 0, one, 0, one, 0}, {one, 0, one, 0, one, 0}) == 0x1p24f);
  CHECK(one_dot(0, {one, 0, one, 0, large, 0}, {one, 0, one, 0, one, 0}) == 0x1p24f + 2);
  // And only their sum meets the destination.
  CHECK(one_dot(0x1p24f, {one, one}, {one, one}) == 0x1p24f + 2);
  CHECK(one_dot(0x1p24f, {one}, {one}) == 0x1p24f);
  // A step rounds once: (1 + 2^-7)^2 = 1 + 2^-6 + 2^-14, beside 2^10 the last bit is 2^-13.
  const std::uint16_t next = to_bf16(1 + 0x1p-7f), big = to_bf16(0x1p10f);
  CHECK(one_dot(0, {big, 0, next}, {one, 0, next}) == 0x1p10f + 1 + 0x1p-6f);  // a tie: to even
  // Subnormal inputs are zeros of their sign; so are subnormal results.
  CHECK(one_dot(0, {0x007f}, {large}) == 0);
  CHECK(one_dot(0, {0x0080}, {one}) == 0x1p-126f);
  CHECK(one_dot(from_bits(0x007fffff), {}, {}) == 0);
  CHECK(std::signbit(one_dot(from_bits(0x807fffff), {0x8001}, {one})) == false);  // -0 + (0 + 0)
  CHECK(one_dot(0, {tiny, 0, tiny}, {half, 0, half}) == 0);  // each step is flushed before the next
  CHECK(one_dot(0, {tiny, 0}, {half, 0}) == 0);
  CHECK(one_dot(0x1p-126f, {static_cast<std::uint16_t>(0x8000u | tiny)}, {half}) == 0x1p-126f);
  // What lies less than half a step of subnormal numbers below the smallest normal one is tiny until it rounds up with
  // 24 bits: 1.9921875 * 2^-127 + rest.
  const float below = cpu::amx_twin::fused_step(1 - 0x1p-8f, 0x1p-126f, 0);  // exact: subnormal
  CHECK(below == 0);
  CHECK(cpu::amx_twin::fused_step(-0x1p-100f, 0x1p-50f, 0x1p-126f) == 0);          // 2^-126 - 2^-150: tiny
  CHECK(cpu::amx_twin::fused_step(-0x1p-101f, 0x1p-50f, 0x1p-126f) == 0x1p-126f);  // half a step: a tie, to even
  CHECK(std::signbit(cpu::amx_twin::fused_step(0x1p-100f, 0x1p-50f, -0x1p-126f)));
  // Infinities and NaNs.
  const std::uint16_t inf = 0x7f80, nan = 0x7fc0;
  CHECK(one_dot(0, {inf}, {one}) == std::numeric_limits<float>::infinity());
  CHECK(one_dot(0, {to_bf16(0x1p127f), 0, to_bf16(0x1p127f)}, {one, 0, one}) == std::numeric_limits<float>::infinity());
  CHECK(std::isnan(one_dot(0, {inf}, {0})));
  CHECK(std::isnan(one_dot(0, {nan}, {one})));
  CHECK(std::isnan(one_dot(0, {inf, inf}, {one, static_cast<std::uint16_t>(0x8000u | one)})));
}

TEST_CASE("cpu tiles: the twin against sums in double, and tile shapes") {
  Rng rng(21);
  for (int round = 0; round < 50; ++round) {
    const TileCase c = random_tiles(rng, 0);
    const std::vector<float> out = multiply<PlainTiles>(c, 16, 9);
    double worst = 0;
    for (std::size_t m = 0; m < 16; ++m) {
      for (std::size_t n = 0; n < 16; ++n) {
        double sum = static_cast<double>(c.sums[m * 16 + n]), magnitude = std::fabs(sum);
        for (std::size_t k = 0; k < 32; ++k) {
          const double product = static_cast<double>(corbel::bf16_to_f32(c.a[m * 32 + k])) *
                                 static_cast<double>(corbel::bf16_to_f32(c.b[k / 2 * 32 + 2 * n + k % 2]));
          sum += product;
          magnitude += std::fabs(product);
        }
        worst = std::max(worst, std::fabs(static_cast<double>(out[m * 16 + n]) - sum) / (18 * 0x1p-24 * magnitude));
      }
    }
    CHECK(worst <= 1);
    CHECK(worst > 0);
    // Nine rows: the same as the first nine of sixteen, and the others are left alone.
    CHECK(std::equal(out.begin(), out.begin() + 9 * 16, out.begin() + 256));
    CHECK(std::all_of(out.begin() + 256 + 9 * 16, out.end(), [](float x) { return x == 0; }));
  }
}

TEST_CASE("cpu tiles: hardware and twin agree bit for bit") {
  if (corbel::detected_isa() < IsaLevel::kAmx || !cpu::request_tiles()) {
    skip("cpu tiles: hardware and twin agree bit for bit", "this CPU has no AMX, or the system refuses it");
    return;
  }
#if defined(__x86_64__)
  Rng rng(22);
  for (int round = 0; round < 400; ++round) {
    const TileCase c = random_tiles(rng, round % 4);
    const std::size_t first = 1 + rng() % 16, second = 1 + rng() % 16;
    const std::vector<float> hardware = multiply<cpu::HardwareTiles>(c, first, second);
    const std::vector<float> twin = multiply<PlainTiles>(c, first, second);
    CHECK(std::memcmp(hardware.data(), twin.data(), twin.size() * sizeof(float)) == 0);
  }
  // And whole linears.
  corbel::ContextOptions emulated = options_at(IsaLevel::kAmx, 2);
  emulated.amx = corbel::AmxUse::kEmulate;
  for (const corbel::DTypeTraits& type : corbel::all_dtypes()) {
    INFO(type.name);
    const std::uint64_t cols = type.unpack == nullptr ? 100 / type.block_elements * type.block_elements : 768;
    const std::vector<hal::WeightPart> parts = {quantized_part(type.dtype, 75, cols, rng)};
    const Matrix x = random_matrix(53, static_cast<std::size_t>(cols), rng);
    CHECK(run_linear(context_at(IsaLevel::kAmx), parts, {}, x)
              .same_bits(run_linear(corbel::Context(emulated), parts, {}, x)));
  }
#endif
}

TEST_CASE("cpu tiles: rows of prompts have the bits of the plain twin, generated ones those of avx512") {
  if (!has_level(IsaLevel::kAmx)) {
    skip("cpu tiles: rows of prompts and generated ones", "this CPU lacks avx512");
    return;
  }
  Rng rng(23);
  for (const corbel::DTypeTraits& type : corbel::all_dtypes()) {
    INFO(type.name);
    const cpu::PackedFormat format = cpu::packed_format(type.dtype);
    const bool on_tiles = format.quantized() || format.coded() || format.plain == DType::kBF16;
    const std::uint64_t cols = type.unpack == nullptr ? 77 / type.block_elements * type.block_elements : 512;
    const hal::WeightSpec spec{{quantized_part(type.dtype, 45, cols, rng)}, hal::kUseLinear};
    const Matrix bias = random_matrix(1, 45, rng);
    Matrix x = random_matrix(19, static_cast<std::size_t>(cols), rng, 3);
    for (std::size_t k = 0; k < x.cols; ++k) x.at(3, k) *= 0x1p-120f;  // products are tiny, sums too
    const Matrix low = run_linear(context_at(IsaLevel::kAvx512), spec.parts, bias.data, x);
    const Matrix prompts = run_linear(context_at(IsaLevel::kAmx), spec.parts, bias.data, x);
    const Matrix generated = run_linear(context_at(IsaLevel::kAmx), spec.parts, bias.data, x, hal::Role::kGenerated);
    CHECK(generated.same_bits(low));
    CHECK(prompts.same_bits(low) != on_tiles);
    if (on_tiles) CHECK(prompts.same_bits(on_plain_tiles(x, dequantized(spec), bias.data)));
  }
}

TEST_CASE("cpu tiles: inputs of many columns go in parts, and give the same bits") {
  if (!has_level(IsaLevel::kAmx)) {
    skip("cpu tiles: inputs of many columns", "this CPU lacks avx512");
    return;
  }
  Rng rng(24);
  const std::size_t cols = 2 * 2048 + 96;
  const hal::WeightSpec spec{{quantized_part(DType::kQ4_0, 40, cols, rng)}, hal::kUseLinear};
  const Matrix bias = random_matrix(1, 40, rng), x = random_matrix(50, cols, rng);
  const Matrix y = run_linear(context_at(IsaLevel::kAmx), spec.parts, bias.data, x);
  CHECK(y.same_bits(on_plain_tiles(x, dequantized(spec), bias.data)));
}
