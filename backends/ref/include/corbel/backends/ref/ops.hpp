// The arithmetic of the reference backend, one function per op. Private to it.
//
// Values are float32 matrices; within an op everything is computed in double and rounded once, when it is stored. All
// sums run in rising order of their index. An op may write over its own input: what it needs of a row is read before
// the row is written.
#pragma once

#include <corbel/config.hpp>
#include <corbel/detail/compiler.hpp>
#include <corbel/detail/exact_math.hpp>
#include <corbel/dtype.hpp>
#include <corbel/hal/batch.hpp>
#include <corbel/hal/kv.hpp>
#include <corbel/hal/program.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace ref {

/// Rows of float32 that lie `stride` elements apart.
struct Matrix {
  float* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t stride = 0;

  float* row(std::size_t r) const noexcept { return data + r * stride; }
};

// ---- embed, rope table, norm, rope -------------------------------

/// out[i] = factor * in[i]
inline void scale_row(float factor, const float* in, float* out, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = factor * in[i];
}

/// out[i] = scale * cos(p f[i]), out[count + i] = scale * sin(p f[i]). The angle is a float32 product: models are
/// trained with that rounding.
inline void rope_table_row(std::int32_t position, const float* frequencies, std::size_t count, float scale,
                           float* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    const detail::SinCos value = detail::exact_sincos(double{angle});
    out[i] = static_cast<float>(double{scale} * value.cos);
    out[count + i] = static_cast<float>(double{scale} * value.sin);
  }
}

/// Normalizes one group of columns; `weight` and `bias` may be null.
inline void norm_group(const hal::NormSpec& norm, const float* in, const float* weight, const float* bias,
                       float* out) noexcept {
  const std::size_t count = norm.group;
  double mean = 0;
  if (norm.kind == hal::NormKind::kLayer) {
    for (std::size_t i = 0; i < count; ++i) mean += double{in[i]};
    mean /= static_cast<double>(count);
  }
  double square = 0;
  for (std::size_t i = 0; i < count; ++i) square += (double{in[i]} - mean) * (double{in[i]} - mean);
  const double divisor = std::sqrt(square / static_cast<double>(count) + double{norm.epsilon});
  for (std::size_t i = 0; i < count; ++i) {
    double value = (double{in[i]} - mean) / divisor;
    if (weight != nullptr) value *= double{weight[i]};
    if (bias != nullptr) value += double{bias[i]};
    out[i] = static_cast<float>(value);
  }
}

/// Rotates one head by the angles whose cosines and sines are in `table` [rotary_dim / 2 each].
inline void rope_head(const hal::RopeSpec& rope, const float* in, const float* table, float* out) noexcept {
  const std::size_t pairs = rope.rotary_dim / 2;
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::size_t first = rope.interleaved ? 2 * i : i;
    const std::size_t second = rope.interleaved ? 2 * i + 1 : i + pairs;
    const double x = double{in[first]}, y = double{in[second]};
    const double cosine = double{table[i]}, sine = double{table[pairs + i]};
    // GCC 12's vectoriser fuses this pattern whatever fp-contract says; as the products are exact, no bit changes.
    out[first] = static_cast<float>(x * cosine - y * sine);
    out[second] = static_cast<float>(y * cosine + x * sine);
  }
  for (std::size_t i = rope.rotary_dim; i < rope.head_dim; ++i) out[i] = in[i];
}

// ---- linear ------------------------------------------------------

/// Two doubles that the compiler keeps in one register (a vector type of GCC and clang; arithmetic is lane by lane).
typedef double Pair __attribute__((vector_size(16), may_alias));

/// Rows of the batch that pass over a weight together: one tile holds element k of its rows at [k * kTileRows].
inline constexpr std::size_t kTileRows = 8;

