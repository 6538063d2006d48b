// Definitions of text/jinja/compiler.hpp: names, literals, lists and dicts.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/jinja/compiler.hpp>

#include <charconv>
#include <string>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

CORBEL_INLINE bool Compiler::name_or_literal() {
  const std::string_view name = take_name();
  if (name == "true" || name == "True") {
    emit(OpCode::kConstant, constant(Value::boolean(true)));
  } else if (name == "false" || name == "False") {
    emit(OpCode::kConstant, constant(Value::boolean(false)));
  } else if (name == "none" || name == "None") {
    emit(OpCode::kConstant, constant(Value::none()));
  } else {
    load(name);
  }
  return true;
}

CORBEL_INLINE bool Compiler::string_literal() {
  std::string text;
  while (peek().type == TokenType::kString) {
    if (!unescape(peek().text, text)) return false;
    ++at_;
  }
  emit(OpCode::kConstant, constant(Value::string(text)));
  return true;
}

// The escapes of Python's string literals; unknown ones stay as they are.
CORBEL_INLINE bool Compiler::unescape(std::string_view quoted, std::string& out) {
  const std::string_view text = quoted.substr(1, quoted.size() - 2);
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] != '\\' || at + 1 >= text.size()) {
      out += text[at++];
      continue;
    }
    const char letter = text[at + 1];
    at += 2;
    static constexpr std::string_view kLetters = "abfnrtv\\'\"";
    static constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    const std::size_t simple = kLetters.find(letter);
    const std::size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (letter == '\n') continue;
    if (simple != std::string_view::npos) {
      out += kValues[simple];
    } else if (digits > 0 || (letter >= '0' && letter <= '7')) {
      std::size_t begin = at;
      std::size_t length = digits;
      if (digits == 0) {
        --begin;
        length = 1;
        while (length < 3 && begin + length < text.size() && text[begin + length] >= '0' &&
               text[begin + length] <= '7') {
          ++length;
        }
      }
      std::uint32_t point = 0;
      const std::string_view number = text.substr(begin, length);
      const auto parsed = std::from_chars(number.data(), number.data() + number.size(), point, digits == 0 ? 8 : 16);
      if (number.size() != length || parsed.ptr != number.data() + length || point > 0x10FFFF ||
          (point >= 0xD800 && point <= 0xDFFF)) {
        return fail("bad escape in the string");
      }
      detail::append_utf8(out, point);
      at = begin + length;
    } else {
      out += '\\';
      out += letter;
    }
  }
  return true;
}

CORBEL_INLINE bool Compiler::number_literal() {
  std::string digits;
  for (const char c : peek().text) {
    if (c != '_') digits += c;
  }
  const bool real = peek().type == TokenType::kFloat;
  Value value;
  const char* end = digits.data() + digits.size();
  std::from_chars_result parsed{};
  if (real) {
    double number = 0;
    parsed = std::from_chars(digits.data(), end, number);
    value = Value::real(number);
  } else {
    const char prefix = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
    const int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
    std::int64_t number = 0;
    parsed = std::from_chars(digits.data() + (base == 10 ? 0 : 2), end, number, base);
    value = Value::integer(number);
  }
  if (parsed.ec != std::errc() || parsed.ptr != end) return fail("the number cannot be represented");
  ++at_;
  emit(OpCode::kConstant, constant(std::move(value)));
  return true;
}

CORBEL_INLINE bool Compiler::list_literal() {
  std::uint32_t count = 0;
  while (!at_operator("]")) {
    if (count > 0 && !expect_operator(",")) return false;
    if (at_operator("]")) break;
    if (!expression()) return false;
    ++count;
  }
  ++at_;
  emit(OpCode::kList, count);
  return true;
}

CORBEL_INLINE bool Compiler::dict_literal() {
  std::uint32_t count = 0;
  while (!at_operator("}")) {
    if (count > 0 && !expect_operator(",")) return false;
    if (at_operator("}")) break;
    if (!expression() || !expect_operator(":") || !expression()) return false;
    ++count;
  }
  ++at_;
  emit(OpCode::kDict, count);
  return true;
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
