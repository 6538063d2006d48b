// Definitions of text/jinja/compiler.hpp: expressions.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/jinja/builtins.hpp>
#include <corbel/text/jinja/compiler.hpp>

#include <charconv>
#include <cstddef>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

// Levels of binary(), loosest first.
inline constexpr int kOrLevel = 0;
inline constexpr int kAndLevel = 1;
inline constexpr int kNotLevel = 2;
inline constexpr int kCompareLevel = 3;
inline constexpr int kSumLevel = 4;
inline constexpr int kConcatLevel = 5;
inline constexpr int kProductLevel = 6;
inline constexpr int kPowerLevel = 7;

// Counts one level of nesting while it lives.
class Nesting {
 public:
  Nesting(std::uint32_t& depth, std::uint32_t limit) noexcept : depth_(depth), fits_(depth < limit) { ++depth_; }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  bool fits() const noexcept { return fits_; }

 private:
  std::uint32_t& depth_;
  bool fits_;
};

// x if condition else y. The code of x is moved behind the condition's.
CORBEL_INLINE bool Compiler::expression() {
  const std::size_t begin = program_.ops.size();
  if (!binary(kOrLevel)) return false;
  for (std::uint32_t chained = 0; accept_name("if"); ++chained) {
    if (chained >= max_depth_) return fail(Errc::kDepthExceeded, "expressions nest too deep", peek().offset);
    const Code value = cut(begin);
    if (!binary(kOrLevel)) return false;
    const std::size_t to_else = emit(OpCode::kJumpIfFalse);
    append(value);
    const std::size_t to_end = emit(OpCode::kJump);
    land(to_else);
    if (!accept_name("else")) {
      emit(OpCode::kConstant, constant(Value()));
    } else {
      const Nesting nesting(depth_, max_depth_);
      if (!nesting.fits()) return fail(Errc::kDepthExceeded, "expressions nest too deep", peek().offset);
      if (!expression()) return false;
    }
    land(to_end);
  }
  return true;
}

CORBEL_INLINE bool Compiler::at_tuple_end() const noexcept {
  const Token& token = peek();
  return token.type == TokenType::kPrintEnd || token.type == TokenType::kBlockEnd || is_operator(token, ")") ||
         is_operator(token, "=") || (token.type == TokenType::kName && token.text == "recursive");
}

// One expression, or several with commas: a tuple.
CORBEL_INLINE bool Compiler::tuple(bool conditional, bool parenthesized) {
  std::uint32_t count = 0;
  bool comma = false;
  while (!at_tuple_end()) {
    if (!(conditional ? expression() : binary(kOrLevel))) return false;
    ++count;
    comma = accept_operator(",");
    if (!comma) break;
  }
  if (count == 0 && !parenthesized) return unexpected("an expression");
  if (count != 1 || comma) emit(OpCode::kTuple, count);
  return true;
}

CORBEL_INLINE bool Compiler::binary(int level) {
  const Nesting nesting(depth_, max_depth_);
  if (!nesting.fits()) return fail(Errc::kDepthExceeded, "expressions nest too deep", peek().offset);
  if (level <= kNotLevel && accept_name("not")) {
    if (!binary(kNotLevel)) return false;
    emit(OpCode::kNot);
  } else if (!operand(true)) {
    return false;
  }
  struct Operator {
    std::string_view text;
    int level;
    OpCode code;
  };
  static constexpr Operator kOperators[] = {
      {"+", kSumLevel, OpCode::kAdd},           {"-", kSumLevel, OpCode::kSubtract},
      {"*", kProductLevel, OpCode::kMultiply},  {"/", kProductLevel, OpCode::kDivide},
      {"//", kProductLevel, OpCode::kFloorDivide}, {"%", kProductLevel, OpCode::kModulo},
      {"**", kPowerLevel, OpCode::kPower},      {"~", kConcatLevel, OpCode::kConcat},
  };
  while (good()) {
    const Operator* found = nullptr;
    for (const Operator& candidate : kOperators) {
      if (at_operator(candidate.text)) found = &candidate;
    }
    if (found != nullptr) {
      if (found->level < level) return true;
      const std::uint32_t offset = tokens_[at_++].offset;
      if (!binary(found->level + 1)) return false;
      emit_at(offset, found->code, found->code == OpCode::kConcat ? 2 : 0);
      continue;
    }
    if (level <= kCompareLevel) {
      const std::size_t before = at_;
      if (!comparison_rest()) return false;
      if (at_ != before) continue;
    }
    const bool is_and = at_name("and");
    if (!is_and && !at_name("or")) return true;
    if ((is_and ? kAndLevel : kOrLevel) < level) return true;
    ++at_;
    const std::size_t jump = emit(is_and ? OpCode::kJumpFalseKeep : OpCode::kJumpTrueKeep);
    if (!binary(is_and ? kNotLevel : kAndLevel)) return false;
    land(jump);
  }
  return false;
}