/// Writes rows [first, first + kTileRows) of x, transposed, as doubles; rows past the end as zeros.
inline void fill_tile(const Matrix& x, std::size_t first, double* tile) noexcept {
  for (std::size_t lane = 0; lane < kTileRows; ++lane) {
    const bool exists = first + lane < x.rows;
    const float* row = exists ? x.row(first + lane) : nullptr;
    for (std::size_t k = 0; k < x.cols; ++k) tile[k * kTileRows + lane] = exists ? double{row[k]} : 0.0;
  }
}

/// sums0[lane] = sum over k of weight0[k] * tile[k][lane], and the same for a second weight row. The lanes are
/// independent sums: what stands in one has no influence on the others. Products of float32 values are exact in double.
inline void dot_tile(const float* weight0, const float* weight1, const double* tile, std::size_t count, double* sums0,
                     double* sums1) noexcept {
  Pair a0{}, a1{}, a2{}, a3{}, b0{}, b1{}, b2{}, b3{};
  const Pair* x = reinterpret_cast<const Pair*>(tile);
  for (std::size_t k = 0; k < count; ++k, x += 4) {
    const Pair u = {double{weight0[k]}, double{weight0[k]}};
    const Pair v = {double{weight1[k]}, double{weight1[k]}};
    a0 += u * x[0];
    a1 += u * x[1];
    a2 += u * x[2];
    a3 += u * x[3];
    b0 += v * x[0];
    b1 += v * x[1];
    b2 += v * x[2];
    b3 += v * x[3];
  }
  Pair* s0 = reinterpret_cast<Pair*>(sums0);
  Pair* s1 = reinterpret_cast<Pair*>(sums1);
  s0[0] = a0, s0[1] = a1, s0[2] = a2, s0[3] = a3;
  s1[0] = b0, s1[1] = b1, s1[2] = b2, s1[3] = b3;
}

/// sums[i] = sum over k of weight_i[k] * x[k] for four weight rows that lie `stride` apart: a single row of a batch
/// needs no tile.
inline void dot_row(const float* weight, std::size_t stride, const double* x, std::size_t count,
                    double* sums) noexcept {
  double a = 0, b = 0, c = 0, d = 0;
  for (std::size_t k = 0; k < count; ++k) {
    a += double{weight[k]} * x[k];
    b += double{weight[stride + k]} * x[k];
    c += double{weight[2 * stride + k]} * x[k];
    d += double{weight[3 * stride + k]} * x[k];
  }
  sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
}

/// The stored form of a sum.
inline float finish_linear(double sum, const float* bias, std::size_t index) noexcept {
  return static_cast<float>(bias == nullptr ? sum : sum + double{bias[index]});
}

/// out[first + i] for `count` weight rows and the only row x of a batch. Room for four rows at a time is expected after
/// the last.
inline void linear_row(float* weight_rows, std::size_t count, const double* x, std::size_t cols, const float* bias,
                       std::size_t first, float* out) noexcept {
  for (std::size_t i = 0; i < count; i += 4) {
    // Rows past the end repeat an old one; their sums are dropped.
    for (std::size_t j = count; j < i + 4; ++j) std::memcpy(weight_rows + j * cols, weight_rows, cols * sizeof(float));
    double sums[4];
    dot_row(weight_rows + i * cols, cols, x, cols, sums);
    for (std::size_t j = i; j < std::min(i + 4, count); ++j)
      out[first + j] = finish_linear(sums[j - i], bias, first + j);
  }
}

/// Columns [first, first + count) of out for `count` weight rows and all rows of a batch, of which `tiles` holds the
/// transposed form.
inline void linear_tiles(const float* weight_rows, std::size_t count, const double* tiles, const Matrix& in,
                         const float* bias, std::size_t first, const Matrix& out) noexcept {
  for (std::size_t r = 0; r < in.rows; r += kTileRows) {
    for (std::size_t i = 0; i < count; i += 2) {
      const std::size_t second = std::min(i + 1, count - 1);  // of an odd count the last row is its own partner
      alignas(Pair) double sums[2][kTileRows];
      dot_tile(weight_rows + i * in.cols, weight_rows + second * in.cols, tiles + r * in.cols, in.cols, sums[0],
               sums[1]);
      for (std::size_t lane = 0; lane < std::min(kTileRows, in.rows - r); ++lane) {
        float* row = out.row(r + lane);
        row[first + i] = finish_linear(sums[0][lane], bias, first + i);
        row[first + second] = finish_linear(sums[1][lane], bias, first + second);
      }
    }
  }
}

