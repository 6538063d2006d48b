// config.json of a folder that is made from a GGUF file, by the keys of its family's row.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/json.hpp>
#include <corbel/impl/models/config_types.ipp>
#include <corbel/impl/models/layout_common.ipp>
#include <corbel/models/architecture.hpp>
#include <corbel/models/key_reader.hpp>
#include <corbel/models/model_spec.hpp>
#include <corbel/models/rope_table.hpp>

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

class FolderConfig {
 public:
  FolderConfig(const Checkpoint& checkpoint, const ModelSpec& spec, const Architecture& family,
               const GenerationDefaults& generation)
      : checkpoint_(checkpoint),
        spec_(spec),
        family_(family),
        generation_(generation),
        keys_(checkpoint, spec.architecture->gguf) {}

  /// The object; the errors of reading keys and the tensors of rope factors.
  Result<json::Value> make() {
    add_config();
    if (!keys_.ok()) return keys_.status();
    if (!status_.ok()) return status_;
    CORBEL_RETURN_IF_ERROR(add_unread());
    return std::move(config_);
  }

 private:
  // What the config.json that the file was made from had besides.
  Status add_unread() {
    CORBEL_ASSIGN_OR_RETURN(const std::string_view text, checkpoint_.metadata().get_string_or(kConfigKey, "{}"));
    const Result<json::Value> rest = json::parse(text);
    if (!rest.ok()) return rest.status().with_place(std::string("metadata key \"") + kConfigKey + "\"");
    for (const json::Value::Member& member : rest->members())
      if (is_unread_config(member) && config_.find(member.first) == nullptr) config_.members().push_back(member);
    return {};
  }

  bool has(const char* tensor) const noexcept { return checkpoint_.find_tensor(tensor) != nullptr; }

