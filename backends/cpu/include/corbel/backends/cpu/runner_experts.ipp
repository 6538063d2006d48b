// Definitions of runner.hpp for linears whose weight holds several matrices: routing, experts, groups.
#pragma once

#include <corbel/backends/cpu/runner.hpp>
#include <corbel/backends/cpu/scalar_rows.hpp>

#include <cstring>
#include <limits>

CORBEL_NAMESPACE_BEGIN
namespace cpu {

CORBEL_INLINE void Runner::linear_columns(const CpuBackend::Weight& w, std::size_t begin, std::size_t end,
                                          LinearArgs args) const noexcept {
  float* const out = args.out;
  const float* const bias = args.bias;
  const auto* segment = &*std::prev(
      std::upper_bound(w.segments().begin(), w.segments().end(), begin,
                       [](std::size_t row, const CpuBackend::Weight::Segment& s) { return row < s.first_row; }));
  for (std::size_t at = begin; at < end; ++segment) {
    const auto local = at - static_cast<std::size_t>(segment->first_row);
    const std::size_t count = std::min(end - at, static_cast<std::size_t>(segment->rows) - local);
    args.group_bytes = static_cast<std::size_t>(segment->group_bytes);
    args.weights = segment->groups + local / kGroupRows * args.group_bytes;
    args.first_lane = local % kGroupRows;
    args.num_columns = count;
    args.out = out + (at - begin);
    args.bias = bias == nullptr ? nullptr : bias + (at - begin);
    kernels_.linear[static_cast<std::size_t>(segment->dtype)](args);
    at += count;
  }
}

// As in linear(), but each task stays within the groups of columns whose inputs it reads.
CORBEL_INLINE void Runner::grouped_linear(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const CpuBackend::Weight& w = weight(op.weight);
  if (in.rows == 0) return;
  if (uses_tiles(op)) return tiled_linear(op, op.groups);
  auto* const blocks = reinterpret_cast<ActivationBlock*>(memory_.workspace);
  quantize_rows(op.in[0], w, blocks);

  const std::size_t in_cols = in.cols / op.groups, out_cols = out.cols / op.groups;
  const std::size_t num_blocks = in_cols / kBlockColumns, step = rows_at_once(in.rows, num_blocks);
  const std::size_t columns = groups_together(step) * kGroupRows, pieces = (out_cols + columns - 1) / columns;
  const std::size_t num_pieces = op.groups * pieces;
  const std::size_t num_tasks = count_linear_tasks(in.rows * in_cols * out.cols, num_pieces);
  tasks(num_tasks, [&](std::size_t task) {
    const std::size_t end = num_pieces * (task + 1) / num_tasks;
    for (std::size_t piece = num_pieces * task / num_tasks; piece < end;) {
      const std::size_t group = piece / pieces, from = piece % pieces, to = std::min(pieces, from + end - piece);
      const std::size_t first = from * columns, last = std::min(to * columns, out_cols);
      for (std::size_t row = 0; row < in.rows; row += step) {
        LinearArgs args;
        args.k = in_cols;
        args.x_blocks = blocks + (row * op.groups + group) * num_blocks;
        args.x_block_stride = op.groups * num_blocks;
        args.x = in.row(row) + group * in_cols;
        args.x_stride = in.stride;
        args.out = out.row(row) + group * out_cols + first;
        args.out_stride = out.stride;
        args.num_rows = std::min(step, in.rows - row);
        set_reading(args, row == 0);
        linear_columns(w, group * out_cols + first, group * out_cols + last, args);
      }
      piece += to - from;
    }
  });
}

CORBEL_INLINE void Runner::route(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const float* bias = vector_or_null(op.bias);
  const std::uint64_t scratch_bytes = RouteScratch::bytes(op.route);
  each_row(in.rows, in.cols * 32, [&](std::size_t r) {
    route_row(op.route, in.row(r), bias, out.row(r), {op.route, memory_.workspace + r * scratch_bytes});
  });
}

// Slots of rows (one per chosen expert) are sorted by expert, those on tiles before the others; an expert's weights are
// then read once for all of its slots of a kind, and those of an expert that nobody chose are not read. What a slot
// gets depends on its own input, expert and role alone: the kernels compute each row for itself.
CORBEL_INLINE void Runner::expert_linear(const hal::Op& op) const noexcept {
  constexpr std::size_t kWeightCost = 4;  // rows whose products take as long as reading the weights
  const Matrix in = matrix(op.in[0]), routed = matrix(op.in[1]), out = matrix(op.out);
  const CpuBackend::Weight& w = weight(op.weight);
  const float* bias = vector_or_null(op.bias);
  if (in.rows == 0) return;
  const std::size_t top_k = op.route.top_k, experts = op.route.experts;
  const std::size_t out_cols = out.cols / top_k, in_cols = static_cast<std::size_t>(w.cols());
  const std::size_t inputs = in.cols / in_cols;  // 1, or top_k
  const std::size_t num_blocks = in_cols / kBlockColumns;
  const ExpertWorkspace layout(in.rows, in.cols, op.route);
  auto* const blocks = reinterpret_cast<ActivationBlock*>(memory_.workspace);
  auto* const slots = reinterpret_cast<LinearRow*>(memory_.workspace + layout.slots);
  auto* const ends = reinterpret_cast<std::uint32_t*>(memory_.workspace + layout.ends);
  const bool tiled = uses_tiles(op);
  quantize_rows(op.in[0], w, blocks, tiled);

  // A counting sort into bins, two of each expert; what names no expert goes last.
  const std::size_t bins = 2 * experts;
  const auto bin_of = [&](std::size_t r, std::size_t j) {
    const float number = routed.row(r)[j];
    if (!(number >= 0 && number < static_cast<float>(experts))) return bins;
    return 2 * static_cast<std::size_t>(number) + (tiled && is_prompt(op.in[0], r) ? 0 : 1);
  };
  std::fill_n(ends, bins + 2, 0u);
  for (std::size_t r = 0; r < in.rows; ++r)
    for (std::size_t j = 0; j < top_k; ++j) ++ends[bin_of(r, j) + 1];
  for (std::size_t bin = 0; bin < bins; ++bin) ends[bin + 1] += ends[bin];
  for (std::size_t r = 0; r < in.rows; ++r) {
    for (std::size_t j = 0; j < top_k; ++j) {
      const std::size_t bin = bin_of(r, j), input = inputs == 1 ? 0 : j;
      if (bin == bins) {
        std::fill_n(out.row(r) + j * out_cols, out_cols, std::numeric_limits<float>::quiet_NaN());
      } else {
        slots[ends[bin]++] = {(r * inputs + input) * num_blocks, r * in.stride + input * in_cols,
                              r * out.stride + j * out_cols};
      }
    }
  }
  const auto begin_of = [&](std::size_t bin) { return bin == 0 ? std::size_t{0} : std::size_t{ends[bin - 1]}; };

  const std::size_t columns = groups_together(in.rows * top_k / experts) * kGroupRows;
  const std::size_t pieces = (out_cols + columns - 1) / columns;
  std::size_t total = 0, num_pieces = 0;
  for (std::size_t bin = 0; bin < bins; ++bin) {
    const std::size_t count = ends[bin] - begin_of(bin);
    if (count == 0) continue;
    total += pieces * (count + kWeightCost);
    num_pieces += pieces;
  }
  const std::size_t num_tasks = count_linear_tasks(in.rows * out.cols * in_cols, num_pieces);
  const std::size_t tiled_rows = tiled_expert_rows(in_cols);
  const std::size_t scratch_bytes = tile_scratch_bytes(in_cols);
  const std::size_t worker_bytes = scratch_bytes + tiled_elements(tiled_rows, in_cols) * sizeof(std::uint16_t);
  const auto body = [&](std::size_t task, std::size_t worker) {
    // Pieces lie one after the other on a line as long as their cost; a task has those that begin in its part of it.
    const std::size_t begin = total * task / num_tasks, end = total * (task + 1) / num_tasks;
    std::size_t start = 0;
    for (std::size_t bin = 0; bin < bins && start < end; ++bin) {
      const std::size_t e = bin / 2, first_slot = begin_of(bin), count = ends[bin] - first_slot;
      if (count == 0) continue;
      const std::size_t cost = count + kWeightCost;
      const auto piece_from = [&](std::size_t at) {
        return at <= start ? 0 : std::min(pieces, (at - start + cost - 1) / cost);
      };
      const std::size_t from = piece_from(begin), to = piece_from(end);
      start += pieces * cost;
      if (from >= to) continue;
      const std::size_t first = from * columns, last = std::min(to * columns, out_cols);
      const bool on_tiles = tiled && bin % 2 == 0;
      const std::size_t step = on_tiles ? tiled_rows : rows_at_once(count, num_blocks);
      for (std::size_t slot = 0; slot < count; slot += step) {
        LinearArgs args;
        args.k = in_cols;
        args.x_blocks = blocks;
        args.x = in.data;
        args.out = out.data + first;
        args.rows = slots + first_slot + slot;
        args.bias = bias == nullptr ? nullptr : bias + e * out_cols + first;
        args.num_rows = std::min(step, count - slot);
        set_reading(args, slot == 0);
        if (!on_tiles) {
          linear_columns(w, e * out_cols + first, e * out_cols + last, args);
          continue;
        }
        TileLinearArgs tile_args;
        tile_args.scratch = memory_.workspace + layout.bytes + worker * worker_bytes;
        auto* const x = reinterpret_cast<std::uint16_t*>(tile_args.scratch + scratch_bytes);
        tiles_->tile_rows(args.x, args.rows, args.num_rows, in_cols, x);
        tile_args.x = x;
        tiled_columns(w, e * out_cols + first, e * out_cols + last, tile_args, args);
      }
    }
  };
  if (tiled) {
    worker_tasks(num_tasks, body);
  } else {
    tasks(num_tasks, [&](std::size_t task) { body(task, 0); });
  }
}

CORBEL_INLINE void Runner::expert_sum(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), routed = matrix(op.in[1]), out = matrix(op.out);
  each_row(in.rows, in.cols * 2, [&](std::size_t r) {
    kernels_.weighted_sum_row({in.row(r), routed.row(r) + op.route.top_k, op.route.top_k, out.row(r), out.cols});
  });
}

}  // namespace cpu
CORBEL_NAMESPACE_END
