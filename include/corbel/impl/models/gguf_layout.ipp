// Definitions of gguf_layout.hpp. Names, orders and keys are those of published GGUF files (facts of the format).
#pragma once

#include <corbel/checkpoint/chat_templates.hpp>
#include <corbel/checkpoint/generation_defaults.hpp>
#include <corbel/checkpoint/gguf_writer.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/impl/models/config_types.ipp>
#include <corbel/impl/models/layout_common.ipp>
#include <corbel/models/build.hpp>
#include <corbel/models/gguf_layout.hpp>
#include <corbel/models/key_reader.hpp>
#include <corbel/models/model_spec.hpp>
#include <corbel/models/rope_table.hpp>
#include <corbel/models/weight_reader.hpp>
#include <corbel/text/pipeline_model.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

class LayoutPlanner {
 public:
  LayoutPlanner(const Checkpoint& checkpoint, const ModelSpec& spec)
      : checkpoint_(checkpoint), spec_(spec), family_(*spec.architecture), read_(checkpoint, family_) {}

  Result<GgufLayout> plan() {
    if (family_.gguf == nullptr) {
      return Status(Errc::kUnsupported, std::string("GGUF files do not have the family ") + family_.name);
    }
    if (spec_.rope_interleaved != (family_.rope == RopePairs::kInterleaved) ||
        (family_.rope == RopePairs::kPermuted && !spec_.ropes.empty() && spec_.rotary_dim != spec_.head_dim)) {
      return Status(Errc::kUnsupported, "this rotary embedding cannot be written to GGUF");
    }
    add_keys();
    add_ropes();
    add_tensors();
    if (!read_.ok()) return read_.status();
    CORBEL_RETURN_IF_ERROR(add_tokenizer());
    CORBEL_RETURN_IF_ERROR(add_chat_templates());
    CORBEL_RETURN_IF_ERROR(add_generation());
    CORBEL_RETURN_IF_ERROR(note_unused());
    add_unread_config();
    return std::move(layout_);
  }

 private:
  // ---- keys ------------------------------------------------------

  std::string key(const char* name) const { return std::string(family_.gguf) + "." + name; }
  void count(const char* name, std::uint64_t value) {
    layout_.metadata.set(key(name), MetaValue::from_uint(value, MetaType::kU32));
  }
  void number(const char* name, double value) { layout_.metadata.set(key(name), MetaValue::from_float(value)); }
  void flag(const char* name, bool value) { layout_.metadata.set(key(name), MetaValue::from_bool(value)); }

  void add_keys() {
    Metadata& metadata = layout_.metadata;
    metadata.set("general.architecture", MetaValue::from_string(family_.gguf));
    metadata.set("general.type", MetaValue::from_string("model"));
    metadata.set("general.name", MetaValue::from_string(name_of_folder()));
    add_kept_keys();
    const bool latent = family_.mixer == MixerKind::kLatentAttention;
    count("block_count", spec_.layers.size());
    count("context_length", spec_.context_length);
    count("embedding_length", spec_.hidden);
    count("feed_forward_length", spec_.feed_forward);
    count("attention.head_count", spec_.heads);
    count("attention.head_count_kv", latent ? spec_.heads : spec_.kv_heads);
    if (latent) {
      if (spec_.latent.q_rank != 0) count("attention.q_lora_rank", spec_.latent.q_rank);
      count("attention.kv_lora_rank", spec_.latent.kv_rank);
      count("attention.key_length", spec_.latent.nope_dim + spec_.latent.rope_dim);
      count("attention.value_length", spec_.latent.value_dim);
      count("rope.dimension_count", spec_.latent.rope_dim);
    } else {
      count("attention.key_length", spec_.head_dim);
      count("attention.value_length", spec_.head_dim);
      if (!spec_.ropes.empty()) count("rope.dimension_count", spec_.rotary_dim);
    }
    number(family_.norm == hal::NormKind::kRms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
           spec_.norm_epsilon);
    count("vocab_size", spec_.vocab);
    add_windows();
    if (spec_.attention_softcap != 0) number("attn_logit_softcapping", spec_.attention_softcap);
    if (spec_.logit_softcap != 0) number("final_logit_softcapping", spec_.logit_softcap);
    if (spec_.qkv_clamp != 0) number("attention.clamp_kqv", spec_.qkv_clamp);
    if (spec_.parallel != family_.parallel || family_.gguf == std::string_view("gptneox")) {
      flag("use_parallel_residual", spec_.parallel);
    }
    if (spec_.temperature != 0) number("attention.temperature_scale", spec_.temperature);
    add_scales();
    add_experts();
  }

