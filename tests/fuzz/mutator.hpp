// Structure-aware mutators: an input is read as what it should be (a GGUF file, JSON, a safetensors file, an archive of
// files), one to three of its fields are changed, and it is written again. So the head stays plausible and the change
// reaches the code behind it.
//
// A target names its mutator with CORBEL_FUZZ_MUTATOR(gguf | json | safetensors | archive), or its own with
// CORBEL_FUZZ_MUTATOR_FUNCTION.
#pragma once

#include <corbel/checkpoint/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/gguf_builder.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace corbel_fuzz {

/// Where a mutator takes its choices from.
class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed + 1) {}
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : engine_() % bound; }
  bool one_in(std::size_t times) { return below(times) == 0; }
  template <class List>
  auto& pick(List& list) {
    return list[below(std::size(list))];
  }

 private:
  std::minstd_rand engine_;
};

/// A number at which sizes and counts go wrong, or one near `value`.
inline std::uint64_t odd_number(Random& random, std::uint64_t value) {
  static constexpr std::uint64_t kBorders[] = {
      0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 31, 32, 33, 64, 127, 128, 255, 256, 1024, 4096, 65535, 65536, 1ull << 20, 1ull << 22,
      (1ull << 31) - 1, 1ull << 31, (1ull << 32) - 1, 1ull << 32, 1ull << 40, 1ull << 59, 1ull << 61, 1ull << 62,
      (1ull << 63) - 1, 1ull << 63, ~0ull - 31, ~0ull - 15, ~0ull - 7, ~0ull - 1, ~0ull};
  switch (random.below(6)) {
    case 0:
      return value + 1;
    case 1:
      return value - 1;
    case 2:
      return value * 2;
    case 3:
      return value ^ 1ull << random.below(64);
    default:
      return random.pick(kBorders);
  }
}

/// Changes a text as libFuzzer does; it may grow by up to 64 bytes.
inline void mutate_text(Random&, std::string& text) {
  const std::size_t size = text.size();
  text.resize(size + 64);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(text.data()), size, text.size()));
}

/// Drops, doubles, moves or exchanges an entry of a list, at most 4096 long.
template <class List>
void mutate_list(Random& random, List& list) {
  if (list.empty() || list.size() > 4096) return;
  std::vector<typename List::value_type> items(list.begin(), list.end());
  const std::size_t at = random.below(items.size());
  switch (random.below(4)) {
    case 0:
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 1:
      items.push_back(typename List::value_type(items[at]));
      break;
    case 2:
      items.insert(items.begin(), typename List::value_type(items[at]));
      break;
    default:
      std::swap(items[at], random.pick(items));
  }
  list = List();
  for (auto& item : items) list.push_back(std::move(item));
}

// --- JSON -------------------------------------------------------------------------------------------------------------

inline void mutate_json_value(Random& random, corbel::json::Value& value) {
  namespace json = corbel::json;
  using json::Value;
  switch (random.below(8)) {
    case 0: {
      static constexpr double kDoubles[] = {0.0, -1.0, 0.5, 1e-30, 1e30, 1e308, 5e-324};
      value = Value::number(random.pick(kDoubles));
      return;
    }
    case 1:
      value = random.one_in(2) ? Value::null() : Value::boolean(random.one_in(2));
      return;
    case 2:
      value = Value::array({value, value});
      return;
    case 3:
      value = Value::object({{"type", value}});
      return;
    default:
      break;
  }
  switch (value.type()) {
    case json::Type::kString: {
      std::string text(value.as_string());
      mutate_text(random, text);
      value = Value::string(std::move(text));
      return;
    }
    case json::Type::kArray:
      mutate_list(random, value.items());
      return;
    case json::Type::kObject:
      mutate_list(random, value.members());
      return;
    default:
      value = random.one_in(4) ? Value::integer(-static_cast<std::int64_t>(odd_number(random, value.as_uint()) >> 1))
                               : Value::unsigned_integer(odd_number(random, value.as_uint()));
  }
}

