// Values as text: str() and repr() of Python, and JSON.
#pragma once

#include <corbel/config.hpp>
#include <corbel/text/jinja/value.hpp>

#include <cstdint>
#include <string>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

/// What {{ value }} prints. Charged by size.
bool append_str(Runtime& runtime, const Value& value, TextBuilder& out);
/// The same as a string value; a string is itself.
bool to_str(Runtime& runtime, const Value& value, Value& out);
/// Python's repr(). kTemplateError past kMaxValueDepth (a namespace can hold itself).
bool append_repr(Runtime& runtime, const Value& value, TextBuilder& out, std::uint32_t depth = 0);
/// Python's repr(float): the shortest text that reads back equal.
std::string float_repr(double value);
/// Python's "%.*f"; `precision` at most 308.
std::string float_fixed(double value, int precision);

struct JsonStyle {
  bool indented = false;
  std::string indent;
  Value item_separator = Value::string(", ");
  Value key_separator = Value::string(": ");
  bool ensure_ascii = false;
  bool sort_keys = false;
};

/// Python's json.dumps(); fails for values that are no JSON.
bool append_json(Runtime& runtime, const Value& value, const JsonStyle& style, TextBuilder& out,
                 std::uint32_t depth = 0);

}  // namespace text::jinja
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/jinja/print.ipp>
#endif
