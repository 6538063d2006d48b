// Filters that make text or numbers (text/jinja/builtins.hpp).
#pragma once

#include <corbel/text/jinja/builtins.hpp>
#include <corbel/text/jinja/operators.hpp>
#include <corbel/text/jinja/print.hpp>
#include <corbel/text/jinja/strings.hpp>

#include <cmath>
#include <string>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

namespace filters {

template <Case kCase>
bool cased(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  Value text;
  if (!parameters.bind(runtime, "the filter", arguments, {}) || !to_str(runtime, value, text)) return false;
  out = change_case(text.as_text(), kCase);
  if (text.is_markup() && kCase != Case::kTitleFilter) out = as_markup(std::move(out));
  return runtime.charge_bytes(text.as_view().size() * 4);
}

inline bool trim(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Text* characters = nullptr;
  Value text;
  if (!parameters.bind(runtime, "trim", arguments, {"chars"}) || !parameters.string(runtime, 0, characters) ||
      !to_str(runtime, value, text) || !runtime.charge_bytes(text.as_view().size())) {
    return false;
  }
  out = strip(text.as_text(), characters, true, true);
  if (text.is_markup()) out = as_markup(std::move(out));
  return true;
}

inline bool string(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  return to_str(runtime, value, out);
}

inline bool replace_filter(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Value* from = nullptr;
  const Value* to = nullptr;
  std::int64_t limit = -1;
  Value text;
  Value from_text;
  Value to_text;
  if (!parameters.bind(runtime, "replace", arguments, {"old", "new", "count"}) ||
      !parameters.required(runtime, 0, from) || !parameters.required(runtime, 1, to)) {
    return false;
  }
  const bool limited = parameters.value(2) != nullptr && !parameters.value(2)->is(Kind::kNone);
  if (limited && !parameters.integer(runtime, 2, -1, limit)) return false;
  return to_str(runtime, value, text) && to_str(runtime, *from, from_text) && to_str(runtime, *to, to_text) &&
         replace(runtime, text.as_text(), from_text.as_text(), to_text.as_text(), limit, out);
}

inline bool indent(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  if (!parameters.bind(runtime, "indent", arguments, {"width", "first", "blank"})) return false;
  Value space = Value::string("    ");
  if (parameters.value(0) != nullptr && parameters.value(0)->is_string()) {
    space = *parameters.value(0);
  } else if (parameters.value(0) != nullptr) {
    std::int64_t width = 4;
    if (!parameters.integer(runtime, 0, 4, width)) return false;
    if (!arithmetic(runtime, OpCode::kMultiply, Value::string(" "), Value::integer(width), space)) return false;
  }
  if (!value.is_string()) return runtime.fail(std::string("indent needs a string, not ") + value.type_name());
  TextBuilder with_end;  // one more newline, so that a last empty line counts as a line
  with_end.append(value.as_text());
  with_end.append("\n", false);
  const Value whole = with_end.take();
  TextBuilder builder;
  bool first = true;
  for (const Value& line : split_lines(whole.as_text(), false)) {
    if (!runtime.charge_bytes(line.as_view().size() + space.as_view().size())) return false;
    if (!first) builder.append("\n", false);
    const bool wanted = first ? parameters.flag(1, false) : parameters.flag(2, false) || !line.as_view().empty();
    if (wanted) builder.append(space.as_text());
    builder.append(line.as_text());
    first = false;
  }
  out = builder.take();
  if (value.is_markup()) out = as_markup(std::move(out));
  return true;
}

inline bool center(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::int64_t width = 80;
  Value text;
  if (!parameters.bind(runtime, "center", arguments, {"width"}) || !parameters.integer(runtime, 0, 80, width) ||
      !to_str(runtime, value, text) || !pad(runtime, text.as_text(), width, Align::kCenter, " ", out)) {
    return false;
  }
  if (text.is_markup()) out = as_markup(std::move(out));
  return true;
}

inline bool format(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Value text;
  Value values;
  if (!to_str(runtime, value, text)) return false;
  if (arguments.keywords.empty()) {
    if (!make_sequence(runtime, Kind::kTuple, arguments.positional, values)) return false;
  } else {
    DictBuilder builder;
    if (!arguments.positional.empty()) return runtime.fail("format takes positional or keyword arguments, not both");
    for (const auto& [key, argument] : arguments.keywords) {
      if (!builder.set(runtime, key, argument)) return false;
    }
    values = builder.take();
  }
  return format_percent(runtime, text.as_text(), values, out);
}

inline bool truncate(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::int64_t length = 255;
  std::int64_t leeway = 5;
  const Text* given_end = nullptr;
  if (!parameters.bind(runtime, "truncate", arguments, {"length", "killwords", "end", "leeway"}) ||
      !parameters.integer(runtime, 0, 255, length) || !parameters.integer(runtime, 3, 5, leeway) ||
      !parameters.string(runtime, 2, given_end)) {
    return false;
  }
  std::int64_t size = 0;
  if (!length_of(runtime, value, size)) return false;
  const Value default_end = Value::string("...");
  const Text& end = given_end == nullptr ? default_end.as_text() : *given_end;
  const auto end_length = static_cast<std::int64_t>(end.characters);
  if (length < end_length || leeway < 0) return runtime.fail("truncate: the length is shorter than the end");
  if (size - leeway <= length) {
    out = value;
    return true;
  }
  if (!value.is_string()) return runtime.fail(std::string("truncate needs a string, not ") + value.type_name());
  if (!runtime.charge_bytes(value.as_view().size())) return false;
  std::size_t keep = byte_of_character(value.as_text(), static_cast<std::size_t>(length - end_length));
  if (!parameters.flag(1, false)) {
    const std::size_t space = value.as_view().substr(0, keep).rfind(' ');
    if (space != std::string_view::npos) keep = space;
  }
  TextBuilder builder;
  builder.append(value.as_text(), 0, keep);
  if (value.is_markup()) {
    builder.append(escape_markup(given_end == nullptr ? default_end : *parameters.value(2)).as_text());
    out = as_markup(builder.take());
    return true;
  }
  builder.append(end);
  out = builder.take();
  return true;
}

inline bool wordcount(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  Value text;
  if (!to_str(runtime, value, text) || !runtime.charge_bytes(text.as_view().size())) return false;
  std::int64_t count = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.as_view().size(); at += character_length(text.as_view(), at)) {
    const std::string_view character = text.as_view().substr(at, character_length(text.as_view(), at));
    const bool word = character == "_" || all_of_class(character, CharacterClass::kAlnum);
    if (word && !inside) ++count;
    inside = word;
  }
  out = Value::integer(count);
  return true;
}

