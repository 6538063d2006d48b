// Definitions of safetensors_reader.hpp. The rules are those of the format's reference implementation: the tensors fill
// the data section exactly, in any order.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/checkpoint/safetensors_reader.hpp>
#include <corbel/detail/checked.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/impl/checkpoint/json_lexer.ipp>

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>

CORBEL_NAMESPACE_BEGIN
namespace detail {

inline constexpr SafetensorsType kSafetensorsTypes[] = {
    {"F64", 64},    {"F32", 32},        {"F16", 16},        {"BF16", 16},   {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
    {"I64", 64},    {"I32", 32},        {"I16", 16},        {"I8", 8},      {"U64", 64},    {"U32", 32},
    {"U16", 16},    {"U8", 8},          {"BOOL", 8},        {"C64", 64},
};

}  // namespace detail

CORBEL_INLINE const SafetensorsType* find_safetensors_type(std::string_view name) noexcept {
  const auto found = std::find_if(std::begin(detail::kSafetensorsTypes), std::end(detail::kSafetensorsTypes),
                                  [&](const SafetensorsType& type) { return name == type.name; });
  return found != std::end(detail::kSafetensorsTypes) ? &*found : nullptr;
}

namespace detail {

inline constexpr std::uint32_t kSafetensorsDepth = 128;
inline constexpr std::size_t kSafetensorsDims = 8;
inline constexpr std::size_t kMiB = std::size_t{1} << 20;

// Objects and lists of JSON text one by one, without keeping them.
class JsonRecords : protected json::detail::Lexer {
 protected:
  using Lexer::Lexer;

  // Calls member(key), which reads the value, for each member of the object that comes next.
  template <class Member>
  Status object(const char* what, Member member) {
    CORBEL_RETURN_IF_ERROR(expect('{', what));
    for (bool first = true;; first = false) {
      skip_space();
      if (peek() == '}' && first) break;
      CORBEL_ASSIGN_OR_RETURN(std::string name, key_text());
      CORBEL_RETURN_IF_ERROR(member(std::move(name)));
      skip_space();
      if (peek() == '}') break;
      if (peek() != ',') return unexpected("',' or '}'");
      ++at_;
    }
    ++at_;
    return {};
  }

  // The list of integers that comes next: at most `limit` of them are kept, all are counted.
  Result<std::size_t> integers(const char* what, std::span<std::uint64_t> kept) {
    CORBEL_RETURN_IF_ERROR(expect('[', what));
    std::size_t count = 0;
    for (skip_space(); peek() != ']' || count != 0;) {
      CORBEL_ASSIGN_OR_RETURN(const std::uint64_t value, integer(what));
      if (count < kept.size()) kept[count] = value;
      ++count;
      skip_space();
      if (peek() == ']') break;
      if (peek() != ',') return unexpected("',' or ']'");
      ++at_;
    }
    ++at_;
    return count;
  }

  Result<std::string> text(const char* what) {
    skip_space();
    if (peek() != '"') return mismatch(what, "a string");
    return string();
  }

  // The end of the text.
  Status end() {
    skip_space();
    return at_ == text_.size() ? Status() : unexpected("the end");
  }

  // A value of another type than needed. What is wrong with its syntax comes first.
  Status mismatch(const char* what, const char* expected) {
    const std::size_t start = at_;
    CORBEL_RETURN_IF_ERROR(skip_value(kSafetensorsDepth));
    return error_at(Errc::kTypeMismatch, start, std::string(what) + ": expected " + expected);
  }

 private:
  Status expect(char open, const char* what) {
    skip_space();
    if (peek() != open) return mismatch(what, open == '{' ? "an object" : "a list");
    ++at_;
    return {};
  }

  Result<std::uint64_t> integer(const char* what) {
    skip_space();
    const std::size_t start = at_;
    const int first = peek();
    if (first != '-' && (first < '0' || first > '9')) return mismatch(what, "integers");
    CORBEL_ASSIGN_OR_RETURN(const json::Value value, number());
    if (value.type() == json::Type::kUint) return value.as_uint();
    const std::string found = printable(text_.substr(start, at_ - start), 40);
    const bool whole = value.is_integer() || (found != "-0" && found.find_first_of(".eE") == std::string::npos);
    return error_at(whole ? Errc::kBadValue : Errc::kTypeMismatch, start,
                    std::string(what) + ": expected integers from 0 to 2^64 - 1, found " + found);
  }
};

class SafetensorsHeader : private JsonRecords {
 public:
  // `offset`: of the text in the file, so that messages give places in the file.
  SafetensorsHeader(std::string_view text, const CheckpointLimits& limits) : JsonRecords(text), limits_(limits) {}

