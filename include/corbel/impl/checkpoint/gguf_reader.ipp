// Definitions of gguf_reader.hpp. The format is that of the GGUF specification; what is refused, and with which kind,
// is written down in docs/reference/errors.md.
#pragma once

#include <corbel/checkpoint/gguf_reader.hpp>
#include <corbel/detail/checked.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>

CORBEL_NAMESPACE_BEGIN

// Fills a MetaValue from a file.
class MetaValueReader {
 public:
  MetaValueReader(detail::BoundedReader& reader, const CheckpointLimits& limits) : reader_(reader), limits_(limits) {}

  Result<MetaValue> read(MetaType type) {
    MetaValue value;
    value.type_ = value.element_ = type;
    if (type == MetaType::kArray) {
      CORBEL_RETURN_IF_ERROR(read_array(value));
    } else if (type == MetaType::kString) {
      CORBEL_RETURN_IF_ERROR(read_string(value));
    } else {
      CORBEL_RETURN_IF_ERROR(read_numbers(value, 1));
    }
    return value;
  }

 private:
  Status read_array(MetaValue& value) {
    CORBEL_ASSIGN_OR_RETURN(const auto element, reader_.number<std::uint32_t>("array element type"));
    value.element_ = static_cast<MetaType>(element);
    if (value.element_ == MetaType::kArray) return {Errc::kUnsupported, "an array of arrays is not supported"};
    if (element > static_cast<std::uint32_t>(MetaType::kF64)) {
      return {Errc::kBadType, "array element type " + std::to_string(element) + " does not exist"};
    }
    CORBEL_ASSIGN_OR_RETURN(const auto count, reader_.number<std::uint64_t>("array length"));
    if (count > limits_.array_elements) {
      return {Errc::kLimitExceeded, "an array of " + std::to_string(count) + " elements, the limit is " +
                                        std::to_string(limits_.array_elements)};
    }
    if (value.element_ != MetaType::kString) return read_numbers(value, count);
    CORBEL_RETURN_IF_ERROR(reader_.expect(count, sizeof(std::uint64_t), "array of strings"));
    value.string_ends_.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      if (Status status = read_string(value); !status.ok()) return status.with_place("element " + std::to_string(i));
    }
    return {};
  }

  Status read_string(MetaValue& value) {
    CORBEL_ASSIGN_OR_RETURN(const auto length, reader_.number<std::uint64_t>("string length"));
    if (length > limits_.string_bytes) {
      return {Errc::kLimitExceeded,
              "a string of " + std::to_string(length) + " bytes, the limit is " + std::to_string(limits_.string_bytes)};
    }
    CORBEL_RETURN_IF_ERROR(reader_.append(value.raw_, length, "string"));
    value.string_ends_.push_back(value.raw_.size());
    return {};
  }

  Status read_numbers(MetaValue& value, std::uint64_t count) {
    const std::size_t width = meta_type_bytes(value.element_);
    CORBEL_RETURN_IF_ERROR(reader_.expect(count, width, "value"));
    CORBEL_RETURN_IF_ERROR(reader_.append(value.raw_, count * width, "value"));
    if (value.element_ != MetaType::kBool) return {};
    for (const std::byte byte : value.raw_) {
      if (byte > std::byte{1}) {
        return {Errc::kBadValue, "a bool must be 0 or 1, found " + std::to_string(std::to_integer<int>(byte))};
      }
    }
    return {};
  }

  detail::BoundedReader& reader_;
  const CheckpointLimits& limits_;
};

namespace detail {

// The smallest records that can exist: a key of one byte with a one-byte value; a tensor with one dimension.
inline constexpr std::uint64_t kMinKeyRecord = 8 + 1 + 4 + 1;
inline constexpr std::uint64_t kMinTensorRecord = 8 + 1 + 4 + 8 + 4 + 8;
inline constexpr std::uint32_t kMaxDims = 4;

inline std::string in_quotes(std::string_view text) { return "\"" + printable(text, 100) + "\""; }

// True where the text has a character that could change what a terminal or a log shows.
inline bool has_control(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (point.value < 0x20u || (point.value >= 0x7Fu && point.value < 0xA0u)) return true;
    at += std::max(point.length, 1u);
  }
  return false;
}

class GgufParser {
 public:
  GgufParser(BoundedReader& reader, const CheckpointLimits& limits) : reader_(reader), limits_(limits) {}

