// Definitions of safetensors_writer.hpp.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/checkpoint/safetensors_reader.hpp>
#include <corbel/checkpoint/safetensors_writer.hpp>
#include <corbel/detail/checked.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <optional>

CORBEL_NAMESPACE_BEGIN

CORBEL_INLINE Status SafetensorsWriter::set_metadata(std::string key, std::string value) {
  if (!detail::is_utf8(key) || !detail::is_utf8(value)) {
    return {Errc::kInvalidArgument, "metadata \"" + detail::printable(key, 100) + "\" is not valid UTF-8"};
  }
  return detail::guard([&]() -> Status {
    metadata_.insert_or_assign(std::move(key), std::move(value));
    return {};
  });
}

CORBEL_INLINE Status SafetensorsWriter::add(std::string name, Tensor tensor, std::string_view type_name) {
  const auto refuse = [&](const std::string& why) {
    return Status(Errc::kInvalidArgument, "tensor \"" + detail::printable(name, 100) + "\": " + why);
  };
  if (!detail::is_utf8(name) || name == "__metadata__") return refuse("no name for a tensor");
  const SafetensorsType* type = find_safetensors_type(type_name);
  if (type == nullptr) return refuse("safetensors files have no type " + detail::printable(type_name, 40));
  if (tensor.shape.size() > 8) return refuse(std::to_string(tensor.shape.size()) + " dimensions, expected at most 8");
  std::optional<std::uint64_t> bits = type->bits;
  for (const std::uint64_t extent : tensor.shape) {
    if (bits) bits = detail::checked_mul(*bits, extent);
  }
  if (!bits || *bits % 8 != 0) return refuse("its size does not fit in 64 bits or is no whole number of bytes");
  tensor.type = type->name;
  tensor.bits = type->bits;
  tensor.size = *bits / 8;
  if (!tensor.source && tensor.bytes.size() != tensor.size) {
    return refuse(std::to_string(tensor.bytes.size()) + " bytes do not fit its shape and type " + type->name);
  }
  if (tensors_.find(name) != tensors_.end()) return refuse("the name is taken");
  tensors_.emplace(std::move(name), std::move(tensor));
  return {};
}

CORBEL_INLINE Status SafetensorsWriter::add_tensor(std::string name, std::span<const std::uint64_t> shape,
                                                   std::string_view type, std::vector<std::byte> bytes) {
  return detail::guard([&]() -> Status {
    Tensor tensor;
    tensor.shape.assign(shape.begin(), shape.end());
    tensor.bytes = std::move(bytes);
    return add(std::move(name), std::move(tensor), type);
  });
}

CORBEL_INLINE Status SafetensorsWriter::add_tensor(std::string name, std::span<const std::uint64_t> shape,
                                                   std::string_view type, WriteSource source) {
  return detail::guard([&]() -> Status {
    Tensor tensor;
    tensor.shape.assign(shape.begin(), shape.end());
    tensor.source = std::move(source);
    return add(std::move(name), std::move(tensor), type);
  });
}

CORBEL_INLINE Status SafetensorsWriter::write(const WriteSink& sink) const {
  using Entry = decltype(tensors_)::value_type;
  std::vector<const Entry*> order;
  order.reserve(tensors_.size());
  for (const Entry& entry : tensors_) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(),
                   [](const Entry* a, const Entry* b) { return a->second.bits > b->second.bits; });

  std::string text = "{";
  const auto comma = [&] {
    if (text.size() > 1) text += ',';
  };
  if (!metadata_.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata_) {
      if (text.back() != '{') text += ',';
      json::append_quoted(text, key);
      text += ':';
      json::append_quoted(text, value);
    }
    text += '}';
  }
  std::uint64_t offset = 0;
  for (const Entry* entry : order) {
    const Tensor& tensor = entry->second;
    comma();
    json::append_quoted(text, entry->first);
    text += std::string(":{\"dtype\":\"") + tensor.type + "\",\"shape\":[";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) text += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    text += "],\"data_offsets\":[" + std::to_string(offset) + ',' + std::to_string(offset + tensor.size) + "]}";
    offset += tensor.size;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t limit = CheckpointLimits{}.safetensors_header_bytes;
  if (text.size() > limit) {
    return {Errc::kLimitExceeded,
            "a header of " + std::to_string(text.size()) + " bytes, the limit is " + std::to_string(limit)};
  }
  std::byte length[8];
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(text.size() >> (8 * i) & 0xFFu);
  CORBEL_RETURN_IF_ERROR(sink(length));
  CORBEL_RETURN_IF_ERROR(sink(std::as_bytes(std::span<const char>(text))));
  for (const Entry* entry : order) {
    const Tensor& tensor = entry->second;
    const Status status =
        tensor.source ? detail::pour(tensor.source, tensor.size, sink) : sink(std::span(tensor.bytes));
    if (!status.ok()) return status.with_place("tensor \"" + detail::printable(entry->first, 100) + "\"");
  }
  return {};
}

CORBEL_INLINE Result<std::vector<std::byte>> SafetensorsWriter::to_bytes() const {
  return detail::guard([&]() -> Result<std::vector<std::byte>> {
    std::vector<std::byte> file;
    CORBEL_RETURN_IF_ERROR(write([&](std::span<const std::byte> bytes) {
      file.insert(file.end(), bytes.begin(), bytes.end());
      return Status();
    }));
    return file;
  });
}

CORBEL_INLINE Status SafetensorsWriter::write_file(const std::string& path) const {
  const Status status = detail::guard([&]() -> Status {
    CORBEL_ASSIGN_OR_RETURN(detail::OutputFile file, detail::OutputFile::create(path));
    CORBEL_RETURN_IF_ERROR(write([&](std::span<const std::byte> bytes) { return file.write(bytes); }));
    return file.commit();
  });
  return status.with_place(detail::printable(path, 200));
}

CORBEL_NAMESPACE_END
