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
  ValueId embed_position(ValueId x, WeightId table, std::uint32_t first, const char* name) {
    Op op = make(OpKind::kEmbedPosition, x);
    op.weight = table;
    op.first = first;
    return add(op, name, width(x));
  }
  ValueId rope_table(WeightId inverse_frequencies, float attention_factor, const char* name) {
    Op op = make(OpKind::kRopeTable);
    op.weight = inverse_frequencies;
    op.scale = attention_factor;
    return add(op, name, static_cast<std::uint32_t>(2 * spec(inverse_frequencies).elements()));
  }
  /// A rope table whose `count` inverse frequencies come with each sequence of the batch, from element `first` on.
  ValueId length_rope_table(std::uint32_t first, std::uint32_t count, float attention_factor, const char* name) {
    Op op = make(OpKind::kRopeTable);
    op.first = first;
    op.scale = attention_factor;
    return add(op, name, 2 * count);
  }
  /// `weight` and `bias` may be hal::kNone.
  ValueId norm(ValueId x, WeightId weight, WeightId bias, const hal::NormSpec& norm, const char* name) {
    Op op = make(OpKind::kNorm, x);
    op.weight = weight;
    op.bias = bias;
    op.norm = norm;
    return add(op, name, width(x));
  }
  ValueId linear(ValueId x, WeightId weight, WeightId bias, const char* name) {
    Op op = make(OpKind::kLinear, x);
    op.weight = weight;
    op.bias = bias;
    return add(op, name, static_cast<std::uint32_t>(spec(weight).rows()));
  }
  ValueId grouped_linear(ValueId x, WeightId weight, std::uint32_t groups, const char* name) {
    Op op = make(OpKind::kGroupedLinear, x);
    op.weight = weight;
    op.groups = groups;
    return add(op, name, static_cast<std::uint32_t>(spec(weight).rows()));
  }
  ValueId rope(ValueId x, ValueId table, const hal::RopeSpec& rope, const char* name) {
    Op op = make(OpKind::kRope, x, table);
    op.rope = rope;
    return add(op, name, width(x));
  }
  /// Without `v` the values lie in the keys.
  void kv_append(ValueId k, ValueId v = hal::kNone) { program_.ops.push_back(make(OpKind::kKvAppend, k, v)); }
  /// `sinks` and `slopes` may be hal::kNone.
  ValueId attention(ValueId q, const hal::AttentionSpec& attention, WeightId sinks, WeightId slopes, const char* name) {
    Op op = make(OpKind::kAttention, q);
    op.attention = attention;
    op.weight = sinks;
    op.bias = slopes;
    return add(op, name, attention.heads * attention.value_width());
  }
  ValueId activation(hal::ActivationKind kind, ValueId gate, ValueId up, const char* name) {
    Op op = make(OpKind::kActivation, gate, up);
    op.activation = kind;
    return add(op, name, width(gate));
  }
  ValueId gate(ValueId gate, ValueId up, float alpha, float limit, const char* name) {
    Op op = make(OpKind::kGate, gate, up);
    op.scale = alpha;
    op.limit = limit;
    return add(op, name, width(gate));
  }
  ValueId clamp(ValueId x, float limit, const char* name) {
    Op op = make(OpKind::kClamp, x);
    op.limit = limit;
    return add(op, name, width(x));
  }
  ValueId position_scale(ValueId x, float factor, float period, const char* name) {
    Op op = make(OpKind::kPositionScale, x);
    op.scale = factor;
    op.limit = period;
    return add(op, name, width(x));
  }
  ValueId join(ValueId a, ValueId b, std::uint32_t groups, const char* name) {
    Op op = make(OpKind::kJoin, a, b);
    op.groups = groups;
    return add(op, name, width(a) + width(b));
  }
  ValueId permute(ValueId x, WeightId columns, const char* name) {
    Op op = make(OpKind::kPermute, x);
    op.weight = columns;
    return add(op, name, width(x));
  }
  /// `scale` and `zero_point` may be hal::kNone.
  ValueId round_activations(ValueId x, const hal::RoundSpec& round, WeightId scale, WeightId zero_point,
                            const char* name) {
    Op op = make(OpKind::kRoundActivations, x);
    op.round = round;
    op.weight = scale;
    op.bias = zero_point;
    return add(op, name, width(x));
  }
  /// `selection_bias` may be hal::kNone.
  ValueId route(ValueId scores, const hal::RouteSpec& route, WeightId selection_bias, const char* name) {
    Op op = make(OpKind::kRoute, scores);
    op.route = route;
    op.bias = selection_bias;
    return add(op, name, 2 * route.top_k);
  }
  /// `bias` may be hal::kNone.
  ValueId expert_linear(ValueId x, ValueId routed, const hal::RouteSpec& route, WeightId weight, WeightId bias,
                        const char* name) {
    Op op = make(OpKind::kExpertLinear, x, routed);
    op.route = route;
    op.weight = weight;
    op.bias = bias;
    return add(op, name, static_cast<std::uint32_t>(spec(weight).rows() / route.experts) * route.top_k);
  }
  ValueId expert_sum(ValueId x, ValueId routed, const hal::RouteSpec& route, const char* name) {
    Op op = make(OpKind::kExpertSum, x, routed);
    op.route = route;
    return add(op, name, width(x) / route.top_k);
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

  void set_steps(ValueId id, const hal::IntegerSteps& steps) {
    program_.values[static_cast<std::size_t>(id)].steps = steps;
  }

  /// Columns of a value.
  std::uint32_t width(ValueId id) const { return program_.values[static_cast<std::size_t>(id)].width; }
  /// Ops added from now on belong to this layer (hal::kNone: to none).
  void set_layer(std::int32_t layer) { layer_ = layer; }
  Program finish(ValueId logits) {
    program_.logits = logits;
    return std::move(program_);
  }

 private:
  const hal::WeightSpec& spec(WeightId id) const { return program_.weights[static_cast<std::size_t>(id)]; }
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
