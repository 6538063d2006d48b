// Definitions of models/architecture.hpp: the table.
#pragma once

#include <corbel/models/architecture.hpp>

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

using Rule = TensorNames::Rule;

// ---- names -------------------------------------------------------

inline constexpr Rule kLlamaRules[] = {
    {"token_embd", "embed_tokens"},
    {"output_norm", "norm"},
    {"output", "lm_head"},
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"attn_q_a", "self_attn.q_a_proj"},
    {"attn_q_a_norm", "self_attn.q_a_layernorm"},
    {"attn_q_b", "self_attn.q_b_proj"},
    {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
    {"attn_kv_b", "self_attn.kv_b_proj"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"ffn_gate_exps", "mlp.experts.{}.gate_proj"},
    {"ffn_up_exps", "mlp.experts.{}.up_proj"},
    {"ffn_down_exps", "mlp.experts.{}.down_proj"},
    {"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"},
    {"ffn_gate_up_exps.bias", "mlp.experts.gate_up_proj_bias"},
    {"ffn_down_stacked_exps.weight", "mlp.experts.down_proj"},
    {"ffn_down_stacked_exps.bias", "mlp.experts.down_proj_bias"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};
inline constexpr TensorNames kLlamaNames = {"model.", "layers.", kLlamaRules, nullptr};

inline constexpr Rule kSandwichRules[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};
inline constexpr TensorNames kSandwichNames = {"model.", "layers.", kSandwichRules, &kLlamaNames};

inline constexpr Rule kPhi3Rules[] = {{"ffn_up", "mlp.gate_up_proj"}};
inline constexpr TensorNames kPhi3Names = {"model.", "layers.", kPhi3Rules, &kLlamaNames};

inline constexpr Rule kGlm4Rules[] = {
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
};
inline constexpr TensorNames kGlm4Names = {"model.", "layers.", kGlm4Rules, &kPhi3Names};

inline constexpr Rule kMixtralRules[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},           {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.{}.w1"}, {"ffn_up_exps", "block_sparse_moe.experts.{}.w3"},
    {"ffn_down_exps", "block_sparse_moe.experts.{}.w2"},
};
inline constexpr TensorNames kMixtralNames = {"model.", "layers.", kMixtralRules, &kLlamaNames};

inline constexpr Rule kQwen2MoeRules[] = {
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
};
inline constexpr TensorNames kQwen2MoeNames = {"model.", "layers.", kQwen2MoeRules, &kLlamaNames};

inline constexpr Rule kGraniteMoeRules[] = {
    {"ffn_gate_inp", "block_sparse_moe.router.layer"},
    {"ffn_gate_up_exps.weight", "block_sparse_moe.input_linear.weight"},
    {"ffn_down_stacked_exps.weight", "block_sparse_moe.output_linear.weight"},
    {"ffn_gate_inp", "block_sparse_moe.router"},
    {"ffn_gate_up_exps.weight", "block_sparse_moe.experts.gate_up_proj"},
    {"ffn_down_stacked_exps.weight", "block_sparse_moe.experts.down_proj"},
};
inline constexpr TensorNames kGraniteMoeNames = {"model.", "layers.", kGraniteMoeRules, &kLlamaNames};

inline constexpr Rule kGptOssRules[] = {{"ffn_gate_inp", "mlp.router"}};
inline constexpr TensorNames kGptOssNames = {"model.", "layers.", kGptOssRules, &kLlamaNames};

inline constexpr Rule kHunyuanRules[] = {
    {"attn_q_norm", "self_attn.query_layernorm"},
    {"attn_k_norm", "self_attn.key_layernorm"},
};
inline constexpr TensorNames kHunyuanNames = {"model.", "layers.", kHunyuanRules, &kLlamaNames};

inline constexpr Rule kStableLmRules[] = {
    {"attn_q_norm", "self_attn.q_layernorm.norms.{}"},
    {"attn_k_norm", "self_attn.k_layernorm.norms.{}"},
};
inline constexpr TensorNames kStableLmNames = {"model.", "layers.", kStableLmRules, &kLlamaNames};

inline constexpr Rule kStarcoder2Rules[] = {{"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}};
inline constexpr TensorNames kStarcoder2Names = {"model.", "layers.", kStarcoder2Rules, &kLlamaNames};

inline constexpr Rule kPhiRules[] = {
    {"output_norm", "final_layernorm"},
    {"attn_output", "self_attn.dense"},
    {"attn_q_norm", "self_attn.q_layernorm"},
    {"attn_k_norm", "self_attn.k_layernorm"},
    {"ffn_up", "mlp.fc1"},
    {"ffn_down", "mlp.fc2"},
};
inline constexpr TensorNames kPhiNames = {"model.", "layers.", kPhiRules, &kLlamaNames};

inline constexpr Rule kGpt2Rules[] = {
    {"token_embd", "wte"},  {"position_embd", "wpe"},    {"output_norm", "ln_f"},        {"output", "lm_head"},
    {"attn_norm", "ln_1"},  {"attn_qkv", "attn.c_attn"}, {"attn_output", "attn.c_proj"}, {"ffn_norm", "ln_2"},
    {"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"},
};
inline constexpr TensorNames kGpt2Names = {"transformer.", "h.", kGpt2Rules, nullptr};

inline constexpr Rule kGptJRules[] = {
    {"token_embd", "wte"},     {"output_norm", "ln_f"},    {"output", "lm_head"},     {"attn_norm", "ln_1"},
    {"attn_q", "attn.q_proj"}, {"attn_k", "attn.k_proj"},  {"attn_v", "attn.v_proj"}, {"attn_output", "attn.out_proj"},
    {"ffn_up", "mlp.fc_in"},   {"ffn_down", "mlp.fc_out"},
};
inline constexpr TensorNames kGptJNames = {"transformer.", "h.", kGptJRules, nullptr};

inline constexpr Rule kGptNeoxRules[] = {
    {"token_embd", "embed_in"},
    {"output_norm", "final_layer_norm"},
    {"output", "embed_out"},
    {"output", "lm_head"},
    {"attn_norm", "input_layernorm"},
    {"attn_qkv", "attention.query_key_value"},
    {"attn_output", "attention.dense"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.dense_h_to_4h"},
    {"ffn_down", "mlp.dense_4h_to_h"},
};
inline constexpr TensorNames kGptNeoxNames = {"gpt_neox.", "layers.", kGptNeoxRules, nullptr};

inline constexpr Rule kBloomRules[] = {
    {"token_embd", "word_embeddings"},
    {"token_embd_norm", "word_embeddings_layernorm"},
    {"output_norm", "ln_f"},
    {"output", "lm_head"},
    {"attn_norm", "input_layernorm"},
    {"attn_qkv", "self_attention.query_key_value"},
    {"attn_output", "self_attention.dense"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.dense_h_to_4h"},
    {"ffn_down", "mlp.dense_4h_to_h"},
};
inline constexpr TensorNames kBloomNames = {"transformer.", "h.", kBloomRules, nullptr};

// Falcon with two norms calls that of the feed-forward ln_mlp; GGUF files call it attn_norm, and attention's
// attn_norm_2.
inline constexpr Rule kFalconRules[] = {
    {"attn_norm", "ln_mlp"},
    {"attn_norm_2", "ln_attn"},
    {"attn_norm_only", "input_layernorm"},
};
inline constexpr TensorNames kFalconNames = {"transformer.", "h.", kFalconRules, &kBloomNames};

inline constexpr Rule kMptRules[] = {
    {"token_embd", "wte"},        {"position_embd", "wpe"},     {"output_norm", "norm_f"},
    {"output", "lm_head"},        {"attn_norm", "norm_1"},      {"attn_qkv", "attn.Wqkv"},
    {"attn_q_norm", "attn.q_ln"}, {"attn_k_norm", "attn.k_ln"}, {"attn_output", "attn.out_proj"},
    {"ffn_norm", "norm_2"},       {"ffn_up", "ffn.up_proj"},    {"ffn_down", "ffn.down_proj"},
};
inline constexpr TensorNames kMptNames = {"transformer.", "blocks.", kMptRules, nullptr};

// ---- keys of config.json that several families share -------------

inline constexpr char kGptKeys[] =
    "hidden_size=n_embd num_hidden_layers=n_layer num_attention_heads=n_head max_position_embeddings=n_positions "
    "intermediate_size=n_inner hidden_act=activation_function layer_norm_eps=layer_norm_epsilon num_key_value_heads= "
    "head_dim= attention_bias= mlp_bias= rope_theta= partial_rotary_factor= rotary_dim multi_query";
inline constexpr char kDeepseekKeys[] =
    "num_experts=n_routed_experts n_shared_experts shared_expert_intermediate_size= mlp_only_layers= "
    "first_k_dense_replace routed_scaling_factor n_group topk_method scoring_func head_dim= partial_rotary_factor= "
    "mlp_bias=";

}  // namespace detail

// ---- rows --------------------------------------------------------

CORBEL_INLINE std::span<const Architecture> architectures() noexcept {
  using namespace detail;
  using hal::ActivationKind;
  constexpr hal::NormKind kLayerNorm = hal::NormKind::kLayer;
  static constexpr Architecture kRows[] = {
      {.name = "llama",
       .gguf = "llama",
       .causal_class = "LlamaForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6})",
       .names = &kLlamaNames,
       .rope = RopePairs::kPermuted,
       .normalize_experts = true},
      {.name = "mistral",
       .gguf = "llama",
       .causal_class = "MistralForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "num_key_value_heads": 8, "sliding_window": 4096,
                     "max_position_embeddings": 131072})",
       .names = &kLlamaNames,
       .rope = RopePairs::kPermuted,
       .windows = Windows::kAll},
      {.name = "mixtral",
       .gguf = "llama",
       .causal_class = "MixtralForCausalLM",
       .defaults = R"({"num_key_value_heads": 8, "num_experts_per_tok": 2,
                     "max_position_embeddings": 131072})",
       .config_keys = "num_experts=num_local_experts intermediate_size= moe_intermediate_size=intermediate_size "
                      "norm_topk_prob=",
       .names = &kMixtralNames,
       .rope = RopePairs::kPermuted,
       .rope_base = 1e6,
       .windows = Windows::kAll,
       .normalize_experts = true},
      {.name = "ministral3",
       .gguf = "mistral3",
       .causal_class = "Ministral3ForCausalLM",
       .aliases = "mistral3",
       .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144})",
       .names = &kLlamaNames,
       .rope = RopePairs::kPermuted,
       .windows = Windows::kAll},
      {.name = "ministral",
       .gguf = "llama",
       .causal_class = "MinistralForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "num_key_value_heads": 8, "sliding_window": 4096,
                     "max_position_embeddings": 131072})",
       .names = &kLlamaNames,
       .rope = RopePairs::kPermuted,
       .windows = Windows::kAll},
      {.name = "arcee",
       .gguf = "arcee",
       .causal_class = "ArceeForCausalLM",
       .defaults = R"({"max_position_embeddings": 4096})",
       .names = &kLlamaNames,
       .rope = RopePairs::kPermuted,
       .activation = ActivationKind::kReluSquared,
       .gated = false},
      {.name = "qwen2",
       .gguf = "qwen2",
       .causal_class = "Qwen2ForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "sliding_window": 4096, "max_window_layers": 28,
                     "max_position_embeddings": 32768})",
       .names = &kLlamaNames,
       .windows = Windows::kFrom},
      {.name = "qwen2_moe",
       .gguf = "qwen2moe",
       .causal_class = "Qwen2MoeForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "sliding_window": 4096, "max_window_layers": 28,
                     "num_experts_per_tok": 4, "max_position_embeddings": 32768})",
       .config_keys = "attention_bias=qkv_bias mlp_bias=",
       .names = &kQwen2MoeNames,
       .windows = Windows::kEven},
      {.name = "qwen3",
       .gguf = "qwen3",
       .causal_class = "Qwen3ForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "head_dim": 128, "sliding_window": 4096,
                     "max_window_layers": 28, "max_position_embeddings": 32768})",
       .names = &kLlamaNames,
       .windows = Windows::kFrom},
      {.name = "qwen3_moe",
       .gguf = "qwen3moe",
       .causal_class = "Qwen3MoeForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "num_key_value_heads": 4, "sliding_window": 4096,
                     "norm_topk_prob": false, "num_experts_per_tok": 8,
                     "max_position_embeddings": 32768})",
       .names = &kLlamaNames,
       .windows = Windows::kSwitched,
       .normalize_experts = true},
      {.name = "gemma",
       .gguf = "gemma",
       .causal_class = "GemmaForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "head_dim": 256, "max_position_embeddings": 8192})",
       .names = &kLlamaNames,
       .norm_plus_one = true,
       .activation = ActivationKind::kGeluTanh,
       .gelu_is_tanh = true,
       .scaled_embedding = true},
      {.name = "gemma2",
       .gguf = "gemma2",
       .causal_class = "Gemma2ForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "num_key_value_heads": 4, "head_dim": 256,
                     "query_pre_attn_scalar": 256, "sliding_window": 4096,
                     "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                     "max_position_embeddings": 8192})",
       .config_keys = "hidden_act=hidden_activation query_pre_attn_scalar attn_logit_softcapping "
                      "final_logit_softcapping",
       .names = &kSandwichNames,
       .norm_place = NormPlace::kSandwich,
       .norm_plus_one = true,
       .activation = ActivationKind::kGeluTanh,
       .activation_keys = "hidden_activation",
       .windows = Windows::kPattern,
       .window_pattern = 2,
       .scaled_embedding = true},
      {.name = "gemma3_text",
       .gguf = "gemma3",
       .causal_class = "Gemma3ForCausalLM",
       .aliases = "gemma3",
       .defaults = R"({"rms_norm_eps": 1e-6, "num_attention_heads": 8, "num_key_value_heads": 4,
                     "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096,
                     "max_position_embeddings": 131072})",
       .config_keys = "hidden_act=hidden_activation query_pre_attn_scalar attn_logit_softcapping "
                      "final_logit_softcapping",
       .names = &kSandwichNames,
       .rope_base = 1e6,
       .window_rope_base = 10000,
       .norm_place = NormPlace::kSandwich,
       .norm_plus_one = true,
       .activation = ActivationKind::kGeluTanh,
       .activation_keys = "hidden_activation",
       .windows = Windows::kPattern,
       .window_pattern = 6,
       .scaled_embedding = true},
      {.name = "phi",
       .gguf = "phi2",
       .causal_class = "PhiForCausalLM",
       .config_keys = "qk_layernorm",
       .names = &kPhiNames,
       .rotary_part = 0.5f,
       .norm = kLayerNorm,
       .parallel = true,
       .activation = ActivationKind::kGeluTanh,
       .gated = false},
      {.name = "phi3",
       .gguf = "phi3",
       .causal_class = "Phi3ForCausalLM",
       .defaults = R"({"max_position_embeddings": 4096})",
       .names = &kPhi3Names,
       .fused_gate_up = true,
       .windows = Windows::kAll},
      {.name = "gpt2",
       .gguf = "gpt2",
       .causal_class = "GPT2LMHeadModel",
       .config_keys = kGptKeys,
       .names = &kGpt2Names,
       .rope = RopePairs::kNone,
       .norm = kLayerNorm,
       .activation = ActivationKind::kGeluTanh,
       .gated = false,
       .transposed = true},
      {.name = "gpt_neox",
       .gguf = "gptneox",
       .causal_class = "GPTNeoXForCausalLM",
       .config_keys = "partial_rotary_factor=rotary_pct rope_theta=rotary_emb_base num_key_value_heads= "
                      "head_dim= mlp_bias= use_parallel_residual",
       .names = &kGptNeoxNames,
       .rotary_part = 0.25f,
       .norm = kLayerNorm,
       .parallel = true,
       .activation = ActivationKind::kGelu,
       .gated = false,
       .grouped_qkv = true},
      {.name = "gptj",
       .gguf = "gptj",
       .causal_class = "GPTJForCausalLM",
       .config_keys = kGptKeys,
       .names = &kGptJNames,
       .rope = RopePairs::kInterleaved,
       .norm = kLayerNorm,
       .parallel = true,
       .activation = ActivationKind::kGeluTanh,
       .gated = false},
      {.name = "gpt_bigcode",
       .gguf = "starcoder",
       .causal_class = "GPTBigCodeForCausalLM",
       .config_keys = kGptKeys,
       .names = &kGpt2Names,
       .rope = RopePairs::kNone,
       .norm = kLayerNorm,
       .activation = ActivationKind::kGeluTanh,
       .gated = false,
       .grouped_qkv = true,
       .multi_query = true},
      {.name = "falcon",
       .gguf = "falcon",
       .causal_class = "FalconForCausalLM",
       .aliases = "RefinedWeb RefinedWebModel",
       .config_keys = "intermediate_size=ffn_hidden_size num_key_value_heads=num_kv_heads head_dim= "
                      "hidden_act=activation layer_norm_eps=layer_norm_epsilon attention_bias=bias mlp_bias= "
                      "use_parallel_residual=parallel_attn multi_query new_decoder_architecture "
                      "num_ln_in_parallel_attn alibi",
       .names = &kFalconNames,
       .norm = kLayerNorm,
       .parallel = true,
       .activation = ActivationKind::kGelu,
       .gated = false,
       .grouped_qkv = true,
       .multi_query = true},
      {.name = "bloom",
       .gguf = "bloom",
       .causal_class = "BloomForCausalLM",
       .config_keys = "num_hidden_layers=n_layer num_attention_heads=n_head max_position_embeddings=seq_length "
                      "intermediate_size= hidden_act= layer_norm_eps=layer_norm_epsilon num_key_value_heads= "
                      "head_dim= attention_bias= mlp_bias=",
       .names = &kBloomNames,
       .rope = RopePairs::kNone,
       .alibi = true,
       .norm = kLayerNorm,
       .activation = ActivationKind::kGeluTanh,
       .gated = false,
       .grouped_qkv = true},
      {.name = "mpt",
       .gguf = "mpt",
       .causal_class = "MptForCausalLM",
       .config_keys = "hidden_size=d_model num_hidden_layers=n_layers num_attention_heads=n_heads "
                      "max_position_embeddings=max_seq_len intermediate_size= expansion_ratio hidden_act= "
                      "layer_norm_eps=layer_norm_epsilon num_key_value_heads=attn_config.kv_n_heads head_dim= "
                      "attention_bias= mlp_bias= no_bias clip_qkv=attn_config.clip_qkv "
                      "attention_multiplier=attn_config.softmax_scale alibi=attn_config.alibi "
                      "alibi_bias_max=attn_config.alibi_bias_max",
       .names = &kMptNames,
       .rope = RopePairs::kNone,
       .alibi = true,
       .norm = kLayerNorm,
       .qk_norm = QkNorm::kWidth,
       .activation = ActivationKind::kGelu,
       .gated = false},
      {.name = "starcoder2",
       .gguf = "starcoder2",
       .causal_class = "Starcoder2ForCausalLM",
       .defaults = R"({"num_key_value_heads": 2, "max_position_embeddings": 4096})",
       .config_keys = "layer_norm_eps=norm_epsilon attention_bias=use_bias mlp_bias=",
       .names = &kStarcoder2Names,
       .norm = kLayerNorm,
       .activation = ActivationKind::kGeluTanh,
       .gated = false,
       .windows = Windows::kAll},
      {.name = "stablelm",
       .gguf = "stablelm",
       .causal_class = "StableLmForCausalLM",
       .aliases = "stablelm_epoch",
       .defaults = R"({"max_position_embeddings": 4096})",
       .config_keys = "attention_bias=use_qkv_bias mlp_bias= qk_layernorm use_parallel_residual",
       .names = &kStableLmNames,
       .rotary_part = 0.25f,
       .norm = kLayerNorm},
      {.name = "granite",
       .gguf = "granite",
       .causal_class = "GraniteForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "attention_multiplier": 1.0})",
       .config_keys = "logit_scale=logits_scaling",
       .names = &kLlamaNames,
       .rope = RopePairs::kPermuted,
       .divides_logits = true},
      {.name = "granitemoe",
       .gguf = "granitemoe",
       .causal_class = "GraniteMoeForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "attention_multiplier": 1.0, "num_experts_per_tok": 2})",
       .config_keys = "num_experts=num_local_experts intermediate_size= moe_intermediate_size=intermediate_size "
                      "norm_topk_prob= head_dim= logit_scale=logits_scaling mlp_bias=",
       .names = &kGraniteMoeNames,
       .rope = RopePairs::kPermuted,
       .stacked_experts = true,
       .divides_logits = true,
       .normalize_experts = true},
      // Before olmo2, whose name its GGUF files have: those of olmo2 have no windows.
      {.name = "olmo3",
       .gguf = "olmo2",
       .causal_class = "Olmo3ForCausalLM",
       .defaults = R"({"sliding_window": 4096})",
       .names = &kSandwichNames,
       .rope_base = 500000,
       .window_rope_base = 500000,
       .norm_place = NormPlace::kPost,
       .qk_norm = QkNorm::kWidth,
       .windows = Windows::kPattern,
       .window_pattern = 4,
       .gguf_lists_windows = true},
      {.name = "olmo2",
       .gguf = "olmo2",
       .causal_class = "Olmo2ForCausalLM",
       .names = &kSandwichNames,
       .norm_place = NormPlace::kPost,
       .qk_norm = QkNorm::kWidth},
      {.name = "olmoe",
       .gguf = "olmoe",
       .causal_class = "OlmoeForCausalLM",
       .defaults = R"({"num_experts_per_tok": 8, "max_position_embeddings": 4096})",
       .config_keys = "intermediate_size= moe_intermediate_size=intermediate_size",
       .names = &kLlamaNames,
       .qk_norm = QkNorm::kWidth},
      {.name = "cohere",
       .gguf = "command-r",
       .causal_class = "CohereForCausalLM",
       .defaults = R"({"logit_scale": 0.0625, "rope_theta": 500000, "max_position_embeddings": 8192})",
       .config_keys = "use_qk_norm",
       .names = &kLlamaNames,
       .rope = RopePairs::kInterleaved,
       .norm = kLayerNorm,
       .parallel = true},
      {.name = "cohere2",
       .gguf = "cohere2",
       .causal_class = "Cohere2ForCausalLM",
       .defaults = R"({"logit_scale": 0.0625, "sliding_window": 4096, "max_position_embeddings": 8192})",
       .names = &kLlamaNames,
       .rope = RopePairs::kInterleaved,
       .no_rope_on_full = true,
       .norm = kLayerNorm,
       .parallel = true,
       .windows = Windows::kPattern,
       .window_pattern = 4},
      {.name = "smollm3",
       .gguf = "smollm3",
       .causal_class = "SmolLM3ForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "num_key_value_heads": 4, "max_position_embeddings": 32768})",
       .names = &kLlamaNames,
       .rope = RopePairs::kPermuted,
       .rope_base = 2e6,
       .no_rope_every = 4,
       .windows = Windows::kNoRope},
      {.name = "nemotron",
       .gguf = "nemotron",
       .causal_class = "NemotronForCausalLM",
       .defaults = R"({"max_position_embeddings": 4096})",
       .config_keys = "layer_norm_eps=norm_eps",
       .names = &kLlamaNames,
       .rotary_part = 0.5f,
       .norm = kLayerNorm,
       .norm_plus_one = true,
       .activation = ActivationKind::kReluSquared,
       .gated = false},
      {.name = "glm4",
       .gguf = "glm4",
       .causal_class = "Glm4ForCausalLM",
       .defaults = R"({"rms_norm_eps": 1.5625e-7, "num_key_value_heads": 2, "head_dim": 128,
                     "max_position_embeddings": 131072})",
       .names = &kGlm4Names,
       .rope = RopePairs::kInterleaved,
       .rotary_part = 0.5f,
       .norm_place = NormPlace::kSandwich,
       .fused_gate_up = true},
      {.name = "exaone4",
       .gguf = "exaone4",
       .causal_class = "Exaone4ForCausalLM",
       .defaults = R"({"sliding_window": 4096})",
       .names = &kSandwichNames,
       .no_rope_on_full = true,
       .norm_place = NormPlace::kPost,
       .windows = Windows::kPattern,
       .window_pattern = 4,
       .gguf_lists_windows = true},
      {.name = "ernie4_5",
       .gguf = "ernie4_5",
       .causal_class = "Ernie4_5ForCausalLM",
       .defaults = R"({"num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131072})",
       .config_keys = "attention_bias=use_bias mlp_bias=",
       .names = &kLlamaNames,
       .rope = RopePairs::kInterleaved,
       .rope_base = 500000},
      {.name = "seed_oss",
       .gguf = "seed_oss",
       .causal_class = "SeedOssForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "num_key_value_heads": 8, "head_dim": 128,
                     "max_position_embeddings": 524288})",
       .config_keys = "attention_out_bias",
       .names = &kLlamaNames,
       .gguf_ffn_norm = "post_attention_norm"},
      {.name = "hunyuan_v1_dense",
       .gguf = "hunyuan-dense",
       .causal_class = "HunYuanDenseV1ForCausalLM",
       .config_keys = "use_qk_norm",
       .names = &kHunyuanNames,
       .qk_norm = QkNorm::kHeadAfter},
      {.name = "deepseek_v2",
       .gguf = "deepseek2",
       .causal_class = "DeepseekV2ForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "q_lora_rank": 1536})",
       .config_keys = kDeepseekKeys,
       .mixer = MixerKind::kLatentAttention,
       .names = &kLlamaNames,
       .rope = RopePairs::kInterleaved},
      {.name = "deepseek_v3",
       .gguf = "deepseek2",
       .causal_class = "DeepseekV3ForCausalLM",
       .defaults = R"({"rms_norm_eps": 1e-6, "first_k_dense_replace": 3, "n_group": 8,
                     "topk_group": 4, "routed_scaling_factor": 2.5, "q_lora_rank": 1536,
                     "num_experts_per_tok": 8, "max_position_embeddings": 4096})",
       .config_keys = kDeepseekKeys,
       .mixer = MixerKind::kLatentAttention,
       .names = &kLlamaNames,
       .rope = RopePairs::kInterleaved,
       .normalize_experts = true,
       .expert_score = hal::ScoreKind::kSigmoid},
      {.name = "gpt_oss",
       .gguf = "gpt-oss",
       .causal_class = "GptOssForCausalLM",
       .defaults = R"({"num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128,
                     "num_experts_per_tok": 4, "max_position_embeddings": 131072})",
       .config_keys = "num_experts=num_local_experts intermediate_size= moe_intermediate_size=intermediate_size "
                      "norm_topk_prob= mlp_bias= swiglu_limit rope_scaling",
       .names = &kGptOssNames,
       .rope_base = 150000,
       .clamped_gate = true,
       .stacked_experts = true,
       .interleaved_experts = true,
       .windows = Windows::kPattern,
       .window_pattern = 2,
       .normalize_experts = true,
       .gguf_ffn_norm = "post_attention_norm"},

      // Known and not supported: a mixer with a recurrent state.
      {.name = "mamba", .gguf = "mamba", .aliases = "falcon_mamba", .mixer = MixerKind::kMamba},
      {.name = "mamba2", .gguf = "mamba2", .mixer = MixerKind::kMamba2},
      {.name = "jamba", .gguf = "jamba", .mixer = MixerKind::kMamba},
      {.name = "granitemoehybrid", .gguf = "granitehybrid", .aliases = "bamba", .mixer = MixerKind::kMamba2},
      {.name = "falcon_h1", .gguf = "falcon-h1", .mixer = MixerKind::kMamba2},
      {.name = "nemotron_h", .gguf = "nemotron_h", .aliases = "zamba2", .mixer = MixerKind::kMamba2},
      {.name = "plamo2", .gguf = "plamo2", .aliases = "zamba", .mixer = MixerKind::kMamba},
      {.name = "qwen3_next", .gguf = "qwen3next", .mixer = MixerKind::kGatedDeltaNet},
      {.name = "kimi_linear", .gguf = "kimi-linear", .mixer = MixerKind::kGatedDeltaNet},
      {.name = "lfm2", .gguf = "lfm2", .mixer = MixerKind::kShortConvolution},
      {.name = "lfm2_moe", .gguf = "lfm2moe", .mixer = MixerKind::kShortConvolution},
      {.name = "rwkv", .gguf = "rwkv6", .aliases = "rwkv5 rwkv6", .mixer = MixerKind::kLinearRecurrence},
      {.name = "rwkv7", .gguf = "rwkv7", .mixer = MixerKind::kLinearRecurrence},
      {.name = "recurrent_gemma", .gguf = "recurrent_gemma", .mixer = MixerKind::kLinearRecurrence},
  };
  return kRows;
}

