// Definitions of text/jinja/value.hpp: life of values, strings with content ranges, containers, comparison.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/jinja/value.hpp>

#include <algorithm>
#include <limits>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

CORBEL_INLINE Value Value::boolean(bool value) noexcept {
  Value out(Kind::kBool);
  out.payload_.integer = value ? 1 : 0;
  return out;
}

CORBEL_INLINE Value Value::integer(std::int64_t value) noexcept {
  Value out(Kind::kInt);
  out.payload_.integer = value;
  return out;
}

CORBEL_INLINE Value Value::real(double value) noexcept {
  Value out(Kind::kFloat);
  out.payload_.real = value;
  return out;
}

CORBEL_INLINE Value Value::function(std::uint32_t index) noexcept {
  Value out(Kind::kFunction);
  out.payload_.integer = index;
  return out;
}

CORBEL_INLINE Value Value::macro(std::uint32_t index, std::uint32_t scope) noexcept {
  Value out(Kind::kMacro);
  out.payload_.integer = static_cast<std::int64_t>(std::uint64_t{scope} << 32 | index);
  return out;
}

CORBEL_INLINE Value Value::object(Object* fresh) noexcept {
  Value out;
  out.kind_ = fresh->kind;
  out.payload_.object = fresh;
  out.retain();
  return out;
}

CORBEL_INLINE Value Value::string(std::string_view text, bool content) {
  TextBuilder builder;
  builder.append(text, content);
  return builder.take();
}

CORBEL_INLINE Value Value::undefined(std::string_view what) {
  Value out = string(what);
  out.kind_ = Kind::kUndefined;
  return out;
}

// Objects are destroyed from a list, not by recursion: values nest as deep as templates make them. The kind inside the object says what it is
// (an undefined value may hold the text that names it).
CORBEL_INLINE void Value::unlink(Value& value, Object*& dead) noexcept {
  Object* object = value.heap();
  value.kind_ = Kind::kNone;
  value.payload_.integer = 0;
  if (object == nullptr || object->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  object->next = dead;
  dead = object;
}

CORBEL_INLINE void Value::release() noexcept {
  if (heap() == nullptr) return;
  Object* dead = nullptr;
  unlink(*this, dead);
  while (dead != nullptr) {
    Object* object = dead;
    dead = object->next;
    const auto unlink_all = [&dead](std::vector<Value>& values) {
      for (Value& value : values) unlink(value, dead);
    };
    switch (object->kind) {
      case Kind::kList:
      case Kind::kTuple:
      case Kind::kGenerator:
      case Kind::kKeys:
      case Kind::kValues:
      case Kind::kItems:
        unlink_all(static_cast<Sequence*>(object)->items);
        break;
      case Kind::kDict:
      case Kind::kNamespace:
        for (auto& [key, value] : static_cast<Dict*>(object)->entries) {
          unlink(key, dead);
          unlink(value, dead);
        }
        break;
      case Kind::kLoop:
        unlink_all(static_cast<Loop*>(object)->items);
        unlink_all(static_cast<Loop*>(object)->kept);
        unlink_all(static_cast<Loop*>(object)->previous);
        break;
      case Kind::kMethod:
        unlink(static_cast<Method*>(object)->receiver, dead);
        break;
      case Kind::kCycler:
      case Kind::kJoiner:
        unlink_all(static_cast<Cycle*>(object)->items);
        break;
      default:
        break;
    }
    destroy(object);
  }
}

CORBEL_INLINE void Value::destroy(Object* object) noexcept {
  switch (object->kind) {
    case Kind::kString:
      delete static_cast<Text*>(object);
      break;
    case Kind::kDict:
    case Kind::kNamespace:
      delete static_cast<Dict*>(object);
      break;
    case Kind::kRange:
      delete static_cast<Range*>(object);
      break;
    case Kind::kLoop:
      delete static_cast<Loop*>(object);
      break;
    case Kind::kMethod:
      delete static_cast<Method*>(object);
      break;
    case Kind::kCycler:
    case Kind::kJoiner:
      delete static_cast<Cycle*>(object);
      break;
    default:
      delete static_cast<Sequence*>(object);
      break;
  }
}

CORBEL_INLINE const Text& Value::as_text() const noexcept { return *static_cast<const Text*>(payload_.object); }
CORBEL_INLINE std::string_view Value::as_view() const noexcept { return as_text().bytes; }
CORBEL_INLINE const Sequence& Value::as_sequence() const noexcept {
  return *static_cast<const Sequence*>(payload_.object);
}
CORBEL_INLINE const Dict& Value::as_dict() const noexcept { return *static_cast<const Dict*>(payload_.object); }
CORBEL_INLINE Dict& Value::as_namespace() const noexcept { return *static_cast<Dict*>(payload_.object); }
CORBEL_INLINE const Range& Value::as_range() const noexcept { return *static_cast<const Range*>(payload_.object); }
CORBEL_INLINE Loop& Value::as_loop() const noexcept { return *static_cast<Loop*>(payload_.object); }
CORBEL_INLINE const Method& Value::as_method() const noexcept { return *static_cast<const Method*>(payload_.object); }
CORBEL_INLINE Cycle& Value::as_cycle() const noexcept { return *static_cast<Cycle*>(payload_.object); }

CORBEL_INLINE const char* Value::type_name() const noexcept {
  static constexpr const char* kNames[] = {"NoneType",  "bool",   "int",   "float",  "Macro",     "function",  "Undefined",
                                           "str",       "list",   "tuple", "generator", "dict_keys", "dict_values",
                                           "dict_items", "dict",   "Namespace", "range", "LoopContext", "method",
                                           "Cycler",    "Joiner"};
  return kNames[static_cast<std::size_t>(kind_)];
}

CORBEL_INLINE bool Value::truth() const noexcept {
  switch (kind_) {
    case Kind::kNone:
    case Kind::kUndefined:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return payload_.integer != 0;
    case Kind::kFloat:
      return payload_.real != 0;
    case Kind::kString:
      return !as_text().bytes.empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kKeys:
    case Kind::kValues:
    case Kind::kItems:
      return !as_sequence().items.empty();
    case Kind::kDict:
      return !as_dict().entries.empty();
    case Kind::kRange:
      return as_range().count != 0;
    default:
      return true;
  }
}

CORBEL_INLINE void TextBuilder::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!content_.empty() && content_.back().end == begin) {
    content_.back().end = end;
  } else {
    content_.push_back({begin, end});
  }
}