  // Keys of the GGUF file that the folder was made from, which it keeps beside its weights: texts, and others as JSON.
  void add_kept_keys() {
    for (const Metadata::Entry& entry : checkpoint_.metadata().entries()) {
      const Result<std::string_view> text = entry.value.as_string();
      const std::string_view key = entry.key;
      if (!key.starts_with("general.") || !text.ok()) continue;
      const bool ours = key == "general.architecture" || key == "general.type" || key == "general.alignment" ||
                        key == "general.file_type" || key == "general.quantization_version" ||
                        key.starts_with("general.sampling.");
      if (ours) continue;
      layout_.metadata.set(entry.key, kept_value(key, *text));
    }
  }

  // Counts and lists of texts were written as JSON.
  static MetaValue kept_value(std::string_view key, std::string_view text) {
    const Result<json::Value> value = json::parse(text);
    if (value.ok() && value->type() == json::Type::kUint && key.ends_with(".count")) {
      return MetaValue::from_uint(value->as_uint());
    }
    std::vector<std::string> texts;
    if (value.ok() && value->is_array()) {
      for (const json::Value& item : value->items())
        if (item.is_string()) texts.emplace_back(item.as_string());
      if (!texts.empty() && texts.size() == value->items().size()) return MetaValue::from_strings(texts);
    }
    return MetaValue::from_string(std::string(text));
  }

  std::string name_of_folder() const {
    std::string name = checkpoint_.name();
    while (name.size() > 1 && name.back() == '/') name.pop_back();
    for (const std::string_view end : {"/model.safetensors", "/model.safetensors.index.json"}) {
      if (name.ends_with(end)) name.resize(name.size() - end.size());
    }
    return name.substr(name.rfind('/') + 1);
  }

  void add_windows() {
    std::uint32_t window = 0;
    for (const LayerSpec& layer : spec_.layers) window = std::max(window, layer.window);
    if (window == 0) return;
    count("attention.sliding_window", window);
    if (!family_.gguf_lists_windows) return;
    std::vector<std::byte> listed;
    for (const LayerSpec& layer : spec_.layers) listed.push_back(std::byte{layer.window != 0});
    layout_.metadata.set(key("attention.sliding_window_pattern"), MetaValue::from_bytes(MetaType::kBool, listed));
  }

  // Values that a family's files leave out where they are what they always are.
  void add_scales() {
    KeyReader keys(checkpoint_, family_.gguf);
    if (keys.has("attention.scale") && keys.name_of("attention.scale").ends_with("attention_multiplier"))
      number("attention.scale", spec_.attention_scale);
    for (const char* name : {"embedding_scale", "residual_scale", "logit_scale"}) {
      if (keys.has(name)) number(name, keys.number_or(name, 1, 0, 1e9));
    }
    if (!spec_.slopes.empty())
      number("attention.max_alibi_bias", keys.number_or("attention.max_alibi_bias", 8, 0, 1e4));
  }

  void add_experts() {
    const ExpertSpec& experts = spec_.experts;
    if (experts.route.experts == 0) return;
    count("expert_count", experts.route.experts);
    count("expert_used_count", experts.route.top_k);
    count("expert_feed_forward_length", experts.feed_forward);
    if (experts.shared_feed_forward != 0) {
      count("expert_shared_feed_forward_length", experts.shared_feed_forward);
      count("expert_shared_count", std::max(1u, experts.shared_feed_forward / std::max(1u, experts.feed_forward)));
    }
    flag("expert_weights_norm", experts.route.normalize);
    if (experts.route.scale != 1) number("expert_weights_scale", experts.route.scale);
    if (experts.route.score == hal::ScoreKind::kSigmoid) count("expert_gating_func", 2);
    if (experts.route.groups > 1) {
      count("expert_group_count", experts.route.groups);
      count("expert_group_used_count", experts.route.top_groups);
    }
    std::uint32_t dense = 0;
    while (dense < spec_.layers.size() && !spec_.layers[dense].sparse) ++dense;
    if (dense != 0) count("leading_dense_block_count", dense);
  }

  // ---- rotary embeddings -----------------------------------------

