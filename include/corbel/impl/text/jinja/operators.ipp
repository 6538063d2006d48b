// Definitions of text/jinja/operators.hpp: arithmetic, members, subscripts, iteration.
#pragma once

#include <corbel/detail/compiler.hpp>
#include <corbel/text/jinja/builtins.hpp>
#include <corbel/text/jinja/operators.hpp>
#include <corbel/text/jinja/print.hpp>
#include <corbel/text/jinja/strings.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

CORBEL_INLINE bool fail_undefined(Runtime& runtime, const Value& undefined) {
  return runtime.fail(undefined.heap() == nullptr ? std::string_view("the value is undefined")
                                                  : std::string_view(undefined.as_view()));
}

CORBEL_INLINE bool fail_operands(Runtime& runtime, std::string_view sign, const Value& x, const Value& y) {
  if (x.is_undefined()) return fail_undefined(runtime, x);
  if (y.is_undefined()) return fail_undefined(runtime, y);
  return runtime.fail("unsupported operand types for " + std::string(sign) + ": '" + x.type_name() + "' and '" +
                      y.type_name() + "'");
}

// --- arithmetic

CORBEL_INLINE bool integer_power(Runtime& runtime, std::int64_t base, std::int64_t exponent, std::int64_t& out) {
  out = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(out, base, &out)) return false;
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return false;
    if (!runtime.charge(1)) return false;
  }
  return true;
}

CORBEL_INLINE bool integer_arithmetic(Runtime& runtime, OpCode code, std::int64_t x, std::int64_t y, Value& out) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (code) {
    case OpCode::kAdd:
      overflow = __builtin_add_overflow(x, y, &result);
      break;
    case OpCode::kSubtract:
      overflow = __builtin_sub_overflow(x, y, &result);
      break;
    case OpCode::kMultiply:
      overflow = __builtin_mul_overflow(x, y, &result);
      break;
    case OpCode::kPower:
      overflow = !integer_power(runtime, x, y, result);
      break;
    default: {  // kFloorDivide, kModulo: the remainder has the sign of the divisor
      if (y == 0) return runtime.fail("integer division or modulo by zero");
      if (y == -1) {
        if (code == OpCode::kFloorDivide) overflow = __builtin_sub_overflow(std::int64_t{0}, x, &result);
        break;
      }
      const bool adjust = x % y != 0 && (x % y < 0) != (y < 0);
      result = code == OpCode::kModulo ? x % y + (adjust ? y : 0) : x / y - (adjust ? 1 : 0);
      break;
    }
  }
  if (overflow) return runtime.fail("an integer does not fit in 64 bits");
  out = Value::integer(result);
  return true;
}

// Whole exponents by multiplication, halves by a square root: no function whose result depends on the C library.
CORBEL_INLINE bool real_power(Runtime& runtime, double base, double exponent, double& out) {
  const double size = std::fabs(exponent);
  if (base == 0 && exponent < 0) return runtime.fail("0.0 cannot be raised to a negative power");
  if (size > 1e6 || size * 2 != std::floor(size * 2)) return runtime.fail("powers must have a whole or half exponent");
  if (size != std::floor(size) && base < 0) return runtime.fail("a negative number has no real power of that exponent");
  out = size == std::floor(size) ? 1 : std::sqrt(base);
  double factor = base;
  for (auto left = static_cast<std::int64_t>(size); left > 0; left >>= 1) {
    if ((left & 1) != 0) out *= factor;
    factor *= factor;
  }
  if (exponent < 0) out = 1 / out;
  return true;
}

CORBEL_INLINE bool real_arithmetic(Runtime& runtime, OpCode code, double x, double y, Value& out) {
  double result = 0;
  switch (code) {
    case OpCode::kAdd:
      result = x + y;
      break;
    case OpCode::kSubtract:
      result = x - y;
      break;
    case OpCode::kMultiply:
      result = x * y;
      break;
    case OpCode::kDivide:
      if (y == 0) return runtime.fail("division by zero");
      result = x / y;
      break;
    case OpCode::kPower:
      if (!real_power(runtime, x, y, result)) return false;
      break;
    default: {  // kFloorDivide, kModulo as Python's float_divmod
      if (y == 0) return runtime.fail("float floor division or modulo by zero");
      double remainder = std::fmod(x, y);
      double quotient = (x - remainder) / y;
      if (remainder == 0) {
        remainder = std::copysign(0.0, y);
      } else if ((y < 0) != (remainder < 0)) {
        remainder += y;
        quotient -= 1;
      }
      const double whole = std::floor(quotient);
      result = code == OpCode::kModulo ? remainder : whole + (quotient - whole > 0.5 ? 1 : 0);
      break;
    }
  }
  out = Value::real(result);
  return true;
}