CORBEL_INLINE void TextBuilder::append(std::string_view text, bool content) {
  const std::size_t begin = bytes_.size();
  bytes_ += text;
  if (content) mark(begin, bytes_.size());
}

CORBEL_INLINE void TextBuilder::append(const Text& text, std::size_t begin, std::size_t end) {
  const std::size_t base = bytes_.size();
  bytes_.append(text.bytes, begin, end - begin);
  auto range = std::partition_point(text.content.begin(), text.content.end(),
                                    [begin](const ByteRange& r) { return r.end <= begin; });
  for (; range != text.content.end() && range->begin < end; ++range) {
    mark(base + std::max(range->begin, begin) - begin, base + std::min(range->end, end) - begin);
  }
}

CORBEL_INLINE Value TextBuilder::take() {
  Text* text = new Text;
  Value out = Value::object(text);
  text->bytes = std::move(bytes_);
  text->content = std::move(content_);
  bytes_.clear();
  content_.clear();
  for (std::size_t at = 0; at < text->bytes.size(); at += character_length(text->bytes, at)) ++text->characters;
  return out;
}

CORBEL_INLINE std::size_t character_length(std::string_view text, std::size_t at) noexcept {
  if (static_cast<unsigned char>(text[at]) < 0x80u) return 1;
  return std::max<std::size_t>(1, detail::decode_utf8(text, at).length);
}

CORBEL_INLINE Value slice_bytes(const Text& text, std::size_t begin, std::size_t end) {
  TextBuilder builder;
  builder.append(text, begin, end);
  return builder.take();
}

CORBEL_INLINE bool is_content_at(const Text& text, std::size_t at, std::size_t& cursor) noexcept {
  while (cursor < text.content.size() && text.content[cursor].end <= at) ++cursor;
  return cursor < text.content.size() && text.content[cursor].begin <= at;
}

// --- containers

CORBEL_INLINE std::uint32_t depth_of(const Value& value) noexcept {
  const Object* object = value.heap();
  return object == nullptr ? 0 : object->depth;
}

