// Definitions of models/build.hpp.
#pragma once

#include <corbel/detail/guard.hpp>
#include <corbel/graph/builder.hpp>
#include <corbel/models/build.hpp>
#include <corbel/models/weight_reader.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

/// Rows of projections in a fused weight, in the order in which they are wanted.
using Ranges = std::vector<RowRange>;

class ProgramBuilder {
 public:
  ProgramBuilder(const Checkpoint& checkpoint, const ModelSpec& spec, std::shared_ptr<const ReadObserver> observer,
                 ActivationRounding rounding)
      : spec_(spec),
        family_(*spec.architecture),
        read_(checkpoint, family_),
        observer_(std::move(observer)),
        rounding_(rounding) {}

  Result<hal::Program> build() {
    const hal::WeightId embedding = weight(read_.matrix("token_embd", spec_.vocab, spec_.hidden), hal::kUseEmbedding);
    if (!read_.ok()) return read_.status();
    for (std::size_t i = 0; i < spec_.ropes.size(); ++i) rope_tables_.push_back(add_rope_table(i));
    if (!spec_.slopes.empty()) slopes_ = constant("alibi.slopes", spec_.slopes);

    hal::ValueId x = builder_.embed(embedding, "embedding");
    if (spec_.embedding_scale != 1) x = builder_.scale(x, spec_.embedding_scale, "scaled_embedding");
    if (read_.has("position_embd.weight")) x = add_positions(x);
    if (read_.has("token_embd_norm.weight")) x = norm(x, "token_embd_norm", "embedding_norm");
    for (std::size_t layer = 0; layer < spec_.layers.size() && read_.ok(); ++layer) x = add_layer(layer, x);
    if (!read_.ok()) return read_.status();
    builder_.set_layer(hal::kNone);

    x = norm(x, "output_norm", "output_norm");
    hal::WeightId head = embedding, bias = hal::kNone;
    if (spec_.tied_head) {
      builder_.add_use(embedding, hal::kUseLinear);
    } else {
      StoredTensor stored = read_.matrix("output", spec_.vocab, spec_.hidden);
      x = prepare_inputs(x, stored, 1);
      head = weight(std::move(stored), hal::kUseLinear);
    }
    bias = vector_if_there("output.bias", spec_.vocab);
    if (!read_.ok()) return read_.status();
    hal::ValueId logits = builder_.linear(x, head, bias, "head");
    if (spec_.logit_scale != 1) logits = builder_.scale(logits, spec_.logit_scale, "scaled_logits");
    if (spec_.logit_softcap != 0) logits = builder_.softcap(logits, spec_.logit_softcap, "capped_logits");
    return builder_.finish(builder_.select_rows(logits, "logits"));
  }

 private:
  // ---- the frame of a layer --------------------------------------

  hal::ValueId add_rope_table(std::size_t index) {
    const RopeTable& rope = spec_.ropes[index];
    const auto count = static_cast<std::uint32_t>(rope.inverse_frequencies.size());
    if (!rope.depends_on_length())
      return builder_.rope_table(constant(fmt::format("rope.{}", index), rope.inverse_frequencies),
                                 rope.attention_factor, "rope");
    const hal::ValueId table = builder_.length_rope_table(num_frequencies_, count, rope.attention_factor, "rope");
    num_frequencies_ += count;
    return table;
  }

  hal::ValueId add_positions(hal::ValueId x) {
    const TensorInfo* tensor = read_.finder().find("position_embd.weight");
    const std::uint64_t rows = tensor->shape.empty() ? 0 : tensor->shape[0];
    const hal::WeightId table = weight(read_.matrix("position_embd", rows, spec_.hidden), hal::kUseEmbedding);
    return read_.ok() ? builder_.embed_position(x, table, 0, "positioned") : x;
  }

