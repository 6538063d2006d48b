// Definitions of text/jinja/print.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/jinja/print.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

CORBEL_INLINE std::string float_repr(double value) {
  if (value != value) return "nan";
  if (std::fabs(value) > 1.7976931348623157e308) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const double size = std::fabs(value);
  const bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string out(buffer, end.ptr);
  if (!scientific && out.find('.') == std::string::npos) out += ".0";
  return out;
}

CORBEL_INLINE std::string float_fixed(double value, int precision) {
  if (value != value) return "nan";
  char buffer[640];  // 309 digits, point, 308 digits
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, precision);
  return std::string(buffer, end.ptr);
}

CORBEL_INLINE void append_hex(std::string& out, std::string_view prefix, std::uint32_t value, int digits) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out += prefix;
  for (int i = digits - 1; i >= 0; --i) out += kDigits[value >> (4 * i) & 15u];
}

CORBEL_INLINE bool is_printable(std::uint32_t point) noexcept {
  if (point < 0x20 || (point >= 0x7F && point <= 0xA0) || point == 0xAD) return false;
  return !(point == 0x1680 || (point >= 0x2000 && point <= 0x200F) || (point >= 0x2028 && point <= 0x202F) ||
           (point >= 0x205F && point <= 0x206F) || point == 0x3000 || (point >= 0xE000 && point <= 0xF8FF) ||
           point == 0xFEFF || (point >= 0xFFF0 && point <= 0xFFFB) || point >= 0xE0000);
}

CORBEL_INLINE bool append_string_repr(Runtime& runtime, const Text& text, TextBuilder& out) {
  if (!runtime.charge_bytes(text.bytes.size())) return false;
  const char quote =
      text.bytes.find('\'') != std::string::npos && text.bytes.find('"') == std::string::npos ? '"' : '\'';
  out.append(std::string_view(&quote, 1), false);
  std::size_t cursor = 0;
  std::string piece;
  for (std::size_t at = 0; at < text.bytes.size();) {
    const detail::CodePoint point = detail::decode_utf8(text.bytes, at);
    const std::size_t length = point.length == 0 ? 1 : point.length;
    piece.clear();
    if (point.length == 0) {
      append_hex(piece, "\\x", static_cast<unsigned char>(text.bytes[at]), 2);
    } else if (point.value == '\n') {
      piece = "\\n";
    } else if (point.value == '\r') {
      piece = "\\r";
    } else if (point.value == '\t') {
      piece = "\\t";
    } else if (point.value == '\\' || point.value == static_cast<unsigned char>(quote)) {
      piece = {'\\', static_cast<char>(point.value)};
    } else if (is_printable(point.value)) {
      piece.assign(text.bytes, at, length);
    } else if (point.value <= 0xFF) {
      append_hex(piece, "\\x", point.value, 2);
    } else if (point.value <= 0xFFFF) {
      append_hex(piece, "\\u", point.value, 4);
    } else {
      append_hex(piece, "\\U", point.value, 8);
    }
    out.append(piece, is_content_at(text, at, cursor));
    at += length;
  }
  out.append(std::string_view(&quote, 1), false);
  return true;
}

CORBEL_INLINE void append_number(const Value& value, TextBuilder& out) {
  if (value.is(Kind::kBool)) return out.append(value.as_bool() ? "True" : "False", false);
  if (value.is(Kind::kFloat)) return out.append(float_repr(value.as_double()), false);
  out.append(std::to_string(value.as_int()), false);
}

CORBEL_INLINE void append_range(const Range& range, TextBuilder& out) {
  std::string text = "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  if (range.step != 1) text += ", " + std::to_string(range.step);
  out.append(text + ")", false);
}

CORBEL_INLINE bool append_scalar_repr(Runtime& runtime, const Value& value, TextBuilder& out) {
  switch (value.kind()) {
    case Kind::kNone:
      out.append("None", false);
      return true;
    case Kind::kUndefined:
      out.append("Undefined", false);
      return true;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      append_number(value, out);
      return true;
    case Kind::kString:
      if (!value.is_markup()) return append_string_repr(runtime, value.as_text(), out);
      out.append("Markup(", false);
      if (!append_string_repr(runtime, value.as_text(), out)) return false;
      out.append(")", false);
      return true;
    case Kind::kRange:
      append_range(value.as_range(), out);
      return true;
    default:
      out.append(std::string("<") + value.type_name() + ">", false);
      return true;
  }
}

