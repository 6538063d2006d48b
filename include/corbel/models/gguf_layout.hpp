// How a Hugging Face folder of a family is written as a GGUF file: keys, names, and where the rows go.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/metadata.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/models/weight_source.hpp>

#include <cstdint>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// One tensor of a GGUF file.
struct GgufTensorPlan {
  std::string name;
  std::vector<std::uint64_t> shape;  ///< slowest first
  DType stored = DType::kF32;        ///< type of what it is made from
  RowReader rows;                    ///< of the tensor as a matrix [product of the others, last dimension]
};

struct GgufLayout {
  Metadata metadata;
  std::vector<GgufTensorPlan> tensors;
  std::vector<std::string> notes;  ///< lines about what the file does not have
};

/// The plan for a Hugging Face checkpoint, which must outlive it. kUnsupported for families and numbers that GGUF files
/// cannot express, and for quantized checkpoints; the errors of read_model_spec.
CORBEL_API Result<GgufLayout> plan_gguf_layout(const Checkpoint& checkpoint);

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/gguf_layout.ipp>
#endif
