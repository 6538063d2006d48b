// Row-wise ops of the CPU backend at every level against double arithmetic, and one digest of all kernels that every
// compiler and flag set has to give.
#include <corbel/backends/cpu/cpu_backend.hpp>
#include <corbel/context.hpp>
#include <corbel/dtype.hpp>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <support/op_harness.hpp>
#include <support/support.hpp>
#include <vector>

using corbel::IsaLevel;
namespace cpu = corbel::cpu;
namespace hal = corbel::hal;

namespace {

const cpu::KernelTable& kernels_at(IsaLevel level) {
#if defined(__x86_64__)
  if (level == IsaLevel::kAvx512) return cpu::avx512_kernels();
  if (level == IsaLevel::kAvx2) return cpu::avx2_kernels();
#endif
  return cpu::base_kernels();
}

template <class Body>
void for_each_level(const char* test, const Body& body) {
  for (const IsaLevel level : {IsaLevel::kBase, IsaLevel::kAvx2, IsaLevel::kAvx512}) {
    if (level > corbel::detected_isa()) {
      corbel_test::skip(test, std::string("this CPU lacks ") + corbel::isa_name(level));
      continue;
    }
    INFO(corbel::isa_name(level));
    body(level, kernels_at(level));
  }
}

/// Numbers in [-scale, scale) made of integer arithmetic alone: the same everywhere.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed) {}
  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 33);
  }
  float next(float scale) { return scale * (static_cast<float>(bits() >> 7) * 0x1p-23f - 1.0f); }
  std::vector<float> vector(std::size_t count, float scale) {
    std::vector<float> out(count);
    for (float& value : out) value = next(scale);
    return out;
  }

 private:
  std::uint64_t state_;
};

double relative(float actual, double expected) {
  return std::fabs(static_cast<double>(actual) - expected) / std::max(std::fabs(expected), 1e-30);
}

}  // namespace

TEST_CASE("cpu: activations and softcap are within 1e-6 of exact") {
  for_each_level("cpu: activations and softcap", [](IsaLevel, const cpu::KernelTable& kernels) {
    std::vector<float> x;
    for (int i = -4000; i <= 4000; ++i) x.push_back(static_cast<float>(i) * 0.005f);
    for (int i = -40; i < 0; ++i) x.push_back(std::ldexp(1.0f, i)), x.push_back(-std::ldexp(1.0f, i));
    std::vector<float> out(x.size());
    kernels.activation_row(hal::ActivationKind::kSilu, x.data(), nullptr, out.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double v = static_cast<double>(x[i]);
      if (relative(out[i], v / (1 + std::exp(-v))) > 1e-6) CHECK(out[i] == v / (1 + std::exp(-v)));
    }
    kernels.activation_row(hal::ActivationKind::kGeluTanh, x.data(), x.data(), out.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double v = static_cast<double>(x[i]);
      const double u = 2 * std::sqrt(2 / 3.14159265358979324) * (v + 0.044715 * v * v * v);
      const double expected = v * v / (1 + std::exp(-u));
      // Where e^-u is huge its argument's rounding counts: |u| half units.
      if (relative(out[i], expected) > 1e-6 + std::fabs(u) * 2e-7 && std::fabs(expected) > 1e-30)
        CHECK(out[i] == expected);
    }
    kernels.softcap_row(3.0f, x.data(), out.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = 3 * std::tanh(static_cast<double>(x[i]) / 3);
      if (relative(out[i], expected) > 1e-6) CHECK(out[i] == expected);
    }
    const float special[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(), 1e30f, -1e30f};
    float y[5];
    kernels.activation_row(hal::ActivationKind::kSilu, special, nullptr, y, 5);
    CHECK(std::isnan(y[0]));
    CHECK(y[1] == special[1]);
    CHECK(y[3] == 1e30f);
    kernels.softcap_row(3.0f, special, y, 5);
    CHECK(std::isnan(y[0]));
    CHECK(y[1] == 3.0f);
    CHECK(y[2] == -3.0f);
    CHECK(y[4] == -3.0f);
  });
}

