// What the kernels of one instruction level offer to the backend: plain functions over pointers and extents. No vector
// type crosses this boundary.
#pragma once

#include <corbel/backends/cpu/packed.hpp>
#include <corbel/config.hpp>
#include <corbel/dtype.hpp>
#include <corbel/hal/batch.hpp>
#include <corbel/hal/kv.hpp>
#include <corbel/hal/program.hpp>

#include <cstddef>
#include <cstdint>

CORBEL_NAMESPACE_BEGIN
namespace cpu {

/// Attention walks the cache in tiles of this many tokens at absolute multiples of it. A tile is made of subtiles of 16
/// tokens, the smallest cache block, in which keys are kept as [head_dim][16].
inline constexpr std::int32_t kTileTokens = 64;
inline constexpr std::int32_t kSubtileTokens = 16;
/// A query's positions are summed in chunks, which begin at fixed positions whatever runs, and then the chunks from the
/// first to the last, so that threads can share a long context. The number of the chunk of `position`, from 0; where a
/// chunk begins, a multiple of kTileTokens; and where that of `position` ends.
constexpr std::int32_t attention_chunk(std::int32_t position) noexcept {
  if (position < 4096) return position / 256;
  if (position < 32768) return 16 + (position - 4096) / 1024;
  return 44 + (position - 32768) / 4096;
}
constexpr std::int32_t attention_chunk_begin(std::int32_t chunk) noexcept {
  if (chunk < 16) return chunk * 256;
  if (chunk < 44) return 4096 + (chunk - 16) * 1024;
  const std::int64_t begin = 32768 + std::int64_t{chunk - 44} * 4096;
  return begin > INT32_MAX ? INT32_MAX : static_cast<std::int32_t>(begin);
}
constexpr std::int32_t attention_chunk_end(std::int32_t position) noexcept {
  return attention_chunk_begin(attention_chunk(position) + 1);
}

/// Where a row of a linear begins, counted from LinearArgs::x_blocks (in blocks), x and out (in elements).
struct LinearRow {
  std::size_t x_block = 0;
  std::size_t x = 0;
  std::size_t out = 0;
};

/// Rows for which a linear prepares what it reads of the weights at a time; a call may have more.
inline constexpr std::size_t kLinearRows = 256;

/// out[r][c] = sum over k of weights[c][k] * x[r][k] (+ bias[c]), for the rows [0, num_rows) of x and the columns [0,
/// num_columns) of `out`. Each output is accumulated in float32 over rising k: block by block (one fused step per
/// scale, then one per minimum) for quantized types, element by element for plain ones.
struct LinearArgs {
  const std::byte* weights = nullptr;  ///< the group of column 0
  std::size_t group_bytes = 0;
  std::size_t first_lane = 0;   ///< column 0 is this row of its group
  std::size_t num_columns = 0;  ///< of out; the last group may be partly used
  std::size_t k = 0;
  const ActivationBlock* x_blocks = nullptr;  ///< k / 32 a row, for quantized types
  std::size_t x_block_stride = 0;             ///< blocks from one row to the next
  const float* x = nullptr;                   ///< for plain types
  std::size_t x_stride = 0;
  float* out = nullptr;
  std::size_t out_stride = 0;
  const LinearRow* rows = nullptr;  ///< [num_rows]: where the rows are, instead of a stride apart; or null
  const float* bias = nullptr;      ///< of column 0, or null
  std::size_t num_rows = 0;
  std::size_t prefetch_distance = 4096;  ///< bytes; how far ahead of the first rows weights are asked for
  bool streams = true;                   ///< one row may read several groups of long weights at a time
};

/// The parts of `q` and of `out` that belong to some heads of one row, and the first and last position that it sees.
struct AttentionRow {
  const float* q = nullptr;  ///< heads lie head_dim apart
  float* out = nullptr;      ///< heads lie out_step apart
  std::int32_t first = 0;
  std::int32_t last = 0;  ///< the row's own position
};

/// Softmax attention of `num_heads` heads that read one kv head, for rows of one sequence.
/// Per row, head and chunk: scores are float32 dot products over rising d; a running maximum per tile; sums and outputs
/// over rising position.
struct AttentionArgs {
  const AttentionRow* rows = nullptr;
  std::size_t num_rows = 0;  ///< num_rows * num_heads is at most kMaxAttentionRows
  std::size_t num_heads = 1;
  std::size_t head_dim = 0;
  std::size_t value_dim = 0;
  std::size_t out_step = 0;        ///< elements from the output of one head to the next
  float* vectors = nullptr;        ///< scratch [head_dim * num_rows * num_heads]
  float* chunk_outputs = nullptr;  ///< scratch [num_rows * num_heads * value_dim] of attention()
  float scale = 1;
  float softcap = 0;
  const float* sinks = nullptr;   ///< [num_heads], or null
  const float* slopes = nullptr;  ///< [num_heads], or null
  const hal::BlockEntry* table = nullptr;
  std::size_t block_tokens = 0;
  const std::byte* keys = nullptr;    ///< the plane of this layer and kv head in block 0 of the pool
  const std::byte* values = nullptr;  ///< null where values are the first value_dim elements of the keys
  std::size_t block_bytes = 0;
};
inline constexpr std::size_t kMaxAttentionRows = 64;

/// What one chunk gives to one query: the maximum, the sum, and from kChunkHeader on the outputs, not yet divided.
inline constexpr std::size_t kChunkHeader = 16;
struct JoinChunksArgs {
  const float* chunks = nullptr;
  std::size_t chunk_step = 0;  ///< elements
  std::size_t count = 0;
  const float* sink = nullptr;
  float* out = nullptr;
  std::size_t value_dim = 0;
};

/// Writes one row's keys and values of all kv heads into its place in a cache block.
struct KvAppendArgs {
  const float* k = nullptr;
  const float* v = nullptr;  ///< null where values lie in keys
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;
  std::size_t value_dim = 0;
  std::byte* keys = nullptr;  ///< the layer's plane in the block
  std::byte* values = nullptr;
  std::size_t block_tokens = 0;
  std::size_t token = 0;  ///< within the block
};

struct NormArgs {
  const float* in = nullptr;
  float* out = nullptr;  ///< may be `in`
  std::size_t width = 0;
  hal::NormSpec norm;
  const float* weight = nullptr;
  const float* bias = nullptr;
  std::size_t weight_step = 0;  ///< elements of the weight from one group to the next: 0 or the group
  std::size_t bias_step = 0;
};

/// kRoundActivations of a row; the steps are those of hal::RoundSpec, bit for bit.
struct RoundArgs {
  const float* in = nullptr;
  float* out = nullptr;  ///< may be `in`
  std::size_t width = 0;
  hal::RoundSpec round;
  const float* scale = nullptr;  ///< static, or null
  const float* zero_point = nullptr;
};

/// out[c] = sum over rising j of weights[j] * in[j * width + c], one fused step each.
struct WeightedSumArgs {
  const float* in = nullptr;
  const float* weights = nullptr;
  std::size_t count = 0;
  float* out = nullptr;
  std::size_t width = 0;
};

struct KernelTable {
  /// Quantizes `width` (a multiple of 32) elements, codes rounded to nearest even. The scale is max |x| / 127 of each
  /// `group` elements, a multiple of 32. Where `step` is not 0 it is `step`, but for 32 elements with a larger one than
  /// 127 steps, which have a scale of their own.
  void (*quantize_row)(const float* x, std::size_t width, std::size_t group, float step, ActivationBlock* out) noexcept;
  void (*linear[kNumDTypes])(const LinearArgs&) noexcept;
  std::size_t rows_for_panels;  ///< calls of linear with fewer rows do without panels
  std::size_t panel_groups;     ///< groups of a panel of quantized weights; fewer that are left over do without
  void (*attention[3])(const AttentionArgs&) noexcept;  // by KvType
  /// The same for the positions of the chunk that begins at or before `position`, as far as the rows see them, from
  /// `position` on; outputs are what join_chunks takes. Without sinks.
  void (*attention_chunk[3])(const AttentionArgs&, std::int32_t position) noexcept;
  void (*join_chunks)(const JoinChunksArgs&) noexcept;
  void (*kv_append[3])(const KvAppendArgs&) noexcept;  // by KvType
  void (*norm_row)(const NormArgs&) noexcept;
  void (*rope_head)(const hal::RopeSpec&, const float* in, const float* table, float* out) noexcept;
  void (*activation_row)(hal::ActivationKind, const float* in, const float* gate, float* out,
                         std::size_t width) noexcept;
  void (*add_row)(const float* a, const float* b, float* out, std::size_t width) noexcept;
  void (*scale_row)(float scale, const float* in, float* out, std::size_t width) noexcept;
  void (*softcap_row)(float cap, const float* in, float* out, std::size_t width) noexcept;
  void (*clamp_row)(float limit, const float* in, float* out, std::size_t width) noexcept;
  /// out = (u + 1) * g * sigmoid(alpha * g), g = in limited from above, u = up limited on both sides.
  void (*gate_row)(float alpha, float limit, const float* in, const float* up, float* out, std::size_t width) noexcept;
  void (*round_row)(const RoundArgs&) noexcept;
  void (*weighted_sum_row)(const WeightedSumArgs&) noexcept;
};

/// The tables of the levels. Those above base exist on x86-64 only; calling their functions needs a CPU that has the
/// instructions.
CORBEL_API const KernelTable& base_kernels() noexcept;
CORBEL_API const KernelTable& avx2_kernels() noexcept;
CORBEL_API const KernelTable& avx512_kernels() noexcept;

}  // namespace cpu
CORBEL_NAMESPACE_END
