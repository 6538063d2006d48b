// kv_append and attention on every backend, through scrambled block tables, against a plain softmax in double.
#include <support/backend_matrix.hpp>

namespace corbel_test {
namespace {

/// One layer: keys and values into the cache, then attention. `layers` > 1 puts other layers before it in the block.
struct Layer {
  OpProgram p;
  hal::ValueId q, k, v = hal::kNone, out;
  hal::AttentionSpec spec;
  std::vector<float> sinks, slopes;  // [heads], or none

  explicit Layer(const hal::AttentionSpec& attention, std::size_t layers = 1, bool with_sinks = false,
                 bool with_slopes = false)
      : spec(attention) {
    const std::uint32_t width = spec.heads * spec.head_dim, k_width = spec.kv_heads * spec.head_dim,
                        v_width = spec.values_in_keys ? 0 : spec.kv_heads * spec.value_width();
    // As after a merged linear: q, k and v are views of one value.
    const hal::ValueId qkv = p.value("qkv", width + k_width + v_width);
    q = p.view(qkv, 0, width);
    k = p.view(qkv, width, k_width);
    if (v_width != 0) v = p.view(qkv, width + k_width, v_width);
    out = p.value("out", spec.heads * spec.value_width());
    for (std::size_t i = 0; i + 1 < layers; ++i) p.program.kv_layers.push_back({2, 8});
    p.program.kv_layers.push_back({spec.kv_heads, spec.head_dim, spec.value_dim, spec.values_in_keys});
    Rng rng(20);
    if (with_sinks) sinks = random_matrix(1, spec.heads, rng, 2).data;
    if (with_slopes)
      for (std::uint32_t h = 0; h < spec.heads; ++h) slopes.push_back(std::ldexp(0.9f, -static_cast<int>(h)));
    const hal::WeightId sink_id = with_sinks ? p.vector(sinks) : hal::kNone;
    const hal::WeightId slope_id = with_slopes ? p.vector(slopes) : hal::kNone;
    const auto layer = static_cast<std::int32_t>(layers - 1);
    p.add(hal::OpKind::kKvAppend, {k, v}, hal::kNone).layer = layer;
    hal::Op& op = p.add(hal::OpKind::kAttention, {q, hal::kNone}, out);
    op.layer = layer;
    op.attention = spec;
    op.weight = sink_id;
    op.bias = slope_id;
  }
};

struct Inputs {
  Matrix q, k, v;

