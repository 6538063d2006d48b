// Target safetensors_header: our reader against a second one, written here from the rules of the format with
// nlohmann-json. Both accept the same files and see the same tensors.
#include <corbel/checkpoint/checkpoint.hpp>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "fuzz/fuzz.hpp"
#include "fuzz/mutator.hpp"

CORBEL_FUZZ_MUTATOR(safetensors)

using namespace corbel;
using namespace corbel_fuzz;

namespace {

using Json = nlohmann::json;

struct Tensor {
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;
};

struct Header {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

std::optional<unsigned> bits_of(const std::string& dtype) {
  static const std::map<std::string, unsigned> kBits = {
      {"BOOL", 8},    {"U8", 8},       {"I8", 8},       {"F8_E5M2", 8},     {"F8_E4M3", 8},     {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16}, {"U16", 16},     {"F16", 16},        {"BF16", 16},       {"I32", 32},    {"U32", 32},
      {"F32", 32},    {"C64", 64},     {"F64", 64},     {"I64", 64},        {"U64", 64},        {"F4", 4},      {"F6_E2M3", 6},
      {"F6_E3M2", 6}};
  const auto found = kBits.find(dtype);
  if (found == kBits.end()) return std::nullopt;
  return found->second;
}

// A reader of events, because a tree would hide duplicate keys.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  Header header;
  bool duplicate = false;