inline bool tojson(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  if (!parameters.bind(runtime, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}))
    return false;
  JsonStyle style;
  style.ensure_ascii = parameters.flag(0, false);
  style.sort_keys = parameters.flag(3, false);
  const Value* indent_by = parameters.value(1);
  if (indent_by != nullptr && !indent_by->is(Kind::kNone)) {
    style.indented = true;
    style.item_separator = Value::string(",");
    std::int64_t width = 0;
    if (indent_by->is_string()) {
      style.indent = indent_by->as_view();
    } else if (!parameters.integer(runtime, 1, 0, width) ||
               (width > 0 && !runtime.charge_bytes(static_cast<std::uint64_t>(width)))) {
      return false;
    } else {
      style.indent.assign(width > 0 ? static_cast<std::size_t>(width) : 0, ' ');
    }
  }
  if (parameters.value(2) != nullptr && !parameters.value(2)->is(Kind::kNone)) {
    std::vector<Value> separators;
    if (!iterate(runtime, *parameters.value(2), separators)) return false;
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      return runtime.fail("tojson: 'separators' must be two strings");
    }
    style.item_separator = separators[0];
    style.key_separator = separators[1];
  }
  TextBuilder builder;
  if (!append_json(runtime, value, style, builder)) return false;
  out = builder.take();
  return true;
}

// --- numbers

// Python lets single underscores stand between digits.
inline std::string without_underscores(std::string_view text) {
  std::string out;
  const auto is_digit = [&](std::size_t at) {
    const char c = text[at];
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool between = text[at] == '_' && at > 0 && at + 1 < text.size() && is_digit(at - 1) && is_digit(at + 1);
    if (!between) out += text[at];
  }
  return out;
}

inline bool to_float(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  if (!parameters.bind(runtime, "float", arguments, {"default"})) return false;
  if (value.is_undefined()) return fail_undefined(runtime, value);
  double number = 0;
  if (value.is_number()) {
    out = Value::real(value.as_double());
  } else if (value.is_string() &&
             parse_real(without_underscores(strip(value.as_text(), nullptr, true, true).as_view()), number)) {
    out = Value::real(number);
  } else {
    out = parameters.value(0) == nullptr ? Value::real(0) : *parameters.value(0);
  }
  return true;
}