CORBEL_INLINE bool repeat(Runtime& runtime, const Value& value, std::int64_t times, Value& out) {
  const std::uint64_t count = times < 0 ? 0 : static_cast<std::uint64_t>(times);
  const std::size_t size = value.is_string() ? value.as_view().size() : value.as_sequence().items.size() * 16;
  std::uint64_t total = 0;
  if (__builtin_mul_overflow(count, size + 1, &total)) total = std::numeric_limits<std::uint64_t>::max();
  if (!runtime.charge_bytes(total)) return false;
  if (value.is_string()) {
    TextBuilder builder;
    for (std::uint64_t i = 0; size > 0 && i < count; ++i) builder.append(value.as_text());
    Value repeated = builder.take();
    out = value.is_markup() ? as_markup(std::move(repeated)) : std::move(repeated);
    return true;
  }
  std::vector<Value> items;
  const std::vector<Value>& unit = value.as_sequence().items;
  for (std::uint64_t i = 0; size > 0 && i < count; ++i) items.insert(items.end(), unit.begin(), unit.end());
  return make_sequence(runtime, value.kind(), std::move(items), out);
}

CORBEL_INLINE bool add_sequences(Runtime& runtime, const Value& x, const Value& y, Value& out) {
  if (x.is_string()) {
    const bool markup = x.is_markup() || y.is_markup();
    if (!runtime.charge_bytes((x.as_view().size() + y.as_view().size()) * (markup ? 5 : 1))) return false;
    TextBuilder builder;
    builder.append(markup ? escape_markup(x).as_text() : x.as_text());
    builder.append(markup ? escape_markup(y).as_text() : y.as_text());
    out = builder.take();
    if (markup) out = as_markup(std::move(out));
    return true;
  }
  std::vector<Value> items = x.as_sequence().items;
  items.insert(items.end(), y.as_sequence().items.begin(), y.as_sequence().items.end());
  return make_sequence(runtime, x.kind(), std::move(items), out);
}

CORBEL_INLINE bool arithmetic(Runtime& runtime, OpCode code, const Value& x, const Value& y, Value& out) {
  if (x.is_number() && y.is_number()) {
    const bool real = x.is(Kind::kFloat) || y.is(Kind::kFloat) || code == OpCode::kDivide ||
                      (code == OpCode::kPower && y.as_int() < 0);
    return real ? real_arithmetic(runtime, code, x.as_double(), y.as_double(), out)
                : integer_arithmetic(runtime, code, x.as_int(), y.as_int(), out);
  }
  const auto repeatable = [](const Value& v) { return v.is_string() || v.is(Kind::kList) || v.is(Kind::kTuple); };
  if (code == OpCode::kAdd && x.kind() == y.kind() && repeatable(x)) return add_sequences(runtime, x, y, out);
  if (code == OpCode::kMultiply && repeatable(x) && y.is_integral()) return repeat(runtime, x, y.as_int(), out);
  if (code == OpCode::kMultiply && repeatable(y) && x.is_integral()) return repeat(runtime, y, x.as_int(), out);
  if (code == OpCode::kModulo && x.is_string()) return format_percent(runtime, x.as_text(), y, out);
  static constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  return fail_operands(runtime, kSigns[static_cast<std::size_t>(code) - static_cast<std::size_t>(OpCode::kAdd)], x, y);
}

CORBEL_INLINE bool unary(Runtime& runtime, OpCode code, const Value& value, Value& out) {
  if (value.is_undefined()) return fail_undefined(runtime, value);
  if (!value.is_number()) return runtime.fail(std::string("bad operand type for a sign: '") + value.type_name() + "'");
  if (value.is(Kind::kFloat)) {
    out = Value::real(code == OpCode::kNegate ? -value.as_double() : value.as_double());
    return true;
  }
  return integer_arithmetic(runtime, code == OpCode::kNegate ? OpCode::kSubtract : OpCode::kAdd, 0, value.as_int(),
                            out);
}

