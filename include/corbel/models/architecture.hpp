// The architecture table: what all checkpoints of a family share, one row of switches per family.
//
// One reader of hyper-parameters (models/model_spec.hpp), one reader of tensors (models/weight_reader.hpp) and one
// builder (models/build.hpp) serve all rows. Canonical names of keys and tensors are those of GGUF; a row's TensorNames
// say how a Hugging Face folder calls the tensors. What a checkpoint itself shows (biases, a head of its own, fused
// projections, learned positions, experts) is found by looking at it and is no switch.
#pragma once

#include <corbel/config.hpp>
#include <corbel/hal/program.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// What mixes tokens in a layer. Checkpoints with a recurrent kind are refused by its name.
enum class MixerKind : std::uint8_t {
  kAttention,
  kLatentAttention,   ///< DeepSeek's: the cache holds compressed keys and values (arXiv 2405.04434)
  kMamba,             ///< selective state spaces (arXiv 2312.00752)
  kMamba2,            ///< arXiv 2405.21060
  kGatedDeltaNet,     ///< arXiv 2412.06464
  kShortConvolution,  ///< LFM2's
  kLinearRecurrence,  ///< RWKV, RG-LRU and the like
};
/// "attention", "Mamba2", ...; static storage.
CORBEL_API const char* mixer_name(MixerKind kind) noexcept;

/// Pairs of elements that a rotary embedding turns together.
enum class RopePairs : std::uint8_t {
  kNone,         ///< no rotary embedding
  kHalves,       ///< (i, i + rotary_dim / 2)
  kInterleaved,  ///< (2i, 2i + 1)
  kPermuted,     ///< halves in Hugging Face folders; GGUF's converter reorders the rows of Q and K to interleaved pairs
};

/// Where the norms of a layer stand.
enum class NormPlace : std::uint8_t {
  kPre,       ///< before attention and before the feed-forward
  kPost,      ///< after each, before the residual add
  kSandwich,  ///< before and after each
};

/// What is normalized in queries and keys, where the checkpoint has such norms.
enum class QkNorm : std::uint8_t {
  kHead,       ///< each head, with one weight for all heads or one per head, before rope
  kHeadAfter,  ///< the same, after rope
  kWidth,      ///< all heads together, before rope
};

/// Which layers see a window only, where the checkpoint gives its size and does not list the layers. What config.json
/// says of windows in a family with kNone has no effect, as in transformers.
enum class Windows : std::uint8_t {
  kNone,
  kAll,
  kPattern,  ///< all but every n-th
  // Where `use_sliding_window` is set:
  kFrom,      ///< from layer `max_window_layers` on (Qwen 2 and 3)
  kEven,      ///< layers 0, 2, ... below `max_window_layers` (Qwen 2 MoE)
  kSwitched,  ///< all (Qwen 3 MoE)
  kNoRope,    ///< those without rope (SmolLM 3)
};

/// How the tensors of a Hugging Face folder are called: `rules` are tried before those of `base`. Where writers differ,
/// a list has several rules for one tensor.
struct TensorNames {
  struct Rule {
    const char* canonical;  ///< as in GGUF without "blk.N.": "attn_q", or with ".weight" where the suffix changes too
    const char* name;       ///< without prefix and number of the layer; "{}" stands for the number of an expert or head
  };
  const char* root;    ///< of a causal model's layers, norm and embedding in folders that are written: "transformer."
  const char* layers;  ///< "layers.", "h.", "blocks."
  std::span<const Rule> rules;
  const TensorNames* base;
};

