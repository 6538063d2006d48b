// Definitions of text/jinja/value.hpp: containers, comparison, values from JSON.
#pragma once

#include <corbel/text/jinja/value.hpp>

#include <algorithm>
#include <limits>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

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
  // A namespace may come to hold itself, so that its depth means nothing: walks through one are counted where they
  // happen.
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
  if (depth >= kMaxValueDepth)
    return runtime.fail(Errc::kDepthExceeded, "the template's variables nest deeper than 200");
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
  Runtime unlimited(std::numeric_limits<std::uint64_t>::max(),
                    -1);  // input is the caller's; only what a template does is charged
  if (from_json_at(unlimited, json, content, 0, out)) return true;
  return runtime.fail(unlimited.status().code(), unlimited.status().message());
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