// --- comparison

CORBEL_INLINE bool compare(Runtime& runtime, OpCode code, const Value& x, const Value& y, bool& out) {
  switch (code) {
    case OpCode::kEqual:
    case OpCode::kNotEqual:
      if (!equals(runtime, x, y, out)) return false;
      out = out == (code == OpCode::kEqual);
      return true;
    case OpCode::kIn:
    case OpCode::kNotIn:
      if (!contains(runtime, y, x, out)) return false;
      out = out == (code == OpCode::kIn);
      return true;
    default:
      break;
  }
  if (x.is_undefined()) return fail_undefined(runtime, x);
  if (y.is_undefined()) return fail_undefined(runtime, y);
  const bool swapped = code == OpCode::kGreater || code == OpCode::kGreaterEqual;
  const Value& left = swapped ? y : x;
  const Value& right = swapped ? x : y;
  if (!less(runtime, left, right, out)) return false;
  if (out || code == OpCode::kLess || code == OpCode::kGreater) return true;
  return equals(runtime, left, right, out);
}

CORBEL_INLINE bool contains(Runtime& runtime, const Value& container, const Value& item, bool& out) {
  out = false;
  if (container.is_undefined()) return true;
  if (container.is_string()) {
    if (!item.is_string()) {
      if (item.is_undefined()) return fail_undefined(runtime, item);
      return runtime.fail(std::string("'in <string>' requires string as left operand, not ") + item.type_name());
    }
    if (!runtime.charge_bytes(container.as_view().size())) return false;
    out = container.as_view().find(item.as_view()) != std::string_view::npos;
    return true;
  }
  if (container.is(Kind::kDict)) {
    const Value* found = nullptr;
    if (item.is_undefined()) return true;
    if (!dict_find(runtime, container.as_dict(), item, found)) return false;
    out = found != nullptr;
    return true;
  }
  if (container.is(Kind::kRange)) {
    if (!item.is_number()) return true;
    const Range& range = container.as_range();
    if (item.is(Kind::kFloat) && item.as_double() != std::floor(item.as_double())) return true;
    if (item.is(Kind::kFloat) && std::fabs(item.as_double()) > 1e18) return true;
    const std::int64_t number = item.is(Kind::kFloat) ? static_cast<std::int64_t>(item.as_double()) : item.as_int();
    for (std::int64_t i = 0; i < range.count && !out; ++i) out = range.start + i * range.step == number;
    return runtime.charge(static_cast<std::uint64_t>(range.count));
  }
  if (!container.is_sequence()) {
    return runtime.fail(std::string("argument of type '") + container.type_name() + "' is not iterable");
  }
  for (const Value& candidate : container.as_sequence().items) {
    if (!equals(runtime, item, candidate, out)) return false;
    if (out) return true;
  }
  return true;
}

// --- members and items

CORBEL_INLINE Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto size = static_cast<std::int64_t>(loop.items.size());
  const auto at = static_cast<std::int64_t>(loop.next_item) - 1;
  if (name == "index") return Value::integer(at + 1);
  if (name == "index0") return Value::integer(at);
  if (name == "revindex") return Value::integer(size - at);
  if (name == "revindex0") return Value::integer(size - at - 1);
  if (name == "first") return Value::boolean(at == 0);
  if (name == "last") return Value::boolean(at == size - 1);
  if (name == "length") return Value::integer(size);
  if (name == "depth") return Value::integer(static_cast<std::int64_t>(loop.level) + 1);
  if (name == "depth0") return Value::integer(static_cast<std::int64_t>(loop.level));
  if (name == "previtem" && at > 0) return loop.items[static_cast<std::size_t>(at) - 1];
  if (name == "nextitem" && at + 1 < size) return loop.items[static_cast<std::size_t>(at) + 1];
  if (name == "previtem") return Value::undefined("there is no previous item");
  if (name == "nextitem") return Value::undefined("there is no next item");
  return Value::undefined("loop has no attribute '" + std::string(name) + "'");
}

