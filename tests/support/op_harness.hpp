// Runs a small program on any backend: builds weights from plain arrays, lays out the arena, keeps a cache of scrambled
// blocks, uploads inputs, runs, downloads outputs. Used by the conformance tests and by backends' own tests.
//
//   OpProgram p;
//   const ValueId x = p.value("x", 64), y = p.value("y", 32);
//   const WeightId w = p.weight({quantized_part(DType::kQ4_0, 32, 64, rng)}, hal::kUseLinear);
//   p.add(hal::OpKind::kLinear, {x, hal::kNone}, y).weight = w;
//   OpRunner<RefBackend> runner(context, p.program);
//   const Matrix out = runner.run(BatchRows::range(5), {{x, random_matrix(5, 64, rng)}}, {y})[0];
#pragma once

#include <corbel/context.hpp>
#include <corbel/dtype.hpp>
#include <corbel/hal/backend.hpp>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace corbel_test {

namespace hal = corbel::hal;
using Rng = std::mt19937;

/// A dense float32 matrix on the host.
struct Matrix {
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::vector<float> data;

  Matrix() = default;
  Matrix(std::size_t rows_in, std::size_t cols_in) : rows(rows_in), cols(cols_in), data(rows_in * cols_in) {}
  float& at(std::size_t r, std::size_t c) { return data[r * cols + c]; }
  float at(std::size_t r, std::size_t c) const { return data[r * cols + c]; }
  const float* row(std::size_t r) const { return data.data() + r * cols; }
  /// Equal to the bit.
  bool same_bits(const Matrix& other) const {
    return rows == other.rows && cols == other.cols &&
           (data.empty() || std::memcmp(data.data(), other.data.data(), data.size() * sizeof(float)) == 0);
  }
  /// Rows [first, first + count).
  Matrix slice(std::size_t first, std::size_t count) const {
    Matrix out(count, cols);
    std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(first * cols), count * cols, out.data.begin());
    return out;
  }
};

/// Normal values with this deviation. (Box and Muller, so that every standard library gives the same.)
inline float normal(Rng& rng, double deviation = 1) {
  const double u = (static_cast<double>(rng()) + 1) / 4294967297.0, v = static_cast<double>(rng()) / 4294967296.0;
  return static_cast<float>(deviation * std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
}
inline Matrix random_matrix(std::size_t rows, std::size_t cols, Rng& rng, double deviation = 1) {
  Matrix out(rows, cols);
  for (float& value : out.data) value = normal(rng, deviation);
  return out;
}

/// A tensor's bytes in memory.
class MemorySource final : public hal::ByteSource {
 public:
  explicit MemorySource(std::vector<std::byte> data) : data_(std::move(data)) {}
  corbel::Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > data_.size() || out.size() > data_.size() - offset)
      return corbel::Status(corbel::Errc::kTruncated, "memory source: past the end");
    std::copy_n(data_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }
  std::span<const std::byte> bytes() const noexcept override { return data_; }

 private:
  std::vector<std::byte> data_;
};

inline hal::WeightPart make_part(std::string name, corbel::DType dtype, std::uint64_t rows, std::uint64_t cols,
                                 std::vector<std::byte> bytes) {
  hal::WeightPart part;
  part.name = std::move(name);
  part.dtype = dtype;
  part.rows = rows;
  part.cols = cols;
  part.source = std::make_shared<MemorySource>(std::move(bytes));
  return part;
}

/// A float32 tensor with these values.
inline hal::WeightPart f32_part(std::uint64_t rows, std::uint64_t cols, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return make_part("f32", corbel::DType::kF32, rows, cols, std::move(bytes));
}
inline hal::WeightPart f32_part(const Matrix& m) { return f32_part(m.rows, m.cols, m.data); }

