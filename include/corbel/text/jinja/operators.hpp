// Operators, members, subscripts and iteration over values, with Python's meaning.
#pragma once

#include <corbel/config.hpp>
#include <corbel/text/jinja/program.hpp>
#include <corbel/text/jinja/value.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

/// "'name' is undefined"; always false.
bool fail_undefined(Runtime& runtime, const Value& undefined);

/// x + y, x * y, ...: codes kAdd to kPower.
bool arithmetic(Runtime& runtime, OpCode code, const Value& x, const Value& y, Value& out);
/// kNegate and kPlus.
bool unary(Runtime& runtime, OpCode code, const Value& value, Value& out);
/// Codes kEqual to kNotIn.
bool compare(Runtime& runtime, OpCode code, const Value& x, const Value& y, bool& out);
bool contains(Runtime& runtime, const Value& container, const Value& item, bool& out);

/// value.name: a method, else a member; undefined where there is none.
bool get_attribute(Runtime& runtime, const Value& value, std::string_view name, Value& out);
/// value[key]: an item, else an attribute; undefined where there is none.
bool get_item(Runtime& runtime, const Value& value, const Value& key, Value& out);
bool get_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step,
               Value& out);

/// Everything that {% for %} would see. Undefined has nothing; what cannot be iterated fails.
bool iterate(Runtime& runtime, const Value& value, std::vector<Value>& out);
bool length_of(Runtime& runtime, const Value& value, std::int64_t& out);

/// Python's `format % arguments`.
bool format_percent(Runtime& runtime, const Text& format, const Value& arguments, Value& out);
/// Reads the number at the start of decimal text; false where there is none or it does not fit.
bool parse_integer(std::string_view text, int base, std::int64_t& out) noexcept;
bool parse_real(std::string_view text, double& out) noexcept;

}  // namespace text::jinja
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/jinja/format_percent.ipp>
#include <corbel/impl/text/jinja/operators.ipp>
#endif