/// A row. The values here are those of most families.
struct Architecture {
  const char* name = nullptr;     ///< model_type of config.json
  const char* gguf = nullptr;     ///< general.architecture; several rows may share one, then GGUF files use the first
  const char* causal_class = "";  ///< what the architectures of config.json call the model of text
  const char* aliases = "";       ///< further values of model_type, separated by spaces
  const char* defaults = "{}";    ///< JSON: what a config.json that leaves a key out means, where the members below and
                                  ///< the readers' own defaults do not say it; a key set to null has no default
  const char* config_keys = "";   ///< where the config.json of a folder that is written differs from most families':
                                 ///< "usual=own" another name (a dot leads into an object), "usual=" not written, "key"
                                 ///< one that only some families have; separated by spaces
  MixerKind mixer = MixerKind::kAttention;  ///< a recurrent kind: files of the family are refused by name
  const TensorNames* names = nullptr;

  RopePairs rope = RopePairs::kHalves;
  double rope_base = 10000;         ///< where the checkpoint names none
  double window_rope_base = 0;      ///< of layers with a window, where they differ from the others and none is named
  float rotary_part = 1;            ///< of the head, where the checkpoint does not say
  std::uint32_t no_rope_every = 0;  ///< every n-th layer has no rope, where the checkpoint lists none
  bool no_rope_on_full = false;     ///< layers without a window have no rope, where the checkpoint states a window
  bool alibi = false;               ///< slopes in place of positions (always, or where the checkpoint says so)

  hal::NormKind norm = hal::NormKind::kRms;
  NormPlace norm_place = NormPlace::kPre;
  bool norm_plus_one = false;  ///< Hugging Face folders store norm weights less one
  QkNorm qk_norm = QkNorm::kHead;
  bool parallel = false;  ///< attention and feed-forward read the same residual (where the checkpoint can say, its
                          ///< default)

  hal::ActivationKind activation = hal::ActivationKind::kSilu;
  const char* activation_keys = "hidden_act activation_function activation";  ///< where config.json states another
  bool gelu_is_tanh = false;   ///< config.json's "gelu" means its approximation
  bool gated = true;           ///< feed-forward: down(act(gate) * up), else down(act(up))
  bool clamped_gate = false;   ///< gpt-oss's gate: kGate in hal/program.hpp
  bool fused_gate_up = false;  ///< ffn_up holds the gate's rows, then the up projection's

  bool grouped_qkv = false;          ///< Hugging Face: fused QKV rows are [kv head][queries of it, key, value]
  bool transposed = false;           ///< Hugging Face: matrices are stored [in, out]
  bool stacked_experts = false;      ///< Hugging Face: gate and up projections of all experts are one tensor
  bool interleaved_experts = false;  ///< Hugging Face: stacked experts are [in, out], rows of gate and up alternating

  Windows windows = Windows::kNone;
  std::uint32_t window_pattern = 0;  ///< n of Windows::kPattern, where the checkpoint does not say

  bool multi_query = false;        ///< one key/value head, where config.json does not say
  bool divides_logits = false;     ///< logits are divided by the file's logit scale, not multiplied
  bool scaled_embedding = false;   ///< embeddings times sqrt(hidden)
  bool normalize_experts = false;  ///< weights of the chosen experts sum to one, where the checkpoint does not say
  hal::ScoreKind expert_score = hal::ScoreKind::kSoftmax;  ///< where the checkpoint does not say

  const char* gguf_ffn_norm = "ffn_norm";  ///< what GGUF files call the norm before the feed-forward
  bool gguf_lists_windows = false;         ///< GGUF files say of each layer whether it sees a window only
};

/// All rows. Static storage.
CORBEL_API std::span<const Architecture> architectures() noexcept;
/// The row for a GGUF file's general.architecture, or nullptr.
CORBEL_API const Architecture* find_gguf_architecture(std::string_view name) noexcept;
/// The row for a config.json's model_type, or nullptr.
CORBEL_API const Architecture* find_hf_architecture(std::string_view name) noexcept;
/// The known name (of GGUF files, or model_type) with the fewest changed letters.
CORBEL_API std::string nearest_architecture(std::string_view name, bool gguf);
/// docs/reference/models.md: the table for people.
CORBEL_API std::string describe_architectures();

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/architecture.ipp>
#endif