  hal::ValueId add_layer(std::size_t layer, hal::ValueId x) {
    builder_.set_layer(static_cast<std::int32_t>(layer));
    layer_ = &spec_.layers[layer];
    block_ = fmt::format("blk.{}.", layer);
    const bool before = family_.norm_place != NormPlace::kPost, after = family_.norm_place != NormPlace::kPre;

    // Falcon's second norm is that of attention; the first then belongs to the feed-forward.
    const bool two_norms = read_.has(block_ + "attn_norm_2.weight");
    hal::ValueId shared = x;
    if (before) shared = norm(x, block_ + (only_norm() ? "attn_norm_only" : "attn_norm"), "attn_norm");
    const hal::ValueId attn_in = two_norms ? norm(x, block_ + "attn_norm_2", "attn_norm_2") : shared;
    if (!read_.ok()) return x;
    hal::ValueId mixed = layer_->mixer == MixerKind::kLatentAttention ? add_latent(attn_in) : add_attention(attn_in);
    if (!read_.ok()) return x;
    if (after) mixed = norm(mixed, block_ + "post_attention_norm", "post_attn_norm");
    mixed = scaled_residual(mixed);
    hal::ValueId residual = builder_.add(spec_.residual_after_norm ? attn_in : x, mixed, "attn_residual");

    hal::ValueId ffn_in = spec_.parallel ? x : residual;
    if (spec_.parallel && !read_.has(block_ + "ffn_norm.weight")) {
      ffn_in = shared;
    } else if (before) {
      // GGUF files of gpt-oss call it as Hugging Face does.
      const bool other =
          !read_.has(block_ + "ffn_norm.weight") && !after && read_.has(block_ + "post_attention_norm.weight");
      ffn_in = norm(ffn_in, block_ + (other ? "post_attention_norm" : "ffn_norm"), "ffn_norm");
    }
    if (!read_.ok()) return x;
    hal::ValueId down = layer_->sparse ? add_experts(ffn_in) : add_feed_forward(ffn_in, "ffn", "", spec_.feed_forward);
    if (!read_.ok()) return x;
    if (after) down = norm(down, block_ + "post_ffw_norm", "post_ffn_norm");
    if (!read_.ok()) return x;
    if (spec_.residual_after_norm && !spec_.parallel) residual = ffn_in;
    return builder_.add(residual, scaled_residual(down), "ffn_residual");
  }

  /// Falcon with one norm calls it otherwise than with two.
  bool only_norm() const {
    return read_.finder().knows(block_ + "attn_norm_only.weight") && read_.is_hf() &&
           read_.has(block_ + "attn_norm_only.weight");
  }
  hal::ValueId scaled_residual(hal::ValueId x) {
    return spec_.residual_scale == 1 ? x : builder_.scale(x, spec_.residual_scale, "scaled");
  }

  // ---- attention -------------------------------------------------