CORBEL_INLINE bool make_sequence(Runtime& runtime, Kind kind, std::vector<Value> items, Value& out) {
  std::uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  if (depth >= kMaxValueDepth) return runtime.fail(Errc::kDepthExceeded, "a value nests deeper than 200");
  if (!runtime.charge(1 + items.size() * 2)) return false;
  Sequence* sequence = new Sequence(kind);
  out = Value::object(sequence);
  sequence->items = std::move(items);
  sequence->depth = depth + 1;
  return true;
}

CORBEL_INLINE std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

CORBEL_INLINE std::uint64_t hash_view(std::string_view text) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return mix_hash(hash, text.size());
}

CORBEL_INLINE bool hash_value(Runtime& runtime, const Value& key, std::uint64_t& out) {
  switch (key.kind()) {
    case Kind::kNone:
      out = 1;
      return true;
    case Kind::kBool:
    case Kind::kInt:
      out = mix_hash(2, static_cast<std::uint64_t>(key.as_int()));
      return true;
    case Kind::kFloat: {
      const double number = key.as_double();
      if (number >= -9.0e18 && number <= 9.0e18) {  // equal numbers of both kinds share the hash of their whole part
        out = mix_hash(2, static_cast<std::uint64_t>(static_cast<std::int64_t>(number)));
      } else {
        out = 3;
      }
      return true;
    }
    case Kind::kString:
      out = hash_view(key.as_view());
      return runtime.charge_bytes(key.as_view().size());
    case Kind::kTuple: {
      out = 4;
      for (const Value& item : key.as_sequence().items) {
        std::uint64_t inner = 0;
        if (!hash_value(runtime, item, inner) || !runtime.charge(1)) return false;
        out = mix_hash(out, inner);
      }
      return true;
    }
    default:
      return runtime.fail(std::string("unhashable type: '") + key.type_name() + "'");
  }
}

inline constexpr std::size_t kUnindexedEntries = 8;

// Puts the number of the entry that equals the probe into `out`, or entries.size(). `slot` is where the search ended.
template <class Matches>
bool dict_probe(Runtime& runtime, const Dict& dict, std::uint64_t hash, const Matches& matches, std::size_t& out,
                std::size_t& slot) {
  bool found = false;
  if (dict.slots.empty()) {
    for (out = 0; out < dict.entries.size(); ++out) {
      if (!matches(dict.entries[out].first, found)) return false;
      if (found) return true;
    }
    return true;
  }
  const std::size_t mask = dict.slots.size() - 1;
  for (slot = static_cast<std::size_t>(hash) & mask; dict.slots[slot] != 0; slot = (slot + 1) & mask) {
    if (!runtime.charge(1)) return false;
    out = dict.slots[slot] - 1;
    if (!matches(dict.entries[out].first, found)) return false;
    if (found) return true;
  }
  out = dict.entries.size();
  return true;
}

CORBEL_INLINE bool dict_find(Runtime& runtime, const Dict& dict, const Value& key, const Value*& out) {
  std::uint64_t hash = 0;
  std::size_t index = 0;
  std::size_t slot = 0;
  out = nullptr;
  if (!hash_value(runtime, key, hash)) return false;
  const auto matches = [&](const Value& other, bool& found) { return equals(runtime, key, other, found); };
  if (!dict_probe(runtime, dict, hash, matches, index, slot)) return false;
  if (index < dict.entries.size()) out = &dict.entries[index].second;
  return true;
}

CORBEL_INLINE const Value* dict_find(Runtime& runtime, const Dict& dict, std::string_view key) {
  std::size_t index = 0;
  std::size_t slot = 0;
  const auto matches = [&](const Value& other, bool& found) {
    found = other.is_string() && other.as_view() == key;
    return true;
  };
  if (!dict_probe(runtime, dict, hash_view(key), matches, index, slot)) return nullptr;
  return index < dict.entries.size() ? &dict.entries[index].second : nullptr;
}

