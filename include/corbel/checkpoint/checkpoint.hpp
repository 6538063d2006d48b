// Checkpoint: the names, shapes, types and bytes of a model, and what else its files say. Nothing is loaded yet.
//
// A model is a GGUF file (whole or split), a safetensors file, or a folder as the Hugging Face Hub has it.
//
//   auto checkpoint = corbel::Checkpoint::open("model.gguf", context);
//   for (const corbel::TensorInfo& tensor : checkpoint->tensors()) { ... }
//   auto layers = checkpoint->metadata().get_uint("llama.block_count");
#pragma once

#include <corbel/checkpoint/file.hpp>
#include <corbel/checkpoint/json.hpp>
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

namespace detail {
class CheckpointOpener;
}

/// The phases of opening and loading.
enum class LoadPhase : std::uint8_t { kRead, kPrepare };
/// Progress of a load: bytes done of bytes in total. Return false to stop: the load ends with Errc::kCancelled. Called
/// on the loading thread, at least every 64 MiB of work.
using ProgressCallback = std::function<bool(LoadPhase phase, std::uint64_t done, std::uint64_t total)>;

/// How the tensors are stored, and with it how they are named and where the model's numbers stand: in metadata() of a
/// GGUF file, in config() of a Hugging Face folder.
enum class CheckpointFormat : std::uint8_t { kGguf, kSafetensors };

/// One of the files that hold the tensors.
struct CheckpointFile {
  std::string name;  ///< without folder
  std::uint64_t bytes = 0;
};

struct OpenOptions {
  /// Map the file instead of reading it; the file must then not be truncated while anything made from it lives.
  bool map = false;
  /// Follow symbolic links that leave the model's folder (those into the "blobs" of a Hugging Face cache are followed
  /// anyway).
  bool follow_links = false;
  CheckpointLimits limits = {};
};

/// Immutable, cheap to copy (shared state), thread-safe.
class CORBEL_API Checkpoint {
 public:
  /// Opens a GGUF file, any part of a split one ("name-00001-of-00003.gguf"), a .safetensors file, a
  /// model.safetensors.index.json, or a folder with one of these. Beside safetensors, config.json and the other
  /// documents are those of the same folder. Errors: io_open (missing, a device), path_escape, unsupported (pickle
  /// files are never read), the container errors of docs/reference/errors.md; messages start with the path. The heads
  /// alone are read; the files stay open as long as the checkpoint.
  static Result<Checkpoint> open(const std::string& path, const Context& context, const OpenOptions& options = {});
  /// A GGUF or safetensors file in memory (safetensors where `name` ends so, or the bytes look so); `bytes` must stay
  /// as long as the checkpoint and everything loaded from it.
  static Result<Checkpoint> from_memory(std::span<const std::byte> bytes, const Context& context,
                                        const OpenOptions& options = {}, std::string_view name = "memory");
  /// A file behind the host's own reader. Exceptions of the reader pass through; nothing is lost or leaked.
  static Result<Checkpoint> from_reader(std::shared_ptr<const FileReader> reader, const Context& context,
                                        const OpenOptions& options = {}, std::string_view name = "reader");
  /// A folder behind the host's own reader. `file` names the weights in it (as for open()); empty: chosen as for a
  /// folder. `options.map` and `options.follow_links` have no effect.
  static Result<Checkpoint> from_folder(std::shared_ptr<const FolderReader> folder, const Context& context,
                                        const OpenOptions& options = {}, std::string_view name = "folder",
                                        std::string_view file = {});

  const std::string& name() const noexcept;  ///< path or given name, for messages
  CheckpointFormat format() const noexcept;
  std::span<const CheckpointFile> files() const noexcept;
  std::uint64_t file_bytes() const noexcept;      ///< of all files()
  std::uint32_t format_version() const noexcept;  ///< GGUF version; 1 for safetensors
  /// The keys of a GGUF file; of safetensors the texts of `__metadata__`.
  const Metadata& metadata() const noexcept;
  /// config.json of a Hugging Face folder, an object; nullptr where there is none, and for GGUF. Lives as long as any
  /// copy of this checkpoint.
  const json::Value* config() const noexcept;

  /// Names of the documents beside the weights, sorted: those of config.json, generation_config.json, tokenizer.json,
  /// tokenizer_config.json, special_tokens_map.json, added_tokens.json, chat_template.jinja, chat_template.json,
  /// additional_chat_templates/*.jinja, vocab.json, merges.txt, vocab.txt, tokenizer.model, quantize_config.json and
  /// quant_config.json that are there. None for GGUF.
  std::span<const std::string> documents() const noexcept;
  bool has_document(std::string_view name) const noexcept;
  /// The bytes of one of documents(), read now. io_open (not one of them), io_read, truncated, path_escape,
  /// limit_exceeded (16 MiB; tokenizers and vocabularies 256 MiB, templates 1 MiB). Thread-safe.
  Result<std::string> document(std::string_view name) const;
  /// The same, parsed. bad_json and the like name file and byte.
  Result<json::Value> json_document(std::string_view name) const;

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
  /// Reads bytes [offset, offset + out.size()) of files()[file], tensors or not. io_read, truncated; invalid_argument
  /// for a range outside the file. Thread-safe.
  Status read_file(std::size_t file, std::uint64_t offset, std::span<std::byte> out) const;
  /// The bytes of files()[file] where they are in memory, else empty. They live as long as any copy of this checkpoint.
  std::span<const std::byte> file_memory(std::size_t file) const noexcept;
  /// The state of files()[file] now; not known for mapped files and where the host reads them.
  FileStamp file_stamp(std::size_t file) const noexcept;
  /// The whole tensor dequantized to float32, row-major. Errors as read(), and out_of_memory.
  Result<std::vector<float>> read_f32(const TensorInfo& tensor) const;

 private:
  struct State;
  explicit Checkpoint(std::shared_ptr<const State> state) noexcept : state_(std::move(state)) {}
  friend class detail::CheckpointOpener;
  Result<std::string> read_document(std::string_view name) const;
  Result<json::Value> parse_document(std::string_view name) const;
  Status check_range(const TensorInfo& tensor, std::uint64_t offset, std::uint64_t count) const;

  std::shared_ptr<const State> state_;
};

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/checkpoint.ipp>
#endif