CORBEL_INLINE bool get_attribute(Runtime& runtime, const Value& value, std::string_view name, Value& out) {
  if (value.is_undefined()) return fail_undefined(runtime, value);
  const std::int32_t method = find_method(value.kind(), name);
  if (method >= 0) {
    Method* bound = new Method;
    out = Value::object(bound);
    bound->receiver = value;
    bound->index = static_cast<std::uint32_t>(method);
    return true;
  }
  if (value.is(Kind::kLoop)) {
    out = loop_attribute(value.as_loop(), name);
    return true;
  }
  if (value.is(Kind::kDict) || value.is(Kind::kNamespace)) {
    if (const Value* found = dict_find(runtime, value.as_dict(), name)) {
      out = *found;
      return true;
    }
    if (!runtime.status().ok()) return false;
  }
  if (value.is(Kind::kTuple) && value.as_sequence().is_group && (name == "grouper" || name == "list")) {
    const Value item = value.as_sequence().items[name == "list" ? 1 : 0];  // `out` may be what keeps the tuple alive
    out = item;
    return true;
  }
  if (value.is(Kind::kCycler) && name == "current") {
    out = value.as_cycle().items[value.as_cycle().position];
    return true;
  }
  out =
      Value::undefined(std::string("'") + value.type_name() + "' object has no attribute '" + std::string(name) + "'");
  return true;
}

CORBEL_INLINE bool index_sequence(const Value& value, std::int64_t index, Value& out) {
  std::int64_t size = 0;
  if (value.is_string()) size = static_cast<std::int64_t>(value.as_text().characters);
  if (value.is(Kind::kList) || value.is(Kind::kTuple))
    size = static_cast<std::int64_t>(value.as_sequence().items.size());
  if (value.is(Kind::kRange)) size = value.as_range().count;
  if (index < 0) index += size;
  if (index < 0 || index >= size) return false;
  if (value.is_string()) {
    const std::size_t at = byte_of_character(value.as_text(), static_cast<std::size_t>(index));
    Value character = slice_bytes(value.as_text(), at, at + character_length(value.as_view(), at));
    out = value.is_markup() ? as_markup(std::move(character)) : std::move(character);
  } else if (value.is(Kind::kRange)) {
    out = Value::integer(value.as_range().start + index * value.as_range().step);
  } else {
    out = value.as_sequence().items[static_cast<std::size_t>(index)];
  }
  return true;
}

CORBEL_INLINE bool get_item(Runtime& runtime, const Value& value, const Value& key, Value& out) {
  if (value.is_undefined()) return fail_undefined(runtime, value);
  if (value.is(Kind::kDict)) {
    const bool hashable = key.is_number() || key.is_string() || key.is(Kind::kNone) || key.is(Kind::kTuple);
    const Value* found = nullptr;
    if (hashable && !dict_find(runtime, value.as_dict(), key, found)) return false;
    if (found != nullptr) {
      const Value copy = *found;  // `out` may be what keeps the dict alive
      out = copy;
      return true;
    }
  } else if (key.is_integral()) {
    if (value.is_string() && value.as_text().characters != value.as_view().size() &&
        !runtime.charge_bytes(value.as_view().size())) {
      return false;
    }
    if (index_sequence(value, key.as_int(), out)) return true;
  }
  if (key.is_string()) return get_attribute(runtime, value, key.as_view(), out);
  out = Value::undefined(std::string("'") + value.type_name() + "' object has no such item");
  return true;
}

// --- slices

CORBEL_INLINE bool slice_bound(Runtime& runtime, const Value& value, std::int64_t fallback, std::int64_t& out) {
  out = fallback;
  if (value.is(Kind::kNone)) return true;
  if (value.is_undefined()) return fail_undefined(runtime, value);
  if (!value.is_integral()) return runtime.fail("slice indices must be integers or None");
  out = value.as_int();
  return true;
}

