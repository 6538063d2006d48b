// str.format and str.format_map (Python Library Reference, "Format String Syntax"): fields with members and items,
// conversions, and format specifications, in which fields may stand in turn.
#pragma once

#include <corbel/text/jinja/builtins.hpp>
#include <corbel/text/jinja/operators.hpp>
#include <corbel/text/jinja/print.hpp>
#include <corbel/text/jinja/strings.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

namespace braces_detail {

/// [[fill]align][sign][#][0][width][grouping][.precision][type]; 0 stands for what is not there.
struct Spec {
  std::string_view fill = " ";
  char align = 0;
  char sign = '-';
  bool alternate = false;
  std::int64_t width = 0;
  char grouping = 0;
  std::int64_t precision = -1;
  char type = 0;
};

inline bool is_align(char c) noexcept { return c == '<' || c == '>' || c == '^' || c == '='; }

inline bool read_size(std::string_view text, std::size_t& at, std::int64_t& out) noexcept {
  out = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    out = out * 10 + (text[at] - '0');
    if (out > 100'000'000) return false;
  }
  return true;
}

inline bool parse_spec(std::string_view text, Spec& out) noexcept {
  std::size_t at = 0;
  const std::size_t first = text.empty() ? 0 : character_length(text, 0);
  const auto next_is = [&](char c) { return at < text.size() && text[at] == c; };
  if (first != 0 && first < text.size() && is_align(text[first])) {
    out.fill = text.substr(0, first);
    out.align = text[first];
    at = first + 1;
  } else if (first != 0 && is_align(text[0])) {
    out.align = text[0];
    at = 1;
  }
  if (next_is('+') || next_is('-') || next_is(' ')) out.sign = text[at++];
  if (next_is('#')) {
    out.alternate = true;
    ++at;
  }
  if (next_is('0')) {
    if (out.align == 0) {
      out.fill = "0";
      out.align = '=';
    }
    ++at;
  }
  if (!read_size(text, at, out.width)) return false;
  if (next_is(',') || next_is('_')) out.grouping = text[at++];
  if (next_is('.')) {
    ++at;
    if (at >= text.size() || text[at] < '0' || text[at] > '9' || !read_size(text, at, out.precision)) return false;
  }
  if (at < text.size()) out.type = text[at++];
  return at == text.size();
}

inline void group_digits(std::string& digits, std::size_t width, char separator) {
  std::size_t end = 0;
  while (end < digits.size() &&
         ((digits[end] >= '0' && digits[end] <= '9') || (digits[end] >= 'a' && digits[end] <= 'f')))
    ++end;
  for (std::size_t at = end; at > width; at -= width) digits.insert(at - width, 1, separator);
}

inline bool integer_digits(Runtime& runtime, const Spec& spec, std::uint64_t size, std::string& digits,
                           std::string& prefix) {
  if (spec.precision >= 0) return runtime.fail("format: precision is not allowed for integers");
  const char type = spec.type == 0 || spec.type == 'n' ? 'd' : spec.type;
  const int base = type == 'b' ? 2 : type == 'o' ? 8 : (type | 0x20) == 'x' ? 16 : 10;
  char buffer[72];
  digits.assign(buffer, std::to_chars(buffer, buffer + sizeof buffer, size, base).ptr);
  if (spec.alternate && base != 10) prefix = {'0', type};
  if (spec.grouping != 0) group_digits(digits, base == 10 ? 3 : 4, spec.grouping);
  if (type == 'X')
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](char c) { return static_cast<char>(c >= 'a' && c <= 'f' ? c - 32 : c); });
  return true;
}

// Without a type: the shortest text, or so many digits, and always a point or an exponent.
inline std::string plain_real(double size, std::int64_t precision) {
  if (precision < 0) return float_repr(size);
  char buffer[640];
  const int digits = static_cast<int>(std::max<std::int64_t>(precision, 1));
  std::string out(buffer, std::to_chars(buffer, buffer + sizeof buffer, size, std::chars_format::general, digits).ptr);
  if (out.find_first_of(".ein") != std::string::npos) return out;
  if (out.size() < static_cast<std::size_t>(digits)) return out + ".0";
  out.assign(buffer,
             std::to_chars(buffer, buffer + sizeof buffer, size, std::chars_format::scientific, digits - 1).ptr);
  std::size_t point = out.find('.');
  if (point == std::string::npos) return out;
  std::size_t end = out.find('e');
  std::size_t keep = end;
  while (out[keep - 1] == '0') --keep;
  if (keep - 1 == point) --keep;
  return out.erase(keep, end - keep);
}