TEST_CASE("cpu: norms, rope, sums and scales at widths that are no multiple of 16") {
  for_each_level("cpu: norms, rope, sums and scales", [](IsaLevel, const cpu::KernelTable& kernels) {
    Numbers numbers(3);
    for (const std::size_t group : {std::size_t{8}, std::size_t{16}, std::size_t{40}, std::size_t{257}}) {
      for (const hal::NormKind kind : {hal::NormKind::kRms, hal::NormKind::kLayer}) {
        const std::size_t width = group * 3;
        const std::vector<float> x = numbers.vector(width, 4), w = numbers.vector(group, 2),
                                 b = numbers.vector(group, 1);
        std::vector<float> out = x;  // in place
        kernels.norm_row(
            {out.data(), out.data(), width, {kind, static_cast<std::uint32_t>(group), 1e-5f}, w.data(), b.data()});
        for (std::size_t g = 0; g < 3; ++g) {
          double mean = 0, square = 0;
          for (std::size_t i = 0; i < group; ++i)
            mean += static_cast<double>(x[g * group + i]) / static_cast<double>(group);
          if (kind == hal::NormKind::kRms) mean = 0;
          for (std::size_t i = 0; i < group; ++i)
            square += std::pow(static_cast<double>(x[g * group + i]) - mean, 2) / static_cast<double>(group);
          for (std::size_t i = 0; i < group; ++i) {
            const double expected =
                (static_cast<double>(x[g * group + i]) - mean) / std::sqrt(square + 1e-5) * static_cast<double>(w[i]) +
                static_cast<double>(b[i]);
            CHECK(std::fabs(static_cast<double>(out[g * group + i]) - expected) < 4e-6);
          }
        }
      }
    }
    for (const hal::RopeSpec rope : {hal::RopeSpec{64, 64, false}, hal::RopeSpec{40, 24, false},
                                     hal::RopeSpec{40, 24, true}, hal::RopeSpec{96, 80, true}}) {
      const std::vector<float> x = numbers.vector(rope.head_dim, 2), table = numbers.vector(rope.rotary_dim, 1);
      std::vector<float> out = x;
      kernels.rope_head(rope, out.data(), table.data(), out.data());
      const std::size_t half = rope.rotary_dim / 2;
      for (std::size_t i = 0; i < half; ++i) {
        const std::size_t a = rope.interleaved ? 2 * i : i, b = rope.interleaved ? 2 * i + 1 : i + half;
        const double c = static_cast<double>(table[i]), s = static_cast<double>(table[half + i]);
        CHECK(std::fabs(static_cast<double>(out[a]) - (static_cast<double>(x[a]) * c - static_cast<double>(x[b]) * s)) <
              1e-6);
        CHECK(std::fabs(static_cast<double>(out[b]) - (static_cast<double>(x[b]) * c + static_cast<double>(x[a]) * s)) <
              1e-6);
      }
      for (std::size_t i = rope.rotary_dim; i < rope.head_dim; ++i) CHECK(out[i] == x[i]);
    }
    const std::vector<float> a = numbers.vector(37, 2), b = numbers.vector(37, 2);
    std::vector<float> out(40, 7.0f);
    kernels.add_row(a.data(), b.data(), out.data(), 37);
    for (std::size_t i = 0; i < 37; ++i) CHECK(out[i] == a[i] + b[i]);
    kernels.scale_row(0.3f, a.data(), out.data(), 37);
    for (std::size_t i = 0; i < 37; ++i) CHECK(out[i] == 0.3f * a[i]);
    CHECK(out[37] == 7.0f);
  });
}

TEST_CASE("cpu: activations are quantized to the nearest of 127 steps per 32") {
  for_each_level("cpu: activations are quantized", [](IsaLevel, const cpu::KernelTable& kernels) {
    Numbers numbers(5);
    std::vector<float> x = numbers.vector(96, 3);
    std::fill(x.begin() + 32, x.begin() + 64, 0.0f);
    x[70] = -9.0f;
    cpu::ActivationBlock blocks[3];
    kernels.quantize_row(x.data(), 96, 32, 0, blocks);
    CHECK(blocks[1].scale == 0.0f);
    CHECK(blocks[2].scale == 9.0f * (1.0f / 127.0f));
    CHECK(blocks[2].codes[6] == -127);
    for (std::size_t b = 0; b < 3; ++b) {
      int sums[2] = {0, 0};
      for (std::size_t i = 0; i < 32; ++i) {
        const float error = x[b * 32 + i] - static_cast<float>(blocks[b].codes[i]) * blocks[b].scale;
        CHECK(std::fabs(error) <= blocks[b].scale * 0.5001f);
        sums[i / 16] += blocks[b].codes[i];
      }
      CHECK(blocks[b].offsets[0] == cpu::kOffsetFactor * sums[0]);
      CHECK(blocks[b].offsets[1] == cpu::kOffsetFactor * sums[1]);
      CHECK(blocks[b].offset == cpu::kOffsetFactor * (sums[0] + sums[1]));
      CHECK(blocks[b].scaled_sum == blocks[b].scale * static_cast<float>(sums[0] + sums[1]));
    }
  });
}