  void add_ropes() {
    if (spec_.ropes.empty()) return;
    KeyReader keys(checkpoint_, family_.gguf);
    const RopeScaling scaling = read_rope_scaling(keys, family_.rope_base, "full_attention");
    const bool alpha = scaling.type == "dynamic" && scaling.alpha > 0;
    number("rope.freq_base", alpha ? alpha_base(scaling, spec_.rotary_dim) : scaling.base);
    if (spec_.ropes.size() > 1) {
      const RopeScaling local = read_rope_scaling(keys, family_.window_rope_base, "sliding_attention");
      const double base = keys.number_or("rope_local_base_freq", family_.window_rope_base, 0, 1e12);
      number("rope.freq_base_swa", keys.has("rope_parameters") ? local.base : base);
    }
    if (scaling.type == "linear" || scaling.type == "yarn" || scaling.type == "longrope") {
      layout_.metadata.set(key("rope.scaling.type"), MetaValue::from_string(scaling.type));
      if (scaling.type != "longrope") number("rope.scaling.factor", scaling.factor);
      const auto original = static_cast<std::uint64_t>(scaling.original);
      if (original != 0) count("rope.scaling.original_context_length", original);
    }
    if (scaling.type == "yarn") {
      number("rope.scaling.yarn_beta_fast", scaling.beta_fast);
      number("rope.scaling.yarn_beta_slow", scaling.beta_slow);
      // Latent attention takes one factor into its softmax; elsewhere the file says what is left beside the usual one.
      const bool latent = family_.mixer == MixerKind::kLatentAttention;
      const double factor = latent ? scaling.attention_factor : static_cast<double>(spec_.ropes[0].attention_factor);
      const double rest = factor / yarn_mscale(scaling.factor, 1);
      if (latent && scaling.mscale_all_dim > 0) {
        number("rope.scaling.yarn_log_multiplier", 0.1 * scaling.mscale_all_dim);
      }
      if (factor != 0 && std::abs(rest - 1) > 1e-7) number("rope.scaling.attn_factor", rest);
    }
    if (scaling.type == "longrope") {
      number("rope.scaling.attn_factor", static_cast<double>(spec_.ropes[0].attention_factor));
      add_constants("rope_factors_long.weight", scaling.long_factors);
      add_constants("rope_factors_short.weight", scaling.short_factors);
    }
    if (scaling.type == "llama3") {
      // What each frequency is divided by.
      std::vector<double> divisors;
      RopeScaling plain = scaling;
      plain.type = "none";
      const RopeTable table = make_rope_table(keys, plain, spec_.rotary_dim, spec_.context_length, {});
      for (std::size_t i = 0; i < table.inverse_frequencies.size(); ++i) {
        divisors.push_back(static_cast<double>(table.inverse_frequencies[i]) /
                           static_cast<double>(spec_.ropes[0].inverse_frequencies[i]));
      }
      add_constants("rope_freqs.weight", divisors);
    }
    read_.fail(keys.status());
  }

  void add_constants(const char* name, const std::vector<double>& values) {
    GgufTensorPlan plan;
    plan.name = name;
    plan.shape = {values.size()};
    plan.rows = [values](std::uint64_t, std::uint64_t, float* out) {
      for (const double value : values) *out++ = static_cast<float>(value);
      return Status();
    };
    layout_.tensors.push_back(std::move(plan));
  }

  // ---- tensors ---------------------------------------------------

  void add(const std::string& name, StoredTensor stored, std::vector<std::uint64_t> shape) {
    if (!read_.ok() || stored.part.source == nullptr) return;
    GgufTensorPlan plan;
    plan.name = name;
    plan.stored = traits(stored.part.dtype).ggml_id == kNoGgmlId ? DType::kF32 : stored.part.dtype;
    if (traits(plan.stored).encode == nullptr) plan.stored = DType::kF32;
    plan.shape = std::move(shape);
    plan.rows = rows_of(std::move(stored));
    layout_.tensors.push_back(std::move(plan));
  }

