// SafetensorsWriter: makes safetensors files. What it writes, Checkpoint reads back equal.
//
//   corbel::SafetensorsWriter writer;
//   writer.set_metadata("format", "pt");
//   writer.add_tensor("model.norm.weight", {{64}}, "F32", bytes);
//   corbel::Status status = writer.write_file("model.safetensors");
#pragma once

#include <corbel/checkpoint/file.hpp>
#include <corbel/checkpoint/tensor_info.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// Collects metadata and tensors, then writes them, wide types first and by name within a width, as the reference
/// implementation does, so that every value is aligned. The header is padded with spaces to a multiple of 8. Not
/// thread-safe.
class CORBEL_API SafetensorsWriter {
 public:
  /// A text of `__metadata__`. kInvalidArgument unless both are valid UTF-8.
  Status set_metadata(std::string key, std::string value);

  /// Adds a tensor, whose bytes are kept. `shape` slowest first, at most 8 dimensions; `type` as the format names it.
  /// kInvalidArgument names the tensor where these or the number of bytes do not fit, or the name is taken.
  Status add_tensor(std::string name, std::span<const std::uint64_t> shape, std::string_view type,
                    std::vector<std::byte> bytes);
  /// The same with the bytes from a source, which is asked for them when the file is written.
  Status add_tensor(std::string name, std::span<const std::uint64_t> shape, std::string_view type, WriteSource source);

  /// The whole file. kLimitExceeded where the header would be longer than readers accept (100 MB); kOutOfMemory; the
  /// errors of the sources.
  Result<std::vector<std::byte>> to_bytes() const;
  /// Writes to "<path>.part" and renames it when it is complete. Errors as to_bytes, and kIoOpen, kIoWrite, kNoSpace;
  /// nothing is left of a file that failed.
  Status write_file(const std::string& path) const;

 private:
  struct Tensor {
    std::vector<std::uint64_t> shape;
    const char* type = "";
    std::uint32_t bits = 0;
    std::uint64_t size = 0;
    std::vector<std::byte> bytes;
    WriteSource source;  // where there are no bytes
  };
  Status add(std::string name, Tensor tensor, std::string_view type);
  Status write(const WriteSink& sink) const;

  std::map<std::string, std::string, std::less<>> metadata_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/safetensors_writer.ipp>
#endif