  hal::ValueId add_attention(hal::ValueId x) {
    const std::uint32_t dim = spec_.head_dim, q_width = spec_.heads * dim, kv_width = spec_.kv_heads * dim;
    hal::ValueId q = hal::kNone, k = hal::kNone, v = hal::kNone;
    if (read_.has(block_ + "attn_qkv.weight")) {
      const std::uint64_t rows = std::uint64_t{q_width} + 2 * kv_width;
      const Ranges parts[] = {fused_rows(0), fused_rows(1), fused_rows(2)};
      const std::string name = block_ + "attn_qkv";
      q = picked_linear(x, name, rows, spec_.hidden, parts[0], "q");
      k = picked_linear(x, name, rows, spec_.hidden, parts[1], "k");
      v = picked_linear(x, name, rows, spec_.hidden, parts[2], "v");
    } else {
      q = linear(x, block_ + "attn_q", q_width, spec_.hidden, "q");
      k = linear(x, block_ + "attn_k", kv_width, spec_.hidden, "k");
      v = linear(x, block_ + "attn_v", kv_width, spec_.hidden, "v");
    }
    if (!read_.ok()) return x;
    if (spec_.qkv_clamp != 0) {
      // Families that clamp and normalize queries and keys differ in the order; clamped are the projections' outputs.
      const bool late = family_.qk_norm == QkNorm::kWidth && read_.has(block_ + "attn_q_norm.weight") &&
                        read_.has(block_ + "attn_q.weight");
      if (late) {
        q = head_norm(q, "attn_q_norm", spec_.heads, "q_norm");
        k = head_norm(k, "attn_k_norm", spec_.kv_heads, "k_norm");
      }
      q = builder_.clamp(q, spec_.qkv_clamp, "q_clamped");
      k = builder_.clamp(k, spec_.qkv_clamp, "k_clamped");
      v = builder_.clamp(v, spec_.qkv_clamp, "v_clamped");
      if (!late) normalize(q, k);
    } else if (family_.qk_norm != QkNorm::kHeadAfter) {
      normalize(q, k);
    }
    if (layer_->rope != kNoRope) {
      const hal::RopeSpec rope = {dim, spec_.rotary_dim, spec_.rope_interleaved};
      q = builder_.rope(q, rope_tables_[layer_->rope], rope, "q_rope");
      k = builder_.rope(k, rope_tables_[layer_->rope], rope, "k_rope");
    }
    if (family_.qk_norm == QkNorm::kHeadAfter) normalize(q, k);
    if (!read_.ok()) return x;
    builder_.kv_layer({spec_.kv_heads, dim});
    builder_.kv_append(k, v);
    if (spec_.temperature != 0)
      q = builder_.position_scale(q, spec_.temperature, spec_.temperature_period, "q_tempered");
    const auto number = static_cast<float>(layer_ - spec_.layers.data() + 1);
    q = builder_.scale(q, spec_.scale_by_layer ? spec_.attention_scale / number : spec_.attention_scale, "q_scaled");
    const hal::WeightId sinks = vector_if_there(block_ + "attn_sinks.weight", spec_.heads);
    if (!read_.ok()) return x;
    const hal::ValueId mixed =
        builder_.attention(q, {spec_.heads, spec_.kv_heads, dim, 1.0f, layer_->window, spec_.attention_softcap}, sinks,
                           slopes_, "attention");
    return linear(mixed, block_ + "attn_output", spec_.hidden, q_width, "attn_output");
  }

  void normalize(hal::ValueId& q, hal::ValueId& k) {
    if (!read_.has(block_ + "attn_q_norm.weight")) return;
    q = head_norm(q, "attn_q_norm", spec_.heads, "q_norm");
    k = head_norm(k, "attn_k_norm", spec_.kv_heads, "k_norm");
  }

  /// The rows of queries (0), keys (1) or values (2) in a fused weight.
  Ranges fused_rows(std::uint32_t which) const {
    const std::uint64_t dim = spec_.head_dim, group = spec_.heads / spec_.kv_heads;
    const std::uint64_t q_width = spec_.heads * dim, kv_width = spec_.kv_heads * dim;
    if (!spec_.fused_qkv_groups)
      return {which == 0 ? RowRange{0, q_width} : RowRange{q_width + (which - 1) * kv_width, kv_width}};
    Ranges ranges;
    for (std::uint64_t g = 0; g < spec_.kv_heads; ++g) {
      const std::uint64_t begin = g * (group + 2) * dim;
      ranges.push_back(which == 0 ? RowRange{begin, group * dim} : RowRange{begin + (group + which - 1) * dim, dim});
    }
    return ranges;
  }

