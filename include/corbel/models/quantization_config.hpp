// How a quantized Hugging Face checkpoint says that it is quantized: `quantization_config` of config.json (or an older
// quantize_config.json) as typed schemes, one per linear layer. Reads no tensors: models/quantized_linear.hpp does.
//
//   auto config = corbel::models::QuantizationConfig::parse(json, "config.json: quantization_config");
//   const corbel::models::QuantScheme* scheme = config->find("model.layers.0.self_attn.q_proj");
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/text/regex.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// Who wrote the checkpoint; fixes the names of the tensors of a module.
enum class QuantMethod : std::uint8_t {
  kGptq,               ///< qweight, qzeros, scales, g_idx
  kAwq,                ///< qweight, qzeros, scales
  kCompressedTensors,  ///< weight_packed or weight, weight_scale, weight_zero_point, weight_g_idx, input_scale
  kFp8,                ///< weight, weight_scale_inv or weight_scale, input_scale or activation_scale
  kFbgemmFp8,          ///< weight, weight_scale
  kMxfp4,              ///< gate_up_proj_blocks, gate_up_proj_scales, down_proj_blocks, down_proj_scales
  kBitsAndBytes,       ///< weight, weight.absmax, weight.quant_map, ...; weight, SCB
};

/// What values share a scale.
enum class QuantSharing : std::uint8_t {
  kTensor,   ///< all
  kChannel,  ///< a row of a weight (one output feature)
  kToken,    ///< a row of activations
  kGroup,    ///< group_size consecutive input features of a row
  kBlock,    ///< a rectangle of block_rows x block_columns of a weight
};

/// How the inputs of a linear are rounded where a scheme quantizes activations.
struct ActivationScheme {
  enum class Type : std::uint8_t { kNone, kInt8, kFloat8, kOther };
  Type type = Type::kNone;
  bool dynamic = true;  ///< the scale comes from the values; else from the file
  bool symmetric = true;
  QuantSharing sharing = QuantSharing::kToken;
  std::uint32_t group_size = 0;  ///< for kGroup
  float upper_bound = 0;         ///< largest magnitude that a dynamic scale covers; 0: no bound
  std::string other;             ///< for kOther: what it is, for messages
};

/// How one linear is stored.
struct QuantScheme {
  QuantMethod method = QuantMethod::kGptq;
  std::uint32_t bits = 4;
  bool is_float = false;  ///< codes are small floats
  bool symmetric = true;
  QuantSharing sharing = QuantSharing::kGroup;
  std::uint32_t group_size = 0;  ///< input features per scale; 0: one scale per row (or tensor)
  std::uint32_t block_rows = 0;  ///< for kBlock
  std::uint32_t block_columns = 0;
  bool act_order = false;      ///< the file says that columns were quantized in another order
  bool zero_plus_one = false;  ///< stored zeros are one below the true ones (GPTQ's first format)
  bool rows_packed = false;    ///< AWQ: words run along the input (gemv), else along the output (gemm)
  ActivationScheme activations;
};

namespace detail {
/// A pattern for module names.
struct ModulePattern {
  enum class Kind : std::uint8_t {
    kExact,   ///< the whole name
    kClass,   ///< the class of the module: "Linear"
    kRegex,   ///< a regular expression at the start of the name
    kModule,  ///< a part of the tree: the end of the name, or an expression for its start up to a dot
  };
  Kind kind = Kind::kExact;
  std::string text;
  std::shared_ptr<const text::Regex> regex;  ///< kRegex; kModule where the text is an expression
};
bool matches(const ModulePattern& pattern, std::string_view module);
}  // namespace detail

/// Immutable; thread-safe.
class CORBEL_API QuantizationConfig {
 public:
  /// Reads the object. `place` starts the messages. Errors: unsupported (a method, format, width or option that this
  /// version does not read, by name), bad_value, type_mismatch, missing_key; each names the key.
  static Result<QuantizationConfig> parse(const json::Value& config, std::string_view place);

  QuantMethod method() const noexcept { return method_; }
  /// The scheme of the linear with this module name ("model.layers.0.mlp.up_proj"), or nullptr where the file says that
  /// it is not quantized. Files also leave modules out without saying so: the tensors decide.
  const QuantScheme* find(std::string_view module) const;
  /// For a module whose tensors are quantized although find() says no: the scheme of the rest, as what the lists of
  /// modules mean has changed with the versions of their writers. nullptr for compressed-tensors, whose lists are
  /// exact.
  const QuantScheme* find_or_general(std::string_view module) const;
  /// One line for people: "gptq int4 groups of 128 act-order".
  std::string describe() const;

 private:
  friend class QuantizationConfigParser;
  /// A scheme and the modules that it is for; no scheme: they stay plain.
  struct Rule {
    std::vector<detail::ModulePattern> targets;
    bool quantized = true;
    QuantScheme scheme;
  };
  QuantMethod method_ = QuantMethod::kGptq;
  std::vector<Rule> rules_;  // for each kind of pattern, the first match counts
};

/// One line for people: "int4 groups of 128".
CORBEL_API std::string describe(const QuantScheme& scheme);

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/quantization_config.ipp>
#endif