  Inputs(const hal::AttentionSpec& spec, std::size_t rows, Rng& rng)
      : q(random_matrix(rows, spec.heads * spec.head_dim, rng)),
        k(random_matrix(rows, spec.kv_heads * spec.head_dim, rng)),
        v(random_matrix(rows, spec.kv_heads * spec.value_width(), rng)) {
    if (!spec.values_in_keys) return;
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < v.cols; ++c)
        v.at(r, c) = k.at(r, c / spec.value_width() * spec.head_dim + c % spec.value_width());
  }
};

/// Runs rows [first, first + count) of one sequence whose positions begin at 0.
template <class B>
Matrix run_rows(OpRunner<B>& runner, const Layer& layer, const Inputs& in, std::size_t first, std::size_t count,
                std::int32_t slot = 0) {
  std::vector<std::pair<hal::ValueId, Matrix>> inputs = {{layer.q, in.q.slice(first, count)},
                                                         {layer.k, in.k.slice(first, count)}};
  if (layer.v != hal::kNone) inputs.emplace_back(layer.v, in.v.slice(first, count));
  return runner.run(BatchRows::range(count, static_cast<std::int32_t>(first), slot), inputs, {layer.out})[0];
}

double cached(float value, hal::KvType type) {
  if (type == hal::KvType::kF16) return static_cast<double>(corbel::f16_to_f32(corbel::f32_to_f16(value)));
  if (type == hal::KvType::kBF16) return static_cast<double>(corbel::bf16_to_f32(corbel::f32_to_bf16(value)));
  return static_cast<double>(value);
}

/// Expected outputs of rows at positions 0..rows-1, and their bounds.
struct Expected {
  std::vector<double> values, bounds;
};

Expected oracle(const Target& target, const Layer& layer, const Inputs& in, hal::KvType type) {
  Expected e;
  const hal::AttentionSpec& spec = layer.spec;
  const std::size_t dim = spec.head_dim, value_dim = spec.value_width();
  for (std::size_t r = 0; r < in.q.rows; ++r) {
    for (std::size_t h = 0; h < spec.heads; ++h) {
      const std::size_t kv = h / (spec.heads / spec.kv_heads);
      const std::size_t begin = spec.window != 0 && r + 1 > spec.window ? r + 1 - spec.window : 0;
      std::vector<double> weights;
      double highest = -1e300, magnitude = 0;
      for (std::size_t p = begin; p <= r; ++p) {
        double score = 0, size = 0;
        for (std::size_t d = 0; d < dim; ++d) {
          const double term = static_cast<double>(in.q.at(r, h * dim + d)) * cached(in.k.at(p, kv * dim + d), type);
          score += term;
          size += std::fabs(term);
        }
        score *= static_cast<double>(spec.scale);
        if (spec.softcap != 0)
          score = static_cast<double>(spec.softcap) * std::tanh(score / static_cast<double>(spec.softcap));
        magnitude = std::max(magnitude, size * std::fabs(static_cast<double>(spec.scale)));
        if (!layer.slopes.empty()) {
          const double distance = static_cast<double>(layer.slopes[h]) * static_cast<double>(r - p);
          score -= distance;
          magnitude = std::max(magnitude, size * std::fabs(static_cast<double>(spec.scale)) + distance);
        }
        highest = std::max(highest, score);
        weights.push_back(score);
      }
      double total = 0;
      if (!layer.sinks.empty()) {
        highest = std::max(highest, static_cast<double>(layer.sinks[h]));
        magnitude = std::max(magnitude, std::fabs(static_cast<double>(layer.sinks[h])));
        total = std::exp(static_cast<double>(layer.sinks[h]) - highest);
      }
      for (double& weight : weights) total += weight = std::exp(weight - highest);
      for (std::size_t d = 0; d < value_dim; ++d) {
        double sum = 0, size = 0;
        for (std::size_t p = begin; p <= r; ++p) {
          const double term = weights[p - begin] / total * cached(in.v.at(p, kv * value_dim + d), type);
          sum += term;
          size += std::fabs(term);
        }
        e.values.push_back(sum);
        // A score that is off by s changes its weight, and the total, by a factor of up to 1 + s.
        const double score_error =
            target.is_exact ? 0x1p-50 * magnitude : 0x1p-24 * static_cast<double>(dim + 16) * (magnitude + 1);
        e.bounds.push_back(target.bound(sum, size, weights.size()) + 2 * score_error * size);
      }
    }
  }
  return e;
}

template <class B>
void check_attention(const Target& target, const Layer& layer, std::size_t rows, const RunnerOptions& options) {
  Rng rng(21);
  const Inputs in(layer.spec, rows, rng);
  OpRunner<B> runner(target.context(), layer.p.program, options);
  const Matrix out = run_rows(runner, layer, in, 0, rows);
  const Expected expected = oracle(target, layer, in, options.kv_type);
  check_near(out, expected.values, [&](std::size_t r, std::size_t c) { return expected.bounds[r * out.cols + c]; });
}

TEST_CASE("attention: shapes, windows, caps and cache types") {
  struct Case {
    const char* name;
    hal::AttentionSpec spec;
    std::size_t rows;
    bool sinks = false, slopes = false;
  };
  const std::vector<Case> cases = {
      {"one row", {4, 2, 32, 0.177f, 0, 0}, 1},
      {"grouped", {9, 3, 64, 0.125f, 0, 0}, 50},
      {"every head its own", {3, 3, 16, 0.25f, 0, 0}, 33},
      {"one kv head, wide", {4, 1, 256, 0.0625f, 0, 0}, 20},
      {"odd head size", {2, 1, 24, 0.2f, 0, 0}, 40},
      {"window inside a block", {4, 2, 32, 0.177f, 5, 0}, 60},
      {"window over blocks", {4, 2, 32, 0.177f, 40, 0}, 64},
      {"window of one", {2, 2, 16, 0.25f, 1, 0}, 10},
      {"window beyond the end", {2, 2, 16, 0.25f, 1000, 0}, 40},
      {"soft cap", {4, 2, 32, 0.5f, 0, 3.0f}, 40},
      {"sharp scores", {4, 2, 32, 8.0f, 0, 0}, 40},
      {"narrow values", {4, 2, 32, 0.177f, 0, 0, 16}, 40},
      {"wide odd values", {4, 2, 16, 0.25f, 0, 0, 41}, 40},
      {"latent", {18, 1, 80, 0.11f, 0, 0, 64, true}, 60},
      {"latent, odd, two kv heads, window", {6, 2, 41, 0.2f, 30, 0, 23, true}, 64},
      {"latent, keys are the values", {4, 1, 48, 0.15f, 0, 0, 0, true}, 20},
      {"sinks", {6, 2, 32, 0.177f, 0, 0}, 50, true},
      {"sinks and a window", {4, 2, 32, 0.177f, 7, 0}, 64, true},
      {"slopes", {4, 4, 32, 0.177f, 0, 0}, 64, false, true},
      {"slopes, soft cap, sinks, latent", {4, 1, 48, 0.15f, 0, 5.0f, 32, true}, 40, true, true},
  };
  for (const Case& c : cases) {
    INFO(c.name);
    const Layer layer(c.spec, 1, c.sinks, c.slopes);
    for (const hal::KvType type : {hal::KvType::kF32, hal::KvType::kBF16, hal::KvType::kF16}) {
      INFO(hal::kv_type_name(type));
      RunnerOptions options;
      options.kv_type = type;
      for_each_backend([&]<class B>(const Target& target) { check_attention<B>(target, layer, c.rows, options); });
    }
  }
}

TEST_CASE("attention: a layer in the middle of its blocks") {
  RunnerOptions options;
  options.block_tokens = 16;
  for (const hal::AttentionSpec& spec :
       {hal::AttentionSpec{4, 2, 32, 0.2f, 0, 0}, hal::AttentionSpec{4, 1, 40, 0.2f, 0, 0, 32, true}}) {
    const Layer layer(spec, 3);
    for_each_backend([&]<class B>(const Target& target) { check_attention<B>(target, layer, 40, options); });
  }
}

TEST_CASE("attention: a long sequence in pieces") {
  Rng rng(22);
  const Layer layer({2, 1, 32, 0.177f, 0, 0});
  const Inputs in(layer.spec, 300, rng);
  RunnerOptions options;
  options.max_rows = 128;
  options.max_tokens = 320;
  for_each_backend([&]<class B>(const Target& target) {
    OpRunner<B> runner(target.context(), layer.p.program, options);
    const Expected expected = oracle(target, layer, in, options.kv_type);
    for (std::size_t first = 0; first < 300; first += 100) {
      const Matrix out = run_rows(runner, layer, in, first, 100);
      const auto begin = expected.values.begin() + static_cast<std::ptrdiff_t>(first * out.cols);
      check_near(out, {begin, begin + static_cast<std::ptrdiff_t>(100 * out.cols)},
                 [&](std::size_t r, std::size_t c) { return expected.bounds[(first + r) * out.cols + c]; });
    }
  });
}

TEST_CASE("attention: bits do not depend on chunks, threads, block sizes or company") {
  Rng rng(23);
  struct Case {
    hal::AttentionSpec spec;
    bool biased = false;  // sinks and slopes
  };
  for (const auto& [spec, biased] :
       {Case{{6, 2, 32, 0.177f, 0, 0}}, Case{{4, 1, 64, 0.125f, 20, 0}}, Case{{18, 1, 56, 0.125f, 0, 0, 40, true}},
        Case{{4, 2, 32, 0.177f, 33, 0, 24}, true}}) {
    for (const hal::KvType type : {hal::KvType::kF32, hal::KvType::kF16}) {
      const Layer layer(spec, 1, biased, biased);
      const Inputs in(spec, 90, rng), stranger(spec, 90, rng);
      RunnerOptions options;
      options.max_rows = 192;
      options.kv_type = type;
      for_each_backend([&]<class B>(const Target& target) {
        OpRunner<B> whole(target.context(1), layer.p.program, options);
        const Matrix expected = run_rows(whole, layer, in, 0, 90);
        OpRunner<B> threads(target.context(2), layer.p.program, options);
        CHECK(run_rows(threads, layer, in, 0, 90).same_bits(expected));
        for (const std::size_t chunk : {std::size_t{1}, std::size_t{7}, std::size_t{64}}) {
          INFO("chunks of " << chunk);
          OpRunner<B> runner(target.context(), layer.p.program, options);
          bool same = true;
          for (std::size_t first = 0; first < 90; first += chunk) {
            const std::size_t count = std::min<std::size_t>(chunk, 90 - first);
            same = same && run_rows(runner, layer, in, first, count).same_bits(expected.slice(first, count));
          }
          CHECK(same);
        }
        for (const std::uint32_t block_tokens : {16u, 64u}) {
          INFO("blocks of " << block_tokens);
          RunnerOptions other = options;
          other.block_tokens = block_tokens;
          OpRunner<B> runner(target.context(), layer.p.program, other);
          CHECK(run_rows(runner, layer, in, 0, 90).same_bits(expected));
        }
        {
          INFO("another sequence in the same run, rows interleaved");
          OpRunner<B> runner(target.context(), layer.p.program, options);
          BatchRows rows;
          Matrix q(180, in.q.cols), k(180, in.k.cols), v(180, in.v.cols);
          for (std::size_t r = 0; r < 180; ++r) {
            const Inputs& source = r % 2 == 0 ? stranger : in;
            rows.add(0, static_cast<std::int32_t>(r / 2), r % 2 == 0 ? 3 : 1);
            std::copy_n(source.q.row(r / 2), q.cols, q.data.begin() + static_cast<std::ptrdiff_t>(r * q.cols));
            std::copy_n(source.k.row(r / 2), k.cols, k.data.begin() + static_cast<std::ptrdiff_t>(r * k.cols));
            std::copy_n(source.v.row(r / 2), v.cols, v.data.begin() + static_cast<std::ptrdiff_t>(r * v.cols));
          }
          std::vector<std::pair<hal::ValueId, Matrix>> inputs = {{layer.q, q}, {layer.k, k}};
          if (layer.v != hal::kNone) inputs.emplace_back(layer.v, v);
          const Matrix out = runner.run(rows, inputs, {layer.out})[0];
          std::vector<std::int32_t> mine;
          for (std::int32_t r = 1; r < 180; r += 2) mine.push_back(r);
          CHECK(take_rows(out, mine).same_bits(expected));
        }
      });
    }
  }
}

TEST_CASE("attention: infinite and NaN keys and values of later positions have no influence") {
  Rng rng(24);
  const Layer layer({4, 2, 32, 0.177f, 0, 0});
  const Inputs clean(layer.spec, 40, rng);
  Inputs poisoned = clean;
  for (std::size_t c = 0; c < poisoned.k.cols; ++c) {
    poisoned.k.at(37, c) = std::numeric_limits<float>::infinity();
    poisoned.v.at(37, c) = std::numeric_limits<float>::quiet_NaN();
  }
  for_each_backend([&]<class B>(const Target& target) {
    OpRunner<B> runner(target.context(), layer.p.program), other(target.context(), layer.p.program);
    const Matrix expected = run_rows(runner, layer, clean, 0, 40);
    const Matrix out = run_rows(other, layer, poisoned, 0, 40);
    CHECK(out.slice(0, 37).same_bits(expected.slice(0, 37)));
    CHECK(std::isnan(out.at(38, 0)));
    // A cache that is written again forgets what was there.
    run_rows(other, layer, clean, 37, 3);
    CHECK(run_rows(other, layer, clean, 39, 1).same_bits(expected.slice(39, 1)));
  });
}

TEST_CASE("attention: values in keys give the bits of the same values in a plane of their own") {
  Rng rng(26);
  const Layer latent({20, 1, 72, 0.1f, 0, 0, 64, true}), plain({20, 1, 72, 0.1f, 0, 0, 64});
  const Inputs in(latent.spec, 70, rng);
  for (const hal::KvType type : {hal::KvType::kF32, hal::KvType::kBF16, hal::KvType::kF16}) {
    RunnerOptions options;
    options.max_rows = 128;
    options.kv_type = type;
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> a(target.context(), latent.p.program, options), b(target.context(), plain.p.program, options);
      CHECK(run_rows(a, latent, in, 0, 70).same_bits(run_rows(b, plain, in, 0, 70)));
      CHECK(a.kv_layout().block_bytes < b.kv_layout().block_bytes);
    });
  }
}

TEST_CASE("attention: a copied block answers like the original") {
  Rng rng(25);
  const Layer layer({4, 2, 32, 0.177f, 0, 0});
  const Inputs in(layer.spec, 40, rng);
  for (const hal::KvType type : {hal::KvType::kF32, hal::KvType::kBF16, hal::KvType::kF16}) {
    RunnerOptions options;
    options.kv_type = type;
    for_each_backend([&]<class B>(const Target& target) {
      OpRunner<B> runner(target.context(), layer.p.program, options);
      const Matrix expected = run_rows(runner, layer, in, 0, 40, 0);
      for (const std::uint32_t i : {0u, 1u})
        runner.require(runner.backend().copy_kv_block(runner.stream(), runner.kv(), runner.kv_layout(),
                                                      runner.block(0, i), runner.block(2, i)));
      CHECK(run_rows(runner, layer, in, 39, 1, 2).same_bits(expected.slice(39, 1)));
    });
  }
}

}  // namespace
}  // namespace corbel_test
