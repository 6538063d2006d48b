// The keys of config.json, and the JSON types that it must have under those that families read, whether this family
// reads them or not: a value of another type is a mistake of who wrote the file, and to read over it would be to guess.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

/// A canonical key and what config.json calls it, separated by spaces; a dot leads into an object.
struct KeyNames {
  const char* canonical;
  const char* names;
};
inline constexpr KeyNames kHfKeys[] = {
    {"block_count", "num_hidden_layers n_layer n_layers num_layers"},
    {"context_length", "max_position_embeddings n_positions max_seq_len n_ctx seq_length max_sequence_length"},
    {"embedding_length", "hidden_size n_embd d_model n_embed"},
    {"feed_forward_length", "intermediate_size n_inner ffn_hidden_size ffn_dim"},
    {"attention.head_count", "num_attention_heads n_head n_heads"},
    {"attention.head_count_kv", "num_key_value_heads num_kv_heads n_head_kv attn_config.kv_n_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon norm_eps"},
    {"attention.layer_norm_epsilon", "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon norm_eps"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.sliding_window_pattern", "sliding_window_pattern _sliding_window_pattern"},
    {"attention.scale", "attention_multiplier attn_config.softmax_scale"},
    {"attention.clamp_kqv", "clip_qkv attn_config.clip_qkv"},
    {"attention.max_alibi_bias", "attn_config.alibi_bias_max"},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"attention.kv_lora_rank", "kv_lora_rank"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"logit_scale", "logit_scale logits_scaling"},
    {"vocab_size", "vocab_size"},
    {"expert_count", "num_local_experts num_experts n_routed_experts"},
    {"expert_used_count", "num_experts_per_tok experts_per_token"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"use_parallel_residual", "use_parallel_residual parallel_attn"},
    {"rope.freq_base", "rope_theta rotary_emb_base"},
    {"rope.partial", "partial_rotary_factor rotary_pct rope_pct"},
    {"rope.dimension_count", "rotary_dim"},
};

inline std::string_view hf_names(std::string_view key) {
  for (const KeyNames& entry : kHfKeys)
    if (key == entry.canonical) return entry.names;
  return key;
}