  /// Latent attention in its absorbed form: queries go into the latent space, where one key of kv_rank + rope_dim
  /// serves all heads and its first kv_rank elements are the value.
  hal::ValueId add_latent(hal::ValueId x) {
    const LatentSpec& latent = spec_.latent;
    const std::uint32_t heads = spec_.heads, nope = latent.nope_dim, rope_dim = latent.rope_dim, rank = latent.kv_rank;
    hal::ValueId q_in = x;
    std::uint32_t q_in_width = spec_.hidden;
    std::string q_name = block_ + "attn_q";
    if (latent.q_rank != 0) {
      q_in = linear(x, block_ + "attn_q_a", latent.q_rank, spec_.hidden, "q_a");
      if (!read_.ok()) return x;
      q_in = norm(q_in, block_ + "attn_q_a_norm", "q_a_norm", latent.q_rank, latent.norm_epsilon);
      q_in_width = latent.q_rank;
      q_name = block_ + "attn_q_b";
    }
    Ranges nope_rows, rope_rows;
    for (std::uint64_t h = 0; h < heads; ++h) {
      nope_rows.push_back({h * (nope + rope_dim), nope});
      rope_rows.push_back({h * (nope + rope_dim) + nope, rope_dim});
    }
    const std::uint64_t q_rows = std::uint64_t{heads} * (nope + rope_dim);
    const hal::ValueId q_nope = picked_linear(q_in, q_name, q_rows, q_in_width, nope_rows, "q_nope");
    hal::ValueId q_rope = picked_linear(q_in, q_name, q_rows, q_in_width, rope_rows, "q_pe");
    const std::string kv_name = block_ + "attn_kv_a_mqa";
    const std::uint64_t kv_rows = std::uint64_t{rank} + rope_dim;
    hal::ValueId compressed = picked_linear(x, kv_name, kv_rows, spec_.hidden, {{0, rank}}, "kv_a");
    hal::ValueId k_rope = picked_linear(x, kv_name, kv_rows, spec_.hidden, {{rank, rope_dim}}, "k_pe");
    if (!read_.ok()) return x;
    compressed = norm(compressed, block_ + "attn_kv_a_norm", "kv_a_norm", rank, latent.norm_epsilon);
    const hal::RopeSpec rope = {rope_dim, spec_.rotary_dim, spec_.rope_interleaved};
    q_rope = builder_.rope(q_rope, rope_tables_[0], rope, "q_rope");
    k_rope = builder_.rope(k_rope, rope_tables_[0], rope, "k_rope");
    const hal::WeightId to_latent = latent_keys(), from_latent = latent_values();
    if (!read_.ok()) return x;

    const hal::ValueId q_latent = builder_.grouped_linear(q_nope, to_latent, heads, "q_latent");
    hal::ValueId q = builder_.join(q_latent, q_rope, heads, "q");
    builder_.kv_layer({1, rank + rope_dim, rank, true});
    builder_.kv_append(builder_.join(compressed, k_rope, 1, "k"));
    q = builder_.scale(q, spec_.attention_scale, "q_scaled");
    hal::AttentionSpec attention = {heads, 1, rank + rope_dim, 1.0f, layer_->window, spec_.attention_softcap};
    attention.value_dim = rank;
    attention.values_in_keys = true;
    hal::ValueId mixed = builder_.attention(q, attention, hal::kNone, hal::kNone, "attention");
    mixed = builder_.grouped_linear(mixed, from_latent, heads, "values");
    return linear(mixed, block_ + "attn_output", spec_.hidden, heads * latent.value_dim, "attn_output");
  }

  /// [heads * kv_rank, nope_dim]: newer GGUF files store it, others the transposed rows of kv_b.
  hal::WeightId latent_keys() {
    const LatentSpec& latent = spec_.latent;
    if (!read_.is_hf() && read_.has(block_ + "attn_k_b.weight"))
      return weight(read_.stacked(block_ + "attn_k_b", spec_.heads, latent.kv_rank, latent.nope_dim), hal::kUseLinear);
    StoredTensor rows = kv_b_rows(0, latent.nope_dim);
    if (read_.ok()) rows.part = transpose(rows.part, spec_.heads);
    return weight(std::move(rows), hal::kUseLinear);
  }
  /// [heads * value_dim, kv_rank]
  hal::WeightId latent_values() {
    const LatentSpec& latent = spec_.latent;
    if (!read_.is_hf() && read_.has(block_ + "attn_v_b.weight"))
      return weight(read_.stacked(block_ + "attn_v_b", spec_.heads, latent.value_dim, latent.kv_rank), hal::kUseLinear);
    return weight(kv_b_rows(latent.nope_dim, latent.value_dim), hal::kUseLinear);
  }
  StoredTensor kv_b_rows(std::uint64_t first, std::uint64_t count) {
    const LatentSpec& latent = spec_.latent;
    const std::uint64_t head = std::uint64_t{latent.nope_dim} + latent.value_dim;
    StoredTensor stored = read_.matrix(block_ + "attn_kv_b", spec_.heads * head, latent.kv_rank);
    if (!read_.ok()) return stored;
    Ranges ranges;
    for (std::uint64_t h = 0; h < spec_.heads; ++h) ranges.push_back({h * head + first, count});
    stored.part = pick_rows(stored.part, ranges);
    return stored;
  }

