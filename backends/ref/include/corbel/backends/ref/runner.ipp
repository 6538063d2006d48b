// Definitions of runner.hpp: how each op is divided, and the checks of a batch.
#pragma once

#include <corbel/backends/ref/runner.hpp>

#include <cstring>
#include <fmt/format.h>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace ref {

CORBEL_INLINE void Runner::run(const hal::Op& op) const noexcept {
  switch (op.kind) {
    case hal::OpKind::kEmbed:
      return embed(op);
    case hal::OpKind::kEmbedPosition:
      return embed_position(op);
    case hal::OpKind::kRopeTable:
      return rope_table(op);
    case hal::OpKind::kNorm:
      return norm(op);
    case hal::OpKind::kLinear:
      return linear(op);
    case hal::OpKind::kGroupedLinear:
      return grouped_linear(op);
    case hal::OpKind::kRope:
      return rope(op);
    case hal::OpKind::kKvAppend:
      return kv_append(op);
    case hal::OpKind::kAttention:
      return attention(op);
    case hal::OpKind::kActivation:
    case hal::OpKind::kGate:
    case hal::OpKind::kClamp:
    case hal::OpKind::kAdd:
    case hal::OpKind::kScale:
    case hal::OpKind::kPositionScale:
    case hal::OpKind::kSoftcap:
    case hal::OpKind::kJoin:
      return elementwise(op);
    case hal::OpKind::kPermute:
      return permute(op);
    case hal::OpKind::kRoundActivations:
      return round_activations(op);
    case hal::OpKind::kRoute:
      return route(op);
    case hal::OpKind::kExpertLinear:
      return expert_linear(op);
    case hal::OpKind::kExpertSum:
      return expert_sum(op);
    case hal::OpKind::kSelectRows:
      return select_rows(op);
  }
}

CORBEL_INLINE void Runner::embed(const hal::Op& op) const noexcept {
  const Matrix out = matrix(op.out);
  const RefBackend::Weight& table = weight(op.weight);
  each_row(out.rows, [&](std::size_t r) {
    table.read_row(static_cast<std::uint64_t>(batch_.tokens[r]), out.row(r));
    scale_row(op.scale, out.row(r), out.row(r), out.cols);
  });
}

CORBEL_INLINE void Runner::embed_position(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const RefBackend::Weight& table = weight(op.weight);
  divide(out.rows, 1, [&](std::size_t task, std::size_t begin, std::size_t end) {
    float* row = reinterpret_cast<float*>(task_memory(task));
    for (std::size_t r = begin; r < end; ++r) {
      table.read_row(position(r) + op.first, row);
      add_row(in.row(r), row, out.row(r), out.cols);
    }
  });
}

CORBEL_INLINE void Runner::rope_table(const hal::Op& op) const noexcept {
  const Matrix out = matrix(op.out);
  const float* fixed = op.weight != hal::kNone ? weight(op.weight).vector() : nullptr;
  each_row(out.rows, [&](std::size_t r) {
    const float* frequencies = fixed != nullptr ? fixed : batch_.frequencies_of(batch_.slots[r]) + op.first;
    rope_table_row(batch_.positions[r], frequencies, out.cols / 2, op.scale, out.row(r));
  });
}

CORBEL_INLINE void Runner::norm(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const float* scale = vector_or_null(op.weight);
  const float* bias = vector_or_null(op.bias);
  // Vectors as wide as the input go on from group to group.
  const auto step = [&](hal::WeightId id) { return id != hal::kNone && weight(id).cols() > op.norm.group ? 1u : 0u; };
  const std::size_t scale_step = step(op.weight), bias_step = step(op.bias);
  each_row(in.rows, [&](std::size_t r) {
    for (std::size_t c = 0; c < in.cols; c += op.norm.group) {
      norm_group(op.norm, in.row(r) + c, scale == nullptr ? nullptr : scale + c * scale_step,
                 bias == nullptr ? nullptr : bias + c * bias_step, out.row(r) + c);
    }
  });
}

CORBEL_INLINE void Runner::rope(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), table = matrix(op.in[1]), out = matrix(op.out);
  each_row(in.rows, [&](std::size_t r) {
    for (std::size_t c = 0; c < in.cols; c += op.rope.head_dim) {
      rope_head(op.rope, in.row(r) + c, table.row(r), out.row(r) + c);
    }
  });
}

