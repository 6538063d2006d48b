// The % operator of strings (text/jinja/operators.hpp).
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/jinja/operators.hpp>
#include <corbel/text/jinja/print.hpp>
#include <corbel/text/jinja/strings.hpp>

#include <algorithm>
#include <charconv>
#include <string>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

namespace format_detail {

/// One conversion, %[(key)][flags][width][.precision]type.
struct Conversion {
  std::string_view key;
  bool has_key = false;
  bool left = false;
  bool zero = false;
  bool plus = false;
  bool space = false;
  bool alternate = false;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = 's';
};

inline bool parse_size(std::string_view text, std::size_t& at, std::int64_t& out) noexcept {
  out = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    out = out * 10 + (text[at] - '0');
    if (out > 100'000'000) return false;
  }
  return true;
}

/// Reads a conversion behind its "%"; false where it is cut short or too wide.
inline bool parse_conversion(std::string_view text, std::size_t& at, Conversion& out) noexcept {
  if (at < text.size() && text[at] == '(') {
    const std::size_t end = text.find(')', at);
    if (end == std::string_view::npos) return false;
    out.key = text.substr(at + 1, end - at - 1);
    out.has_key = true;
    at = end + 1;
  }
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '-') {
      out.left = true;
    } else if (c == '0') {
      out.zero = true;
    } else if (c == '+') {
      out.plus = true;
    } else if (c == ' ') {
      out.space = true;
    } else if (c == '#') {
      out.alternate = true;
    } else {
      break;
    }
  }
  if (!parse_size(text, at, out.width)) return false;
  if (at < text.size() && text[at] == '.') {
    ++at;
    if (!parse_size(text, at, out.precision)) return false;
  }
  if (at >= text.size()) return false;
  out.type = text[at++];
  return true;
}

/// Digits of a number without its sign.
inline bool number_digits(Runtime& runtime, const Conversion& conversion, const Value& value, std::string& digits,
                          bool& negative) {
  const std::string_view integers = "diuxXo";
  if (!value.is_number()) {
    return runtime.fail(std::string("%") + conversion.type + " format: a number is required, not " + value.type_name());
  }
  if (integers.find(conversion.type) != std::string_view::npos) {
    if (value.is(Kind::kFloat) && !(value.as_double() > -9.2e18 && value.as_double() < 9.2e18)) {
      return runtime.fail("a float is too large for an integer format");
    }
    const std::int64_t number = value.is(Kind::kFloat) ? static_cast<std::int64_t>(value.as_double()) : value.as_int();
    negative = number < 0;
    const std::uint64_t size = negative ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
    const int base = conversion.type == 'o' ? 8 : (conversion.type | 0x20) == 'x' ? 16 : 10;
    char buffer[32];
    digits.assign(buffer, std::to_chars(buffer, buffer + sizeof buffer, size, base).ptr);
    if (conversion.alternate && base == 16) digits.insert(0, "0x");
    if (conversion.alternate && base == 8) digits.insert(0, "0o");
  } else {
    const int precision = conversion.precision < 0 ? 6 : static_cast<int>(conversion.precision);
    if (precision > 300) return runtime.fail("a float format asks for too many digits");
    double number = value.as_double();
    negative = number < 0;
    if (negative) number = -number;
    const char type = static_cast<char>(conversion.type | 0x20);
    char buffer[640];
    const auto style = type == 'f'   ? std::chars_format::fixed
                       : type == 'e' ? std::chars_format::scientific
                                     : std::chars_format::general;
    digits.assign(buffer, std::to_chars(buffer, buffer + sizeof buffer, number, style, precision).ptr);
  }
  if (conversion.type >= 'A' && conversion.type <= 'Z') {
    for (char& c : digits) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  }
  return true;
}

inline bool append_number(Runtime& runtime, const Conversion& conversion, const Value& value, TextBuilder& out) {
  std::string digits;
  bool negative = false;
  if (!number_digits(runtime, conversion, value, digits, negative)) return false;
  const std::string sign = negative ? "-" : conversion.plus ? "+" : conversion.space ? " " : "";
  const auto size = static_cast<std::int64_t>(sign.size() + digits.size());
  const std::size_t missing = static_cast<std::size_t>(std::max<std::int64_t>(0, conversion.width - size));
  if (!runtime.charge_bytes(missing + digits.size())) return false;
  const bool zeros = conversion.zero && !conversion.left;
  if (!conversion.left && !zeros) out.append(std::string(missing, ' '), false);
  out.append(sign, false);
  if (zeros) out.append(std::string(missing, '0'), false);
  out.append(digits, false);
  if (conversion.left) out.append(std::string(missing, ' '), false);
  return true;
}

