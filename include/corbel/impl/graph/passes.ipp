// Definitions of graph/passes.hpp.
#pragma once

#include <corbel/graph/passes.hpp>

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>
#include <string>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace graph {
namespace detail {

using hal::kNone;
using hal::Op;
using hal::OpKind;
using hal::Program;
using hal::Rows;
using hal::Value;
using hal::ValueId;
using hal::WeightId;
using hal::WeightSpec;

inline Value& value_of(Program& program, ValueId id) { return program.values[static_cast<std::size_t>(id)]; }
inline const Value& value_of(const Program& program, ValueId id) {
  return program.values[static_cast<std::size_t>(id)];
}

/// The op that makes each value, or kNone (views have none of their own).
inline std::vector<std::int32_t> producers(const Program& program) {
  std::vector<std::int32_t> result(program.values.size(), kNone);
  for (std::size_t i = 0; i < program.ops.size(); ++i)
    if (program.ops[i].out != kNone)
      result[static_cast<std::size_t>(program.ops[i].out)] = static_cast<std::int32_t>(i);
  return result;
}

inline std::size_t count_reads(const Program& program, ValueId id) {
  std::size_t count = program.logits == id ? 1 : 0;
  for (const Op& op : program.ops) count += static_cast<std::size_t>(std::count(op.in.begin(), op.in.end(), id));
  return count;
}

/// Every read of `from` becomes a read of `to`.
inline void replace_reads(Program& program, ValueId from, ValueId to) {
  for (Op& op : program.ops)
    for (ValueId& in : op.in)
      if (in == from) in = to;
  if (program.logits == from) program.logits = to;
}

inline void erase_op(Program& program, std::size_t index) {
  program.ops.erase(program.ops.begin() + static_cast<std::ptrdiff_t>(index));
}

/// One weight made of the parts of several, in order.
inline WeightId stack_weights(Program& program, const std::vector<WeightId>& ids) {
  WeightSpec stacked;
  for (WeightId id : ids) {
    WeightSpec& spec = program.weights[static_cast<std::size_t>(id)];
    stacked.uses |= spec.uses;
    std::move(spec.parts.begin(), spec.parts.end(), std::back_inserter(stacked.parts));
    spec.parts.clear();
  }
  program.weights.push_back(std::move(stacked));
  return static_cast<WeightId>(program.weights.size() - 1);
}

/// Drops weights and values that no op uses, and renumbers.
inline void compact(Program& program) {
  std::vector<std::int32_t> weight_ids(program.weights.size(), kNone);
  std::vector<std::int32_t> value_ids(program.values.size(), kNone);
  const auto use_value = [&](ValueId id) {
    for (; id != kNone; id = value_of(program, id).parent) value_ids[static_cast<std::size_t>(id)] = 0;
  };
  for (const Op& op : program.ops) {
    for (WeightId id : {op.weight, op.bias})
      if (id != kNone) weight_ids[static_cast<std::size_t>(id)] = 0;
    use_value(op.in[0]);
    use_value(op.in[1]);
    use_value(op.out);
  }
  use_value(program.logits);
  const auto renumber = [](auto& items, std::vector<std::int32_t>& ids) {
    std::int32_t next = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == kNone) continue;
      ids[i] = next;
      if (static_cast<std::size_t>(next) != i) items[static_cast<std::size_t>(next)] = std::move(items[i]);
      ++next;
    }
    items.resize(static_cast<std::size_t>(next));
  };
  renumber(program.weights, weight_ids);
  renumber(program.values, value_ids);
  const auto map = [](std::int32_t& id, const std::vector<std::int32_t>& ids) {
    if (id != kNone) id = ids[static_cast<std::size_t>(id)];
  };
  for (Op& op : program.ops) {
    map(op.weight, weight_ids);
    map(op.bias, weight_ids);
    map(op.in[0], value_ids);
    map(op.in[1], value_ids);
    map(op.out, value_ids);
  }
  for (Value& value : program.values) map(value.parent, value_ids);
  map(program.logits, value_ids);
}

/// True for ops whose row r of the output depends on row r of the inputs alone.
inline bool is_row_wise(OpKind kind) {
  switch (kind) {
    case OpKind::kNorm:
    case OpKind::kLinear:
    case OpKind::kGroupedLinear:
    case OpKind::kActivation:
    case OpKind::kGate:
    case OpKind::kClamp:
    case OpKind::kAdd:
    case OpKind::kScale:
    case OpKind::kSoftcap:
    case OpKind::kJoin:
    case OpKind::kPermute:
    case OpKind::kRoundActivations:
    case OpKind::kRoute:
    case OpKind::kExpertLinear:
    case OpKind::kExpertSum:
      return true;
    default:
      return false;
  }
}

}  // namespace detail