  // ---- feed-forward ----------------------------------------------

  /// The dense feed-forward of tensors ffn_gate, ffn_up, ffn_down, each with `suffix`.
  hal::ValueId add_feed_forward(hal::ValueId x, const std::string& label, const std::string& suffix,
                                std::uint32_t width) {
    const std::string up_name = block_ + "ffn_up" + suffix, gate_name = block_ + "ffn_gate" + suffix;
    const bool fused = family_.fused_gate_up && suffix.empty();
    hal::ValueId gate = hal::kNone, up = hal::kNone;
    if (fused) {
      const std::uint64_t rows = 2 * std::uint64_t{width};
      gate = picked_linear(x, up_name, rows, spec_.hidden, {{0, width}}, label + "_gate");
      up = picked_linear(x, up_name, rows, spec_.hidden, {{width, width}}, label + "_up");
    } else {
      if (family_.gated) gate = linear(x, gate_name, width, spec_.hidden, suffix.empty() ? "gate" : label + "_gate");
      up = linear(x, up_name, width, spec_.hidden, suffix.empty() ? "up" : label + "_up");
    }
    if (!read_.ok()) return x;
    return linear(activate(gate, up), block_ + "ffn_down" + suffix, spec_.hidden, width,
                  suffix.empty() ? "down" : label + "_down");
  }

  /// `gate` may be hal::kNone.
  hal::ValueId activate(hal::ValueId gate, hal::ValueId up) {
    constexpr float kGateSlope = 1.702f;
    if (family_.clamped_gate) return builder_.gate(gate, up, kGateSlope, spec_.gate_limit, "gated");
    if (gate == hal::kNone) return builder_.activation(spec_.activation, up, hal::kNone, "activated");
    return builder_.activation(spec_.activation, gate, up, "gated");
  }

  hal::ValueId add_experts(hal::ValueId x) {
    const hal::RouteSpec& route = spec_.experts.route;
    const std::uint32_t width = spec_.experts.feed_forward;
    hal::ValueId scores = linear(x, block_ + "ffn_gate_inp", route.experts, spec_.hidden, "router");
    const hal::WeightId bias = vector_if_there(block_ + "exp_probs_b.bias", route.experts);
    if (!read_.ok()) return x;
    const hal::ValueId routed = builder_.route(scores, route, bias, "route");
    const bool pairs = read_.is_hf() && !read_.has(block_ + "ffn_up_exps.weight") && has_stacked_experts();
    const Expert gate = pairs ? stacked_half(0) : expert("ffn_gate_exps", width, spec_.hidden);
    const Expert up = pairs ? stacked_half(1) : expert("ffn_up_exps", width, spec_.hidden);
    const Expert down = pairs ? stacked_down() : expert("ffn_down_exps", spec_.hidden, width);
    if (!read_.ok()) return x;
    const hal::ValueId g = expert_linear(x, routed, gate, "expert_gate");
    const hal::ValueId u = expert_linear(x, routed, up, "expert_up");
    if (!read_.ok()) return x;
    hal::ValueId y = expert_linear(activate(g, u), routed, down, "expert_down");
    if (!read_.ok()) return x;
    y = builder_.expert_sum(y, routed, route, "experts");
    return spec_.experts.shared_feed_forward == 0 ? y : builder_.add(y, add_shared_expert(x), "all_experts");
  }