  Status parse() {
    skip_space();
    if (peek() != '{') return unexpected("'{'");
    CORBEL_RETURN_IF_ERROR(object("the header", [&](std::string name) { return entry(std::move(name)); }));
    return end();
  }

  std::deque<TensorInfo>& tensors() noexcept { return tensors_; }
  std::vector<Metadata::Entry>& metadata() noexcept { return metadata_; }

 private:
  Status entry(std::string name) {
    if (name == "__metadata__") {
      if (std::exchange(has_metadata_, true)) return {Errc::kDuplicate, "\"__metadata__\" appears twice"};
      return read_metadata().with_place("\"__metadata__\"");
    }
    if (tensors_.size() >= limits_.safetensors_tensors) {
      return {Errc::kLimitExceeded, "more than " + std::to_string(limits_.safetensors_tensors) + " tensors, the limit"};
    }
    if (name.size() > limits_.tensor_name_bytes) {
      return {Errc::kLimitExceeded, "tensor \"" + printable(name, 100) + "\": a name of " +
                                        std::to_string(name.size()) + " bytes, the limit is " +
                                        std::to_string(limits_.tensor_name_bytes)};
    }
    TensorInfo tensor;
    tensor.name = std::move(name);
    Status status = read_tensor(tensor);
    if (!status.ok()) return status.with_place("tensor \"" + printable(tensor.name, 100) + "\"");
    tensors_.push_back(std::move(tensor));
    return {};
  }

  Status read_metadata() {
    return object("the value", [&](std::string key) -> Status {
      if (metadata_.size() >= limits_.metadata_keys) {
        return {Errc::kLimitExceeded, "more than " + std::to_string(limits_.metadata_keys) + " keys, the limit"};
      }
      CORBEL_ASSIGN_OR_RETURN(const std::string value, text("a value"));
      metadata_.push_back({std::move(key), MetaValue::from_string(value)});
      return {};
    });
  }

  Status read_tensor(TensorInfo& tensor) {
    enum : unsigned { kType = 1, kShape = 2, kOffsets = 4 };
    unsigned seen = 0;
    std::string type_name;
    std::uint64_t offsets[2] = {};
    const auto once = [&](unsigned field, const char* name) {
      const bool twice = (seen & field) != 0;
      seen |= field;
      return twice ? Status(Errc::kDuplicate, std::string("\"") + name + "\" appears twice") : Status();
    };
    const Status fields = object("the entry", [&](const std::string& key) -> Status {
      if (key == "dtype") {
        CORBEL_RETURN_IF_ERROR(once(kType, "dtype"));
        CORBEL_ASSIGN_OR_RETURN(type_name, text("dtype"));
        return {};
      }
      if (key == "shape") {
        CORBEL_RETURN_IF_ERROR(once(kShape, "shape"));
        std::uint64_t shape[kSafetensorsDims] = {};
        CORBEL_ASSIGN_OR_RETURN(const std::size_t dims, integers("shape", shape));
        if (dims > kSafetensorsDims) {
          return {Errc::kLimitExceeded,
                  std::to_string(dims) + " dimensions, the limit is " + std::to_string(kSafetensorsDims)};
        }
        tensor.shape.assign(shape, shape + dims);
        return {};
      }
      if (key == "data_offsets") {
        CORBEL_RETURN_IF_ERROR(once(kOffsets, "data_offsets"));
        CORBEL_ASSIGN_OR_RETURN(const std::size_t count, integers("data_offsets", offsets));
        if (count != 2) {
          return {Errc::kBadValue, "data_offsets of " + std::to_string(count) + " numbers, expected begin and end"};
        }
        return {};
      }
      return {Errc::kBadValue, "the field \"" + printable(key, 40) + "\" is none of dtype, shape and data_offsets"};
    });
    CORBEL_RETURN_IF_ERROR(fields);
    const char* const missing = (seen & kType) == 0      ? "dtype"
                                : (seen & kShape) == 0   ? "shape"
                                : (seen & kOffsets) == 0 ? "data_offsets"
                                                         : nullptr;
    if (missing != nullptr) return {Errc::kMissingKey, std::string("\"") + missing + "\" is missing"};
    return size_tensor(tensor, type_name, offsets[0], offsets[1]);
  }

