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

inline constexpr std::size_t kNumDTypes = static_cast<std::size_t>(DType::kQ6_K) + 1;

/// Attention walks the cache in tiles of this many tokens at absolute multiples of it. A tile is made of subtiles of 16
/// tokens, the smallest cache block, in which keys are kept as [head_dim][16].
inline constexpr std::int32_t kTileTokens = 64;
inline constexpr std::int32_t kSubtileTokens = 16;

/// out[r][c] = sum over k of weights[c][k] * x[r][k] (+ bias[c]), for the rows [0, num_rows) of x and the columns [0,
/// num_columns) of `out`. Each output is accumulated in float32 over rising k: block by block (one fused step per
/// scale, then one per minimum) for quantized types, element by element for plain ones.
struct LinearArgs {
  const std::byte* weights = nullptr;  ///< the group of column 0
  std::size_t group_bytes = 0;
  std::size_t num_columns = 0;  ///< of out; the last group may be partly used
  std::size_t k = 0;
  const ActivationBlock* x_blocks = nullptr;  ///< [num_rows][k / 32], for quantized types
  const float* x = nullptr;                   ///< for plain types
  std::size_t x_stride = 0;
  float* out = nullptr;
  std::size_t out_stride = 0;
  const float* bias = nullptr;  ///< of column 0, or null
  std::size_t num_rows = 0;
};

/// One query vector: the part of `q` and of `out` that belongs to one head of one row, and the first and last position
/// that the row sees.
struct AttentionRow {
  const float* q = nullptr;  ///< heads lie head_dim apart
  float* out = nullptr;
  std::int32_t first = 0;
  std::int32_t last = 0;
};

/// Softmax attention of `num_heads` heads that read one kv head, for rows of one sequence.
/// Per row and head: scores are float32 dot products over rising d; a running maximum per tile; sums and outputs over
/// rising position.
struct AttentionArgs {
  const AttentionRow* rows = nullptr;
  std::size_t num_rows = 0;  ///< at most kMaxAttentionRows / num_heads
  std::size_t num_heads = 1;
  std::size_t head_dim = 0;
  float scale = 1;
  float softcap = 0;
  const hal::BlockEntry* table = nullptr;
  std::size_t block_tokens = 0;
  const std::byte* keys = nullptr;  ///< the plane of this layer and kv head in block 0 of the pool
  const std::byte* values = nullptr;
  std::size_t block_bytes = 0;
};
inline constexpr std::size_t kMaxAttentionRows = 64;

/// Writes one row's keys and values of all kv heads into its place in a cache block.
struct KvAppendArgs {
  const float* k = nullptr;
  const float* v = nullptr;
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;
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
};

struct KernelTable {
  /// Quantizes a row of `width` (a multiple of 32) elements: scale = max |x| / 127 per 32, codes rounded to nearest
  /// even.
  void (*quantize_row)(const float* x, std::size_t width, ActivationBlock* out) noexcept;
  void (*linear[kNumDTypes])(const LinearArgs&) noexcept;
  void (*attention[3])(const AttentionArgs&) noexcept;  // by KvType
  void (*kv_append[3])(const KvAppendArgs&) noexcept;   // by KvType
  void (*norm_row)(const NormArgs&) noexcept;
  void (*rope_head)(const hal::RopeSpec&, const float* in, const float* table, float* out) noexcept;
  void (*activation_row)(hal::ActivationKind, const float* in, const float* gate, float* out,
                         std::size_t width) noexcept;
  void (*add_row)(const float* a, const float* b, float* out, std::size_t width) noexcept;
  void (*scale_row)(float scale, const float* in, float* out, std::size_t width) noexcept;
  void (*softcap_row)(float cap, const float* in, float* out, std::size_t width) noexcept;
};

/// The tables of the levels. Those above base exist on x86-64 only; calling their functions needs a CPU that has the
/// instructions.
CORBEL_API const KernelTable& base_kernels() noexcept;
CORBEL_API const KernelTable& avx2_kernels() noexcept;
CORBEL_API const KernelTable& avx512_kernels() noexcept;

}  // namespace cpu
CORBEL_NAMESPACE_END
