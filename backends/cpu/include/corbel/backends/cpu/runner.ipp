// Definitions of runner.hpp: how each op is divided, and the checks of a batch.
#pragma once

#include <corbel/backends/cpu/runner.hpp>
#include <corbel/backends/cpu/runner_experts.ipp>
#include <corbel/backends/cpu/runner_tiles.ipp>
#include <corbel/backends/cpu/scalar_rows.hpp>

#include <cstring>
#include <fmt/format.h>

CORBEL_NAMESPACE_BEGIN
namespace cpu {

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
  const CpuBackend::Weight& table = weight(op.weight);
  each_row(out.rows, out.cols * 32, [&](std::size_t r) {
    table.read_row(static_cast<std::uint64_t>(batch_.tokens[r]), out.row(r));
    if (op.scale != 1) kernels_.scale_row(op.scale, out.row(r), out.row(r), out.cols);
  });
}

CORBEL_INLINE void Runner::embed_position(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const CpuBackend::Weight& table = weight(op.weight);
  each_row(out.rows, out.cols * 32, [&](std::size_t r) {
    table.read_row(position(r) + op.first, out.row(r));
    kernels_.add_row(in.row(r), out.row(r), out.row(r), out.cols);
  });
}

CORBEL_INLINE void Runner::rope_table(const hal::Op& op) const noexcept {
  const Matrix out = matrix(op.out);
  const float* fixed = op.weight != hal::kNone ? weight(op.weight).vector() : nullptr;
  each_row(out.rows, out.cols * 128, [&](std::size_t r) {
    const float* frequencies = fixed != nullptr ? fixed : batch_.frequencies_of(batch_.slots[r]) + op.first;
    rope_table_row(batch_.positions[r], frequencies, out.cols / 2, op.scale, out.row(r));
  });
}

CORBEL_INLINE void Runner::norm(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const float* scale = vector_or_null(op.weight);
  const float* bias = vector_or_null(op.bias);
  // Vectors as wide as the input go on from group to group.
  const auto step = [&](hal::WeightId id) {
    return id != hal::kNone && weight(id).cols() > op.norm.group ? op.norm.group : 0;
  };
  const std::size_t scale_step = step(op.weight), bias_step = step(op.bias);
  each_row(in.rows, in.cols * 4, [&](std::size_t r) {
    kernels_.norm_row({in.row(r), out.row(r), in.cols, op.norm, scale, bias, scale_step, bias_step});
  });
}

CORBEL_INLINE void Runner::rope(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), table = matrix(op.in[1]), out = matrix(op.out);
  each_row(in.rows, in.cols * 8, [&](std::size_t r) {
    for (std::size_t c = 0; c < in.cols; c += op.rope.head_dim)
      kernels_.rope_head(op.rope, in.row(r) + c, table.row(r), out.row(r) + c);
  });
}

CORBEL_INLINE Runner::Quantization Runner::quantization(hal::ValueId id) const noexcept {
  const hal::Value& value = memory_.program->values[static_cast<std::size_t>(id)];
  const hal::IntegerSteps& steps = value.steps;
  if (!steps.known || steps.group % kBlockColumns != 0) return {false, kBlockColumns, 0};
  return {true, steps.group != 0 ? steps.group : value.width, steps.value};
}

CORBEL_INLINE void Runner::quantize_rows(hal::ValueId id, const CpuBackend::Weight& w, ActivationBlock* blocks,
                                         bool tiled) const noexcept {
  if (std::none_of(w.segments().begin(), w.segments().end(),
                   [](const auto& segment) { return packed_format(segment.dtype).quantized(); }))
    return;
  const Matrix in = matrix(id);
  const Quantization q = quantization(id);
  const std::size_t num_blocks = in.cols / kBlockColumns;
  each_row(in.rows, in.cols * 8, [&](std::size_t r) {
    if (tiled && is_prompt(id, r)) return;
    kernels_.quantize_row(in.row(r), in.cols, q.group, q.step, blocks + r * num_blocks);
  });
}