TEST_CASE("cpu: integers times a step are quantized to themselves") {
  for_each_level("cpu: integers times a step", [](IsaLevel, const cpu::KernelTable& kernels) {
    // Codes in two groups with a step each.
    for (const float step : {0.0f, 0.0371f}) {
      std::vector<float> x(192);
      std::vector<int> codes(192);
      for (std::size_t i = 0; i < 192; ++i) {
        codes[i] = i < 128 ? static_cast<int>((i * 37) % 255) - 127 : static_cast<int>(i % 50) - 20;
        if (i == 130) codes[i] = 127;
        x[i] = static_cast<float>(codes[i]) * (step != 0 ? step : i < 128 ? 1.37e-3f : 211.3f);
      }
      cpu::ActivationBlock blocks[6];
      kernels.quantize_row(x.data(), 192, 128, step, blocks);
      for (std::size_t i = 0; i < 192; ++i) {
        CHECK(static_cast<int>(blocks[i / 32].codes[i % 32]) == codes[i]);
        CHECK(std::fabs(blocks[i / 32].scale * static_cast<float>(codes[i]) - x[i]) <= std::fabs(x[i]) * 1e-6f);
      }
      if (step != 0) {  // what 8 bits cannot hold with both signs is near
        x[40] = -128 * step;
        kernels.quantize_row(x.data(), 192, 128, step, blocks);
        CHECK(static_cast<int>(blocks[1].codes[8]) == -127);
        CHECK(blocks[1].scale == 128 * step * (1.0f / 127.0f));
        CHECK(blocks[2].scale == step);
      }
      x[100] = std::nanf("");
      kernels.quantize_row(x.data(), 192, 128, step, blocks);
      CHECK(std::isnan(blocks[3].scale));
      CHECK(blocks[4].scale > 0.0f);
    }
  });
}