  /// The expert that every token visits, where the checkpoint has it weighted by a gate of its own.
  hal::ValueId add_shared_expert(hal::ValueId x) {
    hal::ValueId y = add_feed_forward(x, "shared", "_shexp", spec_.experts.shared_feed_forward);
    if (!read_.ok() || !read_.has(block_ + "ffn_gate_inp_shexp.weight")) return y;
    StoredTensor stored = read_.is_hf() ? read_.matrix(block_ + "ffn_gate_inp_shexp", 1, spec_.hidden)
                                        : read_.vector(block_ + "ffn_gate_inp_shexp.weight", spec_.hidden);
    const hal::WeightId gate_weight = weight(std::move(stored), hal::kUseLinear);
    if (!read_.ok()) return x;
    // A router of one expert: its weight is the gate's sigmoid.
    hal::RouteSpec one;
    one.experts = one.top_k = 1;
    one.score = hal::ScoreKind::kSigmoid;
    const hal::ValueId score = builder_.linear(x, gate_weight, hal::kNone, "shared_router");
    return builder_.expert_sum(y, builder_.route(score, one, hal::kNone, "shared_route"), one, "shared");
  }

  struct Expert {
    StoredTensor weight, bias;
  };
  Expert expert(const char* name, std::uint64_t rows, std::uint64_t cols) {
    const std::uint64_t count = spec_.experts.route.experts;
    Expert result;
    result.weight = read_.stacked(block_ + name, count, rows, cols);
    if (read_.has(block_ + name + ".bias")) result.bias = read_.stacked_vector(block_ + name + ".bias", count, rows);
    return result;
  }

  bool has_stacked_experts() const {
    return read_.has(block_ + "ffn_gate_up_exps.weight") || read_.has_quantized(block_ + "ffn_gate_up_exps");
  }
  /// The gate's (0) or the up projection's (1) rows of tensors that hold both for all experts.
  Expert stacked_half(std::uint64_t which) {
    const std::uint64_t count = spec_.experts.route.experts, width = spec_.experts.feed_forward;
    const bool alternating = family_.interleaved_experts;
    Ranges rows;
    for (std::uint64_t e = 0; e < count; ++e)
      rows.push_back(alternating ? RowRange{2 * e * width + which, width, 2}
                                 : RowRange{(2 * e + which) * width, width});
    Expert result;
    result.weight =
        read_.stacked_pair(block_ + "ffn_gate_up_exps", count, 2 * width, spec_.hidden, family_.interleaved_experts);
    if (!read_.ok()) return result;
    result.weight.part = pick_rows(result.weight.part, rows);
    const std::string bias = block_ + "ffn_gate_up_exps.bias";
    if (!read_.has(bias)) return result;
    result.bias = read_.vector(bias, count * 2 * width);
    if (!read_.ok()) return result;
    const hal::WeightPart column = reshape(result.bias.part, count * 2 * width, 1);
    result.bias.part = reshape(pick_rows(column, rows), 1, count * width);
    return result;
  }
  Expert stacked_down() {
    const std::uint64_t count = spec_.experts.route.experts, width = spec_.experts.feed_forward;
    Expert result;
    result.weight =
        read_.stacked_pair(block_ + "ffn_down_stacked_exps", count, spec_.hidden, width, family_.interleaved_experts);
    const std::string bias = block_ + "ffn_down_stacked_exps.bias";
    if (read_.has(bias)) result.bias = read_.vector(bias, count * spec_.hidden);
    return result;
  }

  hal::ValueId expert_linear(hal::ValueId x, hal::ValueId routed, const Expert& from, const char* label) {
    const hal::WeightId bias = from.bias.part.source ? weight(from.bias, hal::kUseVector) : hal::kNone;
    const std::uint64_t slots = from.weight.part.cols == 0 ? 1 : builder_.width(x) / from.weight.part.cols;
    x = prepare_inputs(x, from.weight, static_cast<std::uint32_t>(slots));
    return builder_.expert_linear(x, routed, spec_.experts.route, weight(from.weight, hal::kUseLinear), bias, label);
  }

  // ---- pieces ----------------------------------------------------