// The operators of a comparison, with the left side on the stack: x < y, or x < y < z.
CORBEL_INLINE bool Compiler::comparison_rest() {
  struct Operator {
    std::string_view text;
    OpCode code;
  };
  static constexpr Operator kOperators[] = {{"==", OpCode::kEqual},     {"!=", OpCode::kNotEqual},
                                            {"<", OpCode::kLess},       {"<=", OpCode::kLessEqual},
                                            {">", OpCode::kGreater},    {">=", OpCode::kGreaterEqual}};
  std::vector<std::size_t> to_end;
  std::size_t last = kNowhere;
  while (good()) {
    OpCode code = OpCode::kText;
    for (const Operator& candidate : kOperators) {
      if (at_operator(candidate.text)) code = candidate.code;
    }
    if (at_name("in")) code = OpCode::kIn;
    if (at_name("not") && peek(1).type == TokenType::kName && peek(1).text == "in") {
      code = OpCode::kNotIn;
      ++at_;
    }
    if (code == OpCode::kText) break;
    const std::uint32_t offset = tokens_[at_++].offset;
    if (last != kNowhere) {
      program_.ops[last].b = static_cast<std::uint32_t>(program_.ops[last].code);
      program_.ops[last].code = OpCode::kChain;
      to_end.push_back(last);
    }
    if (!binary(kSumLevel)) return false;
    last = emit_at(offset, code);
  }
  for (const std::size_t jump : to_end) land(jump);
  return good();
}

CORBEL_INLINE bool Compiler::operand(bool with_filters) {
  if (at_operator("-") || at_operator("+")) {
    const Nesting nesting(depth_, max_depth_);
    if (!nesting.fits()) return fail(Errc::kDepthExceeded, "expressions nest too deep", peek().offset);
    const OpCode code = at_operator("-") ? OpCode::kNegate : OpCode::kPlus;
    ++at_;
    if (!operand(false)) return false;
    emit(code);
  } else if (!primary()) {
    return false;
  }
  return postfix() && (!with_filters || filters_and_tests());
}

