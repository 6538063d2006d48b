// Definitions of gguf_writer.hpp.
#pragma once

#include <corbel/checkpoint/file.hpp>
#include <corbel/checkpoint/gguf_writer.hpp>
#include <corbel/detail/checked.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <bit>
#include <optional>

CORBEL_NAMESPACE_BEGIN
namespace detail {

// A growing little-endian file.
class GgufBytes {
 public:
  void u32(std::uint64_t value) { little(value, 4); }
  void u64(std::uint64_t value) { little(value, 8); }
  void raw(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void text(std::string_view text) {
    u64(text.size());
    raw(std::as_bytes(std::span<const char>(text)));
  }
  void value(const MetaValue& value) {
    u32(static_cast<std::uint32_t>(value.type()));
    if (value.is_array()) {
      u32(static_cast<std::uint32_t>(value.element_type()));
      u64(value.size());
    }
    if (value.element_type() != MetaType::kString) return raw(value.raw());
    for (std::size_t i = 0; i < value.size(); ++i) text(value.string_at(i));
  }
  void pad(std::uint64_t alignment) { bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void little(std::uint64_t value, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i) & 0xFFu));
  }
  std::vector<std::byte> bytes_;
};

}  // namespace detail

CORBEL_INLINE Status GgufWriter::add_tensor(std::string name, std::span<const std::uint64_t> shape, DType dtype,
                                            std::vector<std::byte> bytes) {
  return add_tensor(std::move(name), shape, traits(dtype).ggml_id, std::move(bytes));
}

// Size and name of a tensor to add.
CORBEL_INLINE Result<GgufWriter::Tensor> GgufWriter::checked(std::string name, std::span<const std::uint64_t> shape,
                                                             std::uint32_t ggml_type) const {
  const auto refuse = [&](const std::string& why) {
    return Status(Errc::kInvalidArgument, "tensor \"" + detail::printable(name, 100) + "\": " + why);
  };
  if (name.empty() || !detail::is_utf8(name)) return refuse("the name is empty or not valid UTF-8");
  if (shape.empty() || shape.size() > 4) return refuse(std::to_string(shape.size()) + " dimensions, expected 1 to 4");
  const GgmlType* type = find_ggml_type(ggml_type);
  if (type == nullptr || type->block_elements == 0)
    return refuse("type " + std::to_string(ggml_type) + " cannot be written");
  if (shape.back() % type->block_elements != 0) {
    return refuse("rows of " + std::to_string(shape.back()) + " elements, expected a multiple of " +
                  std::to_string(type->block_elements) + " for type " + type->name);
  }
  std::optional<std::uint64_t> size = type->block_bytes;
  for (std::size_t i = 0; i < shape.size() && size; ++i) {
    size = detail::checked_mul(*size, i + 1 == shape.size() ? shape[i] / type->block_elements : shape[i]);
  }
  if (!size || *size == 0) return refuse("its size is 0 or does not fit in 64 bits");
  Tensor tensor;
  tensor.info.name = std::move(name);
  tensor.info.shape.assign(shape.begin(), shape.end());
  tensor.info.ggml_type = ggml_type;
  tensor.info.type_name = type->name;
  tensor.info.bytes = *size;
  return tensor;
}

CORBEL_INLINE Status GgufWriter::add(Tensor tensor) {
  const auto place = std::lower_bound(
      by_name_.begin(), by_name_.end(), tensor.info.name,
      [&](std::uint32_t index, const std::string& wanted) { return tensors_[index].info.name < wanted; });
  if (place != by_name_.end() && tensors_[*place].info.name == tensor.info.name) {
    return {Errc::kInvalidArgument, "tensor \"" + detail::printable(tensor.info.name, 100) + "\": the name is taken"};
  }
  by_name_.insert(place, static_cast<std::uint32_t>(tensors_.size()));
  tensors_.push_back(std::move(tensor));
  return {};
}

CORBEL_INLINE Status GgufWriter::add_tensor(std::string name, std::span<const std::uint64_t> shape,
                                            std::uint32_t ggml_type, std::vector<std::byte> bytes) {
  return detail::guard([&]() -> Status {
    CORBEL_ASSIGN_OR_RETURN(Tensor tensor, checked(std::move(name), shape, ggml_type));
    if (tensor.info.bytes != bytes.size()) {
      return {Errc::kInvalidArgument, "tensor \"" + detail::printable(tensor.info.name, 100) +
                                          "\": " + std::to_string(bytes.size()) +
                                          " bytes do not fit its shape and type " + tensor.info.type_name};
    }
    tensor.bytes = std::move(bytes);
    return add(std::move(tensor));
  });
}