/// Random bytes of `dtype` whose scales and values are moderate: every bit of the quants is random, 16-bit and 32-bit
/// floats are about 1 / `divisor`.
inline hal::WeightPart quantized_part(corbel::DType dtype, std::uint64_t rows, std::uint64_t cols, Rng& rng) {
  using corbel::DType;
  const corbel::DTypeTraits& type = corbel::traits(dtype);
  const std::uint64_t blocks = rows * (cols / type.block_elements);
  std::vector<std::byte> bytes(blocks * type.block_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng() & 0xff);
  const auto put16 = [&](std::uint64_t at, std::uint16_t bits) { std::memcpy(bytes.data() + at, &bits, 2); };
  const auto put_f16 = [&](std::uint64_t at, double scale) {
    put16(at, corbel::f32_to_f16(static_cast<float>(scale * (0.5 + static_cast<double>(rng() % 1000) / 1000.0))));
  };
  for (std::uint64_t b = 0; b < blocks; ++b) {
    const std::uint64_t at = b * type.block_bytes;
    switch (dtype) {
      case DType::kF32: {
        const float value = normal(rng, 0.1);
        std::memcpy(bytes.data() + at, &value, 4);
        break;
      }
      case DType::kF16:
        put16(at, corbel::f32_to_f16(normal(rng, 0.1)));
        break;
      case DType::kBF16:
        put16(at, corbel::f32_to_bf16(normal(rng, 0.1)));
        break;
      case DType::kQ4_0:
        put_f16(at, 0.02);
        break;
      case DType::kQ4_1:
        put_f16(at, 0.02), put_f16(at + 2, -0.15);
        break;
      case DType::kQ5_0:
        put_f16(at, 0.01);
        break;
      case DType::kQ5_1:
        put_f16(at, 0.01), put_f16(at + 2, -0.15);
        break;
      case DType::kQ8_0:
        put_f16(at, 0.0015);
        break;
      case DType::kQ2_K:
        put_f16(at + 80, 0.01), put_f16(at + 82, 0.01);
        break;  // scales 16, quants 64, d, dmin
      case DType::kQ3_K:
        put_f16(at + 108, 0.002);
        break;  // hmask 32, quants 64, scales 12, d
      case DType::kQ4_K:
        put_f16(at, 0.0004), put_f16(at + 2, 0.003);
        break;  // d, dmin, scales 12, quants 128
      case DType::kQ5_K:
        put_f16(at, 0.0002), put_f16(at + 2, 0.003);
        break;  // d, dmin, scales 12, high 32, low 128
      case DType::kQ6_K:
        put_f16(at + 208, 0.0001);
        break;  // low 128, high 64, scales 16, d
      case DType::kQ8_1:
        put_f16(at, 0.0015), put_f16(at + 2, 0.1);
        break;
      case DType::kQ8_K: {
        const float scale = 0.0015f * static_cast<float>(0.5 + static_cast<double>(rng() % 1000) / 1000.0);
        std::memcpy(bytes.data() + at, &scale, 4);
        break;
      }
      case DType::kIQ1_S:
        put_f16(at, 0.02);
        break;
      case DType::kIQ1_M:  // the upper byte of d, 0x1c or 0x1d for 0.004 to 0.005, is in the last two words of scales
        bytes[at + 53] = static_cast<std::byte>((std::to_integer<unsigned>(bytes[at + 53]) & 15u) | 0xc0u);
        bytes[at + 55] = static_cast<std::byte>((std::to_integer<unsigned>(bytes[at + 55]) & 15u) | 0x10u);
        break;
      case DType::kIQ2_XXS:
      case DType::kIQ2_XS:
      case DType::kIQ2_S:
        put_f16(at, 0.001);
        break;
      case DType::kIQ3_XXS:
        put_f16(at, 0.0005);
        break;
      case DType::kIQ3_S:
        put_f16(at, 0.0006);
        break;
      case DType::kIQ4_NL:
        put_f16(at, 0.0015);
        break;
      case DType::kIQ4_XS:
        put_f16(at, 0.0001);
        break;
      case DType::kTQ1_0:
        put_f16(at + 52, 0.1);
        break;
      case DType::kTQ2_0:
        put_f16(at + 64, 0.1);
        break;
      case DType::kQ1_0:
      case DType::kQ2_0:
        put_f16(at, 0.1);
        break;
      case DType::kMXFP4:  // 2^-6 to 2^-3
        bytes[at] = static_cast<std::byte>(121 + rng() % 4);
        break;
      case DType::kNVFP4:  // 2^-6 to 2^-3 each
        for (std::size_t group = 0; group < 4; ++group) bytes[at + group] = static_cast<std::byte>(8 + rng() % 24);
        break;
      case DType::kGroupU4:
      case DType::kGroupU8: {
        const auto zero = static_cast<std::int16_t>(rng() % 17);
        std::memcpy(bytes.data() + at + 4, &zero, 2);
        [[fallthrough]];
      }
      case DType::kGroupI4:
      case DType::kGroupI8:
      case DType::kGroupF8:
      case DType::kGroupE2M1:
      case DType::kGroupNF4: {  // scales of 11 bits
        const float scale = corbel::f16_to_f32(corbel::f32_to_f16(0.002f + static_cast<float>(rng() % 100) * 1e-5f));
        std::memcpy(bytes.data() + at, &scale, 4);
        if (dtype == DType::kGroupE2M1) std::memcpy(bytes.data() + at + 4, &scale, 4);
        if (dtype == DType::kGroupF8)
          for (std::size_t i = 4; i < type.block_bytes; ++i) bytes[at + i] &= std::byte{0xBC};
        break;
      }
      case DType::kF64: {
        const double value = static_cast<double>(normal(rng, 0.1));
        std::memcpy(bytes.data() + at, &value, 8);
        break;
      }
      case DType::kF8_E4M3:
      case DType::kF8_E5M2:  // below 2 in both
        bytes[at] &= std::byte{0xBC};
        break;
      case DType::kF8_E8M0:  // 2^-7 to 1
        bytes[at] = static_cast<std::byte>(120 + rng() % 8);
        break;
      default:  // any bits will do
        break;
    }
  }
  return make_part(type.name, dtype, rows, cols, std::move(bytes));
}