/// Changes one value somewhere inside.
inline void mutate_json_tree(Random& random, corbel::json::Value& root) {
  corbel::json::Value* value = &root;
  while (!random.one_in(5)) {
    if (value->is_array() && !value->items().empty()) {
      value = &random.pick(value->items());
    } else if (value->is_object() && !value->members().empty()) {
      corbel::json::Value::Member& member = random.pick(value->members());
      if (random.one_in(16)) return mutate_text(random, member.first);
      value = &member.second;
    } else {
      break;
    }
  }
  mutate_json_value(random, *value);
}

inline bool mutate_json(Random& random, std::string& file) {
  auto root = corbel::json::parse(file);
  if (!root.ok()) return false;
  for (std::size_t left = 1 + random.below(3); left > 0; --left) mutate_json_tree(random, *root);
  file = corbel::json::write(*root);
  return true;
}

// --- GGUF -------------------------------------------------------------------------------------------------------------

/// A GGUF file as fields that can be changed one by one, sound or not.
struct GgufSpec {
  struct Key {
    std::string name;
    std::uint32_t type = 0;
    std::uint32_t element = 0;              // of an array
    std::optional<std::uint64_t> count{};   // written instead of the true length of an array
    std::string bytes;                      // numbers
    std::vector<std::string> strings;       // a string, or the elements of an array of strings
  };
  std::uint32_t version = 3;
  std::optional<std::uint64_t> num_keys{}, num_tensors{};
  std::vector<Key> keys;
  std::vector<corbel_test::GgufTensor> tensors;
  std::string data;
};

class GgufSpecReader {
 public:
  explicit GgufSpecReader(std::string_view file) : file_(file) {}

  std::optional<GgufSpec> read() {
    GgufSpec spec;
    if (file_.size() < 24 || file_.substr(0, 4) != "GGUF") return std::nullopt;
    at_ = 4;
    spec.version = static_cast<std::uint32_t>(number(4));
    const std::uint64_t tensors = number(8), keys = number(8);
    for (std::uint64_t i = 0; i < keys && good_; ++i) spec.keys.push_back(key());
    for (std::uint64_t i = 0; i < tensors && good_; ++i) spec.tensors.push_back(tensor());
    if (!good_) return std::nullopt;
    spec.data = file_.substr(std::min((at_ + 31) / 32 * 32, file_.size()));
    return spec;
  }

 private:
  std::uint64_t number(std::size_t width) {
    if (file_.size() - at_ < width) {
      good_ = false;
      return 0;
    }
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width; ++i)
      value |= std::uint64_t{static_cast<unsigned char>(file_[at_ + i])} << (8 * i);
    at_ += width;
    return value;
  }
  std::string bytes(std::uint64_t count) {
    if (count > file_.size() - at_) {
      good_ = false;
      return {};
    }
    std::string out(file_.substr(at_, static_cast<std::size_t>(count)));
    at_ += out.size();
    return out;
  }
  std::string text() { return bytes(number(8)); }
  static std::uint64_t width(std::uint32_t type) {
    static constexpr std::uint64_t kWidths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < std::size(kWidths) ? kWidths[type] : 0;
  }
  GgufSpec::Key key() {
    GgufSpec::Key key;
    key.name = text();
    key.type = static_cast<std::uint32_t>(number(4));
    if (key.type == 8) {
      key.strings.push_back(text());
    } else if (key.type == 9) {
      key.element = static_cast<std::uint32_t>(number(4));
      const std::uint64_t count = number(8);
      if (key.element == 8) {
        for (std::uint64_t i = 0; i < count && good_; ++i) key.strings.push_back(text());
      } else {
        key.bytes = bytes(count > file_.size() ? count : count * width(key.element));
      }
    } else {
      key.bytes = bytes(width(key.type));
    }
    return key;
  }
  corbel_test::GgufTensor tensor() {
    corbel_test::GgufTensor out;
    out.name = corbel_test::gguf_string(text());
    const std::uint64_t dims = number(4);
    if (dims > 8) good_ = false;
    for (std::uint64_t i = 0; i < dims && good_; ++i) out.dims.push_back(number(8));
    out.type = number(4);
    out.offset = number(8);
    return out;
  }

  std::string_view file_;
  std::size_t at_ = 0;
  bool good_ = true;
};