  // What the family calls a key of config.json: empty where it has none.
  struct OwnKey {
    bool listed = false;  // Architecture::config_keys speaks of it
    std::string_view name;
  };
  OwnKey own_key(std::string_view usual) const {
    for (std::string_view rest = family_.config_keys; !rest.empty();) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      const std::string_view entry = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const std::size_t equals = std::min(entry.find('='), entry.size());
      if (entry.substr(0, equals) != usual) continue;
      return {true, equals == entry.size() ? usual : entry.substr(equals + 1)};
    }
    return {false, usual};
  }
  /// Whether the family has a key that only some have.
  bool listed(std::string_view key) const { return own_key(key).listed; }
  void put(const char* key, json::Value value) {
    std::string_view path = own_key(key).name;
    if (path.empty()) return;
    json::Value* object = &config_;
    for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
      auto& members = object->members();
      auto inner = std::find_if(members.begin(), members.end(),
                                [&](const auto& member) { return member.first == path.substr(0, dot); });
      if (inner == members.end()) {
        members.emplace_back(std::string(path.substr(0, dot)), json::Value::object());
        inner = members.end() - 1;
      }
      object = &inner->second;
      path.remove_prefix(dot + 1);
    }
    object->members().emplace_back(std::string(path), std::move(value));
  }
  void count(const char* key, std::uint64_t value) { put(key, json::Value::unsigned_integer(value)); }
  void number(const char* key, double value) { put(key, json::Value::number(value)); }
  void flag(const char* key, bool value) { put(key, json::Value::boolean(value)); }
  void text(const char* key, const char* value) { put(key, json::Value::string(value)); }
  void add_config() {
    config_ = json::Value::object();
    json::Value classes = json::Value::array();
    classes.items().push_back(json::Value::string(family_.causal_class));
    put("architectures", std::move(classes));
    text("model_type", family_.name);
    count("vocab_size", spec_.vocab);
    count("hidden_size", spec_.hidden);
    count("intermediate_size", spec_.feed_forward);
    if (listed("expansion_ratio")) count("expansion_ratio", spec_.feed_forward / spec_.hidden);
    count("num_hidden_layers", spec_.layers.size());
    count("num_attention_heads", spec_.heads);
    count("num_key_value_heads", family_.mixer == MixerKind::kLatentAttention ? spec_.heads : spec_.kv_heads);
    count("head_dim", spec_.head_dim);
    count("max_position_embeddings", spec_.context_length);
    number(family_.norm == hal::NormKind::kRms ? "rms_norm_eps" : "layer_norm_eps", plain(spec_.norm_epsilon));
    flag("tie_word_embeddings", spec_.tied_head);
    add_switches();
    add_rope();
    add_windows();
    add_scales();
    add_experts();
    if (family_.mixer == MixerKind::kLatentAttention) add_latent();
    text("torch_dtype", "float32");
    // Where they are left out, a family's defaults hold, which other vocabularies were made for.
    put("bos_token_id", token_or_null(generation_.bos_id));
    put("eos_token_id", tokens_or_null(generation_.eos_ids));
    put("pad_token_id", token_or_null(generation_.pad_id));
  }

  void add_switches() {
    const char* activation = "silu";
    switch (spec_.activation) {
      case hal::ActivationKind::kGelu:
        activation = "gelu";
        break;
      case hal::ActivationKind::kGeluTanh:
        activation = "gelu_pytorch_tanh";
        break;
      case hal::ActivationKind::kGeluQuick:
        activation = "quick_gelu";
        break;
      case hal::ActivationKind::kRelu:
        activation = "relu";
        break;
      case hal::ActivationKind::kReluSquared:
        activation = "relu2";
        break;
      default:
        break;
    }
    text("hidden_act", activation);
    const bool biased = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias") || has("blk.0.attn_kv_a_mqa.bias");
    flag("attention_bias", biased);
    flag("mlp_bias", has("blk.0.ffn_up.bias"));
    const bool qk_norm = has("blk.0.attn_q_norm.weight"), two_norms = has("blk.0.attn_norm_2.weight");
    // Where one head of keys and values serves all queries, or all have their own, the older decoder says it too.
    const bool newer = two_norms || (spec_.kv_heads != 1 && spec_.kv_heads != spec_.heads);
    const std::pair<const char*, bool> flags[] = {
        {"no_bias", !biased && !has("blk.0.ffn_up.bias")},
        {"attention_out_bias", has("blk.0.attn_output.bias")},
        {"use_qk_norm", qk_norm},
        {"qk_layernorm", qk_norm},
        {"use_parallel_residual", spec_.parallel},
        {"multi_query", spec_.kv_heads == 1 && !newer},
        {"new_decoder_architecture", newer},
        {"alibi", !spec_.slopes.empty()},
    };
    for (const auto& [key, value] : flags)
      if (listed(key) && (family_.multi_query || key != std::string_view("multi_query"))) flag(key, value);
    if (newer && listed("num_ln_in_parallel_attn")) count("num_ln_in_parallel_attn", two_norms ? 2 : 1);
    if (listed("alibi_bias_max")) {
      const double bias = keys_.number_or("attention.max_alibi_bias", 8, 0, 1e4);
      // The family's configuration takes whole numbers only.
      count("alibi_bias_max", static_cast<std::uint64_t>(std::llround(bias)));
    }
    if (listed("swiglu_limit")) number("swiglu_limit", plain(spec_.gate_limit));
    if (spec_.qkv_clamp != 0) number("clip_qkv", plain(spec_.qkv_clamp));
  }

  void add_rope() {
    if (spec_.ropes.empty()) return;
    RopeScaling scaling = read_rope_scaling(keys_, family_.rope_base, "full_attention");
    number("rope_theta", scaling.base);
    if (spec_.rotary_dim != spec_.head_dim || family_.rotary_part != 1.0f) {
      const double part = static_cast<double>(spec_.rotary_dim) / static_cast<double>(spec_.head_dim);
      number("partial_rotary_factor", part);
    }
    if (listed("rotary_dim")) count("rotary_dim", spec_.rotary_dim);
    if (spec_.ropes.size() > 1) {
      const double base = keys_.number_or("rope.freq_base_swa", family_.window_rope_base, 0, 1e12);
      number("rope_local_base_freq", base);
    }
    if (family_.no_rope_every != 0) {
      json::Value list = json::Value::array();
      for (const LayerSpec& layer : spec_.layers)
        list.items().push_back(json::Value::unsigned_integer(layer.rope == kNoRope ? 0 : 1));
      put("no_rope_layers", std::move(list));
    }
    scaling.short_factors = factors("rope_factors_short.weight");
    scaling.long_factors = factors("rope_factors_long.weight");
    if (!scaling.short_factors.empty()) scaling.type = "longrope";
    if (has("rope_freqs.weight")) find_llama3(scaling);
    add_scaling(scaling);
  }

  std::vector<double> factors(const char* name) {
    const TensorInfo* tensor = checkpoint_.find_tensor(name);
    if (tensor == nullptr) return {};
    const Result<std::vector<float>> values = checkpoint_.read_f32(*tensor);
    if (!values.ok() && status_.ok()) status_ = values.status();
    std::vector<double> result;
    if (values.ok())
      for (const float value : *values) result.push_back(plain(value));
    return result;
  }

  // Llama 3 divides long wavelengths by a factor and blends up to it; the file has the quotients alone. Where the usual
  // ends of the blend do not give them, longrope says them one by one.
  void find_llama3(RopeScaling& scaling) {
    const std::vector<double> divisors = factors("rope_freqs.weight");
    if (divisors.empty()) return;
    scaling.type = "llama3";
    scaling.factor = *std::max_element(divisors.begin(), divisors.end());
    scaling.factor = std::round(scaling.factor * 1e4) / 1e4;
    scaling.low_factor = 1;
    scaling.high_factor = 4;
    double sum = 0;
    std::size_t blended = 0;
    constexpr double kTwoPi = 6.28318530717958647693;
    for (std::size_t i = 0; i < divisors.size(); ++i) {
      if (divisors[i] < 1.001 || divisors[i] > scaling.factor * 0.999) continue;
      const double wavelength =
          kTwoPi * std::pow(scaling.base, 2.0 * static_cast<double>(i) / static_cast<double>(spec_.rotary_dim));
      const double smooth = (1 / divisors[i] - 1 / scaling.factor) / (1 - 1 / scaling.factor);
      sum += wavelength * (smooth * (scaling.high_factor - scaling.low_factor) + scaling.low_factor);
      ++blended;
    }
    scaling.original = blended != 0 ? std::round(sum / static_cast<double>(blended)) : 8192;
    const RopeTable guess = make_rope_table(keys_, scaling, spec_.rotary_dim, spec_.context_length, {});
    const std::vector<float>& wanted = spec_.ropes[0].inverse_frequencies;
    if (std::equal(wanted.begin(), wanted.end(), guess.inverse_frequencies.begin(), guess.inverse_frequencies.end(),
                   close_enough))
      return;
    scaling.type = "longrope";
    scaling.short_factors = scaling.long_factors = divisors;
    scaling.attention_factor = 1;
    scaling.original = static_cast<double>(spec_.context_length);
  }

  void add_scaling(const RopeScaling& scaling) {
    json::Value object = json::Value::object();
    if (scaling.type == "none") {
      // Where a family's configuration scales unless it says otherwise.
      object.members().emplace_back("rope_type", json::Value::string("default"));
      if (listed("rope_scaling")) put("rope_scaling", std::move(object));
      return;
    }
    const auto put_number = [&](const char* key, double value) {
      object.members().emplace_back(key, json::Value::number(value));
    };
    const auto put_list = [&](const char* key, const std::vector<double>& values) {
      json::Value list = json::Value::array();
      for (const double value : values) list.items().push_back(json::Value::number(value));
      object.members().emplace_back(key, std::move(list));
    };
    object.members().emplace_back("rope_type", json::Value::string(scaling.type));
    if (scaling.type != "longrope") put_number("factor", scaling.factor);
    if (scaling.original != 0) {
      object.members().emplace_back("original_max_position_embeddings",
                                    json::Value::unsigned_integer(static_cast<std::uint64_t>(scaling.original)));
    }
    if (scaling.attention_factor != 0) put_number("attention_factor", scaling.attention_factor);
    if (scaling.type == "yarn") {
      put_number("beta_fast", scaling.beta_fast);
      put_number("beta_slow", scaling.beta_slow);
      if (scaling.mscale > 0) put_number("mscale", scaling.mscale);
      if (scaling.mscale_all_dim > 0) put_number("mscale_all_dim", scaling.mscale_all_dim);
    }
    if (scaling.type == "llama3") {
      put_number("low_freq_factor", scaling.low_factor);
      put_number("high_freq_factor", scaling.high_factor);
    }
    if (scaling.type == "longrope") {
      put_list("short_factor", scaling.short_factors);
      put_list("long_factor", scaling.long_factors);
      if (scaling.original != 0)
        count("original_max_position_embeddings", static_cast<std::uint64_t>(scaling.original));
    }
    if (scaling.temperature > 0) put_number("llama_4_scaling_beta", scaling.temperature);
    put("rope_scaling", std::move(object));
  }

  void add_windows() {
    std::uint32_t window = 0;
    for (const LayerSpec& layer : spec_.layers) window = std::max(window, layer.window);
    const bool by_flag =
        family_.windows != Windows::kNone && family_.windows != Windows::kAll && family_.windows != Windows::kPattern;
    if (by_flag) flag("use_sliding_window", window != 0);
    if (window == 0) {
      if (family_.windows != Windows::kNone) put("sliding_window", json::Value::null());
      return;
    }
    count("sliding_window", window);
    json::Value types = json::Value::array();
    for (const LayerSpec& layer : spec_.layers)
      types.items().push_back(json::Value::string(layer.window != 0 ? "sliding_attention" : "full_attention"));
    put("layer_types", std::move(types));
  }

  void add_scales() {
    // Where such a family's config.json has none, the family's own hold.
    for (const auto& [key, cap] : {std::pair("attn_logit_softcapping", spec_.attention_softcap),
                                   std::pair("final_logit_softcapping", spec_.logit_softcap)}) {
      if (cap != 0) {
        number(key, plain(cap));
      } else if (listed(key)) {
        put(key, json::Value::null());
      }
    }
    if (listed("query_pre_attn_scalar")) {
      const double scalar = 1.0 / (double{spec_.attention_scale} * double{spec_.attention_scale});
      // The family's configuration takes whole numbers only.
      count("query_pre_attn_scalar", static_cast<std::uint64_t>(std::llround(scalar)));
    }
    for (const auto& [canonical, key] :
         {std::pair("attention.scale", "attention_multiplier"), std::pair("embedding_scale", "embedding_multiplier"),
          std::pair("residual_scale", "residual_multiplier")}) {
      if (keys_.has(canonical)) number(key, plain(static_cast<float>(keys_.number(canonical, 0, 1e9))));
    }
    if (keys_.has("logit_scale")) {
      number("logit_scale", plain(static_cast<float>(keys_.number("logit_scale", 0, 1e9))));
    }
  }

  void add_experts() {
    const ExpertSpec& experts = spec_.experts;
    if (experts.route.experts == 0) return;
    count("num_experts", experts.route.experts);
    count("num_experts_per_tok", experts.route.top_k);
    count("moe_intermediate_size", experts.feed_forward);
    if (experts.shared_feed_forward != 0) count("shared_expert_intermediate_size", experts.shared_feed_forward);
    if (listed("n_shared_experts")) count("n_shared_experts", experts.shared_feed_forward / experts.feed_forward);
    flag("norm_topk_prob", experts.route.normalize);
    const bool sigmoid = experts.route.score == hal::ScoreKind::kSigmoid;
    if (listed("scoring_func")) text("scoring_func", sigmoid ? "sigmoid" : "softmax");
    if (listed("routed_scaling_factor")) number("routed_scaling_factor", plain(experts.route.scale));
    if (listed("n_group")) {
      const std::uint32_t groups = std::max(1u, experts.route.groups);
      count("n_group", groups);
      count("topk_group", groups == 1 ? 1 : experts.route.top_groups);
      if (listed("topk_method"))
        text("topk_method", sigmoid ? "noaux_tc" : groups > 1 ? "group_limited_greedy" : "greedy");
    }
    if (listed("first_k_dense_replace")) {
      const auto sparse =
          std::find_if(spec_.layers.begin(), spec_.layers.end(), [](const LayerSpec& l) { return l.sparse; });
      count("first_k_dense_replace", static_cast<std::uint64_t>(sparse - spec_.layers.begin()));
    }
    json::Value dense = json::Value::array();
    for (std::size_t i = 0; i < spec_.layers.size(); ++i)
      if (!spec_.layers[i].sparse) dense.items().push_back(json::Value::unsigned_integer(i));
    if (!dense.items().empty()) put("mlp_only_layers", std::move(dense));
  }

  void add_latent() {
    const LatentSpec& latent = spec_.latent;
    put("q_lora_rank", latent.q_rank != 0 ? json::Value::unsigned_integer(latent.q_rank) : json::Value::null());
    count("kv_lora_rank", latent.kv_rank);
    count("qk_nope_head_dim", latent.nope_dim);
    count("qk_rope_head_dim", latent.rope_dim);
    count("v_head_dim", latent.value_dim);
  }

  const Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  const Architecture& family_;
  const GenerationDefaults& generation_;
  KeyReader keys_;
  Status status_;
  json::Value config_;
};

}  // namespace detail
}  // namespace models
CORBEL_NAMESPACE_END