CORBEL_INLINE void fold_constants(hal::Program& program) {
  using namespace detail;
  for (std::size_t i = 0; i < program.ops.size();) {
    const Op scale = program.ops[i];
    if (scale.kind != OpKind::kScale) {
      ++i;
      continue;
    }
    const std::int32_t producer = producers(program)[static_cast<std::size_t>(scale.in[0])];
    if (producer != kNone && program.ops[static_cast<std::size_t>(producer)].kind == OpKind::kEmbed &&
        count_reads(program, scale.in[0]) == 1) {
      program.ops[static_cast<std::size_t>(producer)].scale *= scale.scale;
      replace_reads(program, scale.out, scale.in[0]);
      erase_op(program, i);
      continue;
    }
    const auto reader = std::find_if(program.ops.begin(), program.ops.end(), [&](const Op& op) {
      return op.kind == OpKind::kAttention && op.in[0] == scale.out;
    });
    if (reader != program.ops.end() && count_reads(program, scale.out) == 1) {
      reader->attention.scale *= scale.scale;
      replace_reads(program, scale.out, scale.in[0]);
      erase_op(program, i);
      continue;
    }
    ++i;
  }
  compact(program);
}

CORBEL_INLINE void merge_linears(hal::Program& program) {
  using namespace detail;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind != OpKind::kLinear) continue;
    // All linears of this input, all with or all without bias; each weight used once. The input exists at the first of
    // them, so they can move there.
    std::vector<std::size_t> group;
    for (std::size_t j = i; j < program.ops.size(); ++j) {
      const Op& op = program.ops[j];
      if (op.kind == OpKind::kLinear && op.in[0] == program.ops[i].in[0] &&
          (op.bias == kNone) == (program.ops[i].bias == kNone) &&
          program.weights[static_cast<std::size_t>(op.weight)].uses == hal::kUseLinear)
        group.push_back(j);
    }
    if (group.size() < 2 || group.front() != i) continue;

    std::vector<WeightId> weights, biases;
    Value merged = value_of(program, program.ops[i].out);
    const auto merged_id = static_cast<ValueId>(program.values.size());
    merged.width = 0;
    std::string name;
    for (std::size_t j : group) {
      const Op& op = program.ops[j];
      weights.push_back(op.weight);
      if (op.bias != kNone) biases.push_back(op.bias);
      Value& part = value_of(program, op.out);
      const std::size_t dot = part.name.rfind('.');
      name += name.empty() ? part.name : "_" + part.name.substr(dot == std::string::npos ? 0 : dot + 1);
      part.parent = merged_id;
      part.column = merged.width;
      merged.width += part.width;
    }
    merged.name = std::move(name);
    program.values.push_back(std::move(merged));
    program.ops[i].weight = stack_weights(program, weights);
    if (!biases.empty()) program.ops[i].bias = stack_weights(program, biases);
    program.ops[i].out = merged_id;
    for (std::size_t n = group.size(); n-- > 1;) erase_op(program, group[n]);
  }
  compact(program);
}

