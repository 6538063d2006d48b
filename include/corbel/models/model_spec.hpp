// ModelSpec: the numbers and switches of one checkpoint, read from GGUF metadata or config.json by one reader for all
// rows of the architecture table (models/architecture.hpp).
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/hal/program.hpp>
#include <corbel/models/architecture.hpp>
#include <corbel/models/rope_table.hpp>

#include <cstdint>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {

inline constexpr std::uint32_t kNoRope = 0xffffffff;

struct LayerSpec {
  MixerKind mixer = MixerKind::kAttention;
  std::uint32_t window = 0;  ///< 0: sees everything
  std::uint32_t rope = 0;    ///< index into ModelSpec::ropes, or kNoRope
  bool sparse = false;       ///< experts in place of one feed-forward
};

/// Latent attention (DeepSeek-V2, arXiv 2405.04434): per position the cache holds kv_rank compressed values and one
/// rotated key part of rope_dim for all heads.
struct LatentSpec {
  std::uint32_t q_rank = 0;  ///< of the compressed queries; 0: queries are not compressed
  std::uint32_t kv_rank = 0;
  std::uint32_t nope_dim = 0;  ///< of a query head without position
  std::uint32_t rope_dim = 0;
  std::uint32_t value_dim = 0;
  float norm_epsilon = 0;  ///< of the norms of compressed queries and values
};

/// Mixture of experts.
struct ExpertSpec {
  std::uint32_t feed_forward = 0;         ///< of one expert
  std::uint32_t shared_feed_forward = 0;  ///< of the expert that every token visits; 0: none
  hal::RouteSpec route;                   ///< route.experts 0: a dense model
};

/// Validated: every count is in its documented range and consistent with the others.
struct ModelSpec {
  const Architecture* architecture = nullptr;
  std::string name;  ///< general.name, for people
  std::uint32_t hidden = 0;
  std::uint32_t feed_forward = 0;
  std::uint32_t vocab = 0;  ///< width of the logits
  std::uint32_t context_length = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t rotary_dim = 0;
  float norm_epsilon = 0;
  float embedding_scale = 1;
  float residual_scale = 1;  ///< of what a layer adds
  float attention_scale = 1;
  float logit_scale = 1;
  float attention_softcap = 0;  ///< 0: none
  float logit_softcap = 0;      ///< 0: none
  float qkv_clamp = 0;          ///< queries, keys and values are clamped to [-x, x]; 0: not
  float temperature = 0;        ///< queries times 1 + temperature * log(1 + floor(position / period)); 0: not
  float temperature_period = 0;
  hal::ActivationKind activation = hal::ActivationKind::kSilu;
  float gate_limit = 0;  ///< of Architecture::clamped_gate
  bool rope_interleaved = false;
  bool parallel = false;             ///< attention and feed-forward read the same residual
  bool scale_by_layer = false;       ///< attention's scale is divided by the layer's number, counted from 1
  bool residual_after_norm = false;  ///< residuals start after the norms
  bool tied_head = false;            ///< the head is the embedding
  bool fused_qkv_groups = false;     ///< rows of fused QKV weights are [kv head][queries, key, value]
  std::vector<float> slopes;         ///< ALiBi, one per head; empty: none
  LatentSpec latent;
  ExpertSpec experts;
  std::vector<RopeTable> ropes;
  std::vector<LayerSpec> layers;
};

/// Inverse frequencies of all ropes that depend on a sequence's length, as a batch holds them (hal::BatchLayout::
/// frequencies).
CORBEL_API std::uint32_t num_length_frequencies(const ModelSpec& spec) noexcept;
/// Writes them for a sequence meant for `length` tokens.
CORBEL_API void fill_length_frequencies(const ModelSpec& spec, std::uint32_t length, float* out);

/// Reads and validates. Errors name key or tensor: missing_key, type_mismatch, bad_value, limit_exceeded,
/// shape_mismatch, unsupported (an unknown architecture, with the nearest known one; a recurrent mixer; rope scaling
/// types).
CORBEL_API Result<ModelSpec> read_model_spec(const Checkpoint& checkpoint);

/// One line about tensors of layers behind the last one, such as those that guess further tokens; empty where there are
/// none. They are not read.
CORBEL_API std::string describe_unused_layers(const Checkpoint& checkpoint, const ModelSpec& spec);

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/model_spec.ipp>
#endif
