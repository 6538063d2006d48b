// Reading the head of a safetensors file and the index of a sharded checkpoint, checked against the size of the file.
#pragma once

#include <corbel/checkpoint/bounded_reader.hpp>
#include <corbel/checkpoint/metadata.hpp>
#include <corbel/checkpoint/tensor_info.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// A type of the safetensors format.
struct SafetensorsType {
  const char* name;    ///< "BF16"
  std::uint32_t bits;  ///< per value; tensors of types below 8 bits fill whole bytes
};

/// The type with this name (exact case), or nullptr. Static storage. Thread-safe.
CORBEL_API const SafetensorsType* find_safetensors_type(std::string_view name) noexcept;

namespace detail {

/// All that a safetensors file says before its data. The tensors fill the data without hole or overlap.
struct SafetensorsHead {
  Metadata metadata;                // of __metadata__, all strings
  std::vector<TensorInfo> tensors;  // in the order of the header; offsets are from the start of the file
};

/// Reads and checks the head. Errors: docs/reference/errors.md; messages name tensor or byte, not the file.
Result<SafetensorsHead> read_safetensors_head(BoundedReader& reader, const CheckpointLimits& limits);

/// "model.safetensors.index.json": which file has which tensor.
struct SafetensorsIndex {
  struct Entry {
    std::string tensor;
    std::uint32_t file = 0;  // index into files
  };
  std::vector<std::string> files;  // sorted
  std::deque<Entry> entries;       // sorted by tensor
};

/// Parses and checks an index: file names are plain names of safetensors files.
Result<SafetensorsIndex> parse_safetensors_index(std::string_view text, const CheckpointLimits& limits);

}  // namespace detail
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/safetensors_reader.ipp>
#endif