/// All elements of a weight, parts stacked, dequantized by the trait table.
inline Matrix dequantized(const hal::WeightSpec& spec) {
  Matrix out(static_cast<std::size_t>(spec.rows()), static_cast<std::size_t>(spec.cols()));
  std::size_t row = 0;
  for (const hal::WeightPart& part : spec.parts) {
    const corbel::DTypeTraits& type = corbel::traits(part.dtype);
    type.dequantize(part.source->bytes().data(), out.data.data() + row * out.cols,
                    static_cast<std::size_t>(part.rows * part.cols / type.block_elements));
    row += static_cast<std::size_t>(part.rows);
  }
  return out;
}

/// A program under construction.
struct OpProgram {
  hal::Program program;

  hal::ValueId value(std::string name, std::uint32_t width, hal::Rows rows = hal::Rows::kAll) {
    program.values.push_back({std::move(name), width, rows, hal::kNone, 0});
    return static_cast<hal::ValueId>(program.values.size() - 1);
  }
  hal::ValueId view(hal::ValueId parent, std::uint32_t column, std::uint32_t width) {
    const hal::Rows rows = program.values[static_cast<std::size_t>(parent)].rows;
    program.values.push_back({"view", width, rows, parent, column});
    return static_cast<hal::ValueId>(program.values.size() - 1);
  }
  hal::WeightId weight(std::vector<hal::WeightPart> parts, std::uint8_t uses) {
    program.weights.push_back({std::move(parts), uses});
    return static_cast<hal::WeightId>(program.weights.size() - 1);
  }
  hal::WeightId vector(const std::vector<float>& values) {
    return weight({f32_part(1, values.size(), values)}, hal::kUseVector);
  }
  hal::Op& add(hal::OpKind kind, std::array<hal::ValueId, 2> in, hal::ValueId out) {
    hal::Op op;
    op.kind = kind;
    op.in = in;
    op.out = out;
    program.ops.push_back(op);
    return program.ops.back();
  }
};

/// The rows of one run.
struct BatchRows {
  std::vector<std::int32_t> tokens, positions, slots;
  std::vector<hal::Role> roles;
  std::vector<std::int32_t> wanted;

  std::size_t size() const { return positions.size(); }
  void add(std::int32_t token, std::int32_t position, std::int32_t slot = 0, hal::Role role = hal::Role::kPrompt) {
    tokens.push_back(token);
    positions.push_back(position);
    slots.push_back(slot);
    roles.push_back(role);
  }
  /// `count` rows of one sequence from position `first` on, all tokens 0.
  static BatchRows range(std::size_t count, std::int32_t first = 0, std::int32_t slot = 0,
                         hal::Role role = hal::Role::kPrompt) {
    BatchRows rows;
    for (std::size_t i = 0; i < count; ++i) rows.add(0, first + static_cast<std::int32_t>(i), slot, role);
    return rows;
  }
};