inline bool append_text(Runtime& runtime, const Conversion& conversion, const Value& value, bool markup,
                        TextBuilder& out) {
  Value text;
  if (conversion.type == 's') {
    if (!to_str(runtime, value, text)) return false;
  } else {
    TextBuilder builder;
    if (!append_repr(runtime, value, builder)) return false;
    text = builder.take();
  }
  if (markup) {
    if (!runtime.charge_bytes(text.as_view().size() * 5)) return false;
    text = escape_markup(text);
  }
  if (conversion.precision >= 0) {
    const std::size_t end = byte_of_character(text.as_text(), static_cast<std::size_t>(conversion.precision));
    text = slice_bytes(text.as_text(), 0, end);
  }
  if (!pad(runtime, text.as_text(), conversion.width, conversion.left ? Align::kLeft : Align::kRight, " ", text)) {
    return false;
  }
  out.append(text.as_text());
  return true;
}

}  // namespace format_detail

CORBEL_INLINE bool format_percent(Runtime& runtime, const Text& format, const Value& arguments, Value& out) {
  using format_detail::Conversion;
  if (!runtime.charge_bytes(format.bytes.size())) return false;
  TextBuilder builder;
  std::size_t used = 0;
  bool used_key = false;
  const bool many = arguments.is(Kind::kTuple);
  const std::size_t given = many ? arguments.as_sequence().items.size() : 1;
  for (std::size_t at = 0; at < format.bytes.size();) {
    const std::size_t percent = std::min(format.bytes.find('%', at), format.bytes.size());
    builder.append(format, at, percent);
    if (percent == format.bytes.size()) break;
    at = percent + 1;
    Conversion conversion;
    if (!format_detail::parse_conversion(format.bytes, at, conversion)) return runtime.fail("incomplete format");
    if (conversion.type == '%') {
      builder.append(format, at - 1, at);
      continue;
    }
    Value value;
    if (conversion.has_key) {
      if (!arguments.is(Kind::kDict)) return runtime.fail("format requires a mapping");
      const Value* found = dict_find(runtime, arguments.as_dict(), conversion.key);
      if (found == nullptr) return runtime.fail("format: the mapping has no key '" + std::string(conversion.key) + "'");
      value = *found;
      used_key = true;
    } else {
      if (used >= given) return runtime.fail("not enough arguments for format string");
      value = many ? arguments.as_sequence().items[used] : arguments;
      ++used;
    }
    static constexpr std::string_view kNumbers = "diuxXofFeEgG";
    if (conversion.type == 's' || conversion.type == 'r' || conversion.type == 'a') {
      if (!format_detail::append_text(runtime, conversion, value, format.markup, builder)) return false;
    } else if (kNumbers.find(conversion.type) != std::string_view::npos) {
      if (!format_detail::append_number(runtime, conversion, value, builder)) return false;
    } else if (conversion.type == 'c') {
      if (value.is_string() ? value.as_text().characters != 1 : !value.is(Kind::kInt)) {
        return runtime.fail("%c requires an int or a character");
      }
      if (value.is(Kind::kInt)) {
        if (value.as_int() < 0 || value.as_int() > 0x10FFFF) return runtime.fail("%c: not a code point");
        std::string character;
        detail::append_utf8(character, static_cast<std::uint32_t>(value.as_int()));
        value = Value::string(character);
      }
      conversion.type = 's';
      if (!format_detail::append_text(runtime, conversion, value, format.markup, builder)) return false;
    } else {
      return runtime.fail(std::string("unsupported format character '") + conversion.type + "'");
    }
  }
  const bool unused_is_error =
      many || (!arguments.is(Kind::kDict) && !arguments.is(Kind::kList) && !arguments.is_undefined());
  if (used < given && !used_key && unused_is_error) {
    return runtime.fail("not all arguments converted during string formatting");
  }
  Value formatted = builder.take();
  out = format.markup ? as_markup(std::move(formatted)) : std::move(formatted);
  return true;
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