CORBEL_INLINE bool Compiler::primary() {
  const Token& token = peek();
  if (token.type == TokenType::kName) return name_or_literal();
  if (token.type == TokenType::kString) return string_literal();
  if (token.type == TokenType::kInteger || token.type == TokenType::kFloat) return number_literal();
  if (accept_operator("(")) return tuple(true, true) && expect_operator(")");
  if (accept_operator("[")) return list_literal();
  if (accept_operator("{")) return dict_literal();
  return unexpected("an expression");
}

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
        while (length < 3 && begin + length < text.size() && text[begin + length] >= '0' && text[begin + length] <= '7') {
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

// A call of what is on the stack; its place is the token before the parenthesis.
CORBEL_INLINE bool Compiler::call() {
  const std::uint32_t offset = tokens_[at_ - 1].offset;
  CallShape shape;
  if (!arguments(shape)) return false;
  emit_at(offset, OpCode::kCall, 0, shape_id(std::move(shape)));
  return true;
}

// Members, subscripts and calls.
CORBEL_INLINE bool Compiler::postfix() {
  for (std::uint32_t count = 0; good(); ++count) {
    if (count >= max_depth_) return fail(Errc::kDepthExceeded, "too many subscripts or calls in a row", peek().offset);
    if (accept_operator(".")) {
      if (!member()) return false;
    } else if (accept_operator("[")) {
      if (!subscript()) return false;
    } else if (at_operator("(")) {
      if (!call()) return false;
    } else {
      return true;
    }
  }
  return false;
}

CORBEL_INLINE bool Compiler::member() {
  if (peek().type != TokenType::kInteger) {
    const std::string_view name = take_name();
    if (good()) emit(OpCode::kAttribute, name_id(name));
    return good();
  }
  if (!number_literal()) return false;
  emit(OpCode::kItem);
  return true;
}

CORBEL_INLINE bool Compiler::subscript() {
  std::uint32_t count = 0;
  bool comma = false;
  bool slice = false;
  while (!at_operator("]")) {
    if (!subscript_item(slice)) return false;
    ++count;
    comma = accept_operator(",");
    if (slice && (comma || count > 1)) return fail("a slice cannot be part of a tuple");
    if (!comma) break;
  }
  if (count == 0) return unexpected("an expression");
  if (!expect_operator("]")) return false;
  if (slice) return true;
  if (count != 1 || comma) emit(OpCode::kTuple, count);
  emit(OpCode::kItem);
  return true;
}

// An expression, or start:stop:step with parts left out.
CORBEL_INLINE bool Compiler::subscript_item(bool& slice) {
  const auto part = [this] {
    if (at_operator(":") || at_operator("]") || at_operator(",")) {
      emit(OpCode::kConstant, constant(Value::none()));
      return true;
    }
    return expression();
  };
  if (!at_operator(":")) {
    if (!expression()) return false;
    if (!at_operator(":")) return true;
  } else if (!part()) {
    return false;
  }
  ++at_;
  if (!part()) return false;
  if (accept_operator(":")) {
    if (!part()) return false;
  } else {
    emit(OpCode::kConstant, constant(Value::none()));
  }
  emit(OpCode::kSlice);
  slice = true;
  return true;
}

CORBEL_INLINE bool Compiler::filters_and_tests() {
  for (std::uint32_t count = 0; good(); ++count) {
    if (count >= max_depth_) return fail(Errc::kDepthExceeded, "too many filters or tests in a row", peek().offset);
    if (accept_operator("|")) {
      if (!filter()) return false;
    } else if (accept_name("is")) {
      if (!test()) return false;
    } else if (at_operator("(")) {
      if (!call()) return false;
    } else {
      return true;
    }
  }
  return false;
}

CORBEL_INLINE bool Compiler::dotted_name(std::string& name) {
  name = take_name();
  while (good() && accept_operator(".")) {
    name += '.';
    name += take_name();
  }
  return good();
}

// Outside of {% if %} an unknown filter or test is an error of the template; inside, only where it is reached.
CORBEL_INLINE bool Compiler::filter() {
  std::string name;
  CallShape shape;
  const std::uint32_t offset = peek().offset;
  if (!dotted_name(name)) return false;
  if (at_operator("(") && !arguments(shape)) return false;
  const std::int32_t found = find_filter(name);
  if (found >= 0) {
    emit_at(offset, OpCode::kFilter, static_cast<std::uint32_t>(found), shape_id(std::move(shape)));
    return true;
  }
  const std::string message = "no filter named '" + name + "'";
  if (blocks_.empty()) return fail(Errc::kTemplateError, message, offset);
  emit_at(offset, OpCode::kFail, constant(Value::string(message)));
  return true;
}

CORBEL_INLINE bool Compiler::test() {
  const bool negated = accept_name("not");
  std::string name;
  CallShape shape;
  const std::uint32_t offset = peek().offset;
  if (!dotted_name(name)) return false;
  const Token& next = peek();
  if (at_operator("(")) {
    if (!arguments(shape)) return false;
  } else if ((next.type == TokenType::kName && next.text != "else" && next.text != "or" && next.text != "and") ||
             next.type == TokenType::kString || next.type == TokenType::kInteger || next.type == TokenType::kFloat ||
             at_operator("[") || at_operator("{")) {
    if (at_name("is")) return fail("tests cannot be chained with 'is'");
    const bool stands_alone = at_name("if") || at_name("recursive");
    if (!stands_alone) {
      if (!primary() || !postfix()) return false;
      shape.positional = 1;
    }
  }
  const std::int32_t found = find_test(name);
  if (found >= 0) {
    emit_at(offset, OpCode::kTest, static_cast<std::uint32_t>(found), shape_id(std::move(shape)));
    if (negated) emit(OpCode::kNot);
    return true;
  }
  const std::string message = "no test named '" + name + "'";
  if (blocks_.empty()) return fail(Errc::kTemplateError, message, offset);
  emit_at(offset, OpCode::kFail, constant(Value::string(message)));
  return true;
}

// (x, y, name=z, *list, **dict)
CORBEL_INLINE bool Compiler::arguments(CallShape& shape) {
  if (!expect_operator("(")) return false;
  for (bool first = true; !at_operator(")"); first = false) {
    if (!first && !expect_operator(",")) return false;
    if (at_operator(")")) break;
    if (accept_operator("*")) {
      if (shape.spread_list || shape.spread_dict) return fail("arguments are in the wrong order");
      shape.spread_list = true;
    } else if (accept_operator("**")) {
      if (shape.spread_dict) return fail("arguments are in the wrong order");
      shape.spread_dict = true;
    } else if (peek().type == TokenType::kName && is_operator(peek(1), "=")) {
      if (shape.spread_list || shape.spread_dict) return fail("arguments are in the wrong order");
      shape.keywords.push_back(name_id(take_name()));
      ++at_;
    } else {
      if (!shape.keywords.empty() || shape.spread_list || shape.spread_dict) {
        return fail("arguments are in the wrong order");
      }
      ++shape.positional;
    }
    if (!expression()) return false;
  }
  ++at_;
  return true;
}

// Emits the code that stores the value on the stack into a name, a member of a namespace, or several names.
CORBEL_INLINE bool Compiler::target(bool with_tuple, bool with_member) {
  const Nesting nesting(depth_, max_depth_);
  if (!nesting.fits()) return fail(Errc::kDepthExceeded, "expressions nest too deep", peek().offset);
  const std::size_t begin = program_.ops.size();
  std::uint32_t count = 0;
  bool comma = false;
  while (good() && (peek().type == TokenType::kName ? !at_name("in") : at_operator("("))) {
    if (!target_item(with_member)) return false;
    ++count;
    comma = with_tuple && accept_operator(",");
    if (!comma) break;
  }
  if (count == 0) return unexpected("a name");
  if (count != 1 || comma) {
    const Code items = cut(begin);
    emit(OpCode::kUnpack, count);
    append(items);
  }
  return good();
}

CORBEL_INLINE bool Compiler::target_item(bool with_member) {
  if (accept_operator("(")) return target(true, with_member) && expect_operator(")");
  const std::string_view name = take_name();
  for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (name == reserved) return fail("cannot assign to '" + std::string(name) + "'");
  }
  if (with_member && accept_operator(".")) {
    const std::uint32_t object = name_id(name);
    const std::string_view member_name = take_name();
    if (good()) emit(OpCode::kStoreMember, object, name_id(member_name));
  } else {
    emit(OpCode::kStore, name_id(name));
  }
  return good();
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
