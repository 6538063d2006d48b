// Checkpoint: the names, shapes, types and bytes of a model file, and its metadata. Nothing is loaded yet.
//
//   auto checkpoint = corbel::Checkpoint::open("model.gguf", context);
//   for (const corbel::TensorInfo& tensor : checkpoint->tensors()) { ... }
//   auto layers = checkpoint->metadata().get_uint("llama.block_count");
#pragma once

#include <corbel/checkpoint/file.hpp>
#include <corbel/checkpoint/metadata.hpp>
#include <corbel/checkpoint/tensor_info.hpp>
#include <corbel/config.hpp>
#include <corbel/context.hpp>
#include <corbel/dtype.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// The phases of opening and loading.
enum class LoadPhase : std::uint8_t { kRead, kPrepare };
/// Progress of a load: bytes done of bytes in total. Return false to stop: the load ends with Errc::kCancelled. Called
/// on the loading thread, at least every 64 MiB of work.
using ProgressCallback = std::function<bool(LoadPhase phase, std::uint64_t done, std::uint64_t total)>;

struct OpenOptions {
  /// Map the file instead of reading it; the file must then not be truncated while anything made from it lives.
  bool map = false;
  CheckpointLimits limits = {};
};

/// Immutable, cheap to copy (shared state), thread-safe.
class CORBEL_API Checkpoint {
 public:
  /// Opens a GGUF file. Errors: io_open (missing, a folder, a device), the container errors of
  /// docs/reference/errors.md; messages start with the path. The head alone is read; the file stays open as long as the
  /// checkpoint.
  static Result<Checkpoint> open(const std::string& path, const Context& context, const OpenOptions& options = {});
  /// A file in memory; `bytes` must stay as long as the checkpoint and everything loaded from it.
  static Result<Checkpoint> from_memory(std::span<const std::byte> bytes, const Context& context,
                                        const OpenOptions& options = {}, std::string_view name = "memory");
  /// A file behind the host's own reader. Exceptions of the reader pass through; nothing is lost or leaked.
  static Result<Checkpoint> from_reader(std::shared_ptr<const FileReader> reader, const Context& context,
                                        const OpenOptions& options = {}, std::string_view name = "reader");

  const std::string& name() const noexcept;  ///< path or given name, for messages
  std::uint64_t file_bytes() const noexcept;
  std::uint32_t format_version() const noexcept;  ///< GGUF version
  const Metadata& metadata() const noexcept;
  std::span<const TensorInfo> tensors() const noexcept;
  /// The tensor with this name, or nullptr. Lives as long as any copy of this checkpoint.
  const TensorInfo* find_tensor(std::string_view name) const noexcept;

  /// Reads bytes [offset, offset + out.size()) of a tensor of this checkpoint, straight into `out`. io_read, truncated;
  /// unsupported where the type is not read by this version; invalid_argument for a range outside the tensor.
  /// Thread-safe.
  Status read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const;
  /// The tensor's bytes where they are in memory (mapped or from_memory) and of a supported type, else empty. They may
  /// be unaligned. They live as long as any copy of this checkpoint.
  std::span<const std::byte> bytes(const TensorInfo& tensor) const noexcept;
  /// The whole tensor dequantized to float32, row-major. Errors as read(), and out_of_memory.
  Result<std::vector<float>> read_f32(const TensorInfo& tensor) const;

 private:
  struct State;
  explicit Checkpoint(std::shared_ptr<const State> state) noexcept : state_(std::move(state)) {}
  static Result<Checkpoint> make(std::shared_ptr<State> state, const Context& context, const OpenOptions& options);
  Status check_range(const TensorInfo& tensor, std::uint64_t offset, std::uint64_t count) const;

  std::shared_ptr<const State> state_;
};

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/checkpoint.ipp>
#endif