// ---- key/value cache and attention -------------------------------

/// Rounds `count` values to the cache's type.
inline void store_kv(hal::KvType type, const float* in, std::byte* out, std::size_t count) noexcept {
  if (type == hal::KvType::kF32) {
    std::memcpy(out, in, count * sizeof(float));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t bits = type == hal::KvType::kF16 ? f32_to_f16(in[i]) : f32_to_bf16(in[i]);
    std::memcpy(out + 2 * i, &bits, 2);
  }
}

inline void load_kv(hal::KvType type, const std::byte* in, float* out, std::size_t count) noexcept {
  if (type == hal::KvType::kF32) {
    std::memcpy(out, in, count * sizeof(float));
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, in + 2 * i, 2);
    out[i] = type == hal::KvType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
}

/// The cache of one sequence in one layer. Planes are [block_tokens][kv_heads][head_dim] (keys)
/// and [block_tokens][kv_heads][value_dim] (values).
struct KvPlanes {
  std::byte* pool = nullptr;
  const hal::BlockEntry* table = nullptr;
  hal::KvType type = hal::KvType::kF32;
  std::uint64_t block_bytes = 0;
  std::uint64_t k_offset = 0;
  std::uint64_t v_offset = 0;
  std::size_t block_tokens = 0;
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;
  std::size_t value_dim = 0;
  bool values_in_keys = false;

  std::byte* keys(std::size_t position, std::size_t kv_head) const noexcept {
    return at(k_offset, position, kv_head, head_dim);
  }
  std::byte* values(std::size_t position, std::size_t kv_head) const noexcept {
    return values_in_keys ? keys(position, kv_head) : at(v_offset, position, kv_head, value_dim);
  }

 private:
  std::byte* at(std::uint64_t plane, std::size_t position, std::size_t kv_head, std::size_t dim) const noexcept {
    const hal::BlockEntry& entry = table[position / block_tokens];
    const std::size_t token = position - static_cast<std::size_t>(entry.first_position);
    const std::size_t element = (token * kv_heads + kv_head) * dim;
    return pool + static_cast<std::size_t>(entry.block) * block_bytes + plane + element * hal::kv_type_bytes(type);
  }
};

/// Scratch of one task: scores of all positions, one head of a query and of the output, one head of a key or value.
struct AttentionScratch {
  double* scores = nullptr;
  double* query = nullptr;
  double* sums = nullptr;
  float* cached = nullptr;
};

/// What a head has besides the spec: an ALiBi slope (0: none) and a sink (null: none).
struct HeadBias {
  double slope = 0;
  const float* sink = nullptr;
};