/// The member at a path of keys joined by dots; nullptr where absent or null.
inline const json::Value* find_path(const json::Value& object, std::string_view path) {
  const json::Value* value = &object;
  while (value != nullptr && !path.empty()) {
    const std::size_t end = std::min(path.find('.'), path.size());
    value = value->find(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return value == nullptr || value->is_null() ? nullptr : value;
}

enum class ConfigType : std::uint8_t {
  kInteger,
  kNumber,
  kFlag,
  kText,
  kObject,
  kIntegers,  // a list
  kNumbers,   // a list
  kTexts,     // a list
  kToken,     // one integer or a list of them
  kCounts,    // the same: one for all layers, or one for each
  kPattern,   // an integer, or letters
};

struct ConfigKeys {
  ConfigType type;
  const char* names;  // separated by spaces; a dot leads into an object
};

// As transformers types them, with what published files have besides. null is accepted everywhere: the key is then as
// good as absent.
inline constexpr ConfigKeys kConfigTypes[] = {
    {ConfigType::kInteger,
     "num_hidden_layers n_layer n_layers num_layers max_position_embeddings n_positions max_seq_len n_ctx seq_length "
     "max_sequence_length hidden_size n_embd n_embed d_model head_dim sliding_window q_lora_rank kv_lora_rank "
     "vocab_size "
     "num_local_experts num_experts n_routed_experts num_experts_per_tok experts_per_token moe_intermediate_size "
     "shared_expert_intermediate_size n_shared_experts n_group topk_group first_k_dense_replace rotary_dim "
     "qk_rope_head_dim qk_nope_head_dim v_head_dim max_window_layers decoder_sparse_step moe_layer_freq "
     "no_rope_layer_interval num_kv_heads n_head_kv attn_config.kv_n_heads bos_token_id pad_token_id"},
    {ConfigType::kCounts,
     "intermediate_size n_inner ffn_hidden_size ffn_dim num_attention_heads n_head n_heads num_key_value_heads"},
    {ConfigType::kNumber,
     "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon norm_eps attention_multiplier clip_qkv "
     "attn_logit_softcapping final_logit_softcapping embedding_multiplier residual_multiplier logit_scale "
     "logits_scaling "
     "routed_scaling_factor rope_theta rotary_emb_base rope_local_base_freq partial_rotary_factor rotary_pct rope_pct "
     "query_pre_attn_scalar swiglu_limit expansion_ratio original_max_position_embeddings attn_config.softmax_scale "
     "attn_config.clip_qkv attn_config.alibi_bias_max"},
    {ConfigType::kFlag,
     "tie_word_embeddings attention_bias mlp_bias qkv_bias use_qkv_bias use_bias bias no_bias attention_out_bias "
     "use_sliding_window norm_topk_prob use_parallel_residual parallel_attn new_decoder_architecture multi_query alibi "
     "scale_attn_weights scale_attn_by_inverse_layer_idx apply_residual_connection_post_layernorm qk_layernorm "
     "use_qk_norm use_bidirectional_attention is_causal rope_interleave is_encoder_decoder attn_config.alibi "
     "attn_config.qk_ln attn_config.prefix_lm"},
    {ConfigType::kText,
     "model_type hidden_act hidden_activation activation_function activation scoring_func topk_method torch_dtype "
     "dtype"},
    {ConfigType::kObject,
     "text_config attn_config rope_parameters rope_scaling rope_parameters.full_attention "
     "rope_parameters.sliding_attention quantization_config compression_config"},
    {ConfigType::kIntegers, "mlp_only_layers no_rope_layers"},
    {ConfigType::kTexts, "layer_types architectures"},
    {ConfigType::kToken, "eos_token_id"},
    {ConfigType::kPattern, "sliding_window_pattern _sliding_window_pattern"},
};

// Members of an object that describes a rotary embedding.
inline constexpr ConfigKeys kRopeTypes[] = {
    {ConfigType::kText, "rope_type type"},
    {ConfigType::kNumber,
     "rope_theta factor original_max_position_embeddings attention_factor beta_fast beta_slow mscale mscale_all_dim "
     "low_freq_factor high_freq_factor alpha llama_4_scaling_beta partial_rotary_factor"},
    {ConfigType::kFlag, "truncate"},
    {ConfigType::kNumbers, "short_factor long_factor"},
};
inline constexpr const char* kRopePlaces[] = {"rope_parameters.", "rope_parameters.full_attention.",
                                              "rope_parameters.sliding_attention.", "rope_scaling."};

/// What the type asks for; nullptr where `value` is it.
inline const char* wrong_type(ConfigType type, const json::Value& value) noexcept {
  const auto all = [&](auto is) {
    return value.is_array() && std::all_of(value.items().begin(), value.items().end(), is);
  };
  const auto integer = [](const json::Value& item) { return item.is_integer(); };
  switch (type) {
    case ConfigType::kInteger:
      return value.is_integer() ? nullptr : "an integer";
    case ConfigType::kNumber:
      return value.is_number() ? nullptr : "a number";
    case ConfigType::kFlag:
      return value.type() == json::Type::kBool ? nullptr : "true or false";
    case ConfigType::kText:
      return value.is_string() ? nullptr : "a string";
    case ConfigType::kObject:
      return value.is_object() ? nullptr : "an object";
    case ConfigType::kIntegers:
      return all(integer) ? nullptr : "an array of integers";
    case ConfigType::kNumbers:
      return all([](const json::Value& item) { return item.is_number(); }) ? nullptr : "an array of numbers";
    case ConfigType::kTexts:
      return all([](const json::Value& item) { return item.is_string(); }) ? nullptr : "an array of strings";
    case ConfigType::kToken:
    case ConfigType::kCounts:
      return value.is_integer() || all(integer) ? nullptr : "an integer or an array of integers";
    case ConfigType::kPattern:
      return value.is_integer() || value.is_string() ? nullptr : "an integer or a string";
      return value.type() == json::Type::kBool || all(integer) ? nullptr : "true, false or an array of integers";
  }
  return nullptr;
}

/// Calls use(type, path) for each path of a key that is known.
template <class Use>
void each_config_key(const Use& use) {
  const auto each = [&](const ConfigKeys& keys, const char* place) {
    for (std::string_view rest = keys.names; !rest.empty();) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      use(keys.type, std::string(place) + std::string(rest.substr(0, end)));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  };
  for (const ConfigKeys& keys : kConfigTypes) each(keys, "");
  for (const char* place : kRopePlaces)
    for (const ConfigKeys& keys : kRopeTypes) each(keys, place);
}

/// Whether a member of config.json says nothing that is read of it, so that it can go along unread. What would run code
/// or describe other parts never does, nor how to sample, which goes another way.
inline bool is_unread_config(const json::Value::Member& member) {
  if (member.second.is_object() || member.second.is_null()) return false;
  for (const char* other : {"trust_remote_code", "auto_map", "_name_or_path", "temperature", "top_k", "top_p", "min_p",
                            "do_sample", "repetition_penalty"}) {
    if (member.first == other) return false;
  }
  bool known = false;
  each_config_key([&](ConfigType, const std::string& path) { known = known || path == member.first; });
  return !known;
}

/// kTypeMismatch names the JSON path. `place` stands before it.
inline Status check_config_types(const json::Value& config, std::string_view place) {
  Status status;
  each_config_key([&](ConfigType type, const std::string& path) {
    const json::Value* value = status.ok() ? find_path(config, path) : nullptr;
    const char* const wanted = value != nullptr ? wrong_type(type, *value) : nullptr;
    if (wanted != nullptr) status = Status(Errc::kTypeMismatch, fmt::format("{}{}: expected {}", place, path, wanted));
  });
  return status;
}

/// The same of config.json, with what it says of the model inside a model that also sees or hears.
inline Status check_config_types(const json::Value& config) {
  CORBEL_RETURN_IF_ERROR(check_config_types(config, "config.json: "));
  const json::Value* text = find_path(config, "text_config");
  return text != nullptr ? check_config_types(*text, "config.json: text_config.") : Status();
}

}  // namespace detail
}  // namespace models
CORBEL_NAMESPACE_END
