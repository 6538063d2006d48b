// What level amx adds to the kernels of avx512: linears on tiles of bfloat16, for rows of prompts.
#pragma once

#include <corbel/backends/cpu/kernel_table.hpp>
#include <corbel/config.hpp>
#include <corbel/dtype.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

CORBEL_NAMESPACE_BEGIN
namespace cpu {

/// Activations come in blocks of 16 rows, each [ceil(k / 32)][16][32] bfloat16, zeros past the last row and column.
inline constexpr std::size_t kTileBlockRows = 16;
/// Columns of the output that a pass over the rows makes: two groups of the weight.
inline constexpr std::size_t kTilePanel = 32;
/// Rows that a call takes at most: their activations stay in a second-level cache.
inline constexpr std::size_t kMaxTiledRows = 256;
/// Steps of 32 columns of K whose weights are kept as tiles at a time, 2 KiB each.
inline constexpr std::size_t kMaxPanelSteps = 64;

constexpr std::size_t tile_steps(std::size_t k) noexcept { return (k + 31) / 32; }
/// bfloat16 elements of `num_rows` rows.
constexpr std::size_t tiled_elements(std::size_t num_rows, std::size_t k) noexcept {
  return (num_rows + kTileBlockRows - 1) / kTileBlockRows * kTileBlockRows * tile_steps(k) * 32;
}
/// Bytes of the scratch of a call, a multiple of 64: the weights of a panel, then sums.
constexpr std::size_t tile_weights_bytes(std::size_t k) noexcept {
  return std::min(tile_steps(k), kMaxPanelSteps) * 2048;
}
constexpr std::size_t tile_scratch_bytes(std::size_t k) noexcept {
  return tile_weights_bytes(k) + kMaxTiledRows * kTilePanel * sizeof(float);
}

/// out[r][c] = sum over k of weights[c][k] * x[r][k] (+ bias[c]) as LinearArgs says it, both factors rounded to
/// bfloat16. A row's sums depend on its own activations alone: over rising steps of 32 columns, each as TDPBF16PS adds
/// it (see amx/tiles.hpp).
struct TileLinearArgs {
  /// Some steps of a group of 16 rows of the weight as tiles; TileTable::expand of its type.
  void (*expand)(const std::byte* group, std::size_t first_step, std::size_t num_steps, std::size_t k,
                 std::uint16_t* tiles) noexcept = nullptr;
  const std::byte* weights = nullptr;  ///< the group of column 0
  std::size_t group_bytes = 0;
  std::size_t first_lane = 0;  ///< column 0 is this row of its group
  std::size_t num_columns = 0;
  std::size_t k = 0;
  const std::uint16_t* x = nullptr;  ///< what tile_rows() made of the rows
  float* out = nullptr;
  const LinearRow* rows = nullptr;  ///< [num_rows]; of each, where it lies in `out`
  const float* bias = nullptr;      ///< of column 0, or null
  std::size_t num_rows = 0;         ///< at most kMaxTiledRows
  std::byte* scratch = nullptr;     ///< tile_scratch_bytes(k), aligned to 64
};

struct TileTable {
  /// Weights of each type as tiles: of `num_steps` steps from `first_step` on 16 rows of pairs of columns each, 2 KiB
  /// from one step to the next. Values are those of CpuBackend::Weight::read_row, rounded to nearest even. Null for
  /// types that lose too much: their kernels are those of LinearArgs.
  void (*expand[kNumDTypes])(const std::byte* group, std::size_t first_step, std::size_t num_steps, std::size_t k,
                             std::uint16_t* tiles) noexcept;
  /// Rounds rows of activations (LinearRow::x elements from `x` on) to nearest even into `out`
  /// [tiled_elements(num_rows, k)].
  void (*tile_rows)(const float* x, const LinearRow* rows, std::size_t num_rows, std::size_t k,
                    std::uint16_t* out) noexcept;
  void (*linear)(const TileLinearArgs&) noexcept;
};

/// With the processor's tiles (needs AMX bf16 and request_tiles()), and with their software twin (needs what level
/// avx512 needs). x86-64 only.
CORBEL_API const TileTable& amx_tiles() noexcept;
CORBEL_API const TileTable& emulated_tiles() noexcept;

}  // namespace cpu
CORBEL_NAMESPACE_END