namespace {

/// FNV-1a over the bits of floats.
class Digest {
 public:
  void add(const std::vector<float>& values) {
    for (const float value : values) {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      for (int i = 0; i < 32; i += 8) state_ = (state_ ^ (bits >> i & 0xffu)) * 1099511628211u;
    }
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 14695981039346656037u;
};

/// Linears over the types of [first, last] that have kernels of their own, with random codes and scales.
void add_linears(const cpu::KernelTable& kernels, corbel::DType first, corbel::DType last, Numbers& numbers,
                 const std::vector<float>& x, Digest& digest) {
  constexpr std::size_t kWidth = 512, kRows = 5, kColumns = 21;
  std::vector<cpu::ActivationBlock> blocks(kRows * kWidth / 32);
  kernels.quantize_row(x.data(), kRows * kWidth, 32, 0, blocks.data());
  for (const corbel::DTypeTraits& type : corbel::all_dtypes()) {
    if (type.dtype < first || type.dtype > last || cpu::kernel_type(type.dtype) != type.dtype) continue;
    // A scale is a float16, bfloat16 or float32 of moderate size.
    const cpu::PackedFormat format = cpu::packed_format(type.dtype);
    const std::size_t group = static_cast<std::size_t>(cpu::group_bytes(type.dtype, kWidth));
    std::vector<std::byte> weights(2 * group);
    if (format.quantized()) {
      const std::uint32_t mask = format.code_bits == 8 ? static_cast<std::uint32_t>(format.max_code) : 0xff;
      const std::size_t records = cpu::kNestColumns / cpu::kBlockColumns * format.record_bytes();
      for (std::size_t at = 0; at < weights.size(); ++at) {
        const std::size_t nested = at % (format.header_bytes() + records);
        const bool header = nested < format.header_bytes();
        const std::size_t in_record = (nested - format.header_bytes()) % format.record_bytes();
        if (!header && (in_record < format.code_bytes() || format.nested())) {
          weights[at] = static_cast<std::byte>(numbers.bits() & mask);
        } else if (header ? nested % 2 == 0 : (in_record - format.code_bytes()) % format.scale_bytes == 0) {
          const float scale = numbers.next(header ? 0.001f : 0.1f);
          const std::uint16_t half = format.bf16_scales ? corbel::f32_to_bf16(scale) : corbel::f32_to_f16(scale);
          const bool two_bytes = header || format.scale_bytes == 2;
          std::memcpy(weights.data() + at, two_bytes ? static_cast<const void*>(&half) : &scale, two_bytes ? 2 : 4);
        }
      }
    } else if (format.coded()) {
      for (std::size_t at = 0; at < weights.size(); ++at) {
        const std::size_t in_record = at % format.record_bytes();
        if (in_record >= cpu::kGroupRows * sizeof(float)) {
          weights[at] = static_cast<std::byte>(numbers.bits() & 0xff);
        } else if (in_record % sizeof(float) == 0) {
          const float scale = numbers.next(0.1f);
          std::memcpy(weights.data() + at, &scale, sizeof scale);
        }
      }
    } else {
      const std::size_t bytes = cpu::plain_bytes(type.dtype);
      for (std::size_t at = 0; at < weights.size(); at += bytes) {
        const float value = numbers.next(0.5f);
        const std::uint16_t half =
            type.dtype == corbel::DType::kF16 ? corbel::f32_to_f16(value) : corbel::f32_to_bf16(value);
        std::memcpy(weights.data() + at, bytes == 2 ? static_cast<const void*>(&half) : &value, bytes);
      }
    }
    std::vector<float> out(kRows * kColumns);
    cpu::LinearArgs args;
    args.weights = weights.data();
    args.group_bytes = group;
    args.num_columns = kColumns;
    args.k = kWidth;
    args.x_blocks = blocks.data();
    args.x_block_stride = kWidth / 32;
    args.x = x.data();
    args.x_stride = kWidth;
    args.out = out.data();
    args.out_stride = kColumns;
    args.num_rows = kRows;
    kernels.linear[static_cast<std::size_t>(type.dtype)](args);
    digest.add(out);
  }
}

std::uint64_t digest_of_all_kernels(const cpu::KernelTable& kernels) {
  Numbers numbers(9);
  Digest digest;
  const std::vector<float> x = numbers.vector(5 * 512, 2);
  add_linears(kernels, corbel::DType::kF32, corbel::DType::kQ6_K, numbers, x, digest);

  constexpr std::size_t kTokens = 80, kBlock = 16, kDim = 40, kHeads = 3;
  for (const std::size_t type : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    const std::size_t plane = kBlock * kDim * (type == 0 ? 4 : 2);
    std::vector<std::byte> cache(kTokens / kBlock * 2 * plane);
    std::vector<hal::BlockEntry> table;
    for (std::size_t i = 0; i < kTokens / kBlock; ++i)
      table.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(i * kBlock)});
    for (std::size_t t = 0; t < kTokens; ++t) {
      const std::vector<float> k = numbers.vector(kDim, 2), v = numbers.vector(kDim, 2);
      std::byte* block = cache.data() + t / kBlock * 2 * plane;
      kernels.kv_append[type]({k.data(), v.data(), 1, kDim, kDim, block, block + plane, kBlock, t % kBlock});
    }
    const std::vector<float> q = numbers.vector(2 * kHeads * kDim, 2);
    std::vector<float> out(q.size()), chunk(q.size()), vectors(q.size());
    const cpu::AttentionRow rows[] = {{q.data(), out.data(), 0, 70},
                                      {q.data() + kHeads * kDim, out.data() + kHeads * kDim, 5, 79}};
    cpu::AttentionArgs args;
    args.rows = rows;
    args.num_rows = 2;
    args.num_heads = kHeads;
    args.head_dim = args.value_dim = args.out_step = kDim;
    args.vectors = vectors.data();
    args.chunk_outputs = chunk.data();
    args.scale = 0.4f;
    args.softcap = 8.0f;
    args.table = table.data();
    args.block_tokens = kBlock;
    args.keys = cache.data();
    args.values = cache.data() + plane;
    args.block_bytes = 2 * plane;
    kernels.attention[type](args);
    digest.add(out);
  }

  std::vector<float> row(x.begin(), x.begin() + 500);
  kernels.norm_row({row.data(), row.data(), 500, {hal::NormKind::kRms, 50, 1e-6f}, x.data(), nullptr});
  kernels.norm_row({row.data(), row.data(), 500, {hal::NormKind::kLayer, 500, 1e-6f}, x.data(), x.data() + 500});
  kernels.activation_row(hal::ActivationKind::kSilu, row.data(), x.data(), row.data(), 500);
  kernels.activation_row(hal::ActivationKind::kGeluTanh, row.data(), nullptr, row.data(), 500);
  kernels.softcap_row(2.0f, row.data(), row.data(), 500);
  kernels.rope_head({500, 300, true}, row.data(), x.data(), row.data());
  kernels.rope_head({500, 300, false}, row.data(), x.data(), row.data());
  digest.add(row);
  return digest.value();
}

