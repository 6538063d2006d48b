// Definitions of text/jinja/lexer.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/jinja/lexer.hpp>
#include <corbel/text/jinja/strings.hpp>
#include <corbel/text/jinja/value.hpp>
#include <corbel/text/unicode.hpp>

#include <algorithm>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

CORBEL_INLINE std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] == '\r') {
      out += '\n';
      if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
    } else {
      out += source[at];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

CORBEL_INLINE std::string describe_place(std::string_view source, std::size_t offset) {
  offset = std::min(offset, source.size());
  const std::string_view before = source.substr(0, offset);
  const std::size_t line_begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t column = 1 + count_characters(source.substr(line_begin), offset - line_begin);
  return "template line " + std::to_string(line) + ", column " + std::to_string(column);
}

namespace lexer_detail {

inline bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
inline bool is_name_start(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
inline bool is_name_part(char c) noexcept { return is_name_start(c) || is_digit(c); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (good_ && at_ < source_.size()) text();
    if (!good_) return status_;
    add(TokenType::kEnd, source_.size(), source_.size());
    return std::move(tokens_);
  }

 private:
  char peek(std::size_t ahead = 0) const noexcept { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  bool starts(std::string_view prefix) const noexcept { return source_.substr(at_, prefix.size()) == prefix; }
  void add(TokenType type, std::size_t begin, std::size_t end) {
    tokens_.push_back({type, source_.substr(begin, end - begin), static_cast<std::uint32_t>(begin)});
  }
  void fail(std::size_t at, std::string_view message) {
    if (good_) status_ = Status(Errc::kTemplateError, message).with_place(describe_place(source_, at));
    good_ = false;
  }
  std::size_t skip_space(std::size_t at) const noexcept {
    while (at < source_.size()) {
      const std::size_t length = space_length(source_, at);
      if (length == 0) break;
      at += length;
    }
    return at;
  }

  // The sign after "{%", "{{" or "{#" and how much of the text before the tag it leaves: "-" strips all white space,
  // "+" nothing; otherwise blocks and comments strip the white space between the start of their line and themselves.
  std::size_t kept_end(std::size_t begin, std::size_t end, char sign, bool print) const {
    if (sign == '-') {
      while (end > begin && ends_in_space(begin, end)) --end;
      return end;
    }
    if (sign == '+' || print) return end;
    const std::string_view text = source_.substr(begin, end - begin);
    const std::size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) return end;
    const std::size_t line = begin + (newline == std::string_view::npos ? 0 : newline + 1);
    return skip_space(line) >= end ? line : end;
  }

  // Looks at the last byte; white space of several bytes is taken byte by byte, as long as a whole character ends here.
  bool ends_in_space(std::size_t begin, std::size_t& end) const noexcept {
    for (std::size_t length = 1; length <= 3 && begin + length <= end; ++length) {
      if (space_length(source_.substr(0, end), end - length) == length) {
        end -= length - 1;
        return true;
      }
    }
    return false;
  }

  char take_sign() {
    const char sign = peek();
    if (sign != '-' && sign != '+') return '\0';
    ++at_;
    return sign;
  }

  // Text up to the next tag, then that tag.
  void text() {
    const std::size_t begin = at_;
    std::size_t tag = source_.find('{', at_);
    while (tag != std::string_view::npos &&
           (tag + 1 >= source_.size() ||
            (source_[tag + 1] != '{' && source_[tag + 1] != '%' && source_[tag + 1] != '#'))) {
      tag = source_.find('{', tag + 1);
    }
    if (tag == std::string_view::npos) {
      add(TokenType::kData, begin, source_.size());
      at_ = source_.size();
      return;
    }
    const char kind = source_[tag + 1];
    at_ = tag + 2;
    const char sign = take_sign();
    const std::size_t end = kept_end(begin, tag, sign, kind == '{');
    if (end > begin) add(TokenType::kData, begin, end);
    line_starting_ = false;
    if (kind == '#') return comment(tag);
    if (kind == '%' && raw(tag)) return;
    add(kind == '{' ? TokenType::kPrintBegin : TokenType::kBlockBegin, tag, tag + 2);
    expression(tag, kind == '{');
  }

  // What follows "#}" and "%}": "-" before them strips white space, "+" nothing, else one newline goes.
  void after_tag(char sign) {
    const std::size_t begin = at_;
    if (sign == '-') {
      at_ = skip_space(at_);
    } else if (sign != '+' && peek() == '\n') {
      ++at_;
    }
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  void comment(std::size_t tag) {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) return fail(tag, "the comment is not closed");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    at_ = end + 2;
    after_tag(sign);
  }

  // {% raw %}...{% endraw %}; false where the block is another one.
  bool raw(std::size_t tag) {
    std::size_t at = skip_space(at_);
    if (source_.substr(at, 3) != "raw") return false;
    at = skip_space(at + 3);
    const bool strip = source_.substr(at, 3) == "-%}";
    if (!strip && source_.substr(at, 2) != "%}") return false;
    const std::size_t begin = strip ? skip_space(at + 3) : at + 2;
    line_starting_ = source_[begin - 1] == '\n';
    for (std::size_t end = source_.find("{%", begin); end != std::string_view::npos;
         end = source_.find("{%", end + 2)) {
      at_ = end + 2;
      const char sign = take_sign();
      at = skip_space(at_);
      if (source_.substr(at, 6) != "endraw") continue;
      at = skip_space(at + 6);
      const char end_sign = at < source_.size() ? source_[at] : '\0';
      if (end_sign == '-' || end_sign == '+') ++at;
      if (source_.substr(at, 2) != "%}") continue;
      const std::size_t kept = kept_end(begin, end, sign, false);
      if (kept > begin) add(TokenType::kData, begin, kept);
      at_ = at + 2;
      after_tag(end_sign);
      return true;
    }
    fail(tag, "{% raw %} is not closed");
    return true;
  }

  void expression(std::size_t tag, bool print) {
    std::vector<char> closers;
    while (good_) {
      at_ = skip_space(at_);
      if (at_ >= source_.size()) return fail(tag, print ? "{{ is not closed" : "{% is not closed");
      if (closers.empty() && end_of_tag(print)) return;
      token(closers);
    }
  }

  bool end_of_tag(bool print) {
    const char sign = peek();
    const std::size_t skip = sign == '-' || (sign == '+' && !print) ? 1 : 0;
    if (source_.substr(at_ + skip, 2) != (print ? "}}" : "%}")) return false;
    add(print ? TokenType::kPrintEnd : TokenType::kBlockEnd, at_, at_ + skip + 2);
    at_ += skip + 2;
    after_tag(skip == 1 ? sign : print ? '+' : '\0');  // a newline after "}}" stays
    return true;
  }

  void token(std::vector<char>& closers) {
    const std::size_t begin = at_;
    const char c = peek();
    if (is_name_start(c)) {
      while (is_name_part(peek())) ++at_;
      for (std::size_t place = begin; place < at_; place += character_length(source_, place)) {
        const std::uint32_t point = detail::decode_utf8(source_, place).value;
        const CharClass kind = char_class(point);
        if (point >= 0x80 && !is_letter(kind) && !is_number(kind) && kind != CharClass::kMark) {
          return fail(place, "unexpected character");
        }
      }
      return add(TokenType::kName, begin, at_);
    }
    if (is_digit(c)) return number();
    if (c == '"' || c == '\'') return string(c);
    static constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    for (const std::string_view op : kLong) {
      if (!starts(op)) continue;
      at_ += 2;
      return add(TokenType::kOperator, begin, at_);
    }
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos || c == '\0') {
      return fail(begin, "unexpected character");
    }
    if (c == '(' || c == '[' || c == '{') closers.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (closers.empty()) return fail(begin, std::string("unexpected '") + c + "'");
      if (closers.back() != c) {
        return fail(begin, std::string("unexpected '") + c + "', expected '" + closers.back() + "'");
      }
      closers.pop_back();
    }
    ++at_;
    add(TokenType::kOperator, begin, at_);
  }

  void digits() {
    while (is_digit(peek()) || (peek() == '_' && is_digit(peek(1)))) ++at_;
  }

  void number() {
    const std::size_t begin = at_;
    const char base = static_cast<char>(peek(1) | 0x20);
    if (peek() == '0' && (base == 'x' || base == 'o' || base == 'b')) {
      at_ += 2;
      while (is_name_part(peek())) ++at_;
      return add(TokenType::kInteger, begin, at_);
    }
    bool real = false;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';  // x.0.1 is two subscripts
    digits();
    if (!after_dot && peek() == '.' && is_digit(peek(1))) {
      real = true;
      ++at_;
      digits();
    }
    const std::size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
    if (!after_dot && (peek() == 'e' || peek() == 'E') && is_digit(peek(1 + sign))) {
      real = true;
      at_ += 1 + sign;
      digits();
    }
    add(real ? TokenType::kFloat : TokenType::kInteger, begin, at_);
  }

  void string(char quote) {
    const std::size_t begin = at_++;
    while (at_ < source_.size() && source_[at_] != quote) at_ += source_[at_] == '\\' ? 2u : 1u;
    if (at_ >= source_.size()) return fail(begin, "the string is not closed");
    ++at_;
    add(TokenType::kString, begin, at_);
  }

  std::string_view source_;
  std::size_t at_ = 0;
  bool line_starting_ = true;
  bool good_ = true;
  Status status_;
  std::vector<Token> tokens_;
};

}  // namespace lexer_detail

CORBEL_INLINE Result<std::vector<Token>> tokenize(std::string_view source) { return lexer_detail::Lexer(source).run(); }

}  // namespace text::jinja
CORBEL_NAMESPACE_END
