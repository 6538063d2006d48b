// Filters for markup and addresses (text/jinja/builtins.hpp).
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/jinja/builtins.hpp>
#include <corbel/text/jinja/operators.hpp>
#include <corbel/text/jinja/print.hpp>
#include <corbel/text/jinja/strings.hpp>

#include <string>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

CORBEL_INLINE bool markup_strings(Runtime& runtime, Value& value) {
  if (value.is_string()) {
    value = as_markup(std::move(value));
    return true;
  }
  if (!value.is(Kind::kList) && !value.is(Kind::kTuple)) return true;
  std::vector<Value> items = value.as_sequence().items;
  for (Value& item : items) {
    if (!item.is_string()) continue;
    if (!runtime.charge_bytes(item.as_view().size())) return false;
    item = as_markup(std::move(item));
  }
  return make_sequence(runtime, value.kind(), std::move(items), value);
}

namespace filters {

inline bool safe(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  if (!to_str(runtime, value, out) || !runtime.charge_bytes(out.as_view().size())) return false;
  out = as_markup(std::move(out));
  return true;
}

template <bool kAgain>
bool escape(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  Value text;
  if (!to_str(runtime, value, text) || !runtime.charge_bytes(text.as_view().size() * 5)) return false;
  if (kAgain && text.is_markup()) text = slice_bytes(text.as_text(), 0, text.as_view().size());
  out = escape_markup(text);
  return true;
}

// Without comments and tags, runs of white space as one space, character references as characters.
inline bool striptags(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  Value text;
  if (!to_str(runtime, value, text) || !runtime.charge_bytes(text.as_view().size() * 4)) return false;
  TextBuilder bare;
  const std::string_view bytes = text.as_view();
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t end = at + 1;
    if (bytes[at] == '<') {
      const bool comment = bytes.compare(at, 4, "<!--") == 0;
      const std::size_t close = comment ? bytes.find("-->", at) : bytes.find('>', at);
      if (close != std::string_view::npos) {
        at = close + (comment ? 3 : 1);
        continue;
      }
    } else {
      end = std::min(bytes.find('<', at), bytes.size());
    }
    bare.append(text.as_text(), at, end);
    at = end;
  }
  const Value stripped = bare.take();
  TextBuilder joined;
  bool first = true;
  for (const Value& word : split(stripped.as_text(), nullptr, -1, false)) {
    if (!first) joined.append(" ", false);
    joined.append(word.as_text());
    first = false;
  }
  const Value words = joined.take();
  static constexpr std::pair<std::string_view, std::string_view> kReferences[] = {
      {"&amp;", "&"},  {"&lt;", "<"},  {"&gt;", ">"},          {"&quot;", "\""},
      {"&#34;", "\""}, {"&#39;", "'"}, {"&nbsp;", "\xC2\xA0"}, {"&apos;", "'"}};
  TextBuilder plain;
  std::size_t cursor = 0;
  for (std::size_t at = 0; at < words.as_view().size();) {
    std::size_t length = 1;
    std::string_view character = words.as_view().substr(at, 1);
    for (const auto& [reference, meant] : kReferences) {
      if (words.as_view().compare(at, reference.size(), reference) != 0) continue;
      length = reference.size();
      character = meant;
      break;
    }
    plain.append(character, is_content_at(words.as_text(), at, cursor));
    at += length;
  }
  out = plain.take();
  return true;
}

inline bool xmlattr(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  if (!parameters.bind(runtime, "xmlattr", arguments, {"autospace"})) return false;
  if (!value.is(Kind::kDict)) return runtime.fail(std::string("xmlattr needs a mapping, not ") + value.type_name());
  TextBuilder builder;
  for (const auto& [key, member] : value.as_dict().entries) {
    if (member.is(Kind::kNone) || member.is_undefined()) continue;
    Value name;
    Value text;
    if (!to_str(runtime, key, name) || !to_str(runtime, member, text) ||
        !runtime.charge_bytes((name.as_view().size() + text.as_view().size()) * 5)) {
      return false;
    }
    if (name.as_view().find_first_of(" \t\n\f/>=") != std::string_view::npos) {
      return runtime.fail("xmlattr: a space, '/', '>' or '=' in the name of an attribute");
    }
    if (builder.size() > 0 || parameters.flag(0, true)) builder.append(" ", false);
    builder.append(escape_markup(name).as_text());
    builder.append("=\"", false);
    builder.append(escape_markup(text).as_text());
    builder.append("\"", false);
  }
  out = builder.take();
  return true;
}

