// The linear layers of a quantized Hugging Face checkpoint as weights that backends take: whatever the scheme, a matrix
// of blocks of one of the DTypes kGroup..., whose values are those of the checkpoint bit for bit.
//
//   auto quantized = corbel::models::QuantizedCheckpoint::open(checkpoint);
//   auto linear = quantized->linear("model.layers.0.mlp.up_proj", 256, 128);   // linear->part goes into a WeightSpec
//
// Layouts: docs/reference/quantized-checkpoints.md.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/hal/program.hpp>
#include <corbel/hal/weights.hpp>
#include <corbel/models/quantization_config.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// How the inputs of a linear are rounded, as its scheme says.
struct InputRounding {
  hal::RoundSpec spec;
  std::optional<float> scale;       ///< static; else from the values
  std::optional<float> zero_point;  ///< of a static scale; an integer
  bool operator==(const InputRounding&) const = default;
};

/// A matrix [rows, cols] = [out, in] (part.rows = 1: a vector) and how its inputs are prepared.
struct StoredTensor {
  hal::WeightPart part;  ///< of a quantized linear the source is independent of the checkpoint's lifetime
  /// Column c of `part` multiplies input permutation[c]; empty: the columns are in order.
  std::vector<std::uint32_t> permutation;
  std::optional<InputRounding> rounding;  ///< of the inputs, where the scheme rounds them
  std::string unsupported_rounding;       ///< what the scheme does to the inputs where it is none of hal::RoundKind
};

/// A checkpoint together with what it says of its quantization. Copyable, thread-safe.
class CORBEL_API QuantizedCheckpoint {
 public:
  /// Nothing where the checkpoint names no quantization. Errors: those of QuantizationConfig::parse, and of the
  /// checkpoint's documents.
  static Result<std::optional<QuantizedCheckpoint>> open(const Checkpoint& checkpoint);

  const QuantizationConfig& config() const noexcept { return *config_; }
  /// Whether the tensors of this module are quantized ones.
  bool has(std::string_view module) const;
  /// The linear [rows, cols] of a module for which has() is true; the experts of an MXFP4 checkpoint are one matrix,
  /// one above the other. `observer` sees every read of the part's bytes; false stops it with cancelled. Reads small
  /// tensors only (shapes, orders, scalars). Errors: missing_tensor, shape_mismatch, type_mismatch, bad_value,
  /// unsupported, each naming module or tensor. The source reads the tensors of the module at its first use, holds them
  /// until it goes, and is thread-safe.
  Result<StoredTensor> linear(const std::string& module, std::uint64_t rows, std::uint64_t cols,
                              std::shared_ptr<const std::function<bool(std::uint64_t)>> observer = nullptr) const;

 private:
  explicit QuantizedCheckpoint(Checkpoint checkpoint, QuantizationConfig config)
      : checkpoint_(std::move(checkpoint)), config_(std::make_shared<const QuantizationConfig>(std::move(config))) {}

  Checkpoint checkpoint_;
  std::shared_ptr<const QuantizationConfig> config_;
};

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/quantized_linear.ipp>
#endif
