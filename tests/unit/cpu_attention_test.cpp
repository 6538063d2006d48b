// Attention and the cache of the CPU backend: against exact arithmetic, and equal to the bit for any block size, chunk,
// company and thread count.
#include <corbel/backends/cpu/cpu_backend.hpp>
#include <corbel/context.hpp>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <support/op_harness.hpp>
#include <support/support.hpp>
#include <vector>

using namespace corbel_test;
using corbel::CpuBackend;
using corbel::IsaLevel;

namespace {

corbel::Context context_at(IsaLevel level, int threads = 2) {
  corbel::ContextOptions options;
  options.isa = level;
  options.force_isa = true;
  options.threads = threads;
  return corbel::Context(options);
}

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

struct AttentionProgram {
  OpProgram p;
  hal::ValueId q, k, v, out;

  explicit AttentionProgram(const hal::AttentionSpec& spec) {
    q = p.value("q", spec.heads * spec.head_dim);
    k = p.value("k", spec.kv_heads * spec.head_dim);
    v = p.value("v", spec.kv_heads * spec.head_dim);
    out = p.value("out", spec.heads * spec.head_dim);
    p.program.kv_layers = {{spec.kv_heads, spec.head_dim}};
    hal::Op append;
    append.kind = hal::OpKind::kKvAppend;
    append.in = {k, v};
    append.layer = 0;
    hal::Op attend;
    attend.kind = hal::OpKind::kAttention;
    attend.in[0] = q;
    attend.out = out;
    attend.layer = 0;
    attend.attention = spec;
    p.program.ops = {append, attend};
  }
};

struct Inputs {
  Matrix q, k, v;
};
Inputs random_inputs(const hal::AttentionSpec& spec, std::size_t rows, std::uint32_t seed) {
  Rng rng(seed);
  return {random_matrix(rows, spec.heads * spec.head_dim, rng), random_matrix(rows, spec.kv_heads * spec.head_dim, rng),
          random_matrix(rows, spec.kv_heads * spec.head_dim, rng)};
}

/// One sequence in chunks of these sizes.
Matrix run_chunks(const corbel::Context& context, const hal::AttentionSpec& spec, const Inputs& in,
                  const RunnerOptions& options, const std::vector<std::size_t>& chunks) {
  const AttentionProgram program(spec);
  OpRunner<CpuBackend> runner(context, program.p.program, options);
  Matrix out(in.q.rows, in.q.cols);
  std::size_t first = 0;
  for (const std::size_t count : chunks) {
    const Matrix piece = runner.run(BatchRows::range(count, static_cast<std::int32_t>(first)),
                                    {{program.q, in.q.slice(first, count)},
                                     {program.k, in.k.slice(first, count)},
                                     {program.v, in.v.slice(first, count)}},
                                    {program.out})[0];
    std::copy(piece.data.begin(), piece.data.end(), out.data.begin() + static_cast<std::ptrdiff_t>(first * out.cols));
    first += count;
  }
  REQUIRE(first == in.q.rows);
  return out;
}

float as_stored(float value, hal::KvType type) {
  if (type == hal::KvType::kF16) return corbel::f16_to_f32(corbel::f32_to_f16(value));
  if (type == hal::KvType::kBF16) return corbel::bf16_to_f32(corbel::f32_to_bf16(value));
  return value;
}

/// Textbook attention in double over the stored keys and values.
std::vector<double> expected_attention(const hal::AttentionSpec& spec, const Inputs& in, hal::KvType type) {
  std::vector<double> out(in.q.data.size());
  const std::size_t dim = spec.head_dim;
  for (std::size_t r = 0; r < in.q.rows; ++r) {
    const std::size_t first = spec.window != 0 && r + 1 > spec.window ? r + 1 - spec.window : 0;
    for (std::size_t h = 0; h < spec.heads; ++h) {
      const std::size_t kv = h / (spec.heads / spec.kv_heads) * dim;
      std::vector<double> scores;
      for (std::size_t p = first; p <= r; ++p) {
        double s = 0;
        for (std::size_t d = 0; d < dim; ++d)
          s += static_cast<double>(in.q.at(r, h * dim + d)) * static_cast<double>(as_stored(in.k.at(p, kv + d), type));
        s *= static_cast<double>(spec.scale);
        if (spec.softcap != 0) s = static_cast<double>(spec.softcap) * std::tanh(s / static_cast<double>(spec.softcap));
        scores.push_back(s);
      }
      const double top = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (double& s : scores) sum += s = std::exp(s - top);
      for (std::size_t d = 0; d < dim; ++d) {
        double value = 0;
        for (std::size_t p = first; p <= r; ++p)
          value += scores[p - first] * static_cast<double>(as_stored(in.v.at(p, kv + d), type));
        out[r * in.q.cols + h * dim + d] = value / sum;
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("cpu: attention against exact arithmetic") {
  for_each_level("cpu: attention against exact arithmetic", [](IsaLevel level) {
    const hal::AttentionSpec specs[] = {
        {9, 3, 64, 0.125f, 0, 0}, {4, 1, 256, 0.0625f, 100, 0}, {5, 5, 40, 0.2f, 0, 5.0f}, {12, 2, 8, 0.5f, 17, 30.0f}};
    for (const hal::AttentionSpec& spec : specs) {
      for (const hal::KvType type : {hal::KvType::kF32, hal::KvType::kBF16, hal::KvType::kF16}) {
        INFO("head_dim " << spec.head_dim << ", " << hal::kv_type_name(type));
        const Inputs in = random_inputs(spec, 150, 11);
        const Matrix out = run_chunks(context_at(level), spec, in, {.max_rows = 256, .kv_type = type}, {150});
        const std::vector<double> expected = expected_attention(spec, in, type);
        double worst = 0;
        for (std::size_t i = 0; i < expected.size(); ++i)
          worst = std::max(worst, std::fabs(static_cast<double>(out.data[i]) - expected[i]));
        CHECK(worst < 5e-6);  // values are about 1; scores are sums of up to 256 products
        CHECK(worst > 0);
      }
    }
  });
}

TEST_CASE("cpu: attention has the same bits for any block size, chunk and number of threads") {
  for_each_level("cpu: attention has the same bits", [](IsaLevel level) {
    for (const std::uint32_t window : {0u, 70u}) {
      const hal::AttentionSpec spec = {6, 2, 48, 0.15f, window, 0};
      const Inputs in = random_inputs(spec, 200, 12);
      const auto run = [&](std::uint32_t block_tokens, int threads, const std::vector<std::size_t>& chunks) {
        return run_chunks(context_at(level, threads), spec, in,
                          {.max_rows = 256, .block_tokens = block_tokens, .kv_type = hal::KvType::kF16}, chunks);
      };
      const Matrix expected = run(32, 2, {200});
      CHECK(run(16, 2, {200}).same_bits(expected));
      CHECK(run(64, 1, {200}).same_bits(expected));
      CHECK(run(64, 2, {7, 64, 1, 1, 63, 64}).same_bits(expected));
      CHECK(run(16, 1, std::vector<std::size_t>(200, 1)).same_bits(expected));
    }
  });
}

TEST_CASE("cpu: threads share a long context without changing its bits") {
  static_assert(corbel::cpu::attention_chunk_end(255) == 256 && corbel::cpu::attention_chunk_end(4096) == 5120 &&
                corbel::cpu::attention_chunk_end(INT32_MAX) == INT32_MAX);
  for (const std::int32_t position : {0, 255, 256, 4095, 4096, 5119, 5120, 32767, 32768, 36864, 1 << 30}) {
    const std::int32_t chunk = corbel::cpu::attention_chunk(position);
    CHECK(corbel::cpu::attention_chunk_begin(chunk) <= position);
    CHECK(corbel::cpu::attention_chunk_end(position) == corbel::cpu::attention_chunk_begin(chunk + 1));
  }
  for_each_level("cpu: threads share a long context", [](IsaLevel level) {
    struct Case {
      hal::AttentionSpec spec;
      std::size_t tokens;
    };
    const Case cases[] = {
        {{3, 1, 16, 0.25f, 0, 0}, 700}, {{2, 2, 8, 0.3f, 300, 0}, 600}, {{1, 1, 8, 0.3f, 0, 0}, 4400}};
    for (const Case& c : cases) {
      const Inputs in = random_inputs(c.spec, c.tokens, 16);
      const RunnerOptions options = {.max_rows = 4400, .max_tokens = 4416, .kv_type = hal::KvType::kF16};
      const Matrix expected = run_chunks(context_at(level, 1), c.spec, in, options, {c.tokens});
      std::vector<std::size_t> chunks = {c.tokens - 40, 30};
      chunks.insert(chunks.end(), 5, 1);
      chunks.push_back(5);
      for (const int threads : {2, 5})
        CHECK(run_chunks(context_at(level, threads), c.spec, in, options, chunks).same_bits(expected));
      if (c.tokens > 1000) continue;
      const std::vector<double> exact = expected_attention(c.spec, in, options.kv_type);
      double worst = 0;
      for (std::size_t i = 0; i < exact.size(); ++i)
        worst = std::max(worst, std::fabs(static_cast<double>(expected.data[i]) - exact[i]));
      CHECK(worst < 5e-6);
    }
  });
}

TEST_CASE("cpu: a sequence's attention does not depend on other sequences, nor on what else the cache holds") {
  for_each_level("cpu: a sequence's attention", [](IsaLevel level) {
    const hal::AttentionSpec spec = {4, 2, 32, 0.2f, 0, 0};
    const Inputs a = random_inputs(spec, 40, 13);
    Inputs b = random_inputs(spec, 40, 14);
    std::fill(b.v.data.begin(), b.v.data.end(), std::numeric_limits<float>::quiet_NaN());
    const AttentionProgram program(spec);
    const Matrix alone = run_chunks(context_at(level), spec, a, {}, {40});

    OpRunner<CpuBackend> runner(context_at(level), program.p.program, {.max_rows = 80});
    BatchRows rows;  // interleaved
    Inputs both = {Matrix(80, a.q.cols), Matrix(80, a.k.cols), Matrix(80, a.v.cols)};
    for (std::size_t i = 0; i < 80; ++i) {
      rows.add(0, static_cast<std::int32_t>(i / 2), i % 2 == 0 ? 2 : 0);
      const Inputs& from = i % 2 == 0 ? a : b;
      std::copy_n(from.q.row(i / 2), a.q.cols, &both.q.at(i, 0));
      std::copy_n(from.k.row(i / 2), a.k.cols, &both.k.at(i, 0));
      std::copy_n(from.v.row(i / 2), a.v.cols, &both.v.at(i, 0));
    }
    const Matrix out =
        runner.run(rows, {{program.q, both.q}, {program.k, both.k}, {program.v, both.v}}, {program.out})[0];
    for (std::size_t i = 0; i < 40; ++i) {
      CHECK(out.slice(2 * i, 1).same_bits(alone.slice(i, 1)));
      CHECK(std::isnan(out.at(2 * i + 1, 0)));
    }
  });
}

TEST_CASE("cpu: a copied cache block serves as the original") {
  const hal::AttentionSpec spec = {2, 1, 16, 0.25f, 0, 0};
  const Inputs in = random_inputs(spec, 20, 15);
  const AttentionProgram program(spec);
  const corbel::Context context;
  OpRunner<CpuBackend> runner(context, program.p.program, {.block_tokens = 16});
  const std::vector<std::pair<hal::ValueId, Matrix>> first = {
      {program.q, in.q.slice(0, 16)}, {program.k, in.k.slice(0, 16)}, {program.v, in.v.slice(0, 16)}};
  const std::vector<std::pair<hal::ValueId, Matrix>> rest = {
      {program.q, in.q.slice(16, 4)}, {program.k, in.k.slice(16, 4)}, {program.v, in.v.slice(16, 4)}};
  runner.run(BatchRows::range(16), first, {program.out});
  const Matrix expected = runner.run(BatchRows::range(4, 16), rest, {program.out})[0];
  REQUIRE(runner.backend()
              .copy_kv_block(runner.stream(), runner.kv(), runner.kv_layout(), runner.block(0, 0), runner.block(1, 0))
              .ok());
  CHECK(runner.run(BatchRows::range(4, 16, 1), rest, {program.out})[0].same_bits(expected));
  CHECK(runner.backend().copy_kv_block(runner.stream(), runner.kv(), runner.kv_layout(), 0, 100000).code() ==
        corbel::Errc::kInternal);
}

TEST_CASE("cpu: a batch that contradicts its layout is refused before anything is written") {
  const hal::AttentionSpec spec = {2, 1, 16, 0.25f, 0, 0};
  const AttentionProgram program(spec);
  OpRunner<CpuBackend> runner(corbel::Context(), program.p.program, {.max_rows = 8, .max_tokens = 64});
  const auto run_with = [&](const BatchRows& rows) {
    std::vector<std::byte> host(runner.batch_layout().bytes);
    runner.fill_batch(host.data(), rows);
    REQUIRE(runner.backend().upload(runner.stream(), runner.batch(), 0, host.data(), host.size()).ok());
    return runner.backend().run(runner.stream(), runner.bindings()).code();
  };
  CHECK(run_with(BatchRows::range(2)) == corbel::Errc::kOk);
  CHECK(run_with(BatchRows::range(1, 64)) == corbel::Errc::kInternal);
  CHECK(run_with(BatchRows::range(1, -1)) == corbel::Errc::kInternal);
  CHECK(run_with(BatchRows::range(1, 0, 9)) == corbel::Errc::kInternal);
  BatchRows wanted = BatchRows::range(2);
  wanted.wanted = {2};
  CHECK(run_with(wanted) == corbel::Errc::kInternal);
}