  /// `name`.weight and, where the checkpoint has it, `name`.bias.
  hal::ValueId norm(hal::ValueId x, const std::string& name, const char* label) {
    return norm_over(x, name, spec_.hidden, spec_.hidden, label, spec_.norm_epsilon);
  }
  hal::ValueId norm(hal::ValueId x, const std::string& name, const char* label, std::uint32_t width, float epsilon) {
    return norm_over(x, name, width, width, label, epsilon);
  }
  /// Over each head or all of them; one weight for all heads or one for each.
  hal::ValueId head_norm(hal::ValueId x, const char* name, std::uint32_t heads, const char* label) {
    const std::uint32_t width = heads * spec_.head_dim;
    const bool whole = family_.qk_norm == QkNorm::kWidth;
    std::uint32_t elements = whole ? width : spec_.head_dim;
    const std::string tensor = read_.finder().name_of(block_ + name + ".weight");
    if (!whole && tensor.find("{}") != std::string::npos) {
      elements = width;
    } else if (const TensorInfo* info = read_.finder().find(block_ + name + ".weight");
               info != nullptr && !whole && info->num_elements() == width) {
      elements = width;
    }
    return norm_over(x, block_ + name, whole ? width : spec_.head_dim, elements, label, spec_.norm_epsilon);
  }
  hal::ValueId norm_over(hal::ValueId x, const std::string& name, std::uint32_t group, std::uint32_t elements,
                         const char* label, float epsilon) {
    const std::uint64_t pieces = elements / spec_.head_dim;
    const auto stored = [&](const char* suffix) {
      const bool many = read_.finder().name_of(name + suffix).find("{}") != std::string::npos;
      return many ? read_.stacked_vector(name + suffix, pieces, spec_.head_dim) : read_.vector(name + suffix, elements);
    };
    StoredTensor scale = stored(".weight");
    if (read_.ok() && read_.is_hf() && family_.norm_plus_one)
      scale.part = map_vector(scale.part, [](float value) { return value + 1.0f; });
    const hal::WeightId scale_id = weight(std::move(scale), hal::kUseVector);
    const hal::WeightId bias_id = read_.has(name + ".bias") ? weight(stored(".bias"), hal::kUseVector) : hal::kNone;
    if (!read_.ok()) return x;
    return builder_.norm(x, scale_id, bias_id, {family_.norm, group, epsilon}, label);
  }

  /// The linear of `name`.weight [out, in] and, where the checkpoint has it, `name`.bias.
  hal::ValueId linear(hal::ValueId x, const std::string& name, std::uint64_t out, std::uint64_t in,
                      const std::string& label) {
    StoredTensor stored = read_.matrix(name, out, in);
    const hal::WeightId bias = vector_if_there(name + ".bias", out);
    if (!read_.ok()) return x;
    x = prepare_inputs(x, stored, 1);
    return builder_.linear(x, weight(std::move(stored), hal::kUseLinear), bias, label.c_str());
  }
  /// The linear of some rows of `name`.weight [out, in].
  hal::ValueId picked_linear(hal::ValueId x, const std::string& name, std::uint64_t out, std::uint64_t in,
                             const Ranges& rows, const std::string& label) {
    StoredTensor stored = read_.matrix(name, out, in);
    StoredTensor bias;
    if (read_.has(name + ".bias")) bias = read_.vector(name + ".bias", out);
    if (!read_.ok()) return x;
    stored.part = pick_rows(stored.part, rows);
    hal::WeightId bias_id = hal::kNone;
    if (bias.part.source) {
      bias.part = pick_rows(reshape(bias.part, out, 1), rows);
      bias.part = reshape(bias.part, 1, bias.part.rows);
      bias_id = weight(std::move(bias), hal::kUseVector);
    }
    x = prepare_inputs(x, stored, 1);
    return builder_.linear(x, weight(std::move(stored), hal::kUseLinear), bias_id, label.c_str());
  }