/// What only some families and files use: further types, values in keys, sinks, slopes, further activations, rounding,
/// experts.
std::uint64_t digest_of_family_kernels(const cpu::KernelTable& kernels) {
  Numbers numbers(10);
  Digest digest;
  constexpr std::size_t kTokens = 80, kBlock = 16, kDim = 40, kValueDim = 21, kHeads = 3, kWidth = 500;
  const std::vector<float> x = numbers.vector(5 * 512, 2);
  add_linears(kernels, corbel::DType::kQ8_1, corbel::all_dtypes().back().dtype, numbers, x, digest);
  const std::vector<float> sinks = numbers.vector(kHeads, 2), slopes = numbers.vector(kHeads, 1);
  for (const std::size_t type : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    const std::size_t plane = kBlock * kDim * (type == 0 ? 4 : 2);
    std::vector<std::byte> cache(kTokens / kBlock * plane);
    std::vector<hal::BlockEntry> table;
    for (std::size_t i = 0; i < kTokens / kBlock; ++i)
      table.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(i * kBlock)});
    for (std::size_t t = 0; t < kTokens; ++t) {
      const std::vector<float> k = numbers.vector(kDim, 2);
      kernels.kv_append[type](
          {k.data(), nullptr, 1, kDim, kValueDim, cache.data() + t / kBlock * plane, nullptr, kBlock, t % kBlock});
    }
    const std::vector<float> q = numbers.vector(kHeads * kDim, 2);
    std::vector<float> out(kHeads * kValueDim), chunk(kHeads * kValueDim), vectors(q.size());
    const cpu::AttentionRow row = {q.data(), out.data(), 3, 77};
    cpu::AttentionArgs args;
    args.rows = &row;
    args.num_rows = 1;
    args.num_heads = kHeads;
    args.head_dim = kDim;
    args.value_dim = args.out_step = kValueDim;
    args.vectors = vectors.data();
    args.chunk_outputs = chunk.data();
    args.scale = 0.4f;
    args.sinks = sinks.data();
    args.slopes = slopes.data();
    args.table = table.data();
    args.block_tokens = kBlock;
    args.keys = cache.data();
    args.block_bytes = plane;
    kernels.attention[type](args);
    digest.add(out);
  }
  std::vector<float> row = numbers.vector(kWidth, 4);
  const std::vector<float> other = numbers.vector(kWidth, 4);
  for (const hal::ActivationKind kind :
       {hal::ActivationKind::kGelu, hal::ActivationKind::kGeluQuick, hal::ActivationKind::kReluSquared}) {
    std::vector<float> out(kWidth);
    kernels.activation_row(kind, row.data(), other.data(), out.data(), kWidth);
    digest.add(out);
  }
  kernels.gate_row(1.702f, 3.0f, row.data(), other.data(), row.data(), kWidth);
  digest.add(row);
  for (const hal::RoundKind kind : {hal::RoundKind::kInt8, hal::RoundKind::kFp8E4M3}) {
    std::vector<float> out(kWidth);
    kernels.round_row({row.data(), out.data(), kWidth, {kind, 128}, nullptr, nullptr});
    digest.add(out);
  }
  std::vector<float> sum(kWidth / 4);
  kernels.weighted_sum_row({row.data(), other.data(), 4, sum.data(), kWidth / 4});
  kernels.clamp_row(1.5f, sum.data(), sum.data(), sum.size());
  digest.add(sum);
  return digest.value();
}

}  // namespace

// They change when the arithmetic of a level is changed on purpose. Level base is made of plain IEEE operations, so it
// has one digest on every machine; avx2 and avx512 do the same fused operations in the same order and share theirs.
TEST_CASE("cpu: one digest per level for every compiler and every flag set") {
  for_each_level("cpu: one digest per level", [](IsaLevel level, const cpu::KernelTable& kernels) {
    CHECK(digest_of_all_kernels(kernels) == (level == IsaLevel::kBase ? 0x26b827e2eb8ca256 : 0x09488d16714254f8));
    CHECK(digest_of_family_kernels(kernels) == (level == IsaLevel::kBase ? 0xadbf8d7f4ed35c3f : 0x1fbbca0300987325));
  });
}
