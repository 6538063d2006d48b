// Definitions of checkpoint.hpp.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/impl/checkpoint/checkpoint_opener.ipp>

#include <algorithm>
#include <cstring>

CORBEL_NAMESPACE_BEGIN

CORBEL_INLINE Result<Checkpoint> Checkpoint::open(const std::string& path, const Context& context,
                                                  const OpenOptions& options) {
  return detail::guard([&]() { return detail::CheckpointOpener(context, options, path).path(); });
}

CORBEL_INLINE Result<Checkpoint> Checkpoint::from_memory(std::span<const std::byte> bytes, const Context& context,
                                                         const OpenOptions& options, std::string_view name) {
  return detail::guard([&]() {
    detail::CheckpointPart part;
    part.memory = bytes;
    return detail::CheckpointOpener(context, options, name).lone(std::move(part));
  });
}

CORBEL_INLINE Result<Checkpoint> Checkpoint::from_reader(std::shared_ptr<const FileReader> reader,
                                                         const Context& context, const OpenOptions& options,
                                                         std::string_view name) {
  if (reader == nullptr) return Status(Errc::kInvalidArgument, "Checkpoint::from_reader: the reader is null");
  return detail::guard([&]() {
    detail::CheckpointPart part;
    part.reader = std::move(reader);
    return detail::CheckpointOpener(context, options, name).lone(std::move(part));
  });
}

CORBEL_INLINE Result<Checkpoint> Checkpoint::from_folder(std::shared_ptr<const FolderReader> folder,
                                                         const Context& context, const OpenOptions& options,
                                                         std::string_view name, std::string_view file) {
  if (folder == nullptr) return Status(Errc::kInvalidArgument, "Checkpoint::from_folder: the folder is null");
  return detail::guard(
      [&]() { return detail::CheckpointOpener(context, options, name).folder(std::move(folder), file); });
}

CORBEL_INLINE const std::string& Checkpoint::name() const noexcept { return state_->name; }

CORBEL_INLINE CheckpointFormat Checkpoint::format() const noexcept { return state_->format; }

CORBEL_INLINE std::span<const CheckpointFile> Checkpoint::files() const noexcept { return state_->files; }

CORBEL_INLINE std::uint64_t Checkpoint::file_bytes() const noexcept { return state_->file_bytes; }

CORBEL_INLINE std::uint32_t Checkpoint::format_version() const noexcept { return state_->version; }

CORBEL_INLINE const Metadata& Checkpoint::metadata() const noexcept { return state_->metadata; }

CORBEL_INLINE const json::Value* Checkpoint::config() const noexcept {
  return state_->config ? &*state_->config : nullptr;
}

CORBEL_INLINE std::span<const std::string> Checkpoint::documents() const noexcept { return state_->documents; }

CORBEL_INLINE bool Checkpoint::has_document(std::string_view name) const noexcept {
  return std::binary_search(state_->documents.begin(), state_->documents.end(), name, std::less<>());
}

CORBEL_INLINE Result<std::string> Checkpoint::read_document(std::string_view name) const {
  if (!has_document(name)) return Status(Errc::kIoOpen, "no such document beside the weights");
  const CheckpointLimits& limits = state_->limits;
  const std::uint64_t limit = detail::is_template_document(name)     ? limits.template_bytes
                              : detail::is_vocabulary_document(name) ? limits.tokenizer_bytes
                                                                     : limits.json_bytes;
  CORBEL_ASSIGN_OR_RETURN(const std::shared_ptr<const FileReader> file, state_->folder->open(std::string(name)));
  if (file == nullptr) return Status(Errc::kIoOpen, "the folder gave no reader");
  if (file->size() > limit) {
    return Status(Errc::kLimitExceeded, std::to_string(file->size()) + " bytes, the limit is " + std::to_string(limit));
  }
  std::string text(static_cast<std::size_t>(file->size()), '\0');
  CORBEL_RETURN_IF_ERROR(detail::read_exactly(*file, 0, std::as_writable_bytes(std::span(text))));
  return text;
}

CORBEL_INLINE Result<std::string> Checkpoint::document(std::string_view name) const {
  return detail::guard([&]() -> Result<std::string> {
    Result<std::string> text = read_document(name);
    if (text.ok()) return text;
    return text.status().with_place(detail::printable(name, 100)).with_place(detail::place_of(state_->name));
  });
}

CORBEL_INLINE Result<json::Value> Checkpoint::parse_document(std::string_view name) const {
  const auto parse = [&]() -> Result<json::Value> {
    CORBEL_ASSIGN_OR_RETURN(const std::string text, read_document(name));
    return json::parse(text);
  };
  Result<json::Value> value = parse();
  if (value.ok()) return value;
  return value.status().with_place(detail::printable(name, 100));
}

CORBEL_INLINE Result<json::Value> Checkpoint::json_document(std::string_view name) const {
  return detail::guard([&]() -> Result<json::Value> {
    Result<json::Value> value = parse_document(name);
    if (value.ok()) return value;
    return value.status().with_place(detail::place_of(state_->name));
  });
}

CORBEL_INLINE std::span<const TensorInfo> Checkpoint::tensors() const noexcept { return state_->tensors; }

CORBEL_INLINE const TensorInfo* Checkpoint::find_tensor(std::string_view name) const noexcept {
  const std::vector<TensorInfo>& tensors = state_->tensors;
  const std::vector<std::uint32_t>& order = state_->by_name;
  const auto found =
      std::lower_bound(order.begin(), order.end(), name,
                       [&](std::uint32_t index, std::string_view wanted) { return tensors[index].name < wanted; });
  return found != order.end() && tensors[*found].name == name ? &tensors[*found] : nullptr;
}

