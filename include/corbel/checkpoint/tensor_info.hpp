// What a model file says about a tensor, the types that GGUF files know, and the limits on what a file may ask for.
#pragma once

#include <corbel/config.hpp>
#include <corbel/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// A tensor type of GGUF files, also those whose values this version does not read.
struct GgmlType {
  const char* name;              ///< "Q4_K"
  std::uint32_t block_elements;  ///< values per block; 0 for a type that the format has dropped
  std::uint32_t block_bytes;     ///< bytes per block
};

/// The type with this number, or nullptr for a number that is no type. Static storage. Thread-safe.
CORBEL_API const GgmlType* find_ggml_type(std::uint32_t id) noexcept;

/// A tensor's name, shape and place. Shapes are written the textbook way, slowest dimension first: a linear layer is
/// [out, in].
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;         ///< meaningful where `supported`
  std::vector<std::uint64_t> shape;  ///< slowest first
  std::uint64_t offset = 0;          ///< of its first byte from the start of the file
  std::uint64_t bytes = 0;
  std::uint32_t ggml_type = 0;  ///< the type's number in the file
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
};

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/tensor_info.ipp>
#endif
