// The tests behind `is` (text/jinja/builtins.hpp).
#pragma once

#include <corbel/text/jinja/builtins.hpp>
#include <corbel/text/jinja/operators.hpp>
#include <corbel/text/jinja/print.hpp>
#include <corbel/text/jinja/strings.hpp>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

namespace tests {

// A test without arguments, from a function of the value.
template <bool (*kHolds)(const Value&)>
bool plain(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  if (!parameters.bind(runtime, "the test", arguments, {})) return false;
  out = Value::boolean(kHolds(value));
  return true;
}

inline bool is_defined(const Value& v) { return !v.is_undefined(); }
inline bool is_undefined(const Value& v) { return v.is_undefined(); }
inline bool is_none(const Value& v) { return v.is(Kind::kNone); }
inline bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
inline bool is_true(const Value& v) { return v.is(Kind::kBool) && v.as_bool(); }
inline bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.as_bool(); }
inline bool is_integer(const Value& v) { return v.is(Kind::kInt); }
inline bool is_float(const Value& v) { return v.is(Kind::kFloat); }
inline bool is_number(const Value& v) { return v.is_number(); }
inline bool is_string(const Value& v) { return v.is_string(); }
inline bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
inline bool is_escaped(const Value& v) { return v.is_markup(); }
inline bool is_iterable(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is_sequence() || v.is(Kind::kDict) || v.is(Kind::kRange) ||
         v.is(Kind::kLoop);
}
inline bool is_sequence(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is(Kind::kList) || v.is(Kind::kTuple) || v.is(Kind::kDict) ||
         v.is(Kind::kRange);
}
inline bool is_callable(const Value& v) {
  return v.is_undefined() || v.is(Kind::kFunction) || v.is(Kind::kMethod) || v.is(Kind::kMacro) || v.is(Kind::kLoop) ||
         v.is(Kind::kJoiner);
}
inline bool is_filter(const Value& v) { return v.is_string() && find_filter(v.as_view()) >= 0; }
inline bool is_test(const Value& v) { return v.is_string() && find_test(v.as_view()) >= 0; }

template <CharacterClass kClass>
bool cased(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  Value text;
  if (!to_str(runtime, value, text)) return false;
  out = Value::boolean(all_of_class(text.as_view(), kClass));
  return runtime.charge_bytes(text.as_view().size());
}

template <OpCode kCode>
bool comparison(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Value* other = nullptr;
  bool holds = false;
  if (!parameters.bind(runtime, "the comparison", arguments, {"other"}) || !parameters.required(runtime, 0, other) ||
      !compare(runtime, kCode, value, *other, holds)) {
    return false;
  }
  out = Value::boolean(holds);
  return true;
}

inline bool sameas(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Value* other = nullptr;
  if (!parameters.bind(runtime, "sameas", arguments, {"other"}) || !parameters.required(runtime, 0, other))
    return false;
  out = Value::boolean(same(value, *other));
  return true;
}

inline bool divisible(Runtime& runtime, const Value& value, const Value& by, std::int64_t rest, Value& out) {
  Value remainder;
  bool equal = false;
  if (!value.is_number()) return runtime.fail(std::string("a number is needed, not ") + value.type_name());
  if (!arithmetic(runtime, OpCode::kModulo, value, by, remainder) ||
      !equals(runtime, remainder, Value::integer(rest), equal)) {
    return false;
  }
  out = Value::boolean(equal);
  return true;
}

inline bool odd(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  return divisible(runtime, value, Value::integer(2), 1, out);
}

inline bool even(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  return divisible(runtime, value, Value::integer(2), 0, out);
}

inline bool divisibleby(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Value* by = nullptr;
  return parameters.bind(runtime, "divisibleby", arguments, {"num"}) && parameters.required(runtime, 0, by) &&
         divisible(runtime, value, *by, 0, out);
}

}  // namespace tests

CORBEL_INLINE std::span<const NamedBuiltin> all_tests() noexcept {
  static constexpr Builtin kEqualTo = tests::comparison<OpCode::kEqual>;
  static constexpr Builtin kNotEqualTo = tests::comparison<OpCode::kNotEqual>;
  static constexpr Builtin kLessThan = tests::comparison<OpCode::kLess>;
  static constexpr Builtin kAtMost = tests::comparison<OpCode::kLessEqual>;
  static constexpr Builtin kGreaterThan = tests::comparison<OpCode::kGreater>;
  static constexpr Builtin kAtLeast = tests::comparison<OpCode::kGreaterEqual>;
  static constexpr NamedBuiltin kTable[] = {
      {"defined", tests::plain<tests::is_defined>},
      {"undefined", tests::plain<tests::is_undefined>},
      {"none", tests::plain<tests::is_none>},
      {"boolean", tests::plain<tests::is_boolean>},
      {"true", tests::plain<tests::is_true>},
      {"false", tests::plain<tests::is_false>},
      {"integer", tests::plain<tests::is_integer>},
      {"float", tests::plain<tests::is_float>},
      {"number", tests::plain<tests::is_number>},
      {"string", tests::plain<tests::is_string>},
      {"mapping", tests::plain<tests::is_mapping>},
      {"iterable", tests::plain<tests::is_iterable>},
      {"sequence", tests::plain<tests::is_sequence>},
      {"callable", tests::plain<tests::is_callable>},
      {"escaped", tests::plain<tests::is_escaped>},
      {"filter", tests::plain<tests::is_filter>},
      {"test", tests::plain<tests::is_test>},
      {"lower", tests::cased<CharacterClass::kLower>},
      {"upper", tests::cased<CharacterClass::kUpper>},
      {"odd", tests::odd},
      {"even", tests::even},
      {"divisibleby", tests::divisibleby},
      {"sameas", tests::sameas},
      {"in", tests::comparison<OpCode::kIn>},
      {"eq", kEqualTo},
      {"equalto", kEqualTo},
      {"==", kEqualTo},
      {"ne", kNotEqualTo},
      {"!=", kNotEqualTo},
      {"lt", kLessThan},
      {"lessthan", kLessThan},
      {"<", kLessThan},
      {"le", kAtMost},
      {"<=", kAtMost},
      {"gt", kGreaterThan},
      {"greaterthan", kGreaterThan},
      {">", kGreaterThan},
      {"ge", kAtLeast},
      {">=", kAtLeast},
  };
  return kTable;
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