CORBEL_INLINE bool dict_rebuild(Runtime& runtime, Dict& dict, std::size_t slots) {
  dict.slots.assign(slots, 0);
  for (std::size_t i = 0; i < dict.entries.size(); ++i) {
    std::uint64_t hash = 0;
    if (!hash_value(runtime, dict.entries[i].first, hash)) return false;
    std::size_t slot = static_cast<std::size_t>(hash) & (slots - 1);
    while (dict.slots[slot] != 0) slot = (slot + 1) & (slots - 1);
    dict.slots[slot] = static_cast<std::uint32_t>(i + 1);
  }
  return true;
}

CORBEL_INLINE bool dict_set(Runtime& runtime, Dict& dict, const Value& key, Value value) {
  const std::uint32_t inner = std::max(depth_of(key), depth_of(value));
  if (inner >= kMaxValueDepth) return runtime.fail(Errc::kDepthExceeded, "a value nests deeper than 200");
  std::uint64_t hash = 0;
  std::size_t index = 0;
  std::size_t slot = 0;
  if (!runtime.charge(4) || !hash_value(runtime, key, hash)) return false;
  const auto matches = [&](const Value& other, bool& found) { return equals(runtime, key, other, found); };
  if (!dict_probe(runtime, dict, hash, matches, index, slot)) return false;
  // A namespace may come to hold itself, so that its depth means nothing: walks through one are counted where they happen.
  if (dict.kind == Kind::kDict) dict.depth = std::max(dict.depth, inner + 1);
  if (index < dict.entries.size()) {
    dict.entries[index].second = std::move(value);
    return true;
  }
  dict.entries.emplace_back(key, std::move(value));
  if (dict.entries.size() <= kUnindexedEntries) return true;
  if (dict.entries.size() * 2 > dict.slots.size()) {
    return dict_rebuild(runtime, dict, std::max<std::size_t>(32, dict.slots.size() * 2));
  }
  dict.slots[slot] = static_cast<std::uint32_t>(dict.entries.size());
  return true;
}

CORBEL_INLINE bool DictBuilder::set(Runtime& runtime, const Value& key, Value value) {
  return dict_set(runtime, dict_.as_namespace(), key, std::move(value));
}

// --- comparison

CORBEL_INLINE bool same(const Value& a, const Value& b) noexcept {
  if (a.kind() != b.kind()) return false;
  if (a.is_undefined() || a.is(Kind::kNone)) return true;
  if (a.is(Kind::kFloat)) return a.as_double() == b.as_double();
  if (a.is_string()) return a.as_view() == b.as_view();
  if (a.heap() != nullptr || b.heap() != nullptr) return a.heap() == b.heap();
  return a.as_int() == b.as_int();
}

// Exact for every pair of an integer and a double: -1, 0, 1, or 2 for a NaN.
CORBEL_INLINE int compare_numbers(const Value& a, const Value& b) noexcept {
  if (a.is_integral() && b.is_integral()) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
  const auto compare_mixed = [](std::int64_t integer, double real) {
    if (real != real) return 2;
    if (real >= 9223372036854775808.0) return -1;
    if (real < -9223372036854775808.0) return 1;
    const auto whole = static_cast<std::int64_t>(real);
    if (integer != whole) return integer < whole ? -1 : 1;
    const double rest = real - static_cast<double>(whole);
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
  };
  if (a.is_integral()) return compare_mixed(a.as_int(), b.as_double());
  if (b.is_integral()) {
    const int reversed = compare_mixed(b.as_int(), a.as_double());
    return reversed == 2 ? 2 : -reversed;
  }
  const double x = a.as_double();
  const double y = b.as_double();
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

CORBEL_INLINE bool equals(Runtime& runtime, const Value& a, const Value& b, bool& out) {
  if (!runtime.charge(1)) return false;
  out = false;
  if (a.is_number() && b.is_number()) {
    out = compare_numbers(a, b) == 0;
    return true;
  }
  if (a.kind() != b.kind()) return true;
  if (a.is_string()) {
    out = a.as_view() == b.as_view();
    return !out || runtime.charge_bytes(a.as_view().size());
  }
  if (a.is(Kind::kList) || a.is(Kind::kTuple) || a.is(Kind::kKeys) || a.is(Kind::kItems)) {
    const std::vector<Value>& left = a.as_sequence().items;
    const std::vector<Value>& right = b.as_sequence().items;
    if (left.size() != right.size()) return true;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (!equals(runtime, left[i], right[i], out)) return false;
      if (!out) return true;
    }
    out = true;
    return true;
  }
  if (a.is(Kind::kDict)) {
    if (a.as_dict().entries.size() != b.as_dict().entries.size()) return true;
    for (const auto& [key, value] : a.as_dict().entries) {
      const Value* other = nullptr;
      out = false;
      if (!dict_find(runtime, b.as_dict(), key, other)) return false;
      if (other == nullptr) return true;
      if (!equals(runtime, value, *other, out)) return false;
      if (!out) return true;
    }
    out = true;
    return true;
  }
  if (a.is(Kind::kRange)) {
    const Range& x = a.as_range();
    const Range& y = b.as_range();
    out = x.count == y.count && (x.count == 0 || (x.start == y.start && (x.count == 1 || x.step == y.step)));
    return true;
  }
  out = same(a, b);
  return true;
}