  bool null() override { return value(Json()); }
  bool boolean(bool v) override { return value(Json(v)); }
  bool number_integer(number_integer_t v) override { return value(Json(v)); }
  bool number_unsigned(number_unsigned_t v) override { return value(Json(v)); }
  bool number_float(number_float_t v, const string_t&) override { return value(Json(v)); }
  bool string(string_t& v) override { return value(Json(v)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& text) override {
    if (!keys_.back().insert(text).second) duplicate = true;
    pending_.back() = text;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }
  const Json& root() const { return root_; }

 private:
  bool value(Json v) {
    if (stack_.empty()) {
      root_ = std::move(v);
    } else if (stack_.back()->is_array()) {
      stack_.back()->push_back(std::move(v));
    } else {
      (*stack_.back())[pending_.back()] = std::move(v);
    }
    return true;
  }
  bool open(Json v) {
    if (stack_.size() > 8) return false;  // nothing in a header nests so deep
    Json* place;
    if (stack_.empty()) {
      root_ = std::move(v);
      place = &root_;
    } else if (stack_.back()->is_array()) {
      stack_.back()->push_back(std::move(v));
      place = &stack_.back()->back();
    } else {
      place = &((*stack_.back())[pending_.back()] = std::move(v));
    }
    stack_.push_back(place);
    keys_.emplace_back();
    pending_.emplace_back();
    return true;
  }
  bool close() {
    stack_.pop_back();
    keys_.pop_back();
    pending_.pop_back();
    return true;
  }
  Json root_;
  std::vector<Json*> stack_;
  std::vector<std::set<std::string>> keys_;
  std::vector<std::string> pending_;
};

bool read_numbers(const Json& list, std::vector<std::uint64_t>& out) {
  if (!list.is_array()) return false;
  for (const Json& item : list) {
    if (!item.is_number_unsigned()) return false;
    out.push_back(item.get<std::uint64_t>());
  }
  return true;
}

bool read_tensor(const Json& entry, Tensor& tensor) {
  if (!entry.is_object() || entry.size() != 3) return false;
  if (!entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets")) return false;
  if (!entry["dtype"].is_string() || !read_numbers(entry["shape"], tensor.shape)) return false;
  tensor.dtype = entry["dtype"].get<std::string>();
  std::vector<std::uint64_t> offsets;
  if (!read_numbers(entry["data_offsets"], offsets) || offsets.size() != 2) return false;
  tensor.begin = offsets[0];
  tensor.end = offsets[1];
  const std::optional<unsigned> bits = bits_of(tensor.dtype);
  if (!bits || tensor.shape.size() > 8 || tensor.begin > tensor.end) return false;
  // In the order of the shape: what wraps before a 0 is an overflow all the same.
  __extension__ typedef unsigned __int128 Wide;
  Wide size = 1;
  for (const std::uint64_t extent : tensor.shape) {
    size *= extent;
    if (size > UINT64_MAX) return false;
  }
  size *= *bits;
  return size <= UINT64_MAX && size % 8 == 0 && tensor.end - tensor.begin == static_cast<std::uint64_t>(size / 8);
}

std::optional<Header> second_reader(std::string_view file) {
  if (file.size() < 8) return std::nullopt;
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(file[i]);
  if (length > file.size() - 8 || length > 100'000'000) return std::nullopt;
  const std::string_view text = file.substr(8, static_cast<std::size_t>(length));
  const std::uint64_t data = file.size() - 8 - length;
  // nlohmann-json takes a NUL for the end and skips a byte order mark.
  if (text.find('\0') != text.npos || text.substr(0, 3) == "\xEF\xBB\xBF") return std::nullopt;
  HeaderReader reader;
  if (!Json::sax_parse(text.begin(), text.end(), &reader) || reader.duplicate || !reader.root().is_object()) return std::nullopt;
  Header header;
  for (const auto& [name, entry] : reader.root().items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) return std::nullopt;
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return std::nullopt;
        header.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    if (name.size() > CheckpointLimits().tensor_name_bytes || !read_tensor(entry, header.tensors[name])) return std::nullopt;
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
  for (const auto& [name, tensor] : header.tensors) spans.emplace_back(tensor.begin, tensor.end);
  std::sort(spans.begin(), spans.end());
  std::uint64_t end = 0;
  for (const auto& [from, to] : spans) {
    if (from != end) return std::nullopt;
    end = to;
  }
  if (end != data) return std::nullopt;
  return header;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Context context({.threads = 1});
  const std::span<const std::byte> file = bytes_of(data, size);
  const auto ours = [&] {
    const AllocationBound bound(parse_bound(size));
    return open_in_every_mode(file, [&](std::shared_ptr<const FileReader> reader) {
      return reader == nullptr ? Checkpoint::from_memory(file, context, {}, "x.safetensors")
                               : Checkpoint::from_reader(std::move(reader), context, {}, "x.safetensors");
    });
  }();
  const std::optional<Header> theirs = second_reader(text_of(data, size));
  FUZZ_CHECK(ours.ok() == theirs.has_value(), ours.status().message());
  if (!ours.ok()) return 0;

  FUZZ_CHECK(ours->metadata().entries().size() == theirs->metadata.size(), "metadata");
  for (const auto& [key, value] : theirs->metadata) FUZZ_CHECK(ours->metadata().get_string(key).value() == value, key);
  FUZZ_CHECK(ours->tensors().size() == theirs->tensors.size(), "tensors");
  std::uint64_t data_start = size;
  for (const TensorInfo& tensor : ours->tensors()) data_start -= tensor.bytes;
  for (const TensorInfo& tensor : ours->tensors()) {
    const auto found = theirs->tensors.find(tensor.name);
    FUZZ_CHECK(found != theirs->tensors.end(), tensor.name);
    FUZZ_CHECK(tensor.shape == found->second.shape && tensor.type_name == found->second.dtype, tensor.name);
    FUZZ_CHECK(tensor.offset == data_start + found->second.begin, tensor.name);
    FUZZ_CHECK(tensor.bytes == found->second.end - found->second.begin, tensor.name);
    FUZZ_CHECK(ours->find_tensor(tensor.name) == &tensor, tensor.name);
    if (!tensor.supported) continue;
    const auto values = ours->read_f32(tensor);
    FUZZ_CHECK(values.ok() && values->size() == tensor.num_elements(), values.status().message());
  }
  return 0;
}