// Tasks divide the outputs. Each weight row is dequantized once and used for all rows of the batch.
CORBEL_INLINE void Runner::linear(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const RefBackend::Weight& stored = weight(op.weight);
  const float* bias = vector_or_null(op.bias);
  double* tiles = reinterpret_cast<double*>(memory_.workspace);
  if (in.rows == 1) {
    for (std::size_t k = 0; k < in.cols; ++k) tiles[k] = double{in.data[k]};
  } else {
    each_row((in.rows + kTileRows - 1) / kTileRows,
             [&](std::size_t t) { fill_tile(in, t * kTileRows, tiles + t * kTileRows * in.cols); });
  }
  if (in.rows == 0) return;

  divide(out.cols, Workspace::kWeightRows, [&](std::size_t task, std::size_t begin, std::size_t end) {
    float* weight_rows = reinterpret_cast<float*>(task_memory(task));
    for (std::size_t first = begin; first < end; first += Workspace::kWeightRows) {
      const std::size_t count = std::min<std::size_t>(Workspace::kWeightRows, end - first);
      for (std::size_t i = 0; i < count; ++i) stored.read_row(first + i, weight_rows + i * in.cols);
      if (in.rows == 1) {
        linear_row(weight_rows, count, tiles, in.cols, bias, first, out.data);
      } else {
        linear_tiles(weight_rows, count, tiles, in, bias, first, out);
      }
    }
  });
}

CORBEL_INLINE void Runner::grouped_linear(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const RefBackend::Weight& stored = weight(op.weight);
  const std::size_t in_cols = in.cols / op.groups, out_cols = out.cols / op.groups;
  divide(out.cols, 1, [&](std::size_t task, std::size_t begin, std::size_t end) {
    float* weight_row = reinterpret_cast<float*>(task_memory(task));
    for (std::size_t c = begin; c < end; ++c) {
      stored.read_row(c, weight_row);
      const std::size_t first = c / out_cols * in_cols;
      for (std::size_t r = 0; r < in.rows; ++r) {
        out.row(r)[c] = finish_linear(dot(weight_row, in.row(r) + first, in_cols), nullptr, c);
      }
    }
  });
}

CORBEL_INLINE void Runner::route(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const float* bias = vector_or_null(op.bias);
  divide(in.rows, 1, [&](std::size_t task, std::size_t begin, std::size_t end) {
    const RouteScratch scratch(op.route, task_memory(task));
    for (std::size_t r = begin; r < end; ++r) route_row(op.route, in.row(r), bias, out.row(r), scratch);
  });
}

// Tasks divide the outputs; each dequantizes a row of an expert once for all rows of the batch that chose it.
CORBEL_INLINE void Runner::expert_linear(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), routed = matrix(op.in[1]), out = matrix(op.out);
  const RefBackend::Weight& stored = weight(op.weight);
  const float* bias = vector_or_null(op.bias);
  const std::size_t top_k = op.route.top_k, count = out.cols / top_k, cols = static_cast<std::size_t>(stored.cols());
  const bool slots = in.cols != cols;
  divide(count, 1, [&](std::size_t task, std::size_t begin, std::size_t end) {
    float* weight_row = reinterpret_cast<float*>(task_memory(task));
    for (std::size_t expert = 0; expert < op.route.experts; ++expert) {
      if (!is_chosen(routed, top_k, expert)) continue;
      for (std::size_t c = begin; c < end; ++c) {
        const std::size_t row = expert * count + c;
        stored.read_row(row, weight_row);
        for (std::size_t r = 0; r < in.rows; ++r) {
          for (std::size_t j = 0; j < top_k; ++j) {
            if (static_cast<std::size_t>(routed.row(r)[j]) != expert) continue;
            const float* x = in.row(r) + (slots ? j * cols : 0);
            out.row(r)[j * count + c] = finish_linear(dot(weight_row, x, cols), bias, row);
          }
        }
      }
    }
  });
}

CORBEL_INLINE void Runner::expert_sum(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), routed = matrix(op.in[1]), out = matrix(op.out);
  each_row(in.rows, [&](std::size_t r) {
    expert_sum_row(op.route.top_k, in.row(r), routed.row(r) + op.route.top_k, out.row(r), out.cols);
  });
}

CORBEL_INLINE void Runner::permute(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const float* columns = weight(op.weight).vector();
  divide(in.rows, 1, [&](std::size_t task, std::size_t begin, std::size_t end) {
    float* row = reinterpret_cast<float*>(task_memory(task));  // the output may be the input's memory
    for (std::size_t r = begin; r < end; ++r) {
      for (std::size_t c = 0; c < out.cols; ++c) row[c] = in.row(r)[static_cast<std::size_t>(columns[c])];
      std::copy_n(row, out.cols, out.row(r));
    }
  });
}