// First the rows are quantized, then tasks divide the groups of the weight.
CORBEL_INLINE void Runner::linear(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const CpuBackend::Weight& w = weight(op.weight);
  const float* bias = vector_or_null(op.bias);
  if (in.rows == 0) return;
  if (uses_tiles(op)) return tiled_linear(op, 1);

  auto* const blocks = reinterpret_cast<ActivationBlock*>(memory_.workspace);
  quantize_rows(op.in[0], w, blocks);
  const std::size_t num_blocks = in.cols / kBlockColumns;
  std::size_t num_groups = 0;
  for (const CpuBackend::Weight::Segment& segment : w.segments())
    num_groups += static_cast<std::size_t>((segment.rows + kGroupRows - 1) / kGroupRows);

  const std::size_t step = rows_at_once(in.rows, num_blocks);
  const std::size_t together = groups_together(step);
  const std::size_t pieces = (num_groups + together - 1) / together;
  const std::size_t num_tasks = count_linear_tasks(in.rows * in.cols * num_groups * kGroupRows, pieces);
  tasks(num_tasks, [&](std::size_t task) {
    const std::size_t begin = pieces * task / num_tasks * together;
    const std::size_t end = std::min(pieces * (task + 1) / num_tasks * together, num_groups);
    for (std::size_t row = 0; row < in.rows; row += step) {
      std::size_t first = 0;  // group of the segment's first row
      for (const CpuBackend::Weight::Segment& segment : w.segments()) {
        const auto rows = static_cast<std::size_t>(segment.rows);
        const std::size_t groups = (rows + kGroupRows - 1) / kGroupRows;
        const std::size_t from = std::max(begin, first) - first;
        const std::size_t to = end < first ? 0 : std::min(end - first, groups);
        first += groups;
        if (from >= to) continue;
        const std::size_t column = static_cast<std::size_t>(segment.first_row) + from * kGroupRows;
        LinearArgs args;
        args.group_bytes = static_cast<std::size_t>(segment.group_bytes);
        args.weights = segment.groups + from * args.group_bytes;
        args.num_columns = std::min(to * kGroupRows, rows) - from * kGroupRows;
        args.k = in.cols;
        args.x_blocks = blocks + row * num_blocks;
        args.x_block_stride = num_blocks;
        args.x = in.row(row);
        args.x_stride = in.stride;
        args.out = out.row(row) + column;
        args.out_stride = out.stride;
        args.bias = bias == nullptr ? nullptr : bias + column;
        args.num_rows = std::min(step, in.rows - row);
        set_reading(args, row == 0);
        kernels_.linear[static_cast<std::size_t>(segment.dtype)](args);
      }
    }
  });
}

CORBEL_INLINE void Runner::kv_append(const hal::Op& op) const noexcept {
  const Matrix keys = matrix(op.in[0]), values = op.in[1] != hal::kNone ? matrix(op.in[1]) : Matrix{};
  const hal::KvLayout& layout = *memory_.kv_layout;
  const auto layer = static_cast<std::size_t>(op.layer);
  const std::size_t block_tokens = layout.spec.block_tokens;
  each_row(keys.rows, keys.cols * 16, [&](std::size_t r) {
    const hal::BlockEntry& entry = batch_.table(batch_.slots[r])[position(r) / block_tokens];
    std::byte* block = memory_.kv + static_cast<std::uint64_t>(entry.block) * layout.block_bytes;
    KvAppendArgs args;
    args.k = keys.row(r);
    args.v = values.data == nullptr ? nullptr : values.row(r);
    args.kv_heads = layout.spec.layers[layer].kv_heads;
    args.head_dim = layout.spec.layers[layer].head_dim;
    args.value_dim = layout.spec.layers[layer].value_width();
    args.keys = block + layout.k_offset[layer];
    args.values = block + layout.v_offset[layer];
    args.block_tokens = block_tokens;
    args.token = position(r) % block_tokens;
    kernels_.kv_append[static_cast<std::size_t>(layout.spec.type)](args);
  });
}