CORBEL_INLINE bool less(Runtime& runtime, const Value& a, const Value& b, bool& out) {
  if (!runtime.charge(1)) return false;
  if (a.is_number() && b.is_number()) {
    out = compare_numbers(a, b) == -1;
    return true;
  }
  if (a.is_string() && b.is_string()) {  // the order of UTF-8 bytes is the order of code points
    out = a.as_view() < b.as_view();
    return runtime.charge_bytes(std::min(a.as_view().size(), b.as_view().size()));
  }
  if (a.kind() == b.kind() && (a.is(Kind::kList) || a.is(Kind::kTuple))) {
    const std::vector<Value>& left = a.as_sequence().items;
    const std::vector<Value>& right = b.as_sequence().items;
    for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
      bool equal = false;
      if (!equals(runtime, left[i], right[i], equal)) return false;
      if (!equal) return less(runtime, left[i], right[i], out);
    }
    out = left.size() < right.size();
    return true;
  }
  return runtime.fail(std::string("'<' not supported between instances of '") + a.type_name() + "' and '" +
                      b.type_name() + "'");
}

// --- JSON

CORBEL_INLINE bool from_json_at(Runtime& runtime, const json::Value& json, bool content, std::uint32_t depth,
                                Value& out) {
  if (depth >= kMaxValueDepth) return runtime.fail(Errc::kDepthExceeded, "the template's variables nest deeper than 200");
  switch (json.type()) {
    case json::Type::kNull:
      out = Value::none();
      return true;
    case json::Type::kBool:
      out = Value::boolean(json.as_bool());
      return true;
    case json::Type::kInt:
      out = Value::integer(json.as_int());
      return true;
    case json::Type::kUint:
      out = json.as_uint() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())
                ? Value::integer(static_cast<std::int64_t>(json.as_uint()))
                : Value::real(json.as_double());
      return true;
    case json::Type::kDouble:
      out = Value::real(json.as_double());
      return true;
    case json::Type::kString:
      out = Value::string(json.as_string(), content);
      return true;
    case json::Type::kArray: {
      Sequence* sequence = new Sequence(Kind::kList);
      out = Value::object(sequence);
      sequence->items.resize(json.items().size());
      for (std::size_t i = 0; i < sequence->items.size(); ++i) {
        if (!from_json_at(runtime, json.items()[i], content, depth + 1, sequence->items[i])) return false;
        sequence->depth = std::max(sequence->depth, depth_of(sequence->items[i]));
      }
      ++sequence->depth;
      return true;
    }
    case json::Type::kObject: {
      Dict* dict = new Dict(Kind::kDict);
      out = Value::object(dict);
      dict->depth = 1;
      for (const auto& [key, member] : json.members()) {
        Value value;
        if (!from_json_at(runtime, member, content, depth + 1, value)) return false;
        if (!dict_set(runtime, *dict, Value::string(key, content), std::move(value))) return false;
      }
      return true;
    }
  }
  return runtime.fail(Errc::kInternal, "a JSON value of no kind");
}

CORBEL_INLINE bool from_json(Runtime& runtime, const json::Value& json, bool content, Value& out) {
  Runtime unlimited(std::numeric_limits<std::uint64_t>::max(), -1);  // input is the caller's; only what a template does is charged
  if (from_json_at(unlimited, json, content, 0, out)) return true;
  return runtime.fail(unlimited.status().code(), unlimited.status().message());
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