CORBEL_INLINE void drop_dead_rows(hal::Program& program) {
  using namespace detail;
  // Walk back from the selection: the ops that only feed it, and work row by row, can work on selected rows.
  const auto select =
      std::find_if(program.ops.begin(), program.ops.end(), [](const Op& op) { return op.kind == OpKind::kSelectRows; });
  if (select == program.ops.end()) return;
  const ValueId selected = select->in[0];
  replace_reads(program, select->out, selected);
  program.ops.erase(select);

  std::vector<bool> wanted(program.values.size(), false);
  wanted[static_cast<std::size_t>(program.root(program.logits).value)] = true;
  std::vector<bool> moved(program.ops.size(), false);
  for (std::size_t i = program.ops.size(); i-- > 0;) {
    const Op& op = program.ops[i];
    if (op.out == kNone || !is_row_wise(op.kind) || !wanted[static_cast<std::size_t>(program.root(op.out).value)])
      continue;
    // Some later op that needs all rows may read the value too; then it stays.
    bool all_readers_moved = true;
    for (std::size_t j = i + 1; j < program.ops.size(); ++j)
      for (ValueId in : program.ops[j].in)
        if (in != kNone && program.root(in).value == program.root(op.out).value && !moved[j]) all_readers_moved = false;
    if (!all_readers_moved) continue;
    moved[i] = true;
    for (ValueId in : op.in)
      if (in != kNone) wanted[static_cast<std::size_t>(program.root(in).value)] = true;
  }
  // Where a moved op reads a value that keeps all rows, a selection goes in front of the first reader.
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (!moved[i]) continue;
    for (std::size_t n = 0; n < 2; ++n) {
      const ValueId in = program.ops[i].in[n];
      if (in == kNone) continue;
      if (value_of(program, program.root(in).value).rows == Rows::kWanted) continue;
      Op op;
      op.kind = OpKind::kSelectRows;
      op.in[0] = in;
      op.layer = program.ops[i].layer;
      Value value = value_of(program, in);
      value.parent = kNone;
      value.column = 0;
      value.rows = Rows::kWanted;
      value.name += "_wanted";
      program.values.push_back(std::move(value));
      op.out = static_cast<ValueId>(program.values.size() - 1);
      for (std::size_t j = i; j < program.ops.size(); ++j)
        if (moved[j])
          for (ValueId& read : program.ops[j].in)
            if (read == in) read = op.out;
      program.ops.insert(program.ops.begin() + static_cast<std::ptrdiff_t>(i), op);
      moved.insert(moved.begin() + static_cast<std::ptrdiff_t>(i), false);
      ++i;
    }
    value_of(program, program.ops[i].out).rows = Rows::kWanted;
    for (Value& value : program.values)  // views follow their parents
      if (value.parent != kNone) value.rows = value_of(program, value.parent).rows;
  }
  if (value_of(program, program.logits).rows != Rows::kWanted) {  // nothing could move: select at the end
    Op op;
    op.kind = OpKind::kSelectRows;
    op.in[0] = program.logits;
    Value value = value_of(program, program.logits);
    value.parent = kNone;
    value.rows = Rows::kWanted;
    program.values.push_back(std::move(value));
    op.out = static_cast<ValueId>(program.values.size() - 1);
    program.logits = op.out;
    program.ops.push_back(op);
  }
  compact(program);
}

CORBEL_INLINE void run_passes(hal::Program& program, const PassOptions& options) {
  if (options.fold_constants) fold_constants(program);
  if (options.merge_linears) merge_linears(program);
  if (options.drop_dead_rows) drop_dead_rows(program);
}

CORBEL_INLINE hal::ArenaPlan plan_arena(const hal::Program& program, std::uint32_t max_rows, std::uint32_t max_wanted,
                                        bool reuse) {
  using namespace detail;
  struct Block {
    ValueId value;
    std::uint64_t bytes, first, last, offset;
  };
  std::vector<Block> blocks(program.values.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Value& value = program.values[i];
    const std::uint64_t rows = value.rows == Rows::kAll ? max_rows : max_wanted;
    blocks[i] = {static_cast<ValueId>(i), (rows * value.width * sizeof(float) + 63) / 64 * 64, program.ops.size(), 0,
                 0};
  }
  const auto touch = [&](ValueId id, std::uint64_t op) {
    if (id == kNone) return;
    Block& block = blocks[static_cast<std::size_t>(program.root(id).value)];
    block.first = std::min(block.first, op);
    block.last = std::max(block.last, op);
  };
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    touch(program.ops[i].in[0], i);
    touch(program.ops[i].in[1], i);
    touch(program.ops[i].out, i);
  }
  touch(program.logits, program.ops.size());  // read after the last op

  hal::ArenaPlan plan;
  std::vector<Block*> order;
  for (Block& block : blocks)
    if (value_of(program, block.value).parent == kNone && block.first <= block.last) order.push_back(&block);
  if (reuse)  // the largest first: small ones fill the holes
    std::stable_sort(order.begin(), order.end(), [](const Block* a, const Block* b) { return a->bytes > b->bytes; });
  std::vector<const Block*> placed;  // by rising offset
  for (Block* block : order) {
    std::uint64_t offset = 0;
    for (const Block* other : placed) {
      const bool meets = !reuse || (block->first <= other->last && other->first <= block->last);
      if (!meets) continue;
      if (offset + block->bytes <= other->offset) break;
      offset = std::max(offset, other->offset + other->bytes);
    }
    block->offset = offset;
    plan.bytes = std::max(plan.bytes, offset + block->bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), block,
                                   [](const Block* a, const Block* b) { return a->offset < b->offset; }),
                  block);
  }
  plan.slots.resize(program.values.size());
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    const Program::Root root = program.root(static_cast<ValueId>(i));
    plan.slots[i].offset = blocks[static_cast<std::size_t>(root.value)].offset + root.column * sizeof(float);
    plan.slots[i].stride = value_of(program, root.value).width;
  }
  return plan;
}

