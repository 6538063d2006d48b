// Definitions of checkpoint.hpp.
#pragma once

#include <corbel/checkpoint/bounded_reader.hpp>
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/gguf_reader.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <cstring>
#include <limits>

CORBEL_NAMESPACE_BEGIN

struct Checkpoint::State {
  std::string name;
  std::uint64_t file_bytes = 0;
  std::span<const std::byte> memory;         // the whole file, where it is in memory
  std::shared_ptr<const void> mapping;       // keeps `memory` of a mapped file
  std::shared_ptr<const FileReader> reader;  // else
  detail::GgufHead head;
};

namespace detail {

inline constexpr std::size_t kReadWindow = 64 << 10;

// A name in front of a message: long ones are cut, so that the message itself stays.
inline std::string place_of(std::string_view name) { return name.empty() ? "\"\"" : printable(name, 200); }

}  // namespace detail

CORBEL_INLINE Result<Checkpoint> Checkpoint::make(std::shared_ptr<State> state, const Context& context,
                                                  const OpenOptions& options) {
  Result<detail::GgufHead> head = Status(Errc::kInternal, "not read");
  if (state->reader == nullptr) {
    state->file_bytes = state->memory.size();
    detail::BoundedReader reader(state->memory);
    head = detail::read_gguf_head(reader, options.limits);
  } else {
    state->file_bytes = state->reader->size();
    const Result<Allocation> window = context.allocate(detail::kReadWindow, "the window for reading a file's head");
    if (!window.ok()) return window.status().with_place(detail::place_of(state->name));
    detail::BoundedReader reader(*state->reader, {window->data(), window->size()});
    head = detail::read_gguf_head(reader, options.limits);
  }
  if (!head.ok()) return head.status().with_place(detail::place_of(state->name));
  state->head = *std::move(head);
  return Checkpoint(std::move(state));
}

CORBEL_INLINE Result<Checkpoint> Checkpoint::open(const std::string& path, const Context& context,
                                                  const OpenOptions& options) {
  return detail::guard([&]() -> Result<Checkpoint> {
    auto state = std::make_shared<State>();
    state->name = path;
    if (options.map) {
      Result<detail::MappedFile> file = detail::map_file(path);
      if (!file.ok()) return file.status().with_place(detail::place_of(path));
      state->memory = file->bytes;
      state->mapping = std::move(file->keep);
    } else {
      Result<std::shared_ptr<const FileReader>> file = detail::open_file(path);
      if (!file.ok()) return file.status().with_place(detail::place_of(path));
      state->reader = *std::move(file);
    }
    return make(std::move(state), context, options);
  });
}

CORBEL_INLINE Result<Checkpoint> Checkpoint::from_memory(std::span<const std::byte> bytes, const Context& context,
                                                         const OpenOptions& options, std::string_view name) {
  return detail::guard([&]() -> Result<Checkpoint> {
    auto state = std::make_shared<State>();
    state->name = name;
    state->memory = bytes;
    return make(std::move(state), context, options);
  });
}

CORBEL_INLINE Result<Checkpoint> Checkpoint::from_reader(std::shared_ptr<const FileReader> reader,
                                                         const Context& context, const OpenOptions& options,
                                                         std::string_view name) {
  if (reader == nullptr) return Status(Errc::kInvalidArgument, "Checkpoint::from_reader: the reader is null");
  return detail::guard([&]() -> Result<Checkpoint> {
    auto state = std::make_shared<State>();
    state->name = name;
    state->reader = std::move(reader);
    return make(std::move(state), context, options);
  });
}

CORBEL_INLINE const std::string& Checkpoint::name() const noexcept { return state_->name; }

CORBEL_INLINE std::uint64_t Checkpoint::file_bytes() const noexcept { return state_->file_bytes; }

CORBEL_INLINE std::uint32_t Checkpoint::format_version() const noexcept { return state_->head.version; }

CORBEL_INLINE const Metadata& Checkpoint::metadata() const noexcept { return state_->head.metadata; }

CORBEL_INLINE std::span<const TensorInfo> Checkpoint::tensors() const noexcept { return state_->head.tensors; }

CORBEL_INLINE const TensorInfo* Checkpoint::find_tensor(std::string_view name) const noexcept {
  const std::vector<TensorInfo>& tensors = state_->head.tensors;
  const std::vector<std::uint32_t>& order = state_->head.by_name;
  const auto found =
      std::lower_bound(order.begin(), order.end(), name,
                       [&](std::uint32_t index, std::string_view wanted) { return tensors[index].name < wanted; });
  return found != order.end() && tensors[*found].name == name ? &tensors[*found] : nullptr;
}

// A TensorInfo can come from anywhere, so the range is checked against the tensor and the tensor against the file.
CORBEL_INLINE Status Checkpoint::check_range(const TensorInfo& tensor, std::uint64_t offset,
                                             std::uint64_t count) const {
  const std::uint64_t file = state_->file_bytes;
  const auto place = [&] {
    return detail::place_of(state_->name) + ": tensor \"" + detail::printable(tensor.name, 100) + "\"";
  };
  if (!tensor.supported) {
    const GgmlType* type = find_ggml_type(tensor.ggml_type);
    return Status(Errc::kUnsupported,
                  std::string("type ") + (type != nullptr ? type->name : "unknown") + " is not supported")
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
    if (state_->reader == nullptr) {
      std::memcpy(out.data(), state_->memory.data() + tensor.offset + offset, out.size());
      return {};
    }
    Status status = detail::read_exactly(*state_->reader, tensor.offset + offset, out);
    if (status.ok()) return status;
    return status.with_place(detail::place_of(state_->name) + ": tensor \"" + detail::printable(tensor.name, 100) +
                             "\"");
  });
}

CORBEL_INLINE std::span<const std::byte> Checkpoint::bytes(const TensorInfo& tensor) const noexcept {
  const std::span<const std::byte> memory = state_->memory;
  if (!tensor.supported || tensor.bytes > memory.size() || tensor.offset > memory.size() - tensor.bytes) return {};
  return memory.subspan(static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(tensor.bytes));
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