struct RunnerOptions {
  std::uint32_t max_rows = 64;
  std::uint32_t max_sequences = 4;
  std::uint32_t max_tokens = 256;  ///< per sequence
  std::uint32_t block_tokens = 32;
  hal::KvType kv_type = hal::KvType::kF32;
  std::uint32_t stride_padding = 16;    ///< elements between the rows of a value beyond its width, rounded up to 16
  std::vector<float> frequencies = {};  ///< of the batch
};

/// Owns what a run needs. The cache lives as long as the runner, so that runs can follow each other. Memory starts as
/// NaN.
template <class B>
class OpRunner {
 public:
  using Options = RunnerOptions;

  OpRunner(const corbel::Context& context, hal::Program program, const Options& options = {})
      : program_(std::move(program)),
        options_(options),
        backend_(take(B::create(context))),
        stream_(take(backend_.make_stream())) {
    for (const hal::Op& op : program_.ops) REQUIRE(backend_.supports(op, program_));
    for (const hal::WeightSpec& spec : program_.weights) {
      weights_.push_back(take(backend_.prepare(spec)));
      REQUIRE(weights_.back().bytes() == backend_.weight_bytes(spec));
    }
    for (std::size_t id = 0; id < program_.values.size(); ++id) {
      const hal::Value& value = program_.values[id];
      if (value.parent != hal::kNone) {  // parents come first
        const hal::ArenaPlan::Slot parent = plan_.slots[static_cast<std::size_t>(value.parent)];
        plan_.slots.push_back({parent.offset + std::uint64_t{value.column} * sizeof(float), parent.stride});
        continue;
      }
      const std::uint32_t stride = (value.width + options_.stride_padding + 15) / 16 * 16;
      plan_.slots.push_back({plan_.bytes, stride});
      plan_.bytes += std::uint64_t{stride} * options_.max_rows * sizeof(float);
    }
    const std::uint32_t blocks = (options_.max_tokens + options_.block_tokens - 1) / options_.block_tokens;
    layout_ = hal::make_batch_layout({options_.max_rows, options_.max_rows, options_.max_sequences, blocks,
                                      static_cast<std::uint32_t>(options_.frequencies.size())});
    kv_layout_ = backend_.kv_layout({program_.kv_layers, options_.block_tokens, options_.kv_type});
    arena_ = filled(plan_.bytes, "arena");
    workspace_ = filled(backend_.workspace_bytes(program_, layout_.limits), "workspace");
    batch_ = filled(layout_.bytes, "batch");
    kv_ = filled(kv_layout_.block_bytes * blocks * options_.max_sequences, "cache");
    // Neighbouring positions of a sequence are never in neighbouring blocks.
    const std::uint32_t total = blocks * options_.max_sequences;
    for (std::uint32_t i = 0; i < total; ++i) block_order_.push_back(static_cast<std::int32_t>(total - 1 - i));
    Rng rng(7);
    for (std::size_t i = total; i > 1; --i) std::swap(block_order_[i - 1], block_order_[rng() % i]);
  }

  /// Uploads `inputs`, runs the program over `rows`, and returns the values `outputs`.
  std::vector<Matrix> run(const BatchRows& rows, const std::vector<std::pair<hal::ValueId, Matrix>>& inputs,
                          const std::vector<hal::ValueId>& outputs) {
    std::vector<std::byte> host(layout_.bytes);
    fill_batch(host.data(), rows);
    require(backend_.upload(stream_, batch_, 0, host.data(), host.size()));
    for (const auto& [id, matrix] : inputs) {
      const hal::ArenaPlan::Slot& slot = plan_.slots[static_cast<std::size_t>(id)];
      REQUIRE(matrix.cols == program_.values[static_cast<std::size_t>(id)].width);
      for (std::size_t r = 0; r < matrix.rows; ++r)
        require(backend_.upload(stream_, arena_, slot.offset + r * slot.stride * sizeof(float), matrix.row(r),
                                matrix.cols * sizeof(float)));
    }
    require(backend_.run(stream_, bindings()));
    std::vector<Matrix> results;
    for (const hal::ValueId id : outputs) {
      const hal::Value& value = program_.values[static_cast<std::size_t>(id)];
      const hal::ArenaPlan::Slot& slot = plan_.slots[static_cast<std::size_t>(id)];
      results.emplace_back(value.rows == hal::Rows::kAll ? rows.size() : rows.wanted.size(), value.width);
      Matrix& matrix = results.back();
      for (std::size_t r = 0; r < matrix.rows; ++r)
        require(backend_.download(stream_, arena_, slot.offset + r * slot.stride * sizeof(float),
                                  matrix.data.data() + r * matrix.cols, matrix.cols * sizeof(float)));
    }
    require(backend_.synchronize(stream_));
    return results;
  }

