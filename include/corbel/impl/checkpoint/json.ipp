// Definitions of json.hpp. The parser keeps its own stack, so depth costs heap, never call stack.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <system_error>

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
    : type_(std::exchange(other.type_, Type::kNull)), bits_(std::exchange(other.bits_, 0)), body_(std::move(other.body_)) {}

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

using corbel::detail::append_utf8;
using corbel::detail::CodePoint;
using corbel::detail::decode_utf8;
using corbel::detail::printable;

class Parser {
 public:
  Parser(std::string_view text, const ParseOptions& options) : text_(text), options_(options) {}

  Result<Value> parse() {
    if (text_.size() > options_.max_bytes) {
      return Status(Errc::kLimitExceeded, "JSON text of " + std::to_string(text_.size()) + " bytes, the limit is " +
                                              std::to_string(options_.max_bytes));
    }
    for (;;) {
      CORBEL_ASSIGN_OR_RETURN(std::optional<Value> value, begin_value());
      while (value) {  // a complete value: hand it to what is around it
        if (open_.empty()) {
          skip_space();
          if (at_ == text_.size()) return *std::move(value);
          return unexpected("the end");
        }
        CORBEL_ASSIGN_OR_RETURN(value, add(*std::move(value)));
      }
    }
  }

 private:
  // An array or object whose end has not come yet.
  struct Open {
    bool object = false;
    Value::Array items;
    Value::Object members;
    std::vector<std::uint64_t> key_offsets;
  };

  int peek() const noexcept { return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : -1; }

  void skip_space() noexcept {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }

  static Status error_at(Errc code, std::size_t at, const std::string& message) {
    return {code, "JSON byte " + std::to_string(at) + ": " + message};
  }

  Status unexpected(const char* expected) const {
    const std::string prefix = std::string("expected ") + expected + ", found ";
    if (at_ == text_.size()) return error_at(Errc::kBadJson, at_, prefix + "the end of the text");
    const CodePoint point = decode_utf8(text_, at_);
    if (point.length == 0) return error_at(Errc::kBadUtf8, at_, prefix + "bytes that are not valid UTF-8");
    return error_at(Errc::kBadJson, at_, prefix + "'" + printable(text_.substr(at_, point.length), 8) + "'");
  }

  // Reads a scalar or an empty container, which are complete; or opens a container up to its first element.
  Result<std::optional<Value>> begin_value() {
    skip_space();
    switch (peek()) {
      case '{': return begin_container(true);
      case '[': return begin_container(false);
      case '"': {
        CORBEL_ASSIGN_OR_RETURN(std::string text, string());
        return std::optional(Value::string(std::move(text)));
      }
      case 't': return literal("true", Value::boolean(true));
      case 'f': return literal("false", Value::boolean(false));
      case 'n': return literal("null", Value::null());
      default: return number();
    }
  }

  Result<std::optional<Value>> begin_container(bool object) {
    if (open_.size() >= options_.max_depth) {
      return error_at(Errc::kDepthExceeded, at_, "nested deeper than " + std::to_string(options_.max_depth));
    }
    ++at_;
    skip_space();
    if (peek() == (object ? '}' : ']')) {
      ++at_;
      return std::optional(object ? Value::object() : Value::array());
    }
    open_.push_back({.object = object, .items = {}, .members = {}, .key_offsets = {}});
    if (object) CORBEL_RETURN_IF_ERROR(key());
    return std::optional<Value>();
  }

  // Adds a value to the innermost container; gives the container back where it ends here.
  Result<std::optional<Value>> add(Value value) {
    Open& top = open_.back();
    if (top.object) {
      top.members.back().second = std::move(value);
    } else {
      top.items.push_back(std::move(value));
    }
    skip_space();
    if (peek() == ',') {
      ++at_;
      if (top.object) CORBEL_RETURN_IF_ERROR(key());
      return std::optional<Value>();
    }
    if (peek() != (top.object ? '}' : ']')) return unexpected(top.object ? "',' or '}'" : "',' or ']'");
    ++at_;
    if (top.object) CORBEL_RETURN_IF_ERROR(check_keys(top));
    std::optional<Value> done(top.object ? Value::object(std::move(top.members)) : Value::array(std::move(top.items)));
    open_.pop_back();
    return done;
  }

  // The key of the next member, and the colon.
  Status key() {
    skip_space();
    if (peek() != '"') return unexpected("a quoted key");
    const std::size_t start = at_;
    CORBEL_ASSIGN_OR_RETURN(std::string name, string());
    skip_space();
    if (peek() != ':') return unexpected("':'");
    ++at_;
    open_.back().key_offsets.push_back(start);
    open_.back().members.emplace_back(std::move(name), Value());
    return {};
  }