  void matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    if (read_.ok()) add(name + ".weight", read_.matrix(name, rows, cols), {rows, cols});
  }
  void vector(const std::string& name, std::uint64_t elements) {
    if (read_.ok() && read_.has(name)) add(name, read_.vector(name, elements), {elements});
  }
  void linear(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    matrix(name, rows, cols);
    vector(name + ".bias", rows);
  }

  // A linear whose rows come in another order.
  void linear_of_rows(const std::string& name, std::uint64_t rows, std::uint64_t cols,
                      const std::vector<RowRange>& order) {
    if (!read_.ok()) return;
    StoredTensor weight = read_.matrix(name, rows, cols);
    if (!read_.ok()) return;
    weight.part = pick_rows(weight.part, order);
    add(name + ".weight", std::move(weight), {rows, cols});
    if (!read_.has(name + ".bias")) return;
    StoredTensor bias = read_.vector(name + ".bias", rows);
    if (!read_.ok()) return;
    bias.part = reshape(pick_rows(reshape(bias.part, rows, 1), order), 1, rows);
    add(name + ".bias", std::move(bias), {rows});
  }

  // A norm under another name in the file than among the family's names.
  void norm(const std::string& from, const std::string& to, std::uint64_t elements) {
    if (!read_.ok() || !read_.has(from + ".weight")) return;
    StoredTensor weight = read_.vector(from + ".weight", elements);
    if (!read_.ok()) return;
    if (family_.norm_plus_one) weight.part = map_vector(weight.part, [](float value) { return value + 1.0f; });
    add(to + ".weight", std::move(weight), {elements});
    if (read_.has(from + ".bias")) add(to + ".bias", read_.vector(from + ".bias", elements), {elements});
  }

  void head_norm(const std::string& name, std::uint64_t heads) {
    if (!read_.ok() || !read_.has(name + ".weight")) return;
    const std::uint64_t dim = spec_.head_dim;
    const bool many = read_.finder().name_of(name + ".weight").find("{}") != std::string::npos;
    const TensorInfo* stored = many ? nullptr : read_.finder().find(name + ".weight");
    const std::uint64_t elements = stored != nullptr ? stored->num_elements() : heads * dim;
    if (!many && (family_.qk_norm == QkNorm::kWidth || elements == dim)) return norm(name, name, elements);
    StoredTensor weight =
        many ? read_.stacked_vector(name + ".weight", heads, dim) : read_.vector(name + ".weight", elements);
    if (!read_.ok()) return;
    if (family_.norm_plus_one) weight.part = map_vector(weight.part, [](float value) { return value + 1.0f; });
    weight.part = reshape(weight.part, heads, dim);
    add(name + ".weight", std::move(weight), {heads, dim});
  }

  void add_tensors() {
    matrix("token_embd", spec_.vocab, spec_.hidden);
    if (const TensorInfo* positions = read_.finder().find("position_embd.weight");
        positions != nullptr && !positions->shape.empty()) {
      matrix("position_embd", positions->shape[0], spec_.hidden);
    }
    norm("token_embd_norm", "token_embd_norm", spec_.hidden);
    for (std::size_t i = 0; i < spec_.layers.size() && read_.ok(); ++i) {
      block_ = "blk." + std::to_string(i) + ".";
      for (const char* name : {"attn_norm", "attn_norm_2", "ffn_norm", "post_attention_norm", "post_ffw_norm"}) {
        const bool ffn = name == std::string_view("ffn_norm");
        norm(block_ + name, block_ + (ffn ? family_.gguf_ffn_norm : name), spec_.hidden);
      }
      if (read_.finder().knows(block_ + "attn_norm_only.weight")) {
        norm(block_ + "attn_norm_only", block_ + "attn_norm", spec_.hidden);
      }
      if (spec_.layers[i].mixer == MixerKind::kLatentAttention) {
        add_latent();
      } else {
        add_attention();
      }
      if (spec_.layers[i].sparse) {
        add_expert_tensors();
      } else {
        add_feed_forward("", spec_.feed_forward);
      }
    }
    norm("output_norm", "output_norm", spec_.hidden);
    if (!spec_.tied_head) matrix("output", spec_.vocab, spec_.hidden);
    vector("output.bias", spec_.vocab);
  }

  // From halves to pairs: rows j and j + dim / 2 of each head come together.
  std::vector<RowRange> interleaved(std::uint64_t heads) const {
    const std::uint64_t dim = spec_.head_dim;
    std::vector<RowRange> order;
    for (std::uint64_t head = 0; head < heads; ++head) {
      for (std::uint64_t j = 0; j < dim / 2; ++j) order.push_back({head * dim + j, 2, dim / 2});
    }
    return order;
  }

  void add_attention() {
    const std::uint64_t dim = spec_.head_dim, q = spec_.heads * dim, kv = spec_.kv_heads * dim;
    if (read_.has(block_ + "attn_qkv.weight")) {
      std::vector<RowRange> order = {{0, q + 2 * kv}};
      if (spec_.fused_qkv_groups) {  // all queries, then all keys, then all values
        order.clear();
        const std::uint64_t group = spec_.heads / spec_.kv_heads;
        for (std::uint64_t part = 0; part < 3; ++part) {
          for (std::uint64_t g = 0; g < spec_.kv_heads; ++g) {
            const std::uint64_t begin = g * (group + 2) * dim;
            order.push_back(part == 0 ? RowRange{begin, group * dim} : RowRange{begin + (group + part - 1) * dim, dim});
          }
        }
      }
      linear_of_rows(block_ + "attn_qkv", q + 2 * kv, spec_.hidden, order);
    } else if (family_.rope == RopePairs::kPermuted) {
      linear_of_rows(block_ + "attn_q", q, spec_.hidden, interleaved(spec_.heads));
      linear_of_rows(block_ + "attn_k", kv, spec_.hidden, interleaved(spec_.kv_heads));
      linear(block_ + "attn_v", kv, spec_.hidden);
    } else {
      linear(block_ + "attn_q", q, spec_.hidden);
      linear(block_ + "attn_k", kv, spec_.hidden);
      linear(block_ + "attn_v", kv, spec_.hidden);
    }
    head_norm(block_ + "attn_q_norm", spec_.heads);
    head_norm(block_ + "attn_k_norm", spec_.kv_heads);
    vector(block_ + "attn_sinks.weight", spec_.heads);
    linear(block_ + "attn_output", spec_.hidden, q);
  }

  void add_latent() {
    const LatentSpec& latent = spec_.latent;
    const std::uint64_t q = std::uint64_t{spec_.heads} * (latent.nope_dim + latent.rope_dim);
    if (latent.q_rank != 0) {
      linear(block_ + "attn_q_a", latent.q_rank, spec_.hidden);
      norm(block_ + "attn_q_a_norm", block_ + "attn_q_a_norm", latent.q_rank);
      linear(block_ + "attn_q_b", q, latent.q_rank);
    } else {
      linear(block_ + "attn_q", q, spec_.hidden);
    }
    linear(block_ + "attn_kv_a_mqa", std::uint64_t{latent.kv_rank} + latent.rope_dim, spec_.hidden);
    norm(block_ + "attn_kv_a_norm", block_ + "attn_kv_a_norm", latent.kv_rank);
    linear(block_ + "attn_kv_b", std::uint64_t{spec_.heads} * (latent.nope_dim + latent.value_dim), latent.kv_rank);
    linear(block_ + "attn_output", spec_.hidden, std::uint64_t{spec_.heads} * latent.value_dim);
  }

  void add_feed_forward(const std::string& suffix, std::uint64_t width) {
    if (family_.fused_gate_up && suffix.empty()) {
      linear(block_ + "ffn_up", 2 * width, spec_.hidden);
    } else {
      if (family_.gated) linear(block_ + "ffn_gate" + suffix, width, spec_.hidden);
      linear(block_ + "ffn_up" + suffix, width, spec_.hidden);
    }
    linear(block_ + "ffn_down" + suffix, spec_.hidden, width);
  }

  void add_expert_tensors() {
    const std::uint64_t experts = spec_.experts.route.experts, width = spec_.experts.feed_forward;
    linear(block_ + "ffn_gate_inp", experts, spec_.hidden);
    vector(block_ + "exp_probs_b.bias", experts);
    const bool pairs = !read_.has(block_ + "ffn_up_exps.weight") && (read_.has(block_ + "ffn_gate_up_exps.weight") ||
                                                                     read_.has_quantized(block_ + "ffn_gate_up_exps"));
    if (pairs) {
      add_half("ffn_gate_exps", 0);
      add_half("ffn_up_exps", 1);
      if (read_.ok()) {
        add(block_ + "ffn_down_exps.weight",
            read_.stacked_pair(block_ + "ffn_down_stacked_exps", experts, spec_.hidden, width,
                               family_.interleaved_experts),
            {experts, spec_.hidden, width});
      }
      const std::string bias = block_ + "ffn_down_stacked_exps.bias";
      if (read_.ok() && read_.has(bias)) {
        StoredTensor stored = read_.vector(bias, experts * spec_.hidden);
        if (read_.ok()) stored.part = reshape(stored.part, experts, spec_.hidden);
        add(block_ + "ffn_down_exps.bias", std::move(stored), {experts, spec_.hidden});
      }
    } else {
      stacked("ffn_gate_exps", width, spec_.hidden);
      stacked("ffn_up_exps", width, spec_.hidden);
      stacked("ffn_down_exps", spec_.hidden, width);
    }
    if (spec_.experts.shared_feed_forward == 0) return;
    add_feed_forward("_shexp", spec_.experts.shared_feed_forward);
    if (read_.ok() && read_.has(block_ + "ffn_gate_inp_shexp.weight")) {
      add(block_ + "ffn_gate_inp_shexp.weight", read_.matrix(block_ + "ffn_gate_inp_shexp", 1, spec_.hidden),
          {spec_.hidden});
    }
  }

  void stacked(const char* name, std::uint64_t rows, std::uint64_t cols) {
    const std::uint64_t experts = spec_.experts.route.experts;
    if (read_.ok())
      add(block_ + name + ".weight", read_.stacked(block_ + name, experts, rows, cols), {experts, rows, cols});
  }

  // The gate's (0) or the up projection's (1) rows of tensors that hold both for all experts.
  void add_half(const char* name, std::uint64_t which) {
    if (!read_.ok()) return;
    const std::uint64_t experts = spec_.experts.route.experts, width = spec_.experts.feed_forward;
    std::vector<RowRange> order;
    for (std::uint64_t e = 0; e < experts; ++e) {
      order.push_back(family_.interleaved_experts ? RowRange{2 * e * width + which, width, 2}
                                                  : RowRange{(2 * e + which) * width, width});
    }
    StoredTensor weight =
        read_.stacked_pair(block_ + "ffn_gate_up_exps", experts, 2 * width, spec_.hidden, family_.interleaved_experts);
    if (!read_.ok()) return;
    weight.part = pick_rows(weight.part, order);
    add(block_ + name + ".weight", std::move(weight), {experts, width, spec_.hidden});
    const std::string bias_name = block_ + "ffn_gate_up_exps.bias";
    if (!read_.has(bias_name)) return;
    StoredTensor bias = read_.vector(bias_name, experts * 2 * width);
    if (!read_.ok()) return;
    bias.part = reshape(pick_rows(reshape(bias.part, experts * 2 * width, 1), order), experts, width);
    add(block_ + name + ".bias", std::move(bias), {experts, width});
  }

  void add_unread_config() {
    json::Value rest = json::Value::object();
    if (const json::Value* config = checkpoint_.config(); config != nullptr) {
      for (const json::Value::Member& member : config->members())
        if (is_unread_config(member)) rest.members().push_back(member);
    }
    if (!rest.members().empty()) layout_.metadata.set(kConfigKey, MetaValue::from_string(json::write(rest)));
  }

  // A program names the first expert's tensors where each expert has its own.
  static std::string of_first_expert(std::string name) {
    constexpr std::string_view kExperts = ".experts.";
    const std::size_t at = name.find(kExperts);
    if (at == std::string::npos) return name;
    const std::size_t begin = at + kExperts.size(), end = name.find_first_not_of("0123456789", begin);
    if (end != std::string::npos && end != begin) name.replace(begin, end - begin, "0");
    return name;
  }

  // Tensors of the folder that the model does not read.
  Status note_unused() {
    CORBEL_ASSIGN_OR_RETURN(const hal::Program program, build_program(checkpoint_, spec_));
    std::set<std::string, std::less<>> used;
    for (const hal::WeightSpec& weight : program.weights)
      for (const hal::WeightPart& part : weight.parts) used.insert(part.name);
    std::size_t count = 0;
    std::string_view first;
    for (const TensorInfo& tensor : checkpoint_.tensors()) {
      if (used.count(tensor.name) != 0 || used.count(of_first_expert(tensor.name)) != 0) continue;
      if (count++ == 0) first = tensor.name;
    }
    if (count != 0) {
      layout_.notes.push_back(fmt::format("{} tensors that the model does not use are left out, the first is {}", count,
                                          corbel::detail::printable(first, 100)));
    }
    return {};
  }

  // ---- tokenizer and template ------------------------------------

  Status add_tokenizer() {
    const auto text = [&](const char* name) -> Result<std::string> {
      return checkpoint_.has_document(name) ? checkpoint_.document(name) : Result<std::string>(std::string());
    };
    CORBEL_ASSIGN_OR_RETURN(const std::string tokenizer, text("tokenizer.json"));
    CORBEL_ASSIGN_OR_RETURN(const std::string vocab, text("vocab.json"));
    if (tokenizer.empty() && checkpoint_.has_document("tokenizer.json")) {
      return {Errc::kBadJson, "tokenizer.json: the file is empty"};
    }
    if (tokenizer.empty() && vocab.empty()) {
      for (const char* other : {"tokenizer.model", "vocab.txt"}) {
        if (checkpoint_.has_document(other)) {
          layout_.notes.push_back(std::string("the tokenizer is left out: ") + other +
                                  " is not read without tokenizer.json");
        }
      }
      layout_.metadata.set("tokenizer.ggml.model", MetaValue::from_string("no_vocab"));
      return {};
    }
    CORBEL_ASSIGN_OR_RETURN(const std::string config, text("tokenizer_config.json"));
    CORBEL_ASSIGN_OR_RETURN(const std::string special, text("special_tokens_map.json"));
    CORBEL_ASSIGN_OR_RETURN(const std::string generation, text("generation_config.json"));
    CORBEL_ASSIGN_OR_RETURN(const std::string merges, text("merges.txt"));
    TokenizerDocuments documents;
    documents.tokenizer_json = tokenizer;
    documents.tokenizer_config = config;
    documents.special_tokens_map = special;
    documents.generation_config = generation;
    documents.vocab_json = vocab;
    documents.merges_txt = merges;
    return text::PipelineModel::write_metadata(documents, layout_.metadata);
  }

  // One key each; names other than the default's are listed too.
  Status add_chat_templates() {
    CORBEL_ASSIGN_OR_RETURN(const std::vector<NamedTemplate> templates, read_chat_templates(checkpoint_));
    std::vector<std::string> names;
    for (const NamedTemplate& one : templates) {
      std::string name = "tokenizer.chat_template";
      if (one.name != corbel::detail::kDefaultTemplate) {
        name += "." + one.name;
        names.push_back(one.name);
      }
      layout_.metadata.set(name, MetaValue::from_string(one.source));
    }
    if (!names.empty()) layout_.metadata.set("tokenizer.chat_templates", MetaValue::from_strings(names));
    return {};
  }

  // How the authors sample, and what ends a reply. The keys have no do_sample: a temperature of 0 says the same.
  Status add_generation() {
    CORBEL_ASSIGN_OR_RETURN(const GenerationDefaults defaults, read_generation_defaults(checkpoint_));
    layout_.notes.insert(layout_.notes.end(), defaults.ignored.begin(), defaults.ignored.end());
    Metadata& metadata = layout_.metadata;
    const auto value = [&](const char* name, const std::optional<double>& number) {
      if (number) metadata.set(std::string("general.sampling.") + name, MetaValue::from_float(*number));
    };
    value("temp", defaults.do_sample == false ? std::optional<double>(0) : defaults.temperature);
    if (defaults.top_k) {
      const std::uint32_t most = std::numeric_limits<std::int32_t>::max();
      metadata.set("general.sampling.top_k", MetaValue::from_int(std::min(*defaults.top_k, most)));
    }
    value("top_p", defaults.top_p);
    value("min_p", defaults.min_p);
    // The least penalty that float32 has stands for those below it: 0 is none.
    constexpr double kLeast = std::numeric_limits<float>::denorm_min();
    if (defaults.repetition_penalty) value("penalty_repeat", std::max(*defaults.repetition_penalty, kLeast));
    return keep_document(defaults);
  }

  // The folder's own document, and in it what neither it nor the keys say.
  Status keep_document(const GenerationDefaults& defaults) {
    std::string text;
    json::Value kept = json::Value::object();
    if (checkpoint_.has_document("generation_config.json")) {
      CORBEL_ASSIGN_OR_RETURN(text, checkpoint_.document("generation_config.json"));
      CORBEL_ASSIGN_OR_RETURN(kept, checkpoint_.json_document("generation_config.json"));
    }
    bool changed = false;
    const auto keep = [&](const char* key, json::Value value) {
      const json::Value* own = kept.find(key);
      const bool none = own == nullptr || own->is_null() || (own->is_array() && own->items().empty()) ||
                        (own->type() == json::Type::kInt && own->as_int() == -1);
      if (!none) return;
      set_member(kept, key, std::move(value));
      changed = true;
    };
    if (!said_by_key("bos", defaults.bos_id)) keep("bos_token_id", token_or_null(defaults.bos_id));
    const std::optional<std::uint32_t> end =
        defaults.eos_ids.empty() ? std::nullopt : std::optional(defaults.eos_ids.front());
    if (!said_by_key("eos", end) || defaults.eos_ids.size() > 1) {
      keep("eos_token_id", tokens_or_null(defaults.eos_ids));
    }
    if (!said_by_key("padding", defaults.pad_id)) keep("pad_token_id", token_or_null(defaults.pad_id));
    if (defaults.do_sample) keep("do_sample", json::Value::boolean(*defaults.do_sample));
    if (changed) text = json::write(kept) + "\n";
    if (!text.empty()) layout_.metadata.set(kGenerationKey, MetaValue::from_string(text));
    return {};
  }

  // Whether the key of a special token says `id`, which it is given where the tokenizer names none.
  bool said_by_key(const std::string& role, const std::optional<std::uint32_t>& id) {
    if (!id) return true;
    Metadata& metadata = layout_.metadata;
    const std::string name = "tokenizer.ggml." + role + "_token_id";
    const MetaValue* const pieces = metadata.find("tokenizer.ggml.tokens");
    if (metadata.find(name) == nullptr && (pieces == nullptr || *id < pieces->size())) {
      metadata.set(name, MetaValue::from_uint(*id));
    }
    const Result<std::uint64_t> own = metadata.get_uint(name);
    return own.ok() && *own == *id;
  }

  const Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  const Architecture& family_;
  WeightReader read_;
  GgufLayout layout_;
  std::string block_;
};