CORBEL_INLINE bool get_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                             const Value& step, Value& out) {
  if (value.is_undefined()) return fail_undefined(runtime, value);
  const bool text = value.is_string();
  if (!text && !value.is(Kind::kList) && !value.is(Kind::kTuple) && !value.is(Kind::kRange)) {
    return runtime.fail(std::string("'") + value.type_name() + "' object cannot be sliced");
  }
  std::int64_t size = 0;
  if (!length_of(runtime, value, size)) return false;
  std::int64_t stride = 1;
  if (!slice_bound(runtime, step, 1, stride)) return false;
  if (stride == 0) return runtime.fail("slice step cannot be zero");
  const bool back = stride < 0;
  std::int64_t from = 0;
  std::int64_t to = 0;
  const std::int64_t lowest = back ? -1 : 0;
  const std::int64_t highest = back ? size - 1 : size;
  const auto clamp = [&](std::int64_t at) { return std::clamp(at < 0 ? at + size : at, lowest, highest); };
  if (!slice_bound(runtime, start, 0, from) || !slice_bound(runtime, stop, 0, to)) return false;
  from = start.is(Kind::kNone) ? (back ? highest : lowest) : clamp(from);
  to = stop.is(Kind::kNone) ? (back ? lowest : highest) : clamp(to);
  if (text && !runtime.charge_bytes(value.as_view().size())) return false;
  if (text && stride == 1) {
    const std::size_t begin = byte_of_character(value.as_text(), static_cast<std::size_t>(from));
    const std::size_t end = byte_of_character(value.as_text(), static_cast<std::size_t>(std::max(from, to)));
    Value part = slice_bytes(value.as_text(), begin, end);
    out = value.is_markup() ? as_markup(std::move(part)) : std::move(part);
    return true;
  }
  std::vector<std::size_t> starts;  // of the characters
  if (text) {
    if (!runtime.charge(static_cast<std::uint64_t>(size))) return false;
    for (std::size_t at = 0; at < value.as_view().size(); at += character_length(value.as_view(), at))
      starts.push_back(at);
    starts.push_back(value.as_view().size());
  }
  TextBuilder builder;
  std::vector<Value> items;
  for (std::int64_t at = from; back ? at > to : at < to;) {
    const auto place = static_cast<std::size_t>(at);
    if (text) {
      builder.append(value.as_text(), starts[place], starts[place + 1]);
    } else {
      Value item;
      index_sequence(value, at, item);
      items.push_back(std::move(item));
    }
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  if (text) {
    Value part = builder.take();
    out = value.is_markup() ? as_markup(std::move(part)) : std::move(part);
    return true;
  }
  return make_sequence(runtime, value.is(Kind::kTuple) ? Kind::kTuple : Kind::kList, std::move(items), out);
}

// --- iteration

CORBEL_INLINE bool iterate(Runtime& runtime, const Value& value, std::vector<Value>& out) {
  out.clear();
  if (value.is_undefined()) return true;
  if (value.is_sequence()) {
    if (!runtime.charge(1 + value.as_sequence().items.size() * 2)) return false;
    out = value.as_sequence().items;
    return true;
  }
  if (value.is(Kind::kDict)) {
    if (!runtime.charge(1 + value.as_dict().entries.size() * 2)) return false;
    for (const auto& entry : value.as_dict().entries) out.push_back(entry.first);
    return true;
  }
  if (value.is(Kind::kRange)) {
    const Range& range = value.as_range();
    if (!runtime.charge(1 + static_cast<std::uint64_t>(range.count) * 2)) return false;
    for (std::int64_t i = 0; i < range.count; ++i) out.push_back(Value::integer(range.start + i * range.step));
    return true;
  }
  if (value.is_string()) {  // each character becomes a string of about a hundred bytes
    const Text& text = value.as_text();
    if (!runtime.charge(1 + text.characters * 16)) return false;
    for (std::size_t at = 0; at < text.bytes.size();) {
      const std::size_t length = character_length(text.bytes, at);
      out.push_back(slice_bytes(text, at, at + length));
      at += length;
    }
    return true;
  }
  return runtime.fail(std::string("'") + value.type_name() + "' object is not iterable");
}

CORBEL_INLINE bool length_of(Runtime& runtime, const Value& value, std::int64_t& out) {
  out = 0;
  if (value.is_undefined()) return true;
  if (value.is_string()) {
    out = static_cast<std::int64_t>(value.as_text().characters);
  } else if (value.is_sequence() && !value.is(Kind::kGenerator)) {
    out = static_cast<std::int64_t>(value.as_sequence().items.size());
  } else if (value.is(Kind::kDict)) {
    out = static_cast<std::int64_t>(value.as_dict().entries.size());
  } else if (value.is(Kind::kRange)) {
    out = value.as_range().count;
  } else {
    return runtime.fail(std::string("object of type '") + value.type_name() + "' has no len()");
  }
  return true;
}

CORBEL_INLINE bool parse_integer(std::string_view text, int base, std::int64_t& out) noexcept {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

CORBEL_INLINE bool parse_real(std::string_view text, double& out) noexcept {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