// A task is some rows of one sequence by the heads that share a kv head, so that keys and values are read once for all
// of them. Where that makes too few tasks, they are divided by chunks of positions, whose results a second region
// joins; or by heads. Where values lie in keys, what a task reads is expensive to make: few rows come with many heads.
CORBEL_INLINE void Runner::attention(const hal::Op& op) const noexcept {
  constexpr std::size_t kRowsPerTask = 16, kHeadsPerTask = 4, kLatentHeadsPerTask = 16;
  static_assert(kRowsPerTask * kHeadsPerTask <= kMaxAttentionRows);
  constexpr std::size_t kWorthwhile = 1 << 15;  // multiplications
  const hal::AttentionSpec& spec = op.attention;
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  if (in.rows == 0) return;
  const std::size_t heads = spec.heads / spec.kv_heads, value_dim = spec.value_width();
  const std::size_t threads = context_.concurrency();
  const AttentionWorkspace workspace(spec, limits_);

  auto* const runs = reinterpret_cast<AttentionRun*>(memory_.workspace + workspace.runs);
  std::size_t num_runs = 0, visible = 0;
  std::int32_t first = batch_.positions[0], last = 0;
  for (std::size_t r = 0; r < in.rows; ++r) {
    if (r == 0 || batch_.slots[r] != batch_.slots[r - 1] || runs[num_runs - 1].rows == kRowsPerTask)
      runs[num_runs++] = {static_cast<std::uint32_t>(r), 0};
    ++runs[num_runs - 1].rows;
    visible += position(r) + 1 - first_visible(spec, r);
    first = std::min(first, static_cast<std::int32_t>(first_visible(spec, r)));
    last = std::max(last, batch_.positions[r]);
  }
  const std::size_t heads_per_task =
      spec.values_in_keys && in.rows * kLatentHeadsPerTask <= kMaxAttentionRows ? kLatentHeadsPerTask : kHeadsPerTask;
  std::size_t parts = (heads + heads_per_task - 1) / heads_per_task;
  const bool inline_all = threads == 1 || visible * spec.heads * spec.head_dim * 2 < kWorthwhile;
  const std::int32_t first_chunk = attention_chunk(first);
  std::size_t num_chunks = 1;  // of a task
  if (!inline_all && num_runs * spec.kv_heads * parts < 4 * threads) {
    num_chunks = static_cast<std::size_t>(attention_chunk(last) - first_chunk) + 1;
    if (in.rows * spec.heads * num_chunks > workspace.num_records) num_chunks = 1;
  }
  if (num_chunks == 1) {
    for (std::size_t items = num_runs * spec.kv_heads * parts;
         items < 2 * threads && items % threads != 0 && parts < heads;) {
      ++parts;
      items = num_runs * spec.kv_heads * parts;
    }
  }

  AttentionArgs common;
  common.head_dim = spec.head_dim;
  common.value_dim = value_dim;
  common.scale = spec.scale;
  common.softcap = spec.softcap;
  const hal::KvLayout& layout = *memory_.kv_layout;
  const auto layer = static_cast<std::size_t>(op.layer);
  common.block_tokens = layout.spec.block_tokens;
  common.block_bytes = static_cast<std::size_t>(layout.block_bytes);
  const std::size_t element = hal::kv_type_bytes(layout.spec.type);
  const float* sinks = vector_or_null(op.weight);
  const float* slopes = vector_or_null(op.bias);
  float* const records = reinterpret_cast<float*>(memory_.workspace + workspace.records);
  const std::size_t record = AttentionWorkspace::record_elements(spec), head_step = num_chunks * record;
  float* const vectors = reinterpret_cast<float*>(memory_.workspace + workspace.vectors);

  const auto item = [&](std::size_t index) {
    const std::size_t chunk = index % num_chunks, part = index / num_chunks % parts;
    const std::size_t kv_head = index / num_chunks / parts % spec.kv_heads;
    // The last rows of a prompt see the most: they come first.
    const AttentionRun run = runs[num_runs - 1 - index / num_chunks / parts / spec.kv_heads];
    const std::size_t first_head = kv_head * heads + heads * part / parts;
    const std::size_t end_head = kv_head * heads + heads * (part + 1) / parts;
    AttentionArgs args = common;
    args.num_heads = end_head - first_head;
    args.sinks = sinks == nullptr ? nullptr : sinks + first_head;
    args.slopes = slopes == nullptr ? nullptr : slopes + first_head;
    args.keys = memory_.kv + layout.k_offset[layer] + kv_head * args.block_tokens * spec.head_dim * element;
    if (!spec.values_in_keys)
      args.values = memory_.kv + layout.v_offset[layer] + kv_head * args.block_tokens * value_dim * element;
    args.table = batch_.table(batch_.slots[run.first]);
    args.num_rows = run.rows;
    args.out_step = num_chunks == 1 ? value_dim : head_step;
    AttentionRow rows[kRowsPerTask];
    args.rows = rows;
    for (std::size_t i = 0; i < run.rows; ++i) {
      const std::size_t r = run.first + i;
      rows[i].q = in.row(r) + first_head * spec.head_dim;
      rows[i].out = num_chunks == 1 ? out.row(r) + first_head * value_dim
                                    : records + (r * spec.heads + first_head) * head_step + chunk * record;
      rows[i].first = static_cast<std::int32_t>(first_visible(spec, r));
      rows[i].last = batch_.positions[r];
    }
    const std::size_t first_query = run.first * spec.heads + run.rows * first_head;
    args.vectors = vectors + (first_query * num_chunks + chunk * args.num_heads * args.num_rows) * spec.head_dim;
    if (num_chunks == 1) {
      args.chunk_outputs = reinterpret_cast<float*>(memory_.workspace + workspace.outputs) + first_query * value_dim;
      kernels_.attention[static_cast<std::size_t>(layout.spec.type)](args);
    } else {
      kernels_.attention_chunk[static_cast<std::size_t>(layout.spec.type)](
          args, attention_chunk_begin(first_chunk + static_cast<std::int32_t>(chunk)));
    }
  };
  const std::size_t num_items = num_runs * spec.kv_heads * parts * num_chunks;
  if (inline_all) {
    for (std::size_t i = 0; i < num_items; ++i) item(i);
  } else {
    tasks(num_items, item);
  }
  if (num_chunks == 1) return;
  divide(in.rows * spec.heads, num_chunks * value_dim * 2, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t head = i % spec.heads;
      kernels_.join_chunks({records + i * head_step, record, num_chunks, sinks == nullptr ? nullptr : sinks + head,
                            out.row(i / spec.heads) + head * value_dim, value_dim});
    }
  });
}