  static Status size_tensor(TensorInfo& tensor, const std::string& type_name, std::uint64_t begin, std::uint64_t end) {
    const SafetensorsType* type = find_safetensors_type(type_name);
    if (type == nullptr) {
      return {Errc::kUnsupported, "dtype \"" + printable(type_name, 40) + "\" is not known"};
    }
    tensor.type_name = type->name;
    const DTypeTraits* traits = find_dtype_by_name(type->name);
    tensor.supported =
        traits != nullptr && traits->in_safetensors && traits->block_bytes * 8 == type->bits * traits->block_elements;
    if (tensor.supported) {
      tensor.dtype = traits->dtype;
      tensor.ggml_type = traits->ggml_id;
    }
    if (begin > end) {
      return {Errc::kBadOffset,
              "data_offsets begin at " + std::to_string(begin) + ", after their end " + std::to_string(end)};
    }
    std::optional<std::uint64_t> elements = 1;
    for (const std::uint64_t extent : tensor.shape) {
      if (elements) elements = checked_mul(*elements, extent);
    }
    const std::optional<std::uint64_t> bits = elements ? checked_mul(*elements, type->bits) : std::nullopt;
    if (!bits) return {Errc::kOverflow, "shape and dtype give a size that does not fit in 64 bits"};
    if (*bits % 8 != 0) {
      return {Errc::kBadValue,
              std::to_string(*elements) + " values of " + std::to_string(type->bits) + " bits do not fill whole bytes"};
    }
    tensor.bytes = *bits / 8;
    tensor.offset = begin;
    if (end - begin == tensor.bytes) return {};
    return {Errc::kSizeMismatch, "data_offsets span " + std::to_string(end - begin) + " bytes, shape and dtype give " +
                                     std::to_string(tensor.bytes)};
  }

  const CheckpointLimits& limits_;
  std::deque<TensorInfo> tensors_;
  std::vector<Metadata::Entry> metadata_;
  bool has_metadata_ = false;
};

// Checks that the tensors fill [0, size) without hole or overlap. Contradictions between tensors come first, so that a
// file that was only cut short is always kTruncated.
inline Status check_safetensors_layout(const std::vector<TensorInfo>& tensors, std::uint64_t size) {
  std::vector<std::uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return tensors[a].name < tensors[b].name; });
  const auto twice = std::adjacent_find(order.begin(), order.end(),
                                        [&](auto a, auto b) { return tensors[a].name == tensors[b].name; });
  if (twice != order.end()) {
    return {Errc::kDuplicate, "tensor \"" + printable(tensors[*twice].name, 100) + "\" appears twice"};
  }
  std::sort(order.begin(), order.end(), [&](auto a, auto b) {
    const TensorInfo& x = tensors[a];
    const TensorInfo& y = tensors[b];
    return x.offset != y.offset ? x.offset < y.offset : x.bytes != y.bytes ? x.bytes < y.bytes : a < b;
  });
  std::uint64_t end = 0;
  const TensorInfo* last = nullptr;
  for (const std::uint32_t index : order) {
    const TensorInfo& tensor = tensors[index];
    if (tensor.offset != end) {
      const std::string place = "tensor \"" + printable(tensor.name, 100) + "\" begins at byte " +
                                std::to_string(tensor.offset) + " of the data, expected " + std::to_string(end);
      if (tensor.offset < end) {
        return {Errc::kOverlap, place + ", the end of tensor \"" + printable(last->name, 100) + "\""};
      }
      return tensor.offset > size
                 ? Status(Errc::kTruncated, place + "; the data has " + std::to_string(size) + " bytes")
                 : Status(Errc::kGap, place + "; the bytes between belong to no tensor");
    }
    end += tensor.bytes;  // the offsets are 64 bit numbers, so this is the end that the header states
    last = &tensor;
  }
  if (end > size) {
    return {Errc::kTruncated, "tensor \"" + printable(last->name, 100) + "\" ends at byte " + std::to_string(end) +
                                  " of the data, which has " + std::to_string(size) + " bytes"};
  }
  if (end < size) {
    return {Errc::kTrailingData, std::to_string(size - end) + " bytes after the last tensor, which ends at byte " +
                                     std::to_string(end) + " of the data"};
  }
  return {};
}

CORBEL_INLINE Result<SafetensorsHead> read_safetensors_head(BoundedReader& reader, const CheckpointLimits& limits) {
  CORBEL_ASSIGN_OR_RETURN(const auto length, reader.number<std::uint64_t>("header length"));
  if (length > limits.safetensors_header_bytes) {
    return Status(Errc::kLimitExceeded, "a header of " + std::to_string(length) + " bytes, the limit is " +
                                            std::to_string(limits.safetensors_header_bytes) +
                                            "; is this a safetensors file?");
  }
  SafetensorsHead head;
  {
    CORBEL_ASSIGN_OR_RETURN(const std::string text, reader.text(length, "header"));
    SafetensorsHeader header(text, limits);
    if (Status status = header.parse(); !status.ok()) return status.with_place("header");
    CORBEL_ASSIGN_OR_RETURN(head.metadata, Metadata::from_entries(std::move(header.metadata())));
    // A real table is small beside the data that it describes.
    const std::size_t count = header.tensors().size();
    if (count * sizeof(TensorInfo) > reader.size() + kMiB) {
      return Status(Errc::kLimitExceeded, std::to_string(count) + " tensors in a file of " +
                                              std::to_string(reader.size()) +
                                              " bytes: the table would be larger than it");
    }
    head.tensors.reserve(count);
    std::move(header.tensors().begin(), header.tensors().end(), std::back_inserter(head.tensors));
  }
  CORBEL_RETURN_IF_ERROR(check_safetensors_layout(head.tensors, reader.remaining()));
  for (TensorInfo& tensor : head.tensors) tensor.offset += reader.offset();  // below the file's size
  return head;
}

