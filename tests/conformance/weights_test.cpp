// prepare() on every backend: what it refuses, how it says so, and how it reads.
#include <atomic>
#include <support/backend_matrix.hpp>

namespace corbel_test {
namespace {

using corbel::DType;
using corbel::Errc;

template <class B>
corbel::Status prepare(const Target& target, const hal::WeightSpec& spec) {
  const corbel::Context context = target.context();
  corbel::Result<B> backend = B::create(context);
  REQUIRE(backend.ok());
  const corbel::Result<typename B::Weight> weight = backend->prepare(spec);
  if (weight.ok()) CHECK(weight->bytes() == backend->weight_bytes(spec));
  return weight.status();
}

/// Fails at `fail_at`, and remembers the largest read.
class CountingSource final : public hal::ByteSource {
 public:
  CountingSource(std::uint64_t size, std::uint64_t fail_at) : size_(size), fail_at_(fail_at) {}
  corbel::Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    largest = std::max<std::uint64_t>(largest, out.size());
    if (offset + out.size() > size_) return corbel::Status(Errc::kTruncated, "past the end");
    if (offset + out.size() > fail_at_) return corbel::Status(Errc::kIoRead, "the disk broke");
    std::fill(out.begin(), out.end(), std::byte{0});
    return {};
  }
  mutable std::atomic<std::uint64_t> largest{0};

 private:
  std::uint64_t size_, fail_at_;
};

TEST_CASE("prepare: NaN and infinite scales are refused with tensor and block") {
  Rng rng(71);
  for (const corbel::DTypeTraits& type : corbel::all_dtypes()) {
    if (type.unpack == nullptr) continue;
    INFO(type.name);
    hal::WeightPart part = quantized_part(type.dtype, 40, type.block_elements * 2, rng);
    std::vector<std::byte> bytes(part.source->bytes().begin(), part.source->bytes().end());
    // All ones is a NaN wherever the block keeps its 16-bit scales.
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(47 * type.block_bytes), type.block_bytes, std::byte{0xff});
    part = make_part("blk.3.ffn_up.weight", type.dtype, 40, type.block_elements * 2, std::move(bytes));
    for (const std::uint8_t uses : {std::uint8_t{hal::kUseLinear}, std::uint8_t{hal::kUseEmbedding}}) {
      for_each_backend([&]<class B>(const Target& target) {
        const corbel::Status status = prepare<B>(target, {{part}, uses});
        CHECK(status.code() == Errc::kBadValue);
        CHECK(status.message().find("blk.3.ffn_up.weight") != std::string_view::npos);
        CHECK(status.message().find("47") != std::string_view::npos);
      });
    }
  }
}

TEST_CASE("prepare: NaN and infinities in plain tensors are refused") {
  Rng rng(72);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Matrix values = random_matrix(8, 32, rng);
    values.at(4, 6) = bad;
    hal::WeightPart part = f32_part(values);
    part.name = "output.weight";
    hal::WeightPart vector = f32_part(1, 256, values.data);
    vector.name = "output_norm.weight";
    for_each_backend([&]<class B>(const Target& target) {
      const corbel::Status status = prepare<B>(target, {{part}, hal::kUseLinear});
      CHECK(status.code() == Errc::kBadValue);
      CHECK(status.message().find("output.weight") != std::string_view::npos);
      CHECK(status.message().find("134") != std::string_view::npos);
      const corbel::Status vector_status = prepare<B>(target, {{vector}, hal::kUseVector});
      CHECK(vector_status.code() == Errc::kBadValue);
      CHECK(vector_status.message().find("output_norm.weight") != std::string_view::npos);
    });
  }
}

TEST_CASE("prepare: a row that is not whole blocks is unsupported") {
  for (const auto& [dtype, cols] :
       std::vector<std::pair<DType, std::uint64_t>>{{DType::kQ4_0, 48}, {DType::kQ4_K, 288}}) {
    hal::WeightPart part = make_part("odd.weight", dtype, 4, cols, std::vector<std::byte>(4096));
    for_each_backend([&]<class B>(const Target& target) {
      const corbel::Status status = prepare<B>(target, {{part}, hal::kUseLinear});
      CHECK(status.code() == Errc::kUnsupported);
      CHECK(status.message().find("odd.weight") != std::string_view::npos);
    });
  }
}

TEST_CASE("prepare: errors of the source pass through, and reads are pieces") {
  const std::uint64_t size = std::uint64_t{34} * 40 * 16384;  // 22 MB of Q8_0
  for_each_backend([&]<class B>(const Target& target) {
    for (const std::uint64_t fail_at : {std::uint64_t{100}, size - 1}) {
      hal::WeightPart part;
      part.name = "big.weight";
      part.dtype = DType::kQ8_0;
      part.rows = 16384;
      part.cols = 40 * 32;
      part.source = std::make_shared<CountingSource>(size, fail_at);
      CHECK(prepare<B>(target, {{part}, hal::kUseLinear}).code() == Errc::kIoRead);
    }
    const auto source = std::make_shared<CountingSource>(size, size);
    hal::WeightPart part;
    part.name = "big.weight";
    part.dtype = DType::kQ8_0;
    part.rows = 16384;
    part.cols = 40 * 32;
    part.source = source;
    CHECK(prepare<B>(target, {{part}, hal::kUseLinear}).ok());
    CHECK(source->largest <= 8u << 20);
  });
}

TEST_CASE("prepare: out of budget is an error") {
  Rng rng(73);
  const hal::WeightPart part = quantized_part(DType::kF32, 256, 1024, rng);  // 1 MiB
  for_each_backend([&]<class B>(const Target& target) {
    Target small = target;
    small.options.memory_budget = 1u << 19;
    CHECK(prepare<B>(small, {{part}, hal::kUseLinear}).code() == Errc::kOutOfMemory);
  });
}

TEST_CASE("prepare: vectors of every type become their dequantized values") {
  Rng rng(74);
  for (const corbel::DTypeTraits& type : corbel::all_dtypes()) {
    INFO(type.name);
    const hal::WeightPart part = quantized_part(type.dtype, 1, 256, rng);
    OpProgram p;
    const hal::ValueId x = p.value("x", 256), y = p.value("y", 256);
    const hal::WeightId weight = p.weight({f32_part(256, 256, std::vector<float>(256 * 256))}, hal::kUseLinear);
    const hal::WeightId bias = p.weight({part}, hal::kUseVector);
    hal::Op& op = p.add(hal::OpKind::kLinear, {x, hal::kNone}, y);
    op.weight = weight;
    op.bias = bias;
    const Matrix expected = dequantized(p.program.weights[1]);
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> runner(target.context(), p.program);
      const Matrix out = runner.run(BatchRows::range(1), {{x, Matrix(1, 256)}}, {y})[0];
      bool same = true;
      for (std::size_t i = 0; i < 256; ++i) same = same && out.data[i] == expected.data[i];
      CHECK(same);
    });
  }
}

}  // namespace
}  // namespace corbel_test