namespace detail {

/// The parameters of an op that its kind reads, beside the scale.
inline std::string parameters(const Op& op) {
  switch (op.kind) {
    case OpKind::kNorm:
      return fmt::format(" {} group={} epsilon={}", op.norm.kind == hal::NormKind::kRms ? "rms" : "layer",
                         op.norm.group, op.norm.epsilon);
    case OpKind::kRope:
      return fmt::format(" head_dim={} rotary_dim={}{}", op.rope.head_dim, op.rope.rotary_dim,
                         op.rope.interleaved ? " interleaved" : "");
    case OpKind::kAttention: {
      const hal::AttentionSpec& a = op.attention;
      std::string text =
          fmt::format(" heads={} kv_heads={} head_dim={} factor={}", a.heads, a.kv_heads, a.head_dim, a.scale);
      if (a.value_dim != 0) text += fmt::format(" value_dim={}", a.value_dim);
      if (a.values_in_keys) text += " values in keys";
      if (a.window != 0) text += fmt::format(" window={}", a.window);
      if (a.softcap != 0) text += fmt::format(" softcap={}", a.softcap);
      if (op.weight != kNone) text += " sinks";
      return text;
    }
    case OpKind::kActivation:
      return fmt::format(" {}", hal::activation_name(op.activation));
    case OpKind::kGate:
    case OpKind::kClamp:
    case OpKind::kPositionScale:
      return fmt::format(" limit={}", op.limit);
    case OpKind::kEmbedPosition:
    case OpKind::kRopeTable:
      return op.first != 0 ? fmt::format(" first={}", op.first) : std::string();
    case OpKind::kGroupedLinear:
    case OpKind::kJoin:
      return fmt::format(" groups={}", op.groups);
    case OpKind::kRoundActivations:
      return fmt::format(" {} group={}", op.round.kind == hal::RoundKind::kInt8 ? "int8" : "e4m3", op.round.group);
    case OpKind::kRoute: {
      const hal::RouteSpec& r = op.route;
      std::string text = fmt::format(" {} top {} of {} experts factor={}{}",
                                     r.score == hal::ScoreKind::kSoftmax ? "softmax" : "sigmoid", r.top_k, r.experts,
                                     r.scale, r.normalize ? " normalized" : "");
      if (r.groups > 1) text += fmt::format(" in {} of {} groups by {}", r.top_groups, r.groups, r.group_top);
      return text;
    }
    case OpKind::kExpertLinear:
    case OpKind::kExpertSum:
      return fmt::format(" top {} of {} experts", op.route.top_k, op.route.experts);
    default:
      return {};
  }
}

}  // namespace detail

CORBEL_INLINE std::string dump(const hal::Program& program) {
  using namespace detail;
  const auto shape = [&](ValueId id) {
    const Value& value = value_of(program, id);
    return fmt::format("%{} {} [{}, {}]", id, value.name, value.rows == Rows::kAll ? "rows" : "wanted", value.width);
  };
  const auto weight = [&](WeightId id) {
    const WeightSpec& spec = program.weights[static_cast<std::size_t>(id)];
    std::string names;
    for (const hal::WeightPart& part : spec.parts)
      names += fmt::format("{}{}:{}", names.empty() ? "" : " + ", part.name, traits(part.dtype).name);
    return fmt::format("{} [{}, {}]", names, spec.rows(), spec.cols());
  };
  std::string text = fmt::format("program: {} ops, {} values, {} weights, {} cache layers\n", program.ops.size(),
                                 program.values.size(), program.weights.size(), program.kv_layers.size());
  for (const Op& op : program.ops) {
    std::string line = op.out == kNone ? std::string("  ") : fmt::format("  {} = ", shape(op.out));
    line += hal::op_name(op.kind);
    for (ValueId in : op.in)
      if (in != kNone) line += fmt::format(" %{}", in);
    if (op.out == kNone || op.kind == OpKind::kAttention) line += fmt::format(" layer={}", op.layer);
    if (op.scale != 1) line += fmt::format(" scale={}", op.scale);
    line += parameters(op);
    if (op.weight != kNone) line += " " + weight(op.weight);
    if (op.bias != kNone) line += " bias " + weight(op.bias);
    text += line + "\n";
  }
  for (std::size_t i = 0; i < program.values.size(); ++i)
    if (const Value& value = program.values[i]; value.parent != kNone)
      text += fmt::format("  {} = columns {}..{} of %{}\n", shape(static_cast<ValueId>(i)), value.column,
                          value.column + value.width - 1, value.parent);
  return text;
}

}  // namespace graph
CORBEL_NAMESPACE_END