CORBEL_INLINE void Runner::round_activations(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const float* scale = vector_or_null(op.weight);
  const float* zero_point = vector_or_null(op.bias);
  const std::size_t group = op.round.group != 0 ? op.round.group : in.cols;
  each_row(in.rows, [&](std::size_t r) {
    for (std::size_t c = 0; c < in.cols; c += group) {
      round_group(op.round, scale, zero_point, in.row(r) + c, out.row(r) + c, std::min(group, in.cols - c));
    }
  });
}

CORBEL_INLINE KvPlanes Runner::planes(std::int32_t layer, std::size_t r) const noexcept {
  const hal::KvLayout& layout = *memory_.kv_layout;
  const std::size_t index = static_cast<std::size_t>(layer);
  KvPlanes planes;
  planes.pool = memory_.kv;
  planes.table = batch_.table(batch_.slots[r]);
  planes.type = layout.spec.type;
  planes.block_bytes = layout.block_bytes;
  planes.k_offset = layout.k_offset[index];
  planes.v_offset = layout.v_offset[index];
  planes.block_tokens = layout.spec.block_tokens;
  planes.kv_heads = layout.spec.layers[index].kv_heads;
  planes.head_dim = layout.spec.layers[index].head_dim;
  planes.value_dim = layout.spec.layers[index].value_width();
  planes.values_in_keys = layout.spec.layers[index].values_in_keys;
  return planes;
}

CORBEL_INLINE void Runner::kv_append(const hal::Op& op) const noexcept {
  const Matrix keys = matrix(op.in[0]), values = op.in[1] != hal::kNone ? matrix(op.in[1]) : Matrix{};
  each_row(keys.rows, [&](std::size_t r) {
    const KvPlanes kv = planes(op.layer, r);
    store_kv(kv.type, keys.row(r), kv.keys(position(r), 0), keys.cols);
    if (values.cols != 0) store_kv(kv.type, values.row(r), kv.values(position(r), 0), values.cols);
  });
}

CORBEL_INLINE void Runner::attention(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const std::size_t heads = op.attention.heads, dim = op.attention.head_dim, value_dim = op.attention.value_width();
  const float* sinks = vector_or_null(op.weight);
  const float* slopes = vector_or_null(op.bias);
  const std::size_t items = in.rows * heads;
  const std::size_t tasks = std::min(context_.concurrency(), items);
  // Later rows see more positions: neighbouring items go to different tasks.
  divide(tasks, 1, [&](std::size_t task, std::size_t, std::size_t) {
    AttentionScratch scratch;
    scratch.query = reinterpret_cast<double*>(task_memory(task));
    scratch.sums = scratch.query + dim;
    scratch.scores = scratch.sums + std::max(dim, value_dim);
    scratch.cached = reinterpret_cast<float*>(scratch.scores + std::size_t{limits_.max_blocks} * 64);
    for (std::size_t item = task; item < items; item += tasks) {
      const std::size_t r = item / heads, head = item % heads;
      const HeadBias bias = {slopes == nullptr ? 0.0 : double{slopes[head]}, sinks == nullptr ? nullptr : sinks + head};
      attention_head(op.attention, bias, planes(op.layer, r), position(r), head, in.row(r) + head * dim,
                     out.row(r) + head * value_dim, scratch);
    }
  });
}

CORBEL_INLINE void Runner::elementwise(const hal::Op& op) const noexcept {
  const Matrix a = matrix(op.in[0]), out = matrix(op.out);
  const bool has_b = op.in[1] != hal::kNone;
  const Matrix b = has_b ? matrix(op.in[1]) : Matrix{};
  each_row(a.rows, [&](std::size_t r) {
    const float* other = has_b ? b.row(r) : nullptr;
    switch (op.kind) {
      case hal::OpKind::kActivation:
        return activation_row(op.activation, a.row(r), other, out.row(r), a.cols);
      case hal::OpKind::kGate:
        return gate_row(op.scale, op.limit, a.row(r), other, out.row(r), a.cols);
      case hal::OpKind::kClamp:
        return clamp_row(op.limit, a.row(r), out.row(r), a.cols);
      case hal::OpKind::kPositionScale:
        return scale_row(position_factor(op.scale, op.limit, batch_.positions[r]), a.row(r), out.row(r), a.cols);
      case hal::OpKind::kJoin:
        return join_row(op.groups, a.row(r), a.cols, other, b.cols, out.row(r));
      case hal::OpKind::kAdd:
        return add_row(a.row(r), other, out.row(r), a.cols);
      case hal::OpKind::kScale:
        return scale_row(op.scale, a.row(r), out.row(r), a.cols);
      default:
        return softcap_row(op.scale, a.row(r), out.row(r), a.cols);
    }
  });
}