inline std::string write_gguf(const GgufSpec& spec) {
  using namespace corbel_test;
  GgufBuilder file;
  file.version = spec.version;
  file.num_keys = spec.num_keys;
  file.num_tensors = spec.num_tensors;
  for (const GgufSpec::Key& key : spec.keys) {
    std::string value = key.bytes;
    for (const std::string& text : key.strings) value += gguf_string(text);
    if (key.type == 9) {
      static constexpr std::size_t kWidths[] = {1, 1, 2, 2, 4, 4, 4, 1, 1, 1, 8, 8, 8};
      const std::size_t width = key.element < std::size(kWidths) ? kWidths[key.element] : 1;
      const std::uint64_t count = key.element == 8 ? key.strings.size() : key.bytes.size() / width;
      value = gguf_array(key.element, key.count.value_or(count), value);
    }
    file.keys.push_back(gguf_key(key.name, key.type, value));
  }
  file.tensors = spec.tensors;
  file.data = spec.data;
  return file.build();
}

inline void mutate_gguf_key(Random& random, GgufSpec& spec) {
  if (spec.keys.empty()) return;
  GgufSpec::Key& key = random.pick(spec.keys);
  switch (random.below(9)) {
    case 0:
      mutate_text(random, key.name);
      break;
    case 1:  // the value of another key
      key = {key.name, random.pick(spec.keys).type, key.element, {}, random.pick(spec.keys).bytes, key.strings};
      break;
    case 2:
      key.type = static_cast<std::uint32_t>(random.below(14));
      break;
    case 3:
      key.element = static_cast<std::uint32_t>(random.below(14));
      if (key.type == 9) key.count = odd_number(random, key.strings.size());
      break;
    default:
      if (!key.strings.empty() && key.type == 9 && random.one_in(2)) {
        mutate_list(random, key.strings);
      } else if (!key.strings.empty()) {
        std::string& text = random.pick(key.strings);
        if (random.one_in(4)) {
          text = random.pick(key.strings) + random.pick(key.strings);
        } else {
          mutate_text(random, text);
        }
      } else if (key.bytes.size() <= 8 && random.one_in(2)) {
        const std::string number = corbel_test::le64(odd_number(random, static_cast<unsigned char>(key.bytes[0])));
        key.bytes = number.substr(0, key.bytes.size());
      } else {
        mutate_text(random, key.bytes);
      }
  }
}

inline void mutate_gguf_tensor(Random& random, GgufSpec& spec) {
  if (spec.tensors.empty()) return;
  corbel_test::GgufTensor& tensor = random.pick(spec.tensors);
  switch (random.below(6)) {
    case 0: {
      std::string name = tensor.name.substr(8);
      mutate_text(random, name);
      tensor.name = corbel_test::gguf_string(name);
      break;
    }
    case 1:
      tensor.type = random.one_in(8) ? odd_number(random, tensor.type) : random.below(42);
      break;
    case 2:
      tensor.offset = odd_number(random, tensor.offset);
      break;
    case 3:
      mutate_list(random, tensor.dims);
      break;
    case 4:
      if (random.one_in(4)) tensor.num_dims = odd_number(random, tensor.dims.size());
      break;
    default:
      if (!tensor.dims.empty()) {
        std::uint64_t& dim = random.pick(tensor.dims);
        dim = odd_number(random, dim);
      }
  }
}

inline bool mutate_gguf(Random& random, std::string& file) {
  std::optional<GgufSpec> spec = GgufSpecReader(file).read();
  if (!spec) return false;
  for (std::size_t left = 1 + random.below(3); left > 0; --left) {
    switch (random.below(10)) {
      case 0:
        mutate_list(random, spec->keys);
        break;
      case 1:
        mutate_list(random, spec->tensors);
        break;
      case 2:
        mutate_text(random, spec->data);
        break;
      case 3:
        if (random.one_in(4)) spec->version = static_cast<std::uint32_t>(odd_number(random, spec->version));
        if (random.one_in(4)) spec->num_keys = odd_number(random, spec->keys.size());
        if (random.one_in(4)) spec->num_tensors = odd_number(random, spec->tensors.size());
        break;
      case 4:
      case 5:
        mutate_gguf_tensor(random, *spec);
        break;
      default:
        mutate_gguf_key(random, *spec);
    }
  }
  file = write_gguf(*spec);
  return true;
}