inline bool real_digits(Runtime& runtime, const Spec& spec, double size, std::string& digits) {
  if (spec.precision > 300) return runtime.fail("format: too many digits");
  const char type = static_cast<char>(spec.type | 0x20);
  if (spec.type == 0) {
    digits = plain_real(size, spec.precision);
  } else {
    const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
    char buffer[640];
    const auto style = type == 'f' || spec.type == '%' ? std::chars_format::fixed
                       : type == 'e'                   ? std::chars_format::scientific
                                                       : std::chars_format::general;
    const double shown = spec.type == '%' ? size * 100 : size;
    digits.assign(buffer, std::to_chars(buffer, buffer + sizeof buffer, shown, style, precision).ptr);
    if (spec.type == '%') digits += '%';
  }
  if (spec.grouping != 0) group_digits(digits, 3, spec.grouping);
  if (spec.type >= 'A' && spec.type <= 'Z') {
    for (char& c : digits) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  }
  return true;
}

inline bool append_padded(Runtime& runtime, const Spec& spec, char fallback, std::string_view front, const Text& text,
                          TextBuilder& out) {
  const char align = spec.align == 0 ? fallback : spec.align;
  const auto size = static_cast<std::int64_t>(front.size() + text.characters);
  const auto missing = static_cast<std::size_t>(std::max<std::int64_t>(0, spec.width - size));
  if (!runtime.charge(1 + missing) || !runtime.charge_bytes(text.bytes.size())) return false;
  const auto fill = [&](std::size_t count) {
    for (; count > 0; --count) out.append(spec.fill, false);
  };
  const std::size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  if (align != '=') fill(before);
  out.append(front, false);
  if (align == '=') fill(before);
  out.append(text);
  fill(missing - before);
  return true;
}

inline bool append_formatted(Runtime& runtime, const Value& value, std::string_view text, TextBuilder& out) {
  Spec spec;
  if (text.empty()) return append_str(runtime, value, out);
  if (!parse_spec(text, spec)) return runtime.fail("format: '" + std::string(text.substr(0, 40)) + "' is no format");
  const auto bad_type = [&] {
    return runtime.fail(std::string("format: '") + spec.type + "' does not fit a value of type " + value.type_name());
  };
  if (value.is_string() || value.is_undefined()) {
    if ((spec.type != 0 && spec.type != 's') || (spec.align == '=' && spec.fill != "0")) return bad_type();
    Value shown = value.is_string() ? value : Value::string("");
    if (spec.precision >= 0) {
      const std::size_t end = byte_of_character(shown.as_text(), static_cast<std::size_t>(spec.precision));
      shown = slice_bytes(shown.as_text(), 0, end);
    }
    if (spec.align == '=') spec.align = '<';
    return append_padded(runtime, spec, '<', {}, shown.as_text(), out);
  }
  if (!value.is_number()) return bad_type();
  static constexpr std::string_view kReals = "eEfFgG%";
  const bool real = value.is(Kind::kFloat) || (spec.type != 0 && kReals.find(spec.type) != std::string_view::npos);
  static constexpr std::string_view kIntegers = "bdonxX";
  if (spec.type != 0 && (real ? kReals : kIntegers).find(spec.type) == std::string_view::npos) return bad_type();
  std::string digits;
  std::string prefix;
  bool negative = false;
  if (real) {
    negative = std::signbit(value.as_double());
    if (!real_digits(runtime, spec, std::fabs(value.as_double()), digits)) return false;
  } else {
    negative = value.as_int() < 0;
    const auto bits = static_cast<std::uint64_t>(value.as_int());
    if (!integer_digits(runtime, spec, negative ? 0 - bits : bits, digits, prefix)) return false;
  }
  const std::string_view sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  return append_padded(runtime, spec, '>', std::string(sign) + prefix, Value::string(digits).as_text(), out);
}

class Formatter {
 public:
  Formatter(Runtime& runtime, const Arguments& arguments, const Dict* mapping, bool markup)
      : runtime_(runtime), arguments_(arguments), mapping_(mapping), markup_(markup) {}

  bool format(const Text& text, std::size_t begin, std::size_t end, int depth, TextBuilder& out) {
    const std::string_view bytes = std::string_view(text.bytes).substr(0, end);
    if (!runtime_.charge_bytes(end - begin)) return false;
    for (std::size_t at = begin; at < end;) {
      const char c = bytes[at];
      if (depth == 0 && (c == '{' || c == '}') && at + 1 < end && bytes[at + 1] == c) {
        out.append(text, at, at + 1);
        at += 2;
        continue;
      }
      if (c == '}') return runtime_.fail("single '}' in the format string");
      if (c != '{') {
        const std::size_t stop = std::min(bytes.find_first_of("{}", at), end);
        out.append(text, at, stop);
        at = stop;
        continue;
      }
      std::size_t close = at + 1;
      for (int open = 1; close < end; ++close) {
        open += bytes[close] == '{' ? 1 : bytes[close] == '}' ? -1 : 0;
        if (open == 0) break;
      }
      if (close >= end) return runtime_.fail("'{' in the format string is not closed");
      if (!field(text, at + 1, close, depth, out)) return false;
      at = close + 1;
    }
    return true;
  }