// A TensorInfo can come from anywhere, so the range is checked against the tensor and the tensor against the file.
CORBEL_INLINE Status Checkpoint::check_range(const TensorInfo& tensor, std::uint64_t offset,
                                             std::uint64_t count) const {
  const std::uint64_t file = tensor.file < state_->parts.size() ? state_->files[tensor.file].bytes : 0;
  const auto place = [&] {
    return detail::place_of(tensor.file < state_->parts.size() ? state_->parts[tensor.file].place : state_->name) +
           ": tensor \"" + detail::printable(tensor.name, 100) + "\"";
  };
  if (!tensor.supported) {
    return Status(
               Errc::kUnsupported,
               std::string("type ") + (*tensor.type_name != '\0' ? tensor.type_name : "unknown") + " is not supported")
        .with_place(place());
  }
  if (tensor.bytes <= file && tensor.offset <= file - tensor.bytes && count <= tensor.bytes &&
      offset <= tensor.bytes - count) {
    return {};
  }
  return Status(Errc::kInvalidArgument, "bytes [" + std::to_string(offset) + ", +" + std::to_string(count) +
                                            ") are outside the tensor of " + std::to_string(tensor.bytes) + " bytes")
      .with_place(place());
}

CORBEL_INLINE Status Checkpoint::read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const {
  return detail::guard([&]() -> Status {
    CORBEL_RETURN_IF_ERROR(check_range(tensor, offset, out.size()));
    if (out.empty()) return {};
    const detail::CheckpointPart& part = state_->parts[tensor.file];
    if (part.reader == nullptr) {
      std::memcpy(out.data(), part.memory.data() + tensor.offset + offset, out.size());
      return {};
    }
    Status status = detail::read_exactly(*part.reader, tensor.offset + offset, out);
    if (status.ok()) return status;
    return status.with_place(detail::place_of(part.place) + ": tensor \"" + detail::printable(tensor.name, 100) + "\"");
  });
}

CORBEL_INLINE std::span<const std::byte> Checkpoint::bytes(const TensorInfo& tensor) const noexcept {
  if (tensor.file >= state_->parts.size()) return {};
  const std::span<const std::byte> memory = state_->parts[tensor.file].memory;
  if (!tensor.supported || tensor.bytes > memory.size() || tensor.offset > memory.size() - tensor.bytes) return {};
  return memory.subspan(static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(tensor.bytes));
}

CORBEL_INLINE Status Checkpoint::read_file(std::size_t file, std::uint64_t offset, std::span<std::byte> out) const {
  return detail::guard([&]() -> Status {
    const std::uint64_t bytes = file < state_->files.size() ? state_->files[file].bytes : 0;
    if (offset > bytes || out.size() > bytes - offset) {
      return Status(Errc::kInvalidArgument, "bytes [" + std::to_string(offset) + ", +" + std::to_string(out.size()) +
                                                ") are outside the file of " + std::to_string(bytes) + " bytes")
          .with_place(detail::place_of(state_->name));
    }
    if (out.empty()) return {};
    const detail::CheckpointPart& part = state_->parts[file];
    if (part.reader == nullptr) {
      std::memcpy(out.data(), part.memory.data() + offset, out.size());
      return {};
    }
    Status status = detail::read_exactly(*part.reader, offset, out);
    return status.ok() ? status : status.with_place(detail::place_of(part.place));
  });
}

CORBEL_INLINE std::span<const std::byte> Checkpoint::file_memory(std::size_t file) const noexcept {
  return file < state_->parts.size() ? state_->parts[file].memory : std::span<const std::byte>();
}

CORBEL_INLINE FileStamp Checkpoint::file_stamp(std::size_t file) const noexcept {
  if (file >= state_->parts.size() || state_->parts[file].reader == nullptr) return {};
  return state_->parts[file].reader->stamp();
}

CORBEL_INLINE Result<std::vector<float>> Checkpoint::read_f32(const TensorInfo& tensor) const {
  return detail::guard([&]() -> Result<std::vector<float>> {
    CORBEL_RETURN_IF_ERROR(check_range(tensor, 0, tensor.bytes));
    const DTypeTraits& type = traits(tensor.dtype);
    const std::uint64_t blocks = tensor.bytes / type.block_bytes;
    if (tensor.bytes % type.block_bytes != 0 || tensor.num_elements() != blocks * type.block_elements) {
      return Status(Errc::kInvalidArgument,
                    "tensor \"" + detail::printable(tensor.name, 100) + "\": its size differs from its shape and type");
    }
    std::vector<float> result(static_cast<std::size_t>(blocks * type.block_elements));
    if (const std::span<const std::byte> all = bytes(tensor); !all.empty()) {
      type.dequantize(all.data(), result.data(), static_cast<std::size_t>(blocks));
      return result;
    }
    const std::uint64_t step = std::min<std::uint64_t>(blocks, (1u << 20) / type.block_bytes);
    std::vector<std::byte> piece(static_cast<std::size_t>(step * type.block_bytes));
    for (std::uint64_t done = 0; done < blocks; done += step) {
      const auto count = static_cast<std::size_t>(std::min(step, blocks - done));
      const auto target = std::span(piece).first(count * type.block_bytes);
      CORBEL_RETURN_IF_ERROR(read(tensor, done * type.block_bytes, target));
      type.dequantize(target.data(), result.data() + done * type.block_elements, count);
    }
    return result;
  });
}

CORBEL_NAMESPACE_END