  Result<GgufHead> parse() {
    CORBEL_RETURN_IF_ERROR(read_version());
    CORBEL_ASSIGN_OR_RETURN(const auto num_tensors, read_count("number of tensors", limits_.tensors));
    CORBEL_ASSIGN_OR_RETURN(const auto num_keys, read_count("number of metadata keys", limits_.metadata_keys));
    CORBEL_RETURN_IF_ERROR(reader_.expect(num_keys, kMinKeyRecord, "metadata"));
    CORBEL_RETURN_IF_ERROR(read_metadata(num_keys));
    CORBEL_RETURN_IF_ERROR(read_alignment());
    CORBEL_RETURN_IF_ERROR(reader_.expect(num_tensors, kMinTensorRecord, "tensor table"));
    CORBEL_RETURN_IF_ERROR(read_tensors(num_tensors));
    CORBEL_RETURN_IF_ERROR(index_names());
    CORBEL_RETURN_IF_ERROR(place_tensors());
    return std::move(head_);
  }

 private:
  Status read_version() {
    static constexpr std::string_view kMagic = "GGUF";
    const auto present = static_cast<std::size_t>(std::min<std::uint64_t>(kMagic.size(), reader_.size()));
    CORBEL_ASSIGN_OR_RETURN(const std::string magic, reader_.text(present, "magic"));
    if (magic != kMagic.substr(0, present)) {
      return {Errc::kBadMagic, "not a GGUF file: it starts with " + in_quotes(magic) + ", expected \"GGUF\""};
    }
    CORBEL_RETURN_IF_ERROR(reader_.expect(kMagic.size() - present, 1, "magic"));
    CORBEL_ASSIGN_OR_RETURN(head_.version, reader_.number<std::uint32_t>("version"));
    if (head_.version == 2 || head_.version == 3) return {};
    const std::uint32_t swapped = __builtin_bswap32(head_.version);
    if (swapped >= 1 && swapped <= 3) {
      return {Errc::kUnsupportedVersion,
              "a big-endian GGUF file (version " + std::to_string(swapped) + ") is not read"};
    }
    return {Errc::kUnsupportedVersion, "GGUF version " + std::to_string(head_.version) + ", expected 2 or 3"};
  }

  Result<std::uint64_t> read_count(const char* what, std::uint64_t limit) {
    CORBEL_ASSIGN_OR_RETURN(const auto count, reader_.number<std::uint64_t>(what));
    if (count <= limit) return count;
    return Status(Errc::kLimitExceeded,
                  std::string(what) + " " + std::to_string(count) + ", the limit is " + std::to_string(limit));
  }

  // A key or a tensor's name.
  Result<std::string> read_name(const char* what, std::uint64_t limit) {
    const std::string place = std::string(what) + " at byte " + std::to_string(reader_.offset());
    CORBEL_ASSIGN_OR_RETURN(const auto length, reader_.number<std::uint64_t>(what));
    if (length == 0) return Status(Errc::kBadValue, place + ": is empty");
    if (length > limit) {
      return Status(Errc::kLimitExceeded,
                    place + ": " + std::to_string(length) + " bytes, the limit is " + std::to_string(limit));
    }
    CORBEL_ASSIGN_OR_RETURN(std::string name, reader_.text(length, what));
    if (!is_utf8(name)) return Status(Errc::kBadUtf8, place + ": " + in_quotes(name) + " is not valid UTF-8");
    return name;
  }