CORBEL_INLINE void Runner::select_rows(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  for (std::size_t r = 0; r < out.rows; ++r) {
    std::memmove(out.row(r), in.row(static_cast<std::size_t>(batch_.wanted[r])), out.cols * sizeof(float));
  }
}

CORBEL_INLINE Status Runner::check() const {
  const hal::BatchHeader& header = *batch_.header;
  const auto within = [](std::int32_t count, std::uint32_t limit) {
    return count >= 0 && static_cast<std::uint32_t>(count) <= limit;
  };
  if (!within(header.num_rows, limits_.max_rows) || !within(header.num_wanted, limits_.max_wanted) ||
      !within(header.num_sequences, limits_.max_sequences)) {
    return Status(Errc::kInternal, fmt::format("batch: {} rows, {} wanted, {} sequences; the layout holds {}, {}, {}",
                                               header.num_rows, header.num_wanted, header.num_sequences,
                                               limits_.max_rows, limits_.max_wanted, limits_.max_sequences));
  }
  for (std::size_t r = 0; r < num_rows_; ++r) CORBEL_RETURN_IF_ERROR(check_row(r));
  for (std::int32_t i = 0; i < header.num_wanted; ++i) {
    if (batch_.wanted[i] < 0 || batch_.wanted[i] >= header.num_rows) {
      return Status(Errc::kInternal, fmt::format("batch: wanted row {} of {} rows", batch_.wanted[i], header.num_rows));
    }
  }
  return {};
}

CORBEL_INLINE Status Runner::check_row(std::size_t r) const {
  if (batch_.positions[r] < 0 || batch_.slots[r] < 0 || batch_.slots[r] >= batch_.header->num_sequences) {
    return Status(Errc::kInternal, fmt::format("batch: row {} has position {} and slot {} of {}", r,
                                               batch_.positions[r], batch_.slots[r], batch_.header->num_sequences));
  }
  for (const hal::Op& op : memory_.program->ops) {
    if (op.kind == hal::OpKind::kEmbed) {
      const std::uint64_t vocabulary = weight(op.weight).rows();
      if (batch_.tokens[r] < 0 || static_cast<std::uint64_t>(batch_.tokens[r]) >= vocabulary) {
        return Status(Errc::kInternal,
                      fmt::format("batch: row {} has token {} of {}", r, batch_.tokens[r], vocabulary));
      }
    } else if (op.kind == hal::OpKind::kEmbedPosition) {
      if (position(r) + op.first >= weight(op.weight).rows()) {
        return Status(Errc::kInternal, fmt::format("batch: row {} has position {}, the model has {}", r, position(r),
                                                   weight(op.weight).rows()));
      }
    } else if (op.kind == hal::OpKind::kKvAppend) {
      CORBEL_RETURN_IF_ERROR(check_table(r, position(r)));
    } else if (op.kind == hal::OpKind::kAttention) {
      const std::size_t window = op.attention.window, end = position(r) + 1;
      CORBEL_RETURN_IF_ERROR(check_table(r, window != 0 && end > window ? end - window : 0));
    }
  }
  return {};
}

CORBEL_INLINE Status Runner::check_table(std::size_t r, std::size_t first_visible) const {
  const hal::KvLayout& layout = *memory_.kv_layout;
  const std::size_t block_tokens = layout.spec.block_tokens;
  const std::size_t last = position(r) / block_tokens;
  if (last >= batch_.max_blocks) {
    return Status(Errc::kInternal, fmt::format("batch: row {} has position {}, block tables end at {}", r, position(r),
                                               batch_.max_blocks * block_tokens));
  }
  const hal::BlockEntry* table = batch_.table(batch_.slots[r]);
  for (std::size_t i = first_visible / block_tokens; i <= last; ++i) {
    const std::uint64_t blocks = memory_.kv_bytes / layout.block_bytes;
    if (table[i].block < 0 || static_cast<std::uint64_t>(table[i].block) >= blocks ||
        static_cast<std::int64_t>(table[i].first_position) != static_cast<std::int64_t>(i * block_tokens)) {
      return Status(Errc::kInternal,
                    fmt::format("batch: entry {} of slot {} is block {} at position {}, the pool has {}", i,
                                batch_.slots[r], table[i].block, table[i].first_position, blocks));
    }
  }
  return {};
}

}  // namespace ref
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