  /// What a quantized linear asks of its inputs: their order, and rounding. Linears of one input that ask the same
  /// share the prepared value.
  hal::ValueId prepare_inputs(hal::ValueId x, const StoredTensor& stored, std::uint32_t slots) {
    const bool rounds = rounding_ == ActivationRounding::kAsStored;
    if (rounds && !stored.unsupported_rounding.empty())
      read_.fail(Status(Errc::kUnsupported, fmt::format("tensor {}: inputs rounded to {} are not supported",
                                                        stored.part.name, stored.unsupported_rounding)));
    std::optional<InputRounding> rounding = rounds ? stored.rounding : std::nullopt;
    if (rounding && slots > 1) {  // each slot is a row of its own
      const auto width = static_cast<std::uint32_t>(stored.part.cols);
      if (rounding->spec.group == 0 || rounding->spec.group > width) rounding->spec.group = width;
      if (width % rounding->spec.group != 0)
        read_.fail(Status(Errc::kUnsupported, fmt::format("tensor {}: inputs of {} are not rounded in groups of {}",
                                                          stored.part.name, width, rounding->spec.group)));
    }
    if (stored.permutation.empty() && !rounding) return x;
    for (const Prepared& known : prepared_)
      if (known.from == x && known.permutation == stored.permutation && known.rounding == rounding) return known.to;
    hal::ValueId to = x;
    if (rounding) {  // groups of inputs are counted in their own order
      const hal::WeightId scale =
          rounding->scale ? constant(stored.part.name + ".input_scale", {*rounding->scale}) : hal::kNone;
      const hal::WeightId zero =
          rounding->zero_point ? constant(stored.part.name + ".input_zero", {*rounding->zero_point}) : hal::kNone;
      to = builder_.round_activations(to, rounding->spec, scale, zero, "rounded");
    }
    if (!stored.permutation.empty()) {
      std::vector<float> columns;
      for (std::uint32_t slot = 0; slot < slots; ++slot)
        for (const std::uint32_t column : stored.permutation)
          columns.push_back(static_cast<float>(slot * stored.permutation.size() + column));
      to = builder_.permute(to, constant(stored.part.name + ".permutation", columns), "permuted");
    }
    if (rounding && rounding->spec.kind == hal::RoundKind::kInt8 && !rounding->zero_point &&
        !rounding->spec.asymmetric && rounding->spec.bound == 0 &&
        (stored.permutation.empty() || rounding->spec.group == 0))
      builder_.set_steps(to, {true, rounding->scale.value_or(0), rounding->spec.group});
    prepared_.push_back({x, stored.permutation, rounding, to});
    return to;
  }

  hal::WeightId vector_if_there(const std::string& name, std::uint64_t elements) {
    return read_.has(name) ? weight(read_.vector(name, elements), hal::kUseVector) : hal::kNone;
  }
  hal::WeightId constant(std::string name, const std::vector<float>& values) {
    return add_weight(constant_vector(std::move(name), values), hal::kUseVector);
  }
  hal::WeightId weight(StoredTensor stored, hal::WeightUse use) {
    if (!read_.ok()) return 0;
    return add_weight(observed(std::move(stored.part), observer_), use);
  }
  hal::WeightId add_weight(hal::WeightPart part, hal::WeightUse use) {
    hal::WeightSpec spec;
    spec.uses = use;
    spec.parts.push_back(std::move(part));
    return builder_.weight(std::move(spec));
  }

  struct Prepared {
    hal::ValueId from;
    std::vector<std::uint32_t> permutation;
    std::optional<InputRounding> rounding;
    hal::ValueId to;
  };

  const ModelSpec& spec_;
  const Architecture& family_;
  WeightReader read_;
  std::shared_ptr<const ReadObserver> observer_;
  ActivationRounding rounding_;
  graph::Builder builder_;
  std::vector<hal::ValueId> rope_tables_;
  hal::WeightId slopes_ = hal::kNone;
  std::uint32_t num_frequencies_ = 0;
  std::vector<Prepared> prepared_;
  const LayerSpec* layer_ = nullptr;  // the layer that is being built
  std::string block_;                 // "blk.N." of it
};

}  // namespace detail

CORBEL_INLINE Result<hal::Program> build_program(const Checkpoint& checkpoint, const ModelSpec& spec,
                                                 std::shared_ptr<const ReadObserver> observer,
                                                 ActivationRounding rounding) {
  return corbel::detail::guard([&]() -> Result<hal::Program> {
    return detail::ProgramBuilder(checkpoint, spec, std::move(observer), rounding).build();
  });
}

}  // namespace models
CORBEL_NAMESPACE_END