/// A GGUF file that is not there: its head, small tensors, and zeros for the rest.
class PlannedFile final : public FileReader {
 public:
  static Result<std::shared_ptr<PlannedFile>> make(const GgufLayout& layout) {
    GgufWriter writer;
    writer.metadata() = layout.metadata;
    auto file = std::make_shared<PlannedFile>();
    std::vector<std::uint64_t> sizes;
    for (const GgufTensorPlan& plan : layout.tensors) {
      std::uint64_t elements = 1;
      for (const std::uint64_t extent : plan.shape) elements *= extent;
      CORBEL_RETURN_IF_ERROR(writer.add_tensor(plan.name, plan.shape, 0, [](const WriteSink&) { return Status(); }));
      sizes.push_back(4 * elements);
    }
    CORBEL_ASSIGN_OR_RETURN(file->head_, writer.head_bytes());
    file->size_ = file->head_.size();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const GgufTensorPlan& plan = layout.tensors[i];
      if (plan.name.starts_with("rope_")) {
        std::vector<float> values(plan.shape[0]);
        CORBEL_RETURN_IF_ERROR(plan.rows(0, 1, values.data()));
        std::vector<std::byte> bytes(4 * values.size());
        traits(DType::kF32).encode(values.data(), bytes.data(), values.size());
        file->small_.emplace_back(file->size_, std::move(bytes));
      }
      file->size_ += (sizes[i] + 31) / 32 * 32;
    }
    return file;
  }

  std::uint64_t size() const noexcept override { return size_; }
  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = at(offset + i);
    return out.size();
  }

 private:
  std::byte at(std::uint64_t offset) const noexcept {
    if (offset < head_.size()) return head_[static_cast<std::size_t>(offset)];
    for (const auto& [begin, bytes] : small_) {
      if (offset >= begin && offset - begin < bytes.size()) return bytes[static_cast<std::size_t>(offset - begin)];
    }
    return {};
  }

  std::vector<std::byte> head_;
  std::vector<std::pair<std::uint64_t, std::vector<std::byte>>> small_;
  std::uint64_t size_ = 0;
};

}  // namespace detail