/// One query head at `position`: out = sum over visible p of softmax(scores)[p] * value[p].
inline void attention_head(const hal::AttentionSpec& attention, const HeadBias& bias, const KvPlanes& kv,
                           std::size_t position, std::size_t head, const float* in, float* out,
                           const AttentionScratch& scratch) noexcept {
  const std::size_t dim = attention.head_dim, value_dim = attention.value_width();
  const std::size_t kv_head = head / (attention.heads / attention.kv_heads);
  const std::size_t end = position + 1;
  const std::size_t begin = attention.window != 0 && end > attention.window ? end - attention.window : 0;
  for (std::size_t d = 0; d < dim; ++d) scratch.query[d] = double{in[d]};

  double highest = 0;
  for (std::size_t p = begin; p < end; ++p) {
    load_kv(kv.type, kv.keys(p, kv_head), scratch.cached, dim);
    double score = 0;
    for (std::size_t d = 0; d < dim; ++d) score += scratch.query[d] * double{scratch.cached[d]};
    score *= double{attention.scale};
    if (attention.softcap != 0) {
      score = double{attention.softcap} * detail::exact_tanh(score / double{attention.softcap});
    }
    score -= bias.slope * static_cast<double>(position - p);
    scratch.scores[p] = score;
    if (p == begin || score > highest) highest = score;
  }

  double total = 0;
  if (bias.sink != nullptr) {
    highest = std::max(highest, double{*bias.sink});
    total = detail::exact_exp(double{*bias.sink} - highest);
  }
  for (std::size_t d = 0; d < value_dim; ++d) scratch.sums[d] = 0;
  for (std::size_t p = begin; p < end; ++p) {
    const double weight = detail::exact_exp(scratch.scores[p] - highest);
    total += weight;
    load_kv(kv.type, kv.values(p, kv_head), scratch.cached, value_dim);
    for (std::size_t d = 0; d < value_dim; ++d) scratch.sums[d] += weight * double{scratch.cached[d]};
  }
  for (std::size_t d = 0; d < value_dim; ++d) out[d] = static_cast<float>(scratch.sums[d] / total);
}

// ---- elementwise -------------------------------------------------

inline double activate(hal::ActivationKind kind, double x) noexcept {
  constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
  constexpr double kSqrtHalf = 0.70710678118654752440;
  switch (kind) {
    case hal::ActivationKind::kSilu:
      return x * detail::exact_sigmoid(x);
    case hal::ActivationKind::kGeluTanh:
      return 0.5 * x * (1.0 + detail::exact_tanh(kSqrtTwoOverPi * (x + 0.044715 * x * x * x)));
    case hal::ActivationKind::kGelu:
      return 0.5 * x * (1.0 + detail::exact_erf(x * kSqrtHalf));
    case hal::ActivationKind::kGeluQuick:
      return x * detail::exact_sigmoid(1.702 * x);
    case hal::ActivationKind::kRelu:
      return x < 0 ? 0.0 : x;
    case hal::ActivationKind::kReluSquared:
      return x < 0 ? 0.0 : x * x;
  }
  return x;
}

/// out = act(in) * gate; `gate` may be null.
inline void activation_row(hal::ActivationKind kind, const float* in, const float* gate, float* out,
                           std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const double value = activate(kind, double{in[i]});
    out[i] = static_cast<float>(gate == nullptr ? value : value * double{gate[i]});
  }
}

/// kJoin of one row; out must not overlap the inputs.
inline void join_row(std::size_t groups, const float* a, std::size_t a_cols, const float* b, std::size_t b_cols,
                     float* out) noexcept {
  for (std::size_t g = 0; g < groups; ++g) {
    out = std::copy_n(a + g * (a_cols / groups), a_cols / groups, out);
    out = std::copy_n(b + g * (b_cols / groups), b_cols / groups, out);
  }
}

inline void add_row(const float* a, const float* b, float* out, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

/// kGate; see hal::OpKind.
inline void gate_row(float alpha, float limit, const float* gate, const float* up, float* out,
                     std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const double g = double{std::min(gate[i], limit)};
    const double u = double{std::min(std::max(up[i], -limit), limit)};
    out[i] = static_cast<float>((u + 1.0) * (g * detail::exact_sigmoid(double{alpha} * g)));
  }
}

inline void clamp_row(float limit, const float* in, float* out, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = std::min(std::max(in[i], -limit), limit);
}

/// The factor of kPositionScale, rounded to float32.
inline float position_factor(float scale, float period, std::int32_t position) noexcept {
  const double steps = std::floor(static_cast<double>(position) / double{period});
  return static_cast<float>(1.0 + double{scale} * detail::exact_log(1.0 + steps));
}

inline void softcap_row(float cap, const float* in, float* out, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(double{cap} * detail::exact_tanh(double{in[i]} / double{cap}));
  }
}

}  // namespace ref
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
