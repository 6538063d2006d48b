// Definitions of json.hpp: values and the writer. The parser itself is in json_parser.ipp.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/detail/utf8_repair.hpp>
#include <corbel/impl/checkpoint/json_parser.ipp>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

CORBEL_NAMESPACE_BEGIN
namespace json {

struct Value::Body {
  std::string text;
  Array items;
  Object members;
};

CORBEL_INLINE Value::Value() noexcept = default;
CORBEL_INLINE Value::Value(const Value& other)
    : type_(other.type_), bits_(other.bits_), body_(other.body_ ? std::make_unique<Body>(*other.body_) : nullptr) {}

CORBEL_INLINE Value::Value(Value&& other) noexcept
    : type_(std::exchange(other.type_, Type::kNull)),
      bits_(std::exchange(other.bits_, 0)),
      body_(std::move(other.body_)) {}

CORBEL_INLINE Value& Value::operator=(Value other) noexcept {
  std::swap(type_, other.type_);
  std::swap(bits_, other.bits_);
  std::swap(body_, other.body_);
  return *this;
}

CORBEL_INLINE Value::~Value() = default;

CORBEL_INLINE Value::Body& Value::body() {
  if (!body_) body_ = std::make_unique<Body>();
  return *body_;
}

CORBEL_INLINE Value Value::boolean(bool value) {
  Value result;
  result.type_ = Type::kBool;
  result.bits_ = value ? 1 : 0;
  return result;
}

CORBEL_INLINE Value Value::integer(std::int64_t value) {
  Value result = unsigned_integer(static_cast<std::uint64_t>(value));
  if (value < 0) result.type_ = Type::kInt;
  return result;
}

CORBEL_INLINE Value Value::unsigned_integer(std::uint64_t value) {
  Value result;
  result.type_ = Type::kUint;
  result.bits_ = value;
  return result;
}

CORBEL_INLINE Value Value::number(double value) {
  Value result;
  result.type_ = Type::kDouble;
  result.bits_ = std::bit_cast<std::uint64_t>(value);
  return result;
}

CORBEL_INLINE Value Value::string(std::string value) {
  Value result;
  result.body().text = std::move(value);
  result.type_ = Type::kString;
  return result;
}

CORBEL_INLINE Value Value::array(Array items) {
  Value result;
  result.type_ = Type::kArray;
  if (!items.empty()) result.body().items = std::move(items);
  return result;
}

CORBEL_INLINE Value Value::object(Object members) {
  Value result;
  result.type_ = Type::kObject;
  if (!members.empty()) result.body().members = std::move(members);
  return result;
}

CORBEL_INLINE double Value::as_double() const noexcept {
  if (type_ == Type::kInt) return static_cast<double>(as_int());
  if (type_ == Type::kUint) return static_cast<double>(bits_);
  return std::bit_cast<double>(bits_);
}

CORBEL_INLINE std::string_view Value::as_string() const noexcept {
  return body_ ? std::string_view(body_->text) : std::string_view();
}

CORBEL_INLINE const Value::Array& Value::items() const noexcept {
  static constexpr Array kEmpty;
  return body_ ? body_->items : kEmpty;
}

CORBEL_INLINE const Value::Object& Value::members() const noexcept {
  static constexpr Object kEmpty;
  return body_ ? body_->members : kEmpty;
}

CORBEL_INLINE Value::Array& Value::items() { return body().items; }

CORBEL_INLINE Value::Object& Value::members() { return body().members; }

CORBEL_INLINE const Value* Value::find(std::string_view key) const noexcept {
  for (const Member& member : members()) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

namespace detail {

inline void append_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), value);
  const std::string_view digits(text, static_cast<std::size_t>(end.ptr - text));
  out += digits;
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

inline void append_scalar(std::string& out, const Value& value) {
  switch (value.type()) {
    case Type::kBool:
      out += value.as_bool() ? "true" : "false";
      break;
    case Type::kInt:
      out += std::to_string(value.as_int());
      break;
    case Type::kUint:
      out += std::to_string(value.as_uint());
      break;
    case Type::kDouble:
      append_number(out, value.as_double());
      break;
    case Type::kString:
      append_quoted(out, value.as_string());
      break;
    default:
      out += "null";
      break;
  }
}

}  // namespace detail

CORBEL_INLINE std::string write(const Value& value) {
  struct Open {
    const Value* container;
    std::size_t done;
  };
  std::string out;
  std::vector<Open> open;
  const Value* next = &value;
  for (;;) {
    if (next->is_array() || next->is_object()) {
      out += next->is_array() ? '[' : '{';
      open.push_back({next, 0});
    } else {
      detail::append_scalar(out, *next);
    }
    while (!open.empty()) {  // close what is complete
      const Value& top = *open.back().container;
      if (open.back().done < (top.is_array() ? top.items().size() : top.members().size())) break;
      out += top.is_array() ? ']' : '}';
      open.pop_back();
    }
    if (open.empty()) return out;
    const Value& top = *open.back().container;
    const std::size_t index = open.back().done++;
    if (index != 0) out += ',';
    if (top.is_array()) {
      next = &top.items()[index];
    } else {
      append_quoted(out, top.members()[index].first);
      out += ':';
      next = &top.members()[index].second;
    }
  }
}

CORBEL_INLINE void append_quoted(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const corbel::detail::CodePoint point = corbel::detail::decode_utf8(text, at);
    const std::string_view piece =
        text.substr(at, point.length == 0 ? corbel::detail::invalid_utf8_length(text, at) : point.length);
    at += piece.size();
    switch (point.length == 0 ? 0xFFFDu : point.value) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (point.length == 0) {
          out += "\xEF\xBF\xBD";
        } else if (point.value < 0x20u) {
          out += "\\u00";
          out += kHex[point.value >> 4];
          out += kHex[point.value & 15u];
        } else {
          out += piece;
        }
    }
  }
  out += '"';
}

CORBEL_INLINE Result<Value> parse(std::string_view text, const ParseOptions& options) {
  return corbel::detail::guard([&]() -> Result<Value> { return detail::Parser(text, options).parse(); });
}

}  // namespace json
CORBEL_NAMESPACE_END