CORBEL_INLINE Result<GgufLayout> plan_gguf_layout(const Checkpoint& checkpoint) {
  return corbel::detail::guard([&]() -> Result<GgufLayout> {
    const auto placed = [&](const Status& status) {
      return status.with_place(corbel::detail::printable(checkpoint.name(), 200));
    };
    const Result<ModelSpec> spec = read_model_spec(checkpoint);
    if (!spec.ok()) return placed(spec.status());
    Result<GgufLayout> layout = detail::LayoutPlanner(checkpoint, *spec).plan();
    if (!layout.ok()) return placed(layout.status());
    // What a reader of the new file would understand must be the same model.
    CORBEL_ASSIGN_OR_RETURN(std::shared_ptr<detail::PlannedFile> file, detail::PlannedFile::make(*layout));
    const Context context;
    const Result<Checkpoint> planned = Checkpoint::from_reader(std::move(file), context, {}, "the planned GGUF file");
    if (!planned.ok()) return planned.status();
    const Result<ModelSpec> written = read_model_spec(*planned);
    if (!written.ok()) return placed(written.status().with_place("as GGUF"));
    const std::string difference = detail::spec_difference(*spec, *written);
    if (!difference.empty()) {
      return placed(Status(Errc::kUnsupported, "GGUF files of this family cannot say " + difference));
    }
    return layout;
  });
}

}  // namespace models
CORBEL_NAMESPACE_END
