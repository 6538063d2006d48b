// GgufWriter: makes GGUF files, versions 2 and 3. What it writes, Checkpoint reads back equal.
//
//   corbel::GgufWriter writer;
//   writer.metadata().set("general.architecture", corbel::MetaValue::from_string("llama"));
//   writer.add_f32("output_norm.weight", {{64}}, values);
//   corbel::Status status = writer.write_file("tiny.gguf");
#pragma once

#include <corbel/checkpoint/file.hpp>
#include <corbel/checkpoint/metadata.hpp>
#include <corbel/checkpoint/tensor_info.hpp>
#include <corbel/config.hpp>
#include <corbel/dtype.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// Collects metadata and tensors, then writes them: keys and tensors in the order in which they were added, tensor data
/// at multiples of the alignment, zeros between, also after the last tensor. Not thread-safe.
class CORBEL_API GgufWriter {
 public:
  /// `version` is 2 or 3; write and to_bytes answer kUnsupportedVersion for others.
  explicit GgufWriter(std::uint32_t version = 3) noexcept : version_(version) {}

  /// The keys to write. "general.alignment" (a u32) sets the alignment; without it, it is 32.
  Metadata& metadata() noexcept { return metadata_; }
  const Metadata& metadata() const noexcept { return metadata_; }

  /// Adds a tensor, whose bytes are kept. `shape` slowest first, 1 to 4 dimensions, none 0; the last one a multiple of
  /// the type's block. kInvalidArgument names the tensor where these or the number of bytes do not fit, or the name is
  /// taken.
  Status add_tensor(std::string name, std::span<const std::uint64_t> shape, DType dtype, std::vector<std::byte> bytes);
  /// The same with a type by its number in GGUF files, also one that this version cannot read.
  Status add_tensor(std::string name, std::span<const std::uint64_t> shape, std::uint32_t ggml_type,
                    std::vector<std::byte> bytes);
  /// The same with the bytes from a source, which is asked for them when the file is written: so a model of any size
  /// can be written within the memory of a piece.
  Status add_tensor(std::string name, std::span<const std::uint64_t> shape, std::uint32_t ggml_type,
                    WriteSource source);
  /// Adds a float32 tensor.
  Status add_f32(std::string name, std::span<const std::uint64_t> shape, std::span<const float> values);

  /// The bytes before the data of the tensors. Errors as to_bytes().
  Result<std::vector<std::byte>> head_bytes() const;
  /// The whole file. kBadAlignment, kTypeMismatch (alignment), kUnsupportedVersion, kOutOfMemory.
  Result<std::vector<std::byte>> to_bytes() const;
  /// Writes to "<path>.part" and renames it when it is complete. Errors as to_bytes, those of the
  /// sources, and kIoOpen, kIoWrite, kNoSpace; nothing is left of a file that failed.
  Status write_file(const std::string& path) const;

 private:
  struct Tensor {
    TensorInfo info;  // offset from the start of the data section
    std::vector<std::byte> bytes;
    WriteSource source;  // where there are no bytes
  };
  Result<Tensor> checked(std::string name, std::span<const std::uint64_t> shape, std::uint32_t ggml_type) const;
  Status add(Tensor tensor);
  Status write(const WriteSink& sink) const;
  Result<std::uint64_t> alignment() const;
  std::vector<std::byte> head(std::uint64_t alignment) const;

  std::uint32_t version_;
  Metadata metadata_;
  std::vector<Tensor> tensors_;
  std::vector<std::uint32_t> by_name_;  // indices of tensors_, sorted by name
};

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/gguf_writer.ipp>
#endif
