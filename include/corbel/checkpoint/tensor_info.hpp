// What a model file says about a tensor, the types that GGUF files know, and the limits on what a file may ask for.
#pragma once

#include <corbel/config.hpp>
#include <corbel/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// The type with this number in GGUF files, or nullptr for a number that is no type. Types that the format has dropped
/// have a name and no blocks. Static storage. Thread-safe.
CORBEL_API const GgmlType* find_ggml_type(std::uint32_t id) noexcept;

/// A tensor's name, shape and place. Shapes are written the textbook way, slowest dimension first: a linear layer is
/// [out, in].
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;         ///< meaningful where `supported`
  std::vector<std::uint64_t> shape;  ///< slowest first
  std::uint64_t offset = 0;          ///< of its first byte from the start of its file
  std::uint64_t bytes = 0;
  std::uint32_t ggml_type = 0;  ///< the type's number in a GGUF file
  std::uint32_t file = 0;       ///< which of Checkpoint::files() has it
  const char* type_name = "";   ///< the type as the format calls it: "Q4_K", "F8_E4M3"; static storage
  /// False for a type that the file format knows and this version does not: the tensor is listed with its shape and
  /// size, and reading it is Errc::kUnsupported.
  bool supported = true;

  /// The product of the shape; in a tensor of a Checkpoint it always fits.
  std::uint64_t num_elements() const noexcept {
    std::uint64_t product = 1;
    for (const std::uint64_t extent : shape) product *= extent;
    return product;
  }
};

/// Limits on what a file may ask for. Every limit is tested at limit-1, limit and limit+1.
struct CheckpointLimits {
  std::uint64_t metadata_keys = 65536;
  std::uint64_t tensors = 65536;
  std::uint64_t key_bytes = 1024;
  std::uint64_t tensor_name_bytes = 256;
  std::uint64_t string_bytes = 64ull << 20;
  std::uint64_t array_elements = 1ull << 26;
  std::uint64_t max_alignment = 65536;
  std::uint64_t safetensors_header_bytes = 100'000'000;
  std::uint64_t safetensors_tensors = 1ull << 19;  ///< also of the entries of an index
  std::uint64_t files = 16384;                     ///< that a split or sharded checkpoint consists of
  std::uint64_t json_bytes = 16ull << 20;          ///< of config.json and other small documents
  std::uint64_t tokenizer_bytes = 256ull << 20;    ///< of tokenizer.json and other vocabularies
  std::uint64_t template_bytes = 1ull << 20;       ///< of a chat template in a file of its own
};

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/tensor_info.ipp>
#endif