// ---- look-up -----------------------------------------------------

CORBEL_INLINE const char* mixer_name(MixerKind kind) noexcept {
  switch (kind) {
    case MixerKind::kAttention:
      return "attention";
    case MixerKind::kLatentAttention:
      return "latent attention";
    case MixerKind::kMamba:
      return "Mamba";
    case MixerKind::kMamba2:
      return "Mamba2";
    case MixerKind::kGatedDeltaNet:
      return "gated delta net";
    case MixerKind::kShortConvolution:
      return "short convolution";
    case MixerKind::kLinearRecurrence:
      return "linear recurrence";
  }
  return "unknown";
}

namespace detail {

/// Calls use(name) for the name and each alias of a row.
template <class Use>
void each_hf_name(const Architecture& row, const Use& use) {
  use(std::string_view(row.name));
  std::string_view rest = row.aliases;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(' '), rest.size());
    use(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

/// Letters to insert, remove or change to get from a to b (Levenshtein).
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace detail

CORBEL_INLINE const Architecture* find_gguf_architecture(std::string_view name) noexcept {
  for (const Architecture& row : architectures())
    if (name == row.gguf) return &row;
  return nullptr;
}

CORBEL_INLINE const Architecture* find_hf_architecture(std::string_view name) noexcept {
  const Architecture* found = nullptr;
  for (const Architecture& row : architectures())
    detail::each_hf_name(row, [&](std::string_view known) {
      if (found == nullptr && known == name) found = &row;
    });
  return found;
}

CORBEL_INLINE std::string nearest_architecture(std::string_view name, bool gguf) {
  std::string_view best;
  std::size_t best_distance = 0;
  const auto consider = [&](std::string_view known) {
    const std::size_t distance = detail::edit_distance(name, known);
    if (!best.empty() && distance >= best_distance) return;
    best = known;
    best_distance = distance;
  };
  for (const Architecture& row : architectures()) {
    if (gguf) {
      consider(row.gguf);
    } else {
      detail::each_hf_name(row, consider);
    }
  }
  return std::string(best);
}

CORBEL_INLINE std::string describe_architectures() {
  std::string text =
      "# Model families\n\n"
      "Generated from the architecture table (`include/corbel/impl/models/architecture.ipp`); a test compares the "
      "two.\n"
      "Biases, tied heads, fused projections, learned positions, experts, rope scaling, windows and soft-caps are read "
      "from\n"
      "each checkpoint. `sliding_window` and `layer_types` of config.json have an effect in the families whose notes "
      "speak "
      "of windows\nor of layers without; the others ignore them, as transformers does.\n\n"
      "| `model_type` | GGUF | mixer | rope | norm | feed-forward | notes |\n|---|---|---|---|---|---|---|\n";
  std::string recurrent;
  for (const Architecture& row : architectures()) {
    std::string names = row.name;
    for (const char c : std::string_view(row.aliases)) names += c == ' ' ? std::string(", ") : std::string(1, c);
    names = row.name;
    detail::each_hf_name(row, [&](std::string_view name) {
      if (name != row.name) names += fmt::format(", {}", name);
    });
    if (row.names == nullptr) {
      recurrent += fmt::format("| {} | {} | {} |\n", names, row.gguf, mixer_name(row.mixer));
      continue;
    }
    constexpr const char* kRope[] = {"none", "halves", "interleaved", "halves (GGUF: interleaved)"};
    constexpr const char* kPlace[] = {"before", "after", "before and after"};
    std::string notes;
    const auto note = [&](bool holds, std::string_view what) {
      if (holds) notes += fmt::format("{}{}", notes.empty() ? "" : ", ", what);
    };
    note(row.alibi, "ALiBi");
    note(row.parallel, "parallel residual");
    note(row.qk_norm == QkNorm::kWidth, "Q and K normalized as a whole");
    note(row.qk_norm == QkNorm::kHeadAfter, "Q and K normalized after rope");
    note(row.windows == Windows::kAll, "window on all layers");
    note(row.windows == Windows::kPattern, fmt::format("one layer of every {} without window", row.window_pattern));
    note(row.windows == Windows::kFrom, "window on the last layers with use_sliding_window");
    note(row.windows == Windows::kEven, "window on every second of the first layers with use_sliding_window");
    note(row.windows == Windows::kSwitched, "window on all layers with use_sliding_window");
    note(row.windows == Windows::kNoRope, "window on the layers without rope with use_sliding_window");
    note(row.no_rope_on_full, "no rope without window");
    note(row.no_rope_every != 0, fmt::format("one layer of every {} without rope", row.no_rope_every));
    note(row.scaled_embedding, "embeddings scaled");
    note(row.expert_score == hal::ScoreKind::kSigmoid, "sigmoid routing");
    text +=
        fmt::format("| {} | {} | {} | {} | {} {} | {}{} | {} |\n", names, row.gguf, mixer_name(row.mixer),
                    kRope[static_cast<std::size_t>(row.rope)], row.norm == hal::NormKind::kRms ? "RMS" : "layer norm",
                    kPlace[static_cast<std::size_t>(row.norm_place)],
                    row.clamped_gate ? "clamped swiglu" : hal::activation_name(row.activation),
                    row.gated || row.clamped_gate ? ", gated" : "", notes);
  }
  return text +
         "\nKnown and refused, since their layers carry a recurrent state (`unsupported: recurrent mixer ...`):\n\n"
         "| `model_type` | GGUF | mixer |\n|---|---|---|\n" +
         recurrent;
}

}  // namespace models
CORBEL_NAMESPACE_END