// What stands around the items of a container; empty for everything else. Functions that nest keep their frames small.
struct Brackets {
  const char* open;
  const char* close;
};

CORBEL_INLINE Brackets brackets_of(const Value& value) noexcept {
  switch (value.kind()) {
    case Kind::kList:
      return {"[", "]"};
    case Kind::kTuple:
      return {"(", value.as_sequence().items.size() == 1 ? ",)" : ")"};
    case Kind::kKeys:
      return {"dict_keys([", "])"};
    case Kind::kValues:
      return {"dict_values([", "])"};
    case Kind::kItems:
      return {"dict_items([", "])"};
    case Kind::kDict:
      return {"{", "}"};
    case Kind::kNamespace:
      return {"<Namespace {", "}>"};
    default:
      return {nullptr, nullptr};
  }
}

CORBEL_INLINE bool append_items(Runtime& runtime, const Sequence& sequence, TextBuilder& out, std::uint32_t depth) {
  for (std::size_t i = 0; i < sequence.items.size(); ++i) {
    if (i > 0) out.append(", ", false);
    if (!append_repr(runtime, sequence.items[i], out, depth)) return false;
  }
  return true;
}

CORBEL_INLINE bool append_entries(Runtime& runtime, const Dict& dict, TextBuilder& out, std::uint32_t depth) {
  for (std::size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out.append(", ", false);
    if (!append_repr(runtime, dict.entries[i].first, out, depth)) return false;
    out.append(": ", false);
    if (!append_repr(runtime, dict.entries[i].second, out, depth)) return false;
  }
  return true;
}

CORBEL_INLINE bool append_repr(Runtime& runtime, const Value& value, TextBuilder& out, std::uint32_t depth) {
  if (depth > kMaxValueDepth) return runtime.fail("a value contains itself, or nests too deep to be printed");
  if (!runtime.charge(1)) return false;
  const Brackets brackets = brackets_of(value);
  if (brackets.open == nullptr) return append_scalar_repr(runtime, value, out);
  out.append(brackets.open, false);
  const bool mapping = value.is(Kind::kDict) || value.is(Kind::kNamespace);
  if (mapping ? !append_entries(runtime, value.as_dict(), out, depth + 1)
              : !append_items(runtime, value.as_sequence(), out, depth + 1)) {
    return false;
  }
  out.append(brackets.close, false);
  return true;
}

CORBEL_INLINE bool append_str(Runtime& runtime, const Value& value, TextBuilder& out) {
  if (value.is_undefined()) return true;
  if (!value.is_string()) return append_repr(runtime, value, out);
  if (!runtime.charge_bytes(value.as_view().size())) return false;
  out.append(value.as_text());
  return true;
}

CORBEL_INLINE bool to_str(Runtime& runtime, const Value& value, Value& out) {
  if (value.is_string()) {
    out = value;
    return true;
  }
  TextBuilder builder;
  if (!append_str(runtime, value, builder)) return false;
  out = builder.take();
  return true;
}

// --- JSON

CORBEL_INLINE bool append_json_string(Runtime& runtime, const Text& text, bool ensure_ascii, TextBuilder& out) {
  if (!runtime.charge_bytes(text.bytes.size())) return false;
  out.append("\"", false);
  std::size_t cursor = 0;
  std::string piece;
  for (std::size_t at = 0; at < text.bytes.size();) {
    const detail::CodePoint point = detail::decode_utf8(text.bytes, at);
    const std::size_t length = point.length == 0 ? 1 : point.length;
    piece.clear();
    if (point.length == 0) {
      piece = "\xEF\xBF\xBD";
    } else if (point.value == '"' || point.value == '\\') {
      piece = {'\\', static_cast<char>(point.value)};
    } else if (point.value < 0x20) {
      static constexpr std::string_view kShort = "\b\t\n\f\r";
      static constexpr std::string_view kLetters = "btnfr";
      const std::size_t found = kShort.find(static_cast<char>(point.value));
      if (found != std::string_view::npos) {
        piece = {'\\', kLetters[found]};
      } else {
        append_hex(piece, "\\u", point.value, 4);
      }
    } else if (ensure_ascii && point.value > 0x7E) {
      if (point.value > 0xFFFF) {
        append_hex(piece, "\\u", 0xD800 + ((point.value - 0x10000) >> 10), 4);
        append_hex(piece, "\\u", 0xDC00 + ((point.value - 0x10000) & 0x3FF), 4);
      } else if (point.value > 0x7F) {
        append_hex(piece, "\\u", point.value, 4);
      } else {
        piece = "\x7F";
      }
    } else {
      piece.assign(text.bytes, at, length);
    }
    out.append(piece, is_content_at(text, at, cursor));
    at += length;
  }
  out.append("\"", false);
  return true;
}