// A name that stays in the folder of the index.
inline Status check_shard_name(std::string_view name) {
  const auto bad = [&](Errc code, const char* why) {
    return Status(code, "file name \"" + printable(name, 100) + "\" " + why);
  };
  if (name.empty() || name == ".") return bad(Errc::kBadValue, "names no file");
  if (name.size() > 255) return bad(Errc::kBadValue, "is longer than 255 bytes");
  if (name.find('\0') != std::string_view::npos) return bad(Errc::kPathEscape, "has a NUL character");
  if (name == ".." || name.find_first_of("/\\:") != std::string_view::npos) {
    return bad(Errc::kPathEscape, "leaves the folder of the index");
  }
  if (!name.ends_with(".safetensors")) return bad(Errc::kUnsupported, "is no .safetensors file; no other kind is read");
  return {};
}

class SafetensorsIndexReader : private JsonRecords {
 public:
  SafetensorsIndexReader(std::string_view text, const CheckpointLimits& limits) : JsonRecords(text), limits_(limits) {}

  Result<SafetensorsIndex> parse() {
    bool found = false;
    const Status members = object("the index", [&](const std::string& key) -> Status {
      if (key != "weight_map") return skip_value(kSafetensorsDepth);
      if (std::exchange(found, true)) return {Errc::kDuplicate, "\"weight_map\" appears twice"};
      return object("weight_map", [&](std::string tensor) { return entry(std::move(tensor)); });
    });
    CORBEL_RETURN_IF_ERROR(members);
    CORBEL_RETURN_IF_ERROR(end());
    if (!found) return Status(Errc::kMissingKey, "\"weight_map\" is missing");
    return finish();
  }

 private:
  Status entry(std::string tensor) {
    if (index_.entries.size() >= limits_.safetensors_tensors) {
      return {Errc::kLimitExceeded, "more than " + std::to_string(limits_.safetensors_tensors) + " entries, the limit"};
    }
    CORBEL_ASSIGN_OR_RETURN(std::string file, text("weight_map"));
    auto known = files_.find(file);
    if (known == files_.end()) {
      Status status = check_shard_name(file);
      if (!status.ok()) return status.with_place("weight_map: tensor \"" + printable(tensor, 100) + "\"");
      if (files_.size() >= limits_.files) {
        return {Errc::kLimitExceeded, "more than " + std::to_string(limits_.files) + " files, the limit"};
      }
      known = files_.emplace(std::move(file), static_cast<std::uint32_t>(files_.size())).first;
    }
    index_.entries.push_back({std::move(tensor), known->second});
    return {};
  }

  Result<SafetensorsIndex> finish() {
    std::vector<std::uint32_t> order(files_.size());  // from the order of appearance to that of the names
    for (const auto& [file, number] : files_) {
      order[number] = static_cast<std::uint32_t>(index_.files.size());
      index_.files.push_back(file);
    }
    for (SafetensorsIndex::Entry& entry : index_.entries) entry.file = order[entry.file];
    std::sort(index_.entries.begin(), index_.entries.end(),
              [](const auto& a, const auto& b) { return a.tensor < b.tensor; });
    const auto twice = std::adjacent_find(index_.entries.begin(), index_.entries.end(),
                                          [](const auto& a, const auto& b) { return a.tensor == b.tensor; });
    if (twice != index_.entries.end()) {
      return Status(Errc::kDuplicate, "weight_map: tensor \"" + printable(twice->tensor, 100) + "\" appears twice");
    }
    return std::move(index_);
  }

  const CheckpointLimits& limits_;
  std::map<std::string, std::uint32_t> files_;
  SafetensorsIndex index_;
};

CORBEL_INLINE Result<SafetensorsIndex> parse_safetensors_index(std::string_view text, const CheckpointLimits& limits) {
  return SafetensorsIndexReader(text, limits).parse();
}

}  // namespace detail
CORBEL_NAMESPACE_END