// --- safetensors ------------------------------------------------------------------------------------------------------

/// Eight bytes of length, a JSON header, data. The length follows the header, most of the time.
inline bool mutate_safetensors(Random& random, std::string& file) {
  if (file.size() < 8) return false;
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) length |= std::uint64_t{static_cast<unsigned char>(file[i])} << (8 * i);
  if (length > file.size() - 8) return false;
  std::string header = file.substr(8, static_cast<std::size_t>(length));
  std::string data = file.substr(8 + header.size());
  if (random.one_in(8)) {
    mutate_text(random, data);
  } else if (random.one_in(16) || !mutate_json(random, header)) {
    mutate_text(random, header);
  }
  length = header.size();
  if (random.one_in(32)) length = odd_number(random, length);
  file = corbel_test::le64(length) + header + data;
  return true;
}

// --- several files in one input ---------------------------------------------------------------------------------------

/// A file of an archive. An archive is the files one after the other, each with the length of its name (one byte), its
/// name, the length of its content (three bytes, lowest first) and its content; what is cut off counts as empty.
struct ArchiveFile {
  std::string name;
  std::string content;
};

inline std::vector<ArchiveFile> read_archive(std::string_view bytes, std::size_t max_files = 16) {
  std::vector<ArchiveFile> files;
  std::size_t at = 0;
  const auto byte = [&]() -> std::size_t { return at < bytes.size() ? static_cast<unsigned char>(bytes[at++]) : 0; };
  const auto take = [&](std::size_t count) {
    const std::string_view out = bytes.substr(at, count);
    at += out.size();
    return std::string(out);
  };
  while (at < bytes.size() && files.size() < max_files) {
    ArchiveFile file;
    file.name = take(byte());
    std::size_t length = byte();
    length |= byte() << 8;
    length |= byte() << 16;
    file.content = take(length);
    files.push_back(std::move(file));
  }
  return files;
}

inline std::string write_archive(const std::vector<ArchiveFile>& files) {
  std::string out;
  for (const ArchiveFile& file : files) {
    const std::string name = file.name.substr(0, 255);
    out += corbel_test::le(name.size(), 1) + name + corbel_test::le(file.content.size(), 3) + file.content;
  }
  return out;
}

inline bool mutate_archive(Random& random, std::string& bytes) {
  std::vector<ArchiveFile> files = read_archive(bytes);
  if (files.empty()) return false;
  ArchiveFile& file = random.pick(files);
  if (random.one_in(16)) {
    mutate_list(random, files);
  } else if (random.one_in(16)) {
    mutate_text(random, file.name);
  } else if (random.one_in(16)) {
    std::swap(file.content, random.pick(files).content);
  } else if (random.one_in(8) || (!mutate_gguf(random, file.content) && !mutate_json(random, file.content) &&
                                  !mutate_safetensors(random, file.content))) {
    mutate_text(random, file.content);
  }
  bytes = write_archive(files);
  return true;
}

/// What CORBEL_FUZZ_MUTATOR defines: structured changes mostly, else libFuzzer's own.
template <class Mutate>
std::size_t mutate_input(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed, Mutate&& mutate) {
  Random random(seed);
  if (!random.one_in(8)) {
    std::string file(reinterpret_cast<const char*>(data), size);
    if (mutate(random, file) && file.size() <= max_size) {
      std::memcpy(data, file.data(), file.size());
      return file.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

}  // namespace corbel_fuzz

#define CORBEL_FUZZ_MUTATOR_FUNCTION(mutate)                                                                     \
  extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,     \
                                                 unsigned seed) {                                                \
    return ::corbel_fuzz::mutate_input(data, size, max_size, seed, mutate);                                      \
  }
#define CORBEL_FUZZ_MUTATOR(kind) CORBEL_FUZZ_MUTATOR_FUNCTION(::corbel_fuzz::mutate_##kind)