  Status read_metadata(std::uint64_t count) {
    std::vector<Metadata::Entry> entries;
    entries.reserve(static_cast<std::size_t>(count));
    MetaValueReader values(reader_, limits_);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t start = reader_.offset();
      CORBEL_ASSIGN_OR_RETURN(std::string key, read_name("metadata key", limits_.key_bytes));
      const auto place = [&] { return "metadata key " + in_quotes(key) + " at byte " + std::to_string(start); };
      if (key.find('\0') != std::string::npos) return Status(Errc::kBadUtf8, "a NUL character").with_place(place());
      const Result<std::uint32_t> type = reader_.number<std::uint32_t>("value type");
      if (!type.ok()) return type.status().with_place(place());
      if (*type > static_cast<std::uint32_t>(MetaType::kF64)) {
        return Status(Errc::kBadType, "value type " + std::to_string(*type) + " does not exist").with_place(place());
      }
      Result<MetaValue> value = values.read(static_cast<MetaType>(*type));
      if (!value.ok()) return value.status().with_place(place());
      entries.push_back({std::move(key), *std::move(value)});
    }
    CORBEL_ASSIGN_OR_RETURN(head_.metadata, Metadata::from_entries(std::move(entries)));
    return {};
  }

  Status read_alignment() {
    static constexpr std::string_view kKey = "general.alignment";
    const MetaValue* value = head_.metadata.find(kKey);
    if (value == nullptr) return {};
    if (value->type() != MetaType::kU32) {
      return {Errc::kTypeMismatch,
              "metadata key " + in_quotes(kKey) + ": expected type u32, found " + meta_type_name(value->type())};
    }
    head_.alignment = *value->as_uint();
    if (std::has_single_bit(head_.alignment) && head_.alignment <= limits_.max_alignment) return {};
    return {Errc::kBadAlignment, "metadata key " + in_quotes(kKey) + ": expected a power of two up to " +
                                     std::to_string(limits_.max_alignment) + ", found " +
                                     std::to_string(head_.alignment)};
  }

  Status read_tensors(std::uint64_t count) {
    head_.tensors.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t start = reader_.offset();
      TensorInfo tensor;
      CORBEL_ASSIGN_OR_RETURN(tensor.name, read_name("tensor name", limits_.tensor_name_bytes));
      Status status = read_tensor(tensor);
      if (!status.ok())
        return status.with_place("tensor " + in_quotes(tensor.name) + " at byte " + std::to_string(start));
      head_.tensors.push_back(std::move(tensor));
    }
    return {};
  }

  Status read_tensor(TensorInfo& tensor) {
    if (has_control(tensor.name)) return {Errc::kBadValue, "the name has control characters"};
    CORBEL_ASSIGN_OR_RETURN(const auto dims, reader_.number<std::uint32_t>("number of dimensions"));
    if (dims == 0) return {Errc::kBadValue, "0 dimensions, expected 1 to " + std::to_string(kMaxDims)};
    if (dims > kMaxDims) {
      return {Errc::kLimitExceeded, std::to_string(dims) + " dimensions, the limit is " + std::to_string(kMaxDims)};
    }
    tensor.shape.resize(dims);
    for (std::uint32_t i = 0; i < dims; ++i) {  // the file lists the fastest dimension first
      CORBEL_ASSIGN_OR_RETURN(tensor.shape[dims - 1 - i], reader_.number<std::uint64_t>("dimension"));
    }
    CORBEL_ASSIGN_OR_RETURN(tensor.ggml_type, reader_.number<std::uint32_t>("tensor type"));
    CORBEL_ASSIGN_OR_RETURN(tensor.offset, reader_.number<std::uint64_t>("tensor offset"));
    CORBEL_RETURN_IF_ERROR(size_tensor(tensor));
    if (tensor.offset % head_.alignment != 0) {
      return {Errc::kBadOffset, "offset " + std::to_string(tensor.offset) + " is no multiple of the alignment " +
                                    std::to_string(head_.alignment)};
    }
    return {};
  }

  // Sets dtype and bytes from type and shape.
  static Status size_tensor(TensorInfo& tensor) {
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : tensor.shape) {
      if (extent == 0) return {Errc::kBadValue, "a dimension is 0"};
      const std::optional<std::uint64_t> product = checked_mul(elements, extent);
      if (!product || *product > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return {Errc::kOverflow,
                "the number of elements does not fit in 63 bits (a dimension is " + std::to_string(extent) + ")"};
      }
      elements = *product;
    }
    const GgmlType* type = find_ggml_type(tensor.ggml_type);
    if (type == nullptr) {
      return {Errc::kBadType, "tensor type " + std::to_string(tensor.ggml_type) + " does not exist"};
    }
    if (type->block_elements == 0) {
      return {Errc::kUnsupported,
              std::string("type ") + type->name + " was removed from the format and is not supported"};
    }
    tensor.type_name = type->name;
    if (tensor.shape.back() % type->block_elements != 0) {
      return {Errc::kShapeMismatch, "rows of " + std::to_string(tensor.shape.back()) +
                                        " elements, expected a multiple of " + std::to_string(type->block_elements) +
                                        " for type " + type->name};
    }
    const std::optional<std::uint64_t> bytes = checked_mul(elements / type->block_elements, type->block_bytes);
    if (!bytes) return {Errc::kOverflow, "the size in bytes does not fit in 64 bits"};
    tensor.bytes = *bytes;
    const DTypeTraits* traits = find_dtype_by_ggml_id(tensor.ggml_type);
    tensor.supported = traits != nullptr;
    if (traits != nullptr) tensor.dtype = traits->dtype;
    return {};
  }

  Status index_names() {
    const std::vector<TensorInfo>& tensors = head_.tensors;
    std::vector<std::uint32_t>& order = head_.by_name;
    order.resize(tensors.size());
    std::iota(order.begin(), order.end(), 0u);
    // Sorting, not hashing: no choice of names can make it slow.
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return tensors[a].name < tensors[b].name; });
    const auto twice = std::adjacent_find(order.begin(), order.end(),
                                          [&](auto a, auto b) { return tensors[a].name == tensors[b].name; });
    if (twice == order.end()) return {};
    return {Errc::kDuplicate, "tensor " + in_quotes(tensors[*twice].name) + " appears twice (entries " +
                                  std::to_string(std::min(twice[0], twice[1])) + " and " +
                                  std::to_string(std::max(twice[0], twice[1])) + ")"};
  }

  // Makes offsets absolute and checks that the tensors, in the order of their offsets, fill the data section without
  // overlap or hole, and that the file has all of it. Contradictions between tensors come first, so that a file that
  // was only cut short is always kTruncated.
  Status place_tensors() {
    const std::uint64_t head_end = reader_.offset();
    head_.data_offset = *checked_align(head_end, head_.alignment);  // far below 2^64: head_end is inside the file
    for (TensorInfo& tensor : head_.tensors) {
      const std::optional<std::uint64_t> begin = checked_add(head_.data_offset, tensor.offset);
      const std::optional<std::uint64_t> end = begin ? checked_add(*begin, tensor.bytes) : std::nullopt;
      if (!end || !checked_align(*end, head_.alignment)) {
        return {Errc::kOverflow, "tensor " + in_quotes(tensor.name) + ": offset " + std::to_string(tensor.offset) +
                                     " + " + std::to_string(tensor.bytes) + " bytes does not fit in 64 bits"};
      }
      tensor.offset = *begin;
    }
    std::vector<std::uint32_t> order(head_.tensors.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) {
      return head_.tensors[a].offset != head_.tensors[b].offset ? head_.tensors[a].offset < head_.tensors[b].offset
                                                                : a < b;
    });
    std::uint64_t end = head_.data_offset;
    const TensorInfo* previous = nullptr;
    for (const std::uint32_t index : order) {
      const TensorInfo& tensor = head_.tensors[index];
      CORBEL_RETURN_IF_ERROR(check_neighbours(previous, tensor, *checked_align(end, head_.alignment)));
      end = tensor.offset + tensor.bytes;
      previous = &tensor;
    }
    return check_end(head_end, end, previous);
  }

  Status check_neighbours(const TensorInfo* previous, const TensorInfo& tensor, std::uint64_t expected) const {
    if (tensor.offset == expected) return {};
    const std::string place = "tensor " + in_quotes(tensor.name) + ": begins at byte " + std::to_string(tensor.offset) +
                              " of the file, expected " + std::to_string(expected);
    if (tensor.offset > expected) {
      if (tensor.offset >= reader_.size()) {
        return {Errc::kBadOffset, place + "; the file has " + std::to_string(reader_.size()) + " bytes"};
      }
      return {Errc::kGap, place + "; the bytes between belong to no tensor"};
    }
    // Tensors are sorted by offset and the first begins at the data section or after it, so there is a previous one.
    if (previous->bytes > reader_.size() - std::min(reader_.size(), head_.data_offset)) {
      return {Errc::kSizeMismatch, "tensor " + in_quotes(previous->name) + ": " + std::to_string(previous->bytes) +
                                       " bytes by its shape and type, more than the file has, and tensor " +
                                       in_quotes(tensor.name) + " begins inside it"};
    }
    return {Errc::kOverlap, place + ", the end of tensor " + in_quotes(previous->name)};
  }

  // The end of the last tensor against the end of the file: the alignment tail may be there in full, in part, or not at
  // all.
  Status check_end(std::uint64_t head_end, std::uint64_t end, const TensorInfo* last) {
    if (last != nullptr && end > reader_.size()) {
      return {Errc::kTruncated, "tensor " + in_quotes(last->name) + " ends at byte " + std::to_string(end) +
                                    ", the file has " + std::to_string(reader_.size()) + " bytes"};
    }
    if (reader_.size() <= *checked_align(end, head_.alignment)) return {};
    // More bytes than were announced. If they begin right behind the table, the table is longer than its count says.
    std::vector<std::byte> padding;
    const std::uint64_t count = std::min(head_.data_offset - head_end, reader_.remaining());
    CORBEL_RETURN_IF_ERROR(reader_.append(padding, count, "padding"));
    if (std::any_of(padding.begin(), padding.end(), [](std::byte byte) { return byte != std::byte{0}; })) {
      return {Errc::kGap, "bytes after the tensor table, at byte " + std::to_string(head_end) +
                              ", belong to no tensor: the file seems to have more than the " +
                              std::to_string(head_.tensors.size()) + " tensors that it announces"};
    }
    return {Errc::kTrailingData, std::to_string(reader_.size() - end) +
                                     " bytes after the last tensor, which ends at byte " + std::to_string(end)};
  }

  BoundedReader& reader_;
  const CheckpointLimits& limits_;
  GgufHead head_;
};

CORBEL_INLINE Result<GgufHead> read_gguf_head(BoundedReader& reader, const CheckpointLimits& limits) {
  return GgufParser(reader, limits).parse();
}

}  // namespace detail
CORBEL_NAMESPACE_END