 private:
  // name[!conversion][:specification]
  bool field(const Text& text, std::size_t begin, std::size_t end, int depth, TextBuilder& out) {
    if (depth > 1) return runtime_.fail("format: fields nest too deep");
    const std::string_view bytes = std::string_view(text.bytes).substr(0, end);
    std::size_t name_end = begin;
    for (bool bracket = false; name_end < end; ++name_end) {
      const char c = bytes[name_end];
      bracket = c == '[' || (bracket && c != ']');
      if (!bracket && (c == '!' || c == ':')) break;
    }
    std::size_t spec_begin = name_end;
    char conversion = 0;
    if (name_end < end && bytes[name_end] == '!') {
      if (name_end + 1 >= end) return runtime_.fail("format: a conversion is missing after '!'");
      conversion = bytes[name_end + 1];
      spec_begin = name_end + 2;
      if (spec_begin < end && bytes[spec_begin] != ':') return runtime_.fail("format: expected ':' after a conversion");
    }
    Value value;
    if (!look_up(bytes.substr(begin, name_end - begin), value)) return false;
    if (conversion != 0 && conversion != 's' && conversion != 'r' && conversion != 'a') {
      return runtime_.fail(std::string("format: unknown conversion '") + conversion + "'");
    }
    if (conversion == 's' && !to_str(runtime_, value, value)) return false;
    if (conversion == 'r' || conversion == 'a') {
      TextBuilder builder;
      if (!append_repr(runtime_, value, builder)) return false;
      value = builder.take();
    }
    TextBuilder spec;
    if (spec_begin < end && !format(text, spec_begin + 1, end, depth + 1, spec)) return false;
    if (!markup_) return append_formatted(runtime_, value, spec.bytes(), out);
    if (value.is_markup()) return append_str(runtime_, value, out);
    TextBuilder piece;
    if (!append_formatted(runtime_, value, spec.bytes(), piece)) return false;
    const Value shown = piece.take();
    if (!runtime_.charge_bytes(shown.as_view().size() * 5)) return false;
    out.append(escape_markup(shown).as_text());
    return true;
  }

  // "", 0 or name, then .member or [item] any number of times.
  bool look_up(std::string_view name, Value& out) {
    const std::size_t first_end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, first_end);
    std::int64_t number = 0;
    const Value* found = nullptr;
    if (mapping_ != nullptr) {
      found = dict_find(runtime_, *mapping_, first);
    } else if (first.empty() || parse_integer(first, 10, number)) {
      const std::size_t index = first.empty() ? next_++ : static_cast<std::size_t>(number);
      if (index < arguments_.positional.size()) found = &arguments_.positional[index];
    } else {
      for (const auto& [keyword, argument] : arguments_.keywords) {
        if (keyword.as_view() == first) found = &argument;
      }
    }
    if (found == nullptr) {
      return runtime_.fail("format: there is no argument for '{" + std::string(first.substr(0, 80)) + "}'");
    }
    out = *found;
    for (std::size_t at = first_end; at < name.size();) {
      Value member;
      if (name[at] == '.') {
        const std::size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        if (!get_attribute(runtime_, out, name.substr(at + 1, end - at - 1), member)) return false;
        at = end;
      } else if (name[at] == '[' && name.find(']', at) != std::string_view::npos) {
        const std::size_t end = name.find(']', at);
        const std::string_view key = name.substr(at + 1, end - at - 1);
        const Value item = parse_integer(key, 10, number) ? Value::integer(number) : Value::string(key);
        if (!get_item(runtime_, out, item, member)) return false;
        at = end + 1;
      } else {
        return runtime_.fail("format: only '.' or '[' may follow ']'");
      }
      out = std::move(member);
    }
    return true;
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  const Dict* mapping_;
  bool markup_;
  std::size_t next_ = 0;
};

}  // namespace braces_detail

namespace methods {

inline bool format_braces(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  TextBuilder builder;
  braces_detail::Formatter formatter(runtime, arguments, nullptr, self.is_markup());
  if (!formatter.format(self.as_text(), 0, self.as_view().size(), 0, builder)) return false;
  out = builder.take();
  return true;
}

inline bool format_map(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Value* mapping = nullptr;
  if (!parameters.bind(runtime, "format_map", arguments, {"mapping"}) || !parameters.required(runtime, 0, mapping)) {
    return false;
  }
  if (!mapping->is(Kind::kDict)) return runtime.fail("format_map needs a mapping");
  TextBuilder builder;
  braces_detail::Formatter formatter(runtime, arguments, &mapping->as_dict(), self.is_markup());
  if (!formatter.format(self.as_text(), 0, self.as_view().size(), 0, builder)) return false;
  out = builder.take();
  return true;
}

}  // namespace methods

}  // namespace text::jinja
CORBEL_NAMESPACE_END