CORBEL_INLINE bool append_json_scalar(Runtime& runtime, const Value& value, TextBuilder& out) {
  switch (value.kind()) {
    case Kind::kNone:
      out.append("null", false);
      return true;
    case Kind::kBool:
      out.append(value.as_bool() ? "true" : "false", false);
      return true;
    case Kind::kInt:
      append_number(value, out);
      return true;
    case Kind::kFloat: {
      std::string text = float_repr(value.as_double());
      if (text == "nan") text = "NaN";
      if (text == "inf") text = "Infinity";
      if (text == "-inf") text = "-Infinity";
      out.append(text, false);
      return true;
    }
    default:
      return runtime.fail(std::string("Object of type ") + value.type_name() + " is not JSON serializable");
  }
}

CORBEL_INLINE bool append_json_key(Runtime& runtime, const Value& key, const JsonStyle& style, TextBuilder& out) {
  if (key.is_string()) return append_json_string(runtime, key.as_text(), style.ensure_ascii, out);
  if (!key.is_number() && !key.is(Kind::kNone)) {
    return runtime.fail(std::string("keys must be str, int, float, bool or None, not ") + key.type_name());
  }
  out.append("\"", false);
  if (!append_json_scalar(runtime, key, out)) return false;
  out.append("\"", false);
  return true;
}

CORBEL_INLINE bool append_json_break(Runtime& runtime, const JsonStyle& style, std::uint32_t depth, TextBuilder& out) {
  if (!style.indented) return true;
  if (!runtime.charge_bytes(depth * style.indent.size())) return false;
  out.append("\n", false);
  for (std::uint32_t i = 0; i < depth; ++i) out.append(style.indent, false);
  return true;
}

CORBEL_INLINE bool sorted_entries(Runtime& runtime, const Dict& dict, const JsonStyle& style,
                                  std::vector<const std::pair<Value, Value>*>& out) {
  for (const auto& entry : dict.entries) out.push_back(&entry);
  if (!style.sort_keys) return true;
  bool good = true;
  std::stable_sort(out.begin(), out.end(), [&](const auto* a, const auto* b) {
    bool before = false;
    good = good && less(runtime, a->first, b->first, before);
    return good && before;
  });
  return good;
}

CORBEL_INLINE bool append_json_dict(Runtime& runtime, const Dict& dict, const JsonStyle& style, TextBuilder& out,
                                    std::uint32_t depth) {
  std::vector<const std::pair<Value, Value>*> entries;
  if (!sorted_entries(runtime, dict, style, entries)) return false;
  out.append("{", false);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out.append(style.item_separator.as_text());
    if (!append_json_break(runtime, style, depth + 1, out)) return false;
    if (!append_json_key(runtime, entries[i]->first, style, out)) return false;
    out.append(style.key_separator.as_text());
    if (!append_json(runtime, entries[i]->second, style, out, depth + 1)) return false;
  }
  if (!entries.empty() && !append_json_break(runtime, style, depth, out)) return false;
  out.append("}", false);
  return true;
}

CORBEL_INLINE bool append_json_list(Runtime& runtime, const Sequence& list, const JsonStyle& style, TextBuilder& out,
                                    std::uint32_t depth) {
  out.append("[", false);
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(style.item_separator.as_text());
    if (!append_json_break(runtime, style, depth + 1, out)) return false;
    if (!append_json(runtime, list.items[i], style, out, depth + 1)) return false;
  }
  if (!list.items.empty() && !append_json_break(runtime, style, depth, out)) return false;
  out.append("]", false);
  return true;
}

CORBEL_INLINE bool append_json(Runtime& runtime, const Value& value, const JsonStyle& style, TextBuilder& out,
                               std::uint32_t depth) {
  if (!runtime.charge(1)) return false;
  if (value.is_string()) return append_json_string(runtime, value.as_text(), style.ensure_ascii, out);
  if (value.is(Kind::kDict)) return append_json_dict(runtime, value.as_dict(), style, out, depth);
  if (value.is(Kind::kList) || value.is(Kind::kTuple)) {
    return append_json_list(runtime, value.as_sequence(), style, out, depth);
  }
  return append_json_scalar(runtime, value, out);
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
