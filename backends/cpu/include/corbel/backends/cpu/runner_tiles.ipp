// Definitions of runner.hpp for linears on tiles (level amx): rows of prompts on tiles of bfloat16, the others as at
// level avx512.
#pragma once

#include <corbel/backends/cpu/runner.hpp>

#include <algorithm>
#include <iterator>

CORBEL_NAMESPACE_BEGIN
namespace cpu {

CORBEL_INLINE bool Runner::uses_tiles(const hal::Op& op) const noexcept {
  if (tiles_ == nullptr) return false;
  const auto& segments = weight(op.weight).segments();
  if (std::none_of(segments.begin(), segments.end(), [&](const CpuBackend::Weight::Segment& segment) {
        return tiles_->expand[static_cast<std::size_t>(segment.dtype)] != nullptr;
      }))
    return false;
  const std::size_t rows = matrix(op.in[0]).rows;
  for (std::size_t r = 0; r < rows; ++r)
    if (is_prompt(op.in[0], r)) return true;
  return false;
}

CORBEL_INLINE void Runner::tiled_columns(const CpuBackend::Weight& w, std::size_t begin, std::size_t end,
                                         TileLinearArgs tiled, const LinearArgs& plain) const noexcept {
  tiled.k = plain.k;
  tiled.rows = plain.rows;
  tiled.num_rows = plain.num_rows;
  const auto* segment = &*std::prev(
      std::upper_bound(w.segments().begin(), w.segments().end(), begin,
                       [](std::size_t row, const CpuBackend::Weight::Segment& s) { return row < s.first_row; }));
  for (std::size_t at = begin; at < end; ++segment) {
    const auto local = at - static_cast<std::size_t>(segment->first_row);
    const std::size_t count = std::min(end - at, static_cast<std::size_t>(segment->rows) - local);
    tiled.expand = tiles_->expand[static_cast<std::size_t>(segment->dtype)];
    if (tiled.expand == nullptr) {
      LinearArgs args = plain;
      args.out += at - begin;
      if (args.bias != nullptr) args.bias += at - begin;
      linear_columns(w, at, at + count, args);
    } else {
      tiled.group_bytes = static_cast<std::size_t>(segment->group_bytes);
      tiled.weights = segment->groups + local / kGroupRows * tiled.group_bytes;
      tiled.first_lane = local % kGroupRows;
      tiled.num_columns = count;
      tiled.out = plain.out + (at - begin);
      tiled.bias = plain.bias == nullptr ? nullptr : plain.bias + (at - begin);
      tiles_->linear(tiled);
    }
    at += count;
  }
}

// First the activations become tiles, or are quantized, then tasks divide the columns of the output.
CORBEL_INLINE void Runner::tiled_linear(const hal::Op& op, std::size_t groups) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const CpuBackend::Weight& w = weight(op.weight);
  const float* bias = vector_or_null(op.bias);
  const std::size_t in_cols = in.cols / groups, out_cols = out.cols / groups, num_blocks = in.cols / kBlockColumns;
  const TileWorkspace layout(in.rows, groups, in_cols, context_.concurrency());

  auto* const rows = reinterpret_cast<LinearRow*>(memory_.workspace + layout.rows);
  std::size_t num_tiled = 0;
  for (std::size_t r = 0; r < in.rows; ++r)
    if (is_prompt(op.in[0], r)) rows[num_tiled++] = {0, r * in.stride, r * out.stride};
  const std::size_t num_others = in.rows - num_tiled;
  LinearRow* const others = rows + num_tiled;
  for (std::size_t r = 0, i = 0; i < num_others; ++r) {
    if (is_prompt(op.in[0], r)) continue;
    others[i] = {i * num_blocks, r * in.stride, r * out.stride};
    ++i;
  }

  auto* const x = reinterpret_cast<std::uint16_t*>(memory_.workspace + layout.activations);
  const std::size_t group_elements = tiled_elements(num_tiled, in_cols);
  const std::size_t row_blocks = (num_tiled + kTileBlockRows - 1) / kTileBlockRows;
  const std::size_t block_elements = tiled_elements(kTileBlockRows, in_cols);
  divide(groups * row_blocks, kTileBlockRows * in_cols, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t group = i / row_blocks, block = i % row_blocks, row = block * kTileBlockRows;
      tiles_->tile_rows(in.data + group * in_cols, rows + row, std::min(kTileBlockRows, num_tiled - row), in_cols,
                        x + group * group_elements + block * block_elements);
    }
  });
  auto* const blocks = reinterpret_cast<ActivationBlock*>(x + groups * group_elements);
  const bool quantized = std::any_of(w.segments().begin(), w.segments().end(),
                                     [](const auto& segment) { return packed_format(segment.dtype).quantized(); });
  if (quantized && num_others != 0) {
    const Quantization q = quantization(op.in[0]);
    each_row(num_others, in.cols * 8, [&](std::size_t i) {
      kernels_.quantize_row(in.data + others[i].x, in.cols, q.group, q.step, blocks + others[i].x_block);
    });
  }

  const std::size_t pieces = (out_cols + kTilePanel - 1) / kTilePanel, num_pieces = groups * pieces;
  const std::size_t num_tasks = count_linear_tasks(in.rows * in_cols * out.cols, num_pieces);
  const std::size_t step = rows_at_once(num_others, in_cols / kBlockColumns);
  worker_tasks(num_tasks, [&](std::size_t task, std::size_t worker) {
    const std::size_t end = num_pieces * (task + 1) / num_tasks;
    for (std::size_t piece = num_pieces * task / num_tasks; piece < end;) {
      const std::size_t group = piece / pieces, from = piece % pieces, to = std::min(pieces, from + end - piece);
      const std::size_t first = group * out_cols + from * kTilePanel;
      const std::size_t last = group * out_cols + std::min(to * kTilePanel, out_cols);
      LinearArgs args;
      args.k = in_cols;
      args.x = in.data + group * in_cols;
      args.out = out.data + first;
      args.bias = bias == nullptr ? nullptr : bias + first;
      for (std::size_t row = 0; row < num_tiled; row += kMaxTiledRows) {
        TileLinearArgs tiled;
        tiled.x = x + group * group_elements + row / kTileBlockRows * block_elements;
        tiled.scratch = memory_.workspace + layout.scratch + worker * layout.scratch_bytes;
        args.rows = rows + row;
        args.num_rows = std::min(kMaxTiledRows, num_tiled - row);
        tiled_columns(w, first, last, tiled, args);
      }
      args.x_blocks = blocks + group * (in_cols / kBlockColumns);
      for (std::size_t row = 0; row < num_others; row += step) {
        args.rows = others + row;
        args.num_rows = std::min(step, num_others - row);
        set_reading(args, row == 0);
        linear_columns(w, first, last, args);
      }
      piece += to - from;
    }
  });
}

}  // namespace cpu
CORBEL_NAMESPACE_END