/// Bytes outside letters, digits and "_.-~" as %XX; `query`: a space is "+" and "/" is no exception.
inline bool append_url(Runtime& runtime, const Value& value, bool query, TextBuilder& builder) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  Value text;
  if (!to_str(runtime, value, text) || !runtime.charge_bytes(text.as_view().size() * 4)) return false;
  std::size_t cursor = 0;
  for (std::size_t at = 0; at < text.as_view().size(); ++at) {
    const char c = text.as_view()[at];
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                       c == '.' || c == '-' || c == '~' || (c == '/' && !query);
    const char escaped[] = {'%', kHex[byte >> 4], kHex[byte & 15u]};
    const std::string_view piece = plain               ? text.as_view().substr(at, 1)
                                   : query && c == ' ' ? std::string_view("+")
                                                       : std::string_view(escaped, 3);
    builder.append(piece, is_content_at(text.as_text(), at, cursor));
  }
  return true;
}

inline bool urlencode(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  TextBuilder builder;
  std::vector<Value> pairs;
  std::vector<Value> pair;
  if (value.is_string() || !(value.is(Kind::kDict) || value.is_sequence() || value.is(Kind::kRange))) {
    if (!append_url(runtime, value, false, builder)) return false;
    out = builder.take();
    return true;
  }
  if (value.is(Kind::kDict)) {
    for (const auto& [key, member] : value.as_dict().entries) {
      pairs.emplace_back();
      if (!make_sequence(runtime, Kind::kTuple, {key, member}, pairs.back())) return false;
    }
  } else if (!iterate(runtime, value, pairs)) {
    return false;
  }
  for (const Value& item : pairs) {
    if (!iterate(runtime, item, pair)) return false;
    if (pair.size() != 2) return runtime.fail("urlencode needs pairs of name and value");
    if (builder.size() > 0) builder.append("&", false);
    if (!append_url(runtime, pair[0], true, builder)) return false;
    builder.append("=", false);
    if (!append_url(runtime, pair[1], true, builder)) return false;
  }
  out = builder.take();
  return true;
}

inline bool filesizeformat(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  static constexpr std::string_view kDecimal[] = {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"};
  static constexpr std::string_view kBinary[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"};
  Parameters parameters;
  double size = 0;
  if (!parameters.bind(runtime, "filesizeformat", arguments, {"binary"})) return false;
  if (value.is_undefined()) return fail_undefined(runtime, value);
  if (value.is_number()) {
    size = value.as_double();
  } else if (!value.is_string() || !parse_real(strip(value.as_text(), nullptr, true, true).as_view(), size)) {
    return runtime.fail(std::string("filesizeformat needs a number, not ") + value.type_name());
  }
  const bool binary = parameters.flag(0, false);
  const double base = binary ? 1024 : 1000;
  if (size == 1) {
    out = Value::string("1 Byte");
  } else if (size < base) {
    if (!(size > -9e18)) return runtime.fail("filesizeformat: the number is too small");
    out = Value::string(std::to_string(static_cast<std::int64_t>(size)) + " Bytes");
  } else {
    double unit = base;
    std::size_t at = 0;
    for (; at < 7 && size >= unit * base; ++at) unit *= base;
    out = Value::string(float_fixed(base * size / (unit * base), 1) + " " +
                        std::string((binary ? kBinary : kDecimal)[at]));
  }
  return true;
}

}  // namespace filters

CORBEL_INLINE std::span<const NamedBuiltin> markup_filters() noexcept {
  static constexpr NamedBuiltin kTable[] = {
      {"safe", filters::safe},           {"escape", filters::escape<false>},
      {"e", filters::escape<false>},     {"forceescape", filters::escape<true>},
      {"striptags", filters::striptags}, {"xmlattr", filters::xmlattr},
      {"urlencode", filters::urlencode}, {"filesizeformat", filters::filesizeformat},
  };
  return kTable;
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