inline bool to_int(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::int64_t base = 10;
  std::int64_t number = 0;
  if (!parameters.bind(runtime, "int", arguments, {"default", "base"}) || !parameters.integer(runtime, 1, 10, base)) {
    return false;
  }
  if (value.is_undefined()) return fail_undefined(runtime, value);
  out = parameters.value(0) == nullptr ? Value::integer(0) : *parameters.value(0);
  if (base < 2 || base > 36) return true;
  double real = 0;
  bool have_real = value.is(Kind::kFloat);
  if (have_real) real = value.as_double();
  if (value.is_integral()) out = Value::integer(value.as_int());
  if (value.is_string()) {
    const Value stripped = strip(value.as_text(), nullptr, true, true);
    const std::string digits = without_underscores(stripped.as_view());
    std::string_view text = digits;
    const std::string_view prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "";
    if (!prefix.empty() && text.substr(0, 2) == prefix) text.remove_prefix(2);
    if (parse_integer(text, static_cast<int>(base), number)) {
      out = Value::integer(number);
    } else {
      have_real = parse_real(text, real);
    }
  }
  if (have_real && real > -9.2e18 && real < 9.2e18) out = Value::integer(static_cast<std::int64_t>(real));
  return true;
}

inline bool absolute(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  if (value.is_undefined()) return fail_undefined(runtime, value);
  if (!value.is_number()) return runtime.fail(std::string("bad operand type for abs(): '") + value.type_name() + "'");
  if (value.is(Kind::kFloat)) {
    out = Value::real(std::fabs(value.as_double()));
    return true;
  }
  return value.as_int() < 0 ? unary(runtime, OpCode::kNegate, value, out) : unary(runtime, OpCode::kPlus, value, out);
}

// Rounds the decimal text, half to even as it stands there, like Python's round().
inline double round_decimal(double value, std::int64_t precision) {
  if (precision > 300) return value;
  double rounded = value;
  if (precision >= 0) {
    parse_real(float_fixed(value, static_cast<int>(precision)), rounded);
    return rounded;
  }
  double scale = 1;
  for (std::int64_t i = precision; i < 0 && scale < 1e300; ++i) scale *= 10;
  return std::nearbyint(value / scale) * scale;
}

inline bool round(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::int64_t precision = 0;
  const Text* method = nullptr;
  if (!parameters.bind(runtime, "round", arguments, {"precision", "method"}) ||
      !parameters.integer(runtime, 0, 0, precision) || !parameters.string(runtime, 1, method)) {
    return false;
  }
  if (value.is_undefined()) return fail_undefined(runtime, value);
  if (!value.is_number()) return runtime.fail(std::string("round needs a number, not ") + value.type_name());
  const std::string_view how = method == nullptr ? std::string_view("common") : std::string_view(method->bytes);
  if (how == "common") {
    if (value.is(Kind::kFloat)) {
      out = Value::real(round_decimal(value.as_double(), precision));
    } else {
      out = precision >= 0 ? Value::integer(value.as_int())
                           : Value::integer(static_cast<std::int64_t>(round_decimal(value.as_double(), precision)));
    }
    return true;
  }
  if (how != "ceil" && how != "floor") return runtime.fail("round: the method is 'common', 'ceil' or 'floor'");
  Value scale;
  if (!arithmetic(runtime, OpCode::kPower, Value::real(10), Value::integer(precision), scale)) return false;
  const double scaled = value.as_double() * scale.as_double();
  out = Value::real((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale.as_double());
  return true;
}

}  // namespace filters

CORBEL_INLINE std::span<const NamedBuiltin> text_filters() noexcept {
  static constexpr NamedBuiltin kTable[] = {
      {"upper", filters::cased<Case::kUpper>},
      {"lower", filters::cased<Case::kLower>},
      {"title", filters::cased<Case::kTitleFilter>},
      {"capitalize", filters::cased<Case::kCapitalize>},
      {"trim", filters::trim},
      {"string", filters::string},
      {"replace", filters::replace_filter},
      {"indent", filters::indent},
      {"center", filters::center},
      {"format", filters::format},
      {"truncate", filters::truncate},
      {"wordcount", filters::wordcount},
      {"tojson", filters::tojson},
      {"float", filters::to_float},
      {"int", filters::to_int},
      {"abs", filters::absolute},
      {"round", filters::round},
  };
  return kTable;
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