CORBEL_INLINE void Runner::elementwise(const hal::Op& op) const noexcept {
  const Matrix a = matrix(op.in[0]), out = matrix(op.out);
  const bool has_b = op.in[1] != hal::kNone;
  const Matrix b = has_b ? matrix(op.in[1]) : Matrix{};
  const bool costly =
      op.kind == hal::OpKind::kActivation || op.kind == hal::OpKind::kGate || op.kind == hal::OpKind::kSoftcap;
  each_row(a.rows, a.cols * (costly ? 8 : 2), [&](std::size_t r) {
    const float* other = has_b ? b.row(r) : nullptr;
    switch (op.kind) {
      case hal::OpKind::kActivation:
        return kernels_.activation_row(op.activation, a.row(r), other, out.row(r), a.cols);
      case hal::OpKind::kGate:
        return kernels_.gate_row(op.scale, op.limit, a.row(r), other, out.row(r), a.cols);
      case hal::OpKind::kClamp:
        return kernels_.clamp_row(op.limit, a.row(r), out.row(r), a.cols);
      case hal::OpKind::kAdd:
        return kernels_.add_row(a.row(r), other, out.row(r), a.cols);
      case hal::OpKind::kScale:
        return kernels_.scale_row(op.scale, a.row(r), out.row(r), a.cols);
      case hal::OpKind::kPositionScale:
        return kernels_.scale_row(position_factor(op.scale, op.limit, batch_.positions[r]), a.row(r), out.row(r),
                                  a.cols);
      case hal::OpKind::kJoin:
        return join_row(op.groups, a.row(r), a.cols / op.groups, other, b.cols / op.groups, out.row(r));
      default:
        return kernels_.softcap_row(op.scale, a.row(r), out.row(r), a.cols);
    }
  });
}

CORBEL_INLINE void Runner::permute(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const float* columns = weight(op.weight).vector();
  each_row(in.rows, in.cols * 2,
           [&](std::size_t r) { permute_row(columns, in.row(r), in.cols, out.row(r), out.cols); });
}

CORBEL_INLINE void Runner::round_activations(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  const float* scale = vector_or_null(op.weight);
  const float* zero_point = vector_or_null(op.bias);
  each_row(in.rows, in.cols * 8, [&](std::size_t r) {
    kernels_.round_row({in.row(r), out.row(r), in.cols, op.round, scale, zero_point});
  });
}

CORBEL_INLINE void Runner::select_rows(const hal::Op& op) const noexcept {
  const Matrix in = matrix(op.in[0]), out = matrix(op.out);
  for (std::size_t r = 0; r < out.rows; ++r)
    std::memmove(out.row(r), in.row(static_cast<std::size_t>(batch_.wanted[r])), out.cols * sizeof(float));
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
  for (std::size_t r = 0; r < num_rows_; ++r) {
    if (batch_.positions[r] < 0 || batch_.slots[r] < 0 || batch_.slots[r] >= header.num_sequences) {
      return Status(Errc::kInternal, fmt::format("batch: row {} has position {} and slot {} of {}", r,
                                                 batch_.positions[r], batch_.slots[r], header.num_sequences));
    }
  }
  for (std::int32_t i = 0; i < header.num_wanted; ++i) {
    if (batch_.wanted[i] < 0 || batch_.wanted[i] >= header.num_rows) {
      return Status(Errc::kInternal, fmt::format("batch: wanted row {} of {} rows", batch_.wanted[i], header.num_rows));
    }
  }
  return check_ops();
}

