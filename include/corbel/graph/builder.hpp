// Builder: writes a hal::Program op by op, in textbook form; passes (graph/passes.hpp) make it fast afterwards.
#pragma once

#include <corbel/config.hpp>
#include <corbel/hal/program.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace graph {

using hal::Op;
using hal::OpKind;
using hal::Program;
using hal::ValueId;
using hal::WeightId;

/// Each member appends one op and answers its output. Value names show in dumps. Not thread-safe.
class Builder {
 public:
  WeightId weight(hal::WeightSpec spec) {
    program_.weights.push_back(std::move(spec));
    return static_cast<WeightId>(program_.weights.size() - 1);
  }
  /// Marks a further use of a weight (a tied embedding is also the head).
  void add_use(WeightId id, hal::WeightUse use) { program_.weights[static_cast<std::size_t>(id)].uses |= use; }
  /// Declares the cache planes of the next layer; answers its index.
  std::int32_t kv_layer(const hal::KvLayerSpec& spec) {
    program_.kv_layers.push_back(spec);
    return static_cast<std::int32_t>(program_.kv_layers.size() - 1);
  }

  ValueId embed(WeightId table, const char* name) {
    Op op = make(OpKind::kEmbed);
    op.weight = table;
    return add(op, name, static_cast<std::uint32_t>(spec(table).cols()));
  }
  ValueId rope_table(WeightId inverse_frequencies, float attention_factor, const char* name) {
    Op op = make(OpKind::kRopeTable);
    op.weight = inverse_frequencies;
    op.scale = attention_factor;
    return add(op, name, static_cast<std::uint32_t>(2 * spec(inverse_frequencies).elements()));
  }
  ValueId norm(ValueId x, WeightId weight, const hal::NormSpec& norm, const char* name) {
    Op op = make(OpKind::kNorm, x);
    op.weight = weight;
    op.norm = norm;
    return add(op, name, width(x));
  }
  ValueId linear(ValueId x, WeightId weight, WeightId bias, const char* name) {
    Op op = make(OpKind::kLinear, x);
    op.weight = weight;
    op.bias = bias;
    return add(op, name, static_cast<std::uint32_t>(spec(weight).rows()));
  }
  ValueId rope(ValueId x, ValueId table, const hal::RopeSpec& rope, const char* name) {
    Op op = make(OpKind::kRope, x, table);
    op.rope = rope;
    return add(op, name, width(x));
  }
  void kv_append(ValueId k, ValueId v) { program_.ops.push_back(make(OpKind::kKvAppend, k, v)); }
  ValueId attention(ValueId q, const hal::AttentionSpec& attention, const char* name) {
    Op op = make(OpKind::kAttention, q);
    op.attention = attention;
    return add(op, name, width(q));
  }
  ValueId activation(hal::ActivationKind kind, ValueId gate, ValueId up, const char* name) {
    Op op = make(OpKind::kActivation, gate, up);
    op.activation = kind;
    return add(op, name, width(gate));
  }
  ValueId add(ValueId a, ValueId b, const char* name) { return add(make(OpKind::kAdd, a, b), name, width(a)); }
  ValueId scale(ValueId x, float factor, const char* name) {
    Op op = make(OpKind::kScale, x);
    op.scale = factor;
    return add(op, name, width(x));
  }
  ValueId softcap(ValueId x, float cap, const char* name) {
    Op op = make(OpKind::kSoftcap, x);
    op.scale = cap;
    return add(op, name, width(x));
  }
  ValueId select_rows(ValueId x, const char* name) {
    const ValueId out = add(make(OpKind::kSelectRows, x), name, width(x));
    program_.values[static_cast<std::size_t>(out)].rows = hal::Rows::kWanted;
    return out;
  }

  /// Ops added from now on belong to this layer (hal::kNone: to none).
  void set_layer(std::int32_t layer) { layer_ = layer; }
  Program finish(ValueId logits) {
    program_.logits = logits;
    return std::move(program_);
  }

 private:
  const hal::WeightSpec& spec(WeightId id) const { return program_.weights[static_cast<std::size_t>(id)]; }
  std::uint32_t width(ValueId id) const { return program_.values[static_cast<std::size_t>(id)].width; }
  Op make(OpKind kind, ValueId a = hal::kNone, ValueId b = hal::kNone) const {
    Op op;
    op.kind = kind;
    op.in = {a, b};
    op.layer = layer_;
    return op;
  }
  ValueId add(Op op, const char* name, std::uint32_t out_width) {
    hal::Value value;
    value.name = layer_ == hal::kNone ? std::string(name) : std::to_string(layer_) + "." + name;
    value.width = out_width;
    if (op.in[0] != hal::kNone) value.rows = program_.values[static_cast<std::size_t>(op.in[0])].rows;
    program_.values.push_back(std::move(value));
    op.out = static_cast<ValueId>(program_.values.size() - 1);
    program_.ops.push_back(op);
    return op.out;
  }

  Program program_;
  std::int32_t layer_ = hal::kNone;
};

}  // namespace graph
CORBEL_NAMESPACE_END
