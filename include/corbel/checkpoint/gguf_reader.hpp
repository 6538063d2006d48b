// Reading the head of a GGUF file, versions 2 and 3: metadata and the table of tensors, checked against the file's
// size.
#pragma once

#include <corbel/checkpoint/bounded_reader.hpp>
#include <corbel/checkpoint/metadata.hpp>
#include <corbel/checkpoint/tensor_info.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstdint>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace detail {

/// All that a GGUF file says before its data. Every tensor lies inside the file, none overlaps another.
struct GgufHead {
  std::uint32_t version = 0;
  std::uint64_t alignment = 32;
  std::uint64_t data_offset = 0;
  Metadata metadata;
  std::vector<TensorInfo> tensors;     // in file order; offsets are from the start of the file
  std::vector<std::uint32_t> by_name;  // indices of tensors, sorted by name
};

/// Reads and checks the head. Errors: docs/reference/errors.md; messages name key or tensor and byte offset, not the
/// file.
Result<GgufHead> read_gguf_head(BoundedReader& reader, const CheckpointLimits& limits);

}  // namespace detail
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/gguf_reader.ipp>
#endif