  // Sorting finds equal keys; no choice of keys makes it slow.
  static Status check_keys(const Open& object) {
    if (object.members.size() < 2) return {};
    const auto name = [&](std::size_t index) -> const std::string& { return object.members[index].first; };
    std::vector<std::size_t> order(object.members.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const int sign = name(a).compare(name(b));
      return sign != 0 ? sign < 0 : a < b;
    });
    const auto twice =
        std::adjacent_find(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return name(a) == name(b); });
    if (twice == order.end()) return {};
    return error_at(Errc::kDuplicate, object.key_offsets[twice[1]], "the key \"" + printable(name(*twice), 100) +
                                                                        "\" appeared before in this object");
  }

  Result<std::optional<Value>> literal(std::string_view word, Value value) {
    if (text_.substr(at_, word.size()) != word) return unexpected("a value");
    at_ += word.size();
    return std::optional(std::move(value));
  }

  std::size_t skip_digits() noexcept {
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - start;
  }

  Result<std::optional<Value>> number() {
    const std::size_t start = at_;
    const bool negative = peek() == '-';
    if (negative) ++at_;
    const bool zero = peek() == '0';
    if (zero) {
      ++at_;
    } else if (skip_digits() == 0) {
      return unexpected(negative ? "a digit" : "a value");
    }
    bool integer = !(negative && zero);
    if (peek() == '.') {
      integer = false;
      ++at_;
      if (skip_digits() == 0) return unexpected("a digit");
    }
    if (peek() == 'e' || peek() == 'E') {
      integer = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (skip_digits() == 0) return unexpected("a digit");
    }
    const std::string_view text = text_.substr(start, at_ - start);
    const char* const end = text.data() + text.size();
    if (integer && negative) {
      std::int64_t value = 0;
      if (std::from_chars(text.data(), end, value).ec == std::errc()) return std::optional(Value::integer(value));
    } else if (integer) {
      std::uint64_t value = 0;
      if (std::from_chars(text.data(), end, value).ec == std::errc()) return std::optional(Value::unsigned_integer(value));
    }
    double value = 0;
    if (std::from_chars(text.data(), end, value).ec == std::errc() && std::isfinite(value)) {
      return std::optional(Value::number(value));
    }
    if (rounds_to_zero(text)) return std::optional(Value::number(negative ? -0.0 : 0.0));
    return error_at(Errc::kBadJson, start, "the number \"" + printable(text, 40) + "\" does not fit a double");
  }

  // Of a number that is out of a double's range: true where it is too small and not too large, which is so where the power
  // of ten of its first digit that is not 0 is negative.
  static bool rounds_to_zero(std::string_view text) noexcept {
    const std::size_t e = std::min(text.find_first_of("eE"), text.size());
    const std::string_view digits = text.substr(0, e);
    const std::size_t first = digits.find_first_of("123456789");
    if (first == std::string_view::npos) return true;
    const std::size_t point = std::min(digits.find('.'), digits.size());
    const auto magnitude = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
    if (e == text.size()) return magnitude < 0;
    std::string_view exponent = text.substr(e + 1);
    if (exponent.front() == '+') exponent.remove_prefix(1);
    std::int64_t power = 0;
    const std::errc result = std::from_chars(exponent.data(), exponent.data() + exponent.size(), power).ec;
    if (result != std::errc() || power > (std::int64_t{1} << 62) || power < -(std::int64_t{1} << 62)) {
      return exponent.front() == '-';
    }
    return power + magnitude < 0;
  }

  Result<std::string> string() {
    std::string out;
    ++at_;
    for (;;) {
      const std::size_t start = at_;
      while (at_ < text_.size()) {
        const auto c = static_cast<unsigned char>(text_[at_]);
        if (c == '"' || c == '\\' || c < 0x20u) break;
        if (c < 0x80u) {
          ++at_;
          continue;
        }
        const CodePoint point = decode_utf8(text_, at_);
        if (point.length == 0) return error_at(Errc::kBadUtf8, at_, "not valid UTF-8 in a string");
        at_ += point.length;
      }
      out.append(text_, start, at_ - start);
      switch (peek()) {
        case '"': ++at_; return out;
        case '\\': CORBEL_RETURN_IF_ERROR(escape(out)); break;
        default: return unexpected("the end of the string");
      }
    }
  }

  Status escape(std::string& out) {
    const std::size_t start = at_++;
    static constexpr std::string_view kLetters = "\"\\/bfnrt";
    static constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const int letter = peek();
    if (letter == 'u') {
      ++at_;
      CORBEL_ASSIGN_OR_RETURN(std::uint32_t code, hex4());
      if (code >= 0xD800u && code <= 0xDFFFu) {
        std::uint32_t low = 0;
        if (code <= 0xDBFFu && text_.substr(at_, 2) == "\\u") {
          at_ += 2;
          CORBEL_ASSIGN_OR_RETURN(low, hex4());
        }
        if (low < 0xDC00u || low > 0xDFFFu) return error_at(Errc::kBadUtf8, start, "half of a surrogate pair");
        code = 0x10000u + ((code - 0xD800u) << 10) + (low - 0xDC00u);
      }
      append_utf8(out, code);
      return {};
    }
    const std::size_t index = letter < 0 ? std::string_view::npos : kLetters.find(static_cast<char>(letter));
    if (index == std::string_view::npos) return unexpected("an escape: one of \"\\/bfnrtu");
    out += kMeanings[index];
    ++at_;
    return {};
  }

  Result<std::uint32_t> hex4() {
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const int c = peek();
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      if (digit < 0) return unexpected("a hexadecimal digit");
      value = value << 4 | static_cast<std::uint32_t>(digit);
    }
    return value;
  }

  std::string_view text_;
  const ParseOptions& options_;
  std::size_t at_ = 0;
  std::vector<Open> open_;
};

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
    case Type::kBool: out += value.as_bool() ? "true" : "false"; break;
    case Type::kInt: out += std::to_string(value.as_int()); break;
    case Type::kUint: out += std::to_string(value.as_uint()); break;
    case Type::kDouble: append_number(out, value.as_double()); break;
    case Type::kString: append_quoted(out, value.as_string()); break;
    default: out += "null"; break;
  }
}

}  // namespace detail

CORBEL_INLINE Result<Value> parse(std::string_view text, const ParseOptions& options) {
  return corbel::detail::guard([&]() -> Result<Value> { return detail::Parser(text, options).parse(); });
}

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
    const detail::CodePoint point = detail::decode_utf8(text, at);
    const std::string_view piece = text.substr(at, std::max(point.length, 1u));
    at += piece.size();
    switch (point.length == 0 ? 0xFFFDu : point.value) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
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

}  // namespace json
CORBEL_NAMESPACE_END