CORBEL_INLINE Status GgufWriter::add_tensor(std::string name, std::span<const std::uint64_t> shape,
                                            std::uint32_t ggml_type, WriteSource source) {
  return detail::guard([&]() -> Status {
    CORBEL_ASSIGN_OR_RETURN(Tensor tensor, checked(std::move(name), shape, ggml_type));
    tensor.source = std::move(source);
    return add(std::move(tensor));
  });
}

CORBEL_INLINE Status GgufWriter::add_f32(std::string name, std::span<const std::uint64_t> shape,
                                         std::span<const float> values) {
  return detail::guard([&]() -> Status {
    std::vector<std::byte> bytes;
    bytes.reserve(values.size() * 4);
    for (const float value : values) {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<std::byte>(bits >> shift & 0xFFu));
    }
    return add_tensor(std::move(name), shape, DType::kF32, std::move(bytes));
  });
}

CORBEL_INLINE Result<std::uint64_t> GgufWriter::alignment() const {
  if (version_ != 2 && version_ != 3) {
    return Status(Errc::kUnsupportedVersion, "GGUF version " + std::to_string(version_) + ", expected 2 or 3");
  }
  const MetaValue* value = metadata_.find("general.alignment");
  if (value == nullptr) return std::uint64_t{32};
  if (value->type() != MetaType::kU32) {
    return Status(Errc::kTypeMismatch, std::string("metadata key \"general.alignment\": expected type u32, found ") +
                                           meta_type_name(value->type()));
  }
  const std::uint64_t alignment = *value->as_uint();
  if (std::has_single_bit(alignment) && alignment <= CheckpointLimits{}.max_alignment) return alignment;
  return Status(Errc::kBadAlignment, "metadata key \"general.alignment\": found " + std::to_string(alignment));
}

CORBEL_INLINE std::vector<std::byte> GgufWriter::head(std::uint64_t alignment) const {
  detail::GgufBytes out;
  out.raw(std::as_bytes(std::span<const char>(std::string_view("GGUF"))));
  out.u32(version_);
  out.u64(tensors_.size());
  out.u64(metadata_.entries().size());
  for (const Metadata::Entry& entry : metadata_.entries()) {
    out.text(entry.key);
    out.value(entry.value);
  }
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    out.text(tensor.info.name);
    out.u32(tensor.info.shape.size());
    for (std::size_t i = tensor.info.shape.size(); i-- > 0;) out.u64(tensor.info.shape[i]);
    out.u32(tensor.info.ggml_type);
    out.u64(offset);
    offset += (tensor.info.bytes + alignment - 1) / alignment * alignment;
  }
  out.pad(alignment);
  return out.take();
}

CORBEL_INLINE Status GgufWriter::write(const WriteSink& sink) const {
  CORBEL_ASSIGN_OR_RETURN(const std::uint64_t alignment, this->alignment());
  CORBEL_RETURN_IF_ERROR(sink(head(alignment)));
  const std::vector<std::byte> zeros(static_cast<std::size_t>(alignment));
  for (const Tensor& tensor : tensors_) {
    const Status status =
        tensor.source ? detail::pour(tensor.source, tensor.info.bytes, sink) : sink(std::span(tensor.bytes));
    if (!status.ok()) return status.with_place("tensor \"" + detail::printable(tensor.info.name, 100) + "\"");
    const auto padding = static_cast<std::size_t>((alignment - tensor.info.bytes % alignment) % alignment);
    CORBEL_RETURN_IF_ERROR(sink(std::span(zeros).first(padding)));
  }
  return {};
}

CORBEL_INLINE Result<std::vector<std::byte>> GgufWriter::head_bytes() const {
  return detail::guard([&]() -> Result<std::vector<std::byte>> {
    CORBEL_ASSIGN_OR_RETURN(const std::uint64_t alignment, this->alignment());
    return head(alignment);
  });
}

CORBEL_INLINE Result<std::vector<std::byte>> GgufWriter::to_bytes() const {
  return detail::guard([&]() -> Result<std::vector<std::byte>> {
    std::vector<std::byte> file;
    CORBEL_RETURN_IF_ERROR(write([&](std::span<const std::byte> bytes) {
      file.insert(file.end(), bytes.begin(), bytes.end());
      return Status();
    }));
    return file;
  });
}

CORBEL_INLINE Status GgufWriter::write_file(const std::string& path) const {
  const Status status = detail::guard([&]() -> Status {
    CORBEL_RETURN_IF_ERROR(alignment().status());
    CORBEL_ASSIGN_OR_RETURN(detail::OutputFile file, detail::OutputFile::create(path));
    CORBEL_RETURN_IF_ERROR(write([&](std::span<const std::byte> bytes) { return file.write(bytes); }));
    return file.commit();
  });
  return status.with_place(detail::printable(path, 200));
}

CORBEL_NAMESPACE_END
