// The words of JSON, for the parser of json.hpp and for readers of records that keep no tree.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace json {
namespace detail {

using corbel::detail::append_utf8;
using corbel::detail::CodePoint;
using corbel::detail::decode_utf8;
using corbel::detail::printable;

// The words of JSON: strings, numbers, literals, and the errors with their places.
class Lexer {
 public:
  explicit Lexer(std::string_view text) noexcept : text_(text) {}

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

  Result<Value> number() {
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
      if (std::from_chars(text.data(), end, value).ec == std::errc()) return Value::integer(value);
    } else if (integer) {
      std::uint64_t value = 0;
      if (std::from_chars(text.data(), end, value).ec == std::errc()) return Value::unsigned_integer(value);
    }
    double value = 0;
    if (std::from_chars(text.data(), end, value).ec == std::errc() && std::isfinite(value)) {
      return Value::number(value);
    }
    if (rounds_to_zero(text)) return Value::number(negative ? -0.0 : 0.0);
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
    bool reserved = false;
    const std::size_t first = ++at_;
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
      // Before anything is in `out`: what has to grow grows to twice its size.
      if (peek() == '\\' && !std::exchange(reserved, true)) out.reserve(rest_of_string() - first);
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

  // Where the string around this place ends, by its quotes.
  std::size_t rest_of_string() const noexcept {
    std::size_t end = at_;
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2u : 1u;
    return std::min(end, text_.size());
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

  // Passes over one value: syntax and depth are checked, keys that appear twice are not looked for. Allocates only what
  // the longest string takes.
  Status skip_value(std::uint32_t max_depth) {
    std::vector<bool> objects;  // one for each container around this place
    for (;;) {
      skip_space();
      const int first = peek();
      bool complete = true;
      if (first == '{' || first == '[') {
        if (objects.size() >= max_depth) {
          return error_at(Errc::kDepthExceeded, at_, "nested deeper than " + std::to_string(max_depth));
        }
        ++at_;
        skip_space();
        complete = peek() == (first == '{' ? '}' : ']');
        if (complete) {
          ++at_;
        } else {
          objects.push_back(first == '{');
          if (first == '{') CORBEL_RETURN_IF_ERROR(skip_key());
        }
      } else {
        CORBEL_RETURN_IF_ERROR(scalar().status());
      }
      while (complete) {
        if (objects.empty()) return {};
        skip_space();
        if (peek() == ',') {
          ++at_;
          if (objects.back()) CORBEL_RETURN_IF_ERROR(skip_key());
          break;
        }
        if (peek() != (objects.back() ? '}' : ']')) return unexpected(objects.back() ? "',' or '}'" : "',' or ']'");
        ++at_;
        objects.pop_back();
      }
    }
  }

  // A string, number or literal.
  Result<std::optional<Value>> scalar() {
    switch (peek()) {
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
      default: {
        CORBEL_ASSIGN_OR_RETURN(Value value, number());
        return std::optional(std::move(value));
      }
    }
  }

  // A key and the colon behind it.
  Result<std::string> key_text() {
    skip_space();
    if (peek() != '"') return unexpected("a quoted key");
    CORBEL_ASSIGN_OR_RETURN(std::string name, string());
    skip_space();
    if (peek() != ':') return unexpected("':'");
    ++at_;
    return name;
  }

  Status skip_key() { return key_text().status(); }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace detail
}  // namespace json
CORBEL_NAMESPACE_END
