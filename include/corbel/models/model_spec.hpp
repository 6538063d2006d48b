// ModelSpec: the numbers and switches of one checkpoint, and the architecture table that says how a family's
// checkpoints are read.
//
// A family is a row of Architecture, not a file: one builder (models/build.hpp) serves all rows.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/hal/program.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// What mixes tokens in a layer. Recurrent kinds will join.
enum class MixerKind : std::uint8_t { kAttention };

/// A row of the architecture table: what all checkpoints of a family share. Biases, tied heads and rope factors are
/// found by looking at the tensors.
struct Architecture {
  const char* name;       ///< general.architecture
  bool rope_interleaved;  ///< pairs (2i, 2i+1), as the converter lays out the weights of this family
  bool qk_norm;           ///< RMS norm over each query and key head before rope
  bool post_norms;        ///< norms also after attention and after the feed-forward, before the residual add
  bool scaled_embedding;  ///< embeddings times sqrt(hidden)
  hal::ActivationKind activation;
  std::uint32_t window_pattern;  ///< every n-th layer sees everything, the others the file's window; 0: no windows
  double window_rope_base;       ///< rope base of windowed layers where the file names none; 0: the file's rope base
};

/// All rows. Static storage.
CORBEL_API std::span<const Architecture> architectures() noexcept;
/// The row with this name, or nullptr.
CORBEL_API const Architecture* find_architecture(std::string_view name) noexcept;

/// One kind of rotary embedding of a model (Su et al. 2021, arXiv 2104.09864).
struct RopeTable {
  std::vector<float> inverse_frequencies;  ///< [rotary_dim / 2], scaling applied
  float attention_factor = 1;              ///< multiplies cos and sin (YaRN)
};

struct LayerSpec {
  MixerKind mixer = MixerKind::kAttention;
  std::uint32_t window = 0;  ///< 0: sees everything
  std::uint32_t rope = 0;    ///< index into ModelSpec::ropes
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
  float attention_scale = 1;
  float attention_softcap = 0;  ///< 0: none
  float logit_softcap = 0;      ///< 0: none
  bool tied_head = false;       ///< the head is the embedding
  std::vector<RopeTable> ropes;
  std::vector<LayerSpec> layers;
};

/// Reads and validates. Errors name key or tensor: missing_key, type_mismatch, bad_value, limit_exceeded,
/// shape_mismatch, unsupported (unknown architecture, with the known ones; experts; rope scaling types).
CORBEL_API Result<ModelSpec> read_model_spec(const Checkpoint& checkpoint);

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/model_spec.ipp>
#endif