// The widest range of positions that any op reads is checked once per row, not once per layer.
CORBEL_INLINE Status Runner::check_ops() const {
  bool uses_cache = false;
  const hal::AttentionSpec* widest = nullptr;
  for (const hal::Op& op : memory_.program->ops) {
    if (op.kind == hal::OpKind::kEmbed) {
      const std::uint64_t vocabulary = weight(op.weight).rows();
      for (std::size_t r = 0; r < num_rows_; ++r) {
        if (batch_.tokens[r] < 0 || static_cast<std::uint64_t>(batch_.tokens[r]) >= vocabulary) {
          return Status(Errc::kInternal,
                        fmt::format("batch: row {} has token {} of {}", r, batch_.tokens[r], vocabulary));
        }
      }
    } else if (op.kind == hal::OpKind::kEmbedPosition) {
      const std::uint64_t positions = weight(op.weight).rows();
      for (std::size_t r = 0; r < num_rows_; ++r) {
        if (position(r) + std::uint64_t{op.first} >= positions) {
          return Status(Errc::kInternal, fmt::format("batch: row {} has position {}, the table has {} rows from {}", r,
                                                     position(r), positions, op.first));
        }
      }
    } else if (op.kind == hal::OpKind::kRopeTable && op.weight == hal::kNone) {
      const std::uint64_t end =
          std::uint64_t{op.first} + memory_.program->values[static_cast<std::size_t>(op.out)].width / 2;
      if (end > limits_.num_frequencies) {
        return Status(Errc::kInternal,
                      fmt::format("batch: {} rope frequencies, {} needed", limits_.num_frequencies, end));
      }
    } else if (op.kind == hal::OpKind::kKvAppend) {
      uses_cache = true;
    } else if (op.kind == hal::OpKind::kAttention) {
      uses_cache = true;
      if (widest == nullptr ||
          (widest->window != 0 && (op.attention.window == 0 || op.attention.window > widest->window)))
        widest = &op.attention;
    }
  }
  if (!uses_cache) return {};
  for (std::size_t r = 0; r < num_rows_; ++r) {
    // Rows of a sequence follow each other: what the row before has had checked is not checked again.
    const std::size_t first = widest == nullptr ? position(r) : first_visible(*widest, r);
    const bool follows = r > 0 && batch_.slots[r] == batch_.slots[r - 1] && position(r - 1) <= position(r) &&
                         (widest == nullptr || first_visible(*widest, r - 1) <= first);
    CORBEL_RETURN_IF_ERROR(check_table(r, follows ? std::max(first, position(r - 1)) : first));
  }
  return {};
}

CORBEL_INLINE Status Runner::check_table(std::size_t r, std::size_t first_position) const {
  const hal::KvLayout& layout = *memory_.kv_layout;
  const std::size_t block_tokens = layout.spec.block_tokens;
  const std::size_t last = position(r) / block_tokens;
  if (last >= batch_.max_blocks) {
    return Status(Errc::kInternal, fmt::format("batch: row {} has position {}, block tables end at {}", r, position(r),
                                               batch_.max_blocks * block_tokens));
  }
  const hal::BlockEntry* table = batch_.table(batch_.slots[r]);
  const std::uint64_t blocks = layout.block_bytes == 0 ? 0 : memory_.kv_bytes / layout.block_bytes;
  for (std::size_t i = first_position / block_tokens; i <= last; ++i) {
    if (table[i].block < 0 || static_cast<std::uint64_t>(table[i].block) >= blocks ||
        static_cast<std::int64_t>(table[i].first_position) != static_cast<std::int64_t>(i * block_tokens)) {
      return Status(Errc::kInternal,
                    fmt::format("batch: entry {} of slot {} is block {} at position {}, the pool has {}", i,
                                batch_.slots[r], table[i].block, table[i].first_position, blocks));
    }
  }
  return {};
}

}  // namespace cpu
CORBEL_NAMESPACE_END