  B& backend() { return backend_; }
  typename B::Stream& stream() { return stream_; }
  typename B::Buffer& kv() { return kv_; }
  typename B::Buffer& arena() { return arena_; }
  typename B::Buffer& batch() { return batch_; }
  const hal::KvLayout& kv_layout() const { return kv_layout_; }
  const hal::ArenaPlan& plan() const { return plan_; }
  const hal::BatchLayout& batch_layout() const { return layout_; }
  const hal::Program& program() const { return program_; }
  /// The pool's block that holds entry `index` of sequence `slot`.
  std::int32_t block(std::int32_t slot, std::uint32_t index) const {
    return block_order_[static_cast<std::size_t>(slot) * layout_.limits.max_blocks + index];
  }
  hal::Bindings<B> bindings() {
    hal::Bindings<B> b;
    b.program = &program_;
    b.weights = weights_;
    b.arena_plan = &plan_;
    b.arena = &arena_;
    b.workspace = &workspace_;
    b.batch_layout = &layout_;
    b.batch = &batch_;
    b.kv_layout = &kv_layout_;
    b.kv = &kv_;
    return b;
  }
  /// Writes the batch as it is uploaded to `memory` [batch_layout().bytes].
  void fill_batch(std::byte* memory, const BatchRows& rows) const {
    REQUIRE(rows.size() <= options_.max_rows);
    hal::MutableBatchView view(memory, layout_);
    *view.header = {static_cast<std::int32_t>(rows.size()), static_cast<std::int32_t>(rows.wanted.size()),
                    static_cast<std::int32_t>(options_.max_sequences)};
    std::copy(rows.tokens.begin(), rows.tokens.end(), view.tokens);
    std::copy(rows.positions.begin(), rows.positions.end(), view.positions);
    std::copy(rows.slots.begin(), rows.slots.end(), view.slots);
    std::copy(rows.roles.begin(), rows.roles.end(), view.roles);
    std::copy(rows.wanted.begin(), rows.wanted.end(), view.wanted);
    for (std::size_t slot = 0; slot < layout_.limits.max_sequences; ++slot)
      std::copy(options_.frequencies.begin(), options_.frequencies.end(),
                view.frequencies_of(static_cast<std::int32_t>(slot)));
    for (std::uint32_t s = 0; s < options_.max_sequences; ++s)
      for (std::uint32_t i = 0; i < layout_.limits.max_blocks; ++i)
        view.table(static_cast<std::int32_t>(s))[i] = {block(static_cast<std::int32_t>(s), i),
                                                       static_cast<std::int32_t>(i * options_.block_tokens)};
  }
  static void require(const corbel::Status& status) {
    INFO(status.message());
    REQUIRE(status.ok());
  }

 private:
  template <class T>
  static T take(corbel::Result<T> result) {
    INFO(result.status().message());
    REQUIRE(result.ok());
    return *std::move(result);
  }
  typename B::Buffer filled(std::uint64_t bytes, const char* what) {
    typename B::Buffer buffer = take(backend_.allocate(bytes, what));
    const std::vector<std::byte> ones(bytes, std::byte{0xff});
    require(backend_.upload(stream_, buffer, 0, ones.data(), bytes));
    require(backend_.synchronize(stream_));
    return buffer;
  }

  hal::Program program_;
  Options options_;
  B backend_;
  typename B::Stream stream_;
  std::vector<typename B::Weight> weights_;
  hal::ArenaPlan plan_;
  hal::BatchLayout layout_;
  hal::KvLayout kv_layout_;
  typename B::Buffer arena_, workspace_, batch_, kv_;
  std::vector<std::int32_t> block_order_;
};

}  // namespace corbel_test
