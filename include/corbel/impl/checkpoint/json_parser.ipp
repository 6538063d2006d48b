// The parser of json.hpp. It keeps its own stack, so depth costs heap, never call stack.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <system_error>

CORBEL_NAMESPACE_BEGIN
namespace json {
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
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
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
      case '{':
        return begin_container(true);
      case '[':
        return begin_container(false);
      case '"': {
        CORBEL_ASSIGN_OR_RETURN(std::string text, string());
        return std::optional(Value::string(std::move(text)));
      }
      case 't':
        return literal("true", Value::boolean(true));
      case 'f':
        return literal("false", Value::boolean(false));
      case 'n':
        return literal("null", Value::null());
      default:
        return number();
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
    const auto twice = std::adjacent_find(order.begin(), order.end(),
                                          [&](std::size_t a, std::size_t b) { return name(a) == name(b); });
    if (twice == order.end()) return {};
    return error_at(Errc::kDuplicate, object.key_offsets[twice[1]],
                    "the key \"" + printable(name(*twice), 100) + "\" appeared before in this object");
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
      if (std::from_chars(text.data(), end, value).ec == std::errc())
        return std::optional(Value::unsigned_integer(value));
    }
    double value = 0;
    if (std::from_chars(text.data(), end, value).ec == std::errc() && std::isfinite(value)) {
      return std::optional(Value::number(value));
    }
    if (rounds_to_zero(text)) return std::optional(Value::number(negative ? -0.0 : 0.0));
    return error_at(Errc::kBadJson, start, "the number \"" + printable(text, 40) + "\" does not fit a double");
  }

  // Of a number that is out of a double's range: true where it is too small and not too large, which is so where the
  // power of ten of its first digit that is not 0 is negative.
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
        case '"':
          ++at_;
          return out;
        case '\\':
          CORBEL_RETURN_IF_ERROR(escape(out));
          break;
        default:
          return unexpected("the end of the string");
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
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
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

}  // namespace detail

CORBEL_INLINE Result<Value> parse(std::string_view text, const ParseOptions& options) {
  return corbel::detail::guard([&]() -> Result<Value> { return detail::Parser(text, options).parse(); });
}

}  // namespace json
CORBEL_NAMESPACE_END
