// Definitions of text/jinja/compiler.hpp: expressions.
#pragma once

#include <corbel/text/jinja/builtins.hpp>
#include <corbel/text/jinja/compiler.hpp>

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

// Functions that nest are kept small, and leave all else to functions that have returned by then: 200 levels fit a
// stack of 128 KiB even without optimization.
CORBEL_INLINE bool Compiler::too_deep() {
  return fail(Errc::kDepthExceeded, "expressions nest too deep", peek().offset);
}

CORBEL_INLINE bool Compiler::expression() {
  const std::size_t begin = program_.ops.size();
  if (!binary(kOrLevel)) return false;
  return !at_name("if") || conditions(begin);
}

// x if condition else y, with x read. The code of x is moved behind the condition's.
CORBEL_INLINE bool Compiler::conditions(std::size_t begin) {
  for (std::uint32_t chained = 0; accept_name("if"); ++chained) {
    if (chained >= max_depth_) return too_deep();
    const Code value = cut(begin);
    if (!binary(kOrLevel)) return false;
    const std::size_t to_else = emit(OpCode::kJumpIfFalse);
    append(value);
    const std::size_t to_end = emit(OpCode::kJump);
    land(to_else);
    if (!otherwise()) return false;
    land(to_end);
  }
  return true;
}

CORBEL_INLINE bool Compiler::otherwise() {
  if (!accept_name("else")) {
    emit(OpCode::kConstant, constant(Value()));
    return true;
  }
  const Nesting nesting(depth_, max_depth_);
  return nesting.fits() ? expression() : too_deep();
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
  if (!nesting.fits()) return too_deep();
  if (level <= kNotLevel && accept_name("not")) {
    if (!binary(kNotLevel)) return false;
    emit(OpCode::kNot);
  } else if (!operand(true)) {
    return false;
  }
  return operators(level);
}

// The operators of this level and tighter ones that follow an operand.
CORBEL_INLINE bool Compiler::operators(int level) {
  struct Operator {
    std::string_view text;
    int level;
    OpCode code;
  };
  static constexpr Operator kOperators[] = {
      {"+", kSumLevel, OpCode::kAdd},
      {"-", kSumLevel, OpCode::kSubtract},
      {"*", kProductLevel, OpCode::kMultiply},
      {"/", kProductLevel, OpCode::kDivide},
      {"//", kProductLevel, OpCode::kFloorDivide},
      {"%", kProductLevel, OpCode::kModulo},
      {"**", kPowerLevel, OpCode::kPower},
      {"~", kConcatLevel, OpCode::kConcat},
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
  static constexpr Operator kOperators[] = {{"==", OpCode::kEqual},  {"!=", OpCode::kNotEqual},
                                            {"<", OpCode::kLess},    {"<=", OpCode::kLessEqual},
                                            {">", OpCode::kGreater}, {">=", OpCode::kGreaterEqual}};
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
  const bool read = at_operator("-") || at_operator("+") ? signed_operand() : primary();
  return read && postfix() && (!with_filters || filters_and_tests());
}

CORBEL_INLINE bool Compiler::signed_operand() {
  const Nesting nesting(depth_, max_depth_);
  if (!nesting.fits()) return too_deep();
  const OpCode code = at_operator("-") ? OpCode::kNegate : OpCode::kPlus;
  ++at_;
  if (!operand(false)) return false;
  emit(code);
  return true;
}

CORBEL_INLINE bool Compiler::primary() {
  if (accept_operator("(")) return parenthesis();
  if (accept_operator("[")) return list_literal();
  if (accept_operator("{")) return dict_literal();
  return literal();
}

CORBEL_INLINE bool Compiler::parenthesis() {
  if (!tuple(true, true)) return false;
  return accept_operator(")") || unexpected("')'");
}

CORBEL_INLINE bool Compiler::literal() {
  const Token& token = peek();
  if (token.type == TokenType::kName) return name_or_literal();
  if (token.type == TokenType::kString) return string_literal();
  if (token.type == TokenType::kInteger || token.type == TokenType::kFloat) return number_literal();
  return unexpected("an expression");
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
    if (count >= max_depth_) return too_deep();
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
  const Nesting nesting(depth_, max_depth_);
  if (!nesting.fits()) return too_deep();
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
  if (at_operator(",")) return unexpected("an expression");
  if (!slice_part()) return false;
  if (!accept_operator(":")) return true;
  if (!slice_part()) return false;
  (void)accept_operator(":");
  if (!slice_part()) return false;
  emit(OpCode::kSlice);
  slice = true;
  return true;
}

CORBEL_INLINE bool Compiler::slice_part() {
  if (!at_operator(":") && !at_operator("]") && !at_operator(",")) return expression();
  emit(OpCode::kConstant, constant(Value::none()));
  return true;
}

CORBEL_INLINE bool Compiler::filters_and_tests() {
  for (std::uint32_t count = 0; good(); ++count) {
    if (count >= max_depth_) return too_deep();
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

CORBEL_INLINE bool Compiler::dotted_name(std::string_view& name) {
  const std::uint32_t begin = peek().offset;
  name = take_name();
  while (good() && accept_operator(".")) {
    const std::string_view last = take_name();
    name = std::string_view(program_.source).substr(begin, tokens_[at_ - 1].offset + last.size() - begin);
  }
  return good();
}

CORBEL_INLINE bool Compiler::filter() {
  std::string_view name;
  CallShape shape;
  const std::uint32_t offset = peek().offset;
  if (!dotted_name(name)) return false;
  if (at_operator("(") && !arguments(shape)) return false;
  return emit_named(offset, OpCode::kFilter, name, std::move(shape));
}

CORBEL_INLINE bool Compiler::test() {
  const bool negated = accept_name("not");
  std::string_view name;
  CallShape shape;
  const std::uint32_t offset = peek().offset;
  if (!dotted_name(name) || !test_argument(shape) || !emit_named(offset, OpCode::kTest, name, std::move(shape))) {
    return false;
  }
  if (negated) emit(OpCode::kNot);
  return true;
}

// (arguments), or one argument without parentheses.
CORBEL_INLINE bool Compiler::test_argument(CallShape& shape) {
  if (at_operator("(")) return arguments(shape);
  if (at_name("is")) return fail("tests cannot be chained with 'is'");
  const TokenType type = peek().type;
  if (type == TokenType::kName) {
    for (const std::string_view keyword : {"else", "or", "and", "if", "recursive"}) {
      if (at_name(keyword)) return true;
    }
  } else if (type != TokenType::kString && type != TokenType::kInteger && type != TokenType::kFloat &&
             !at_operator("[") && !at_operator("{")) {
    return true;
  }
  shape.positional = 1;
  return bare_argument();
}

CORBEL_INLINE bool Compiler::bare_argument() {
  const Nesting nesting(depth_, max_depth_);
  if (!nesting.fits()) return too_deep();
  return primary() && postfix();
}

// A filter or test. Outside of blocks an unknown one is an error of the template; inside, only where it is reached.
CORBEL_INLINE bool Compiler::emit_named(std::uint32_t offset, OpCode code, std::string_view name, CallShape&& shape) {
  const std::int32_t found = code == OpCode::kFilter ? find_filter(name) : find_test(name);
  if (found >= 0) {
    emit_at(offset, code, static_cast<std::uint32_t>(found), shape_id(std::move(shape)));
    return true;
  }
  const std::string message =
      (code == OpCode::kFilter ? "no filter named '" : "no test named '") + std::string(name.substr(0, 80)) + "'";
  if (blocks_.empty()) return fail(Errc::kTemplateError, message, offset);
  emit_at(offset, OpCode::kFail, constant(Value::string(message)));
  return true;
}

// (x, y, name=z, *list, **dict)
CORBEL_INLINE bool Compiler::arguments(CallShape& shape) {
  const Nesting nesting(depth_, max_depth_);
  if (!nesting.fits()) return too_deep();
  if (!expect_operator("(")) return false;
  for (bool first = true; !at_operator(")"); first = false) {
    if (!first && !expect_operator(",")) return false;
    if (at_operator(")")) break;
    if (!begin_argument(shape) || !expression()) return false;
  }
  ++at_;
  return true;
}

// Notes of what kind the next argument is.
CORBEL_INLINE bool Compiler::begin_argument(CallShape& shape) {
  const bool spread = shape.spread_list || shape.spread_dict;
  bool in_order = true;
  if (accept_operator("*")) {
    in_order = !spread;
    shape.spread_list = true;
  } else if (accept_operator("**")) {
    in_order = !shape.spread_dict;
    shape.spread_dict = true;
  } else if (peek().type == TokenType::kName && is_operator(peek(1), "=")) {
    in_order = !spread;
    shape.keywords.push_back(name_id(take_name()));
    ++at_;
  } else {
    in_order = !spread && shape.keywords.empty();
    ++shape.positional;
  }
  return in_order || fail("arguments are in the wrong order");
}

// Emits the code that stores the value on the stack into a name, a member of a namespace, or several names.
CORBEL_INLINE bool Compiler::target(bool with_tuple, bool with_member) {
  const Nesting nesting(depth_, max_depth_);
  if (!nesting.fits()) return too_deep();
  const std::size_t begin = program_.ops.size();
  std::uint32_t count = 0;
  bool comma = false;
  while (good() && (peek().type == TokenType::kName ? !at_name("in") : at_operator("("))) {
    if (accept_operator("(") ? !target(true, with_member) || !expect_operator(")") : !target_name(with_member)) {
      return false;
    }
    ++count;
    comma = with_tuple && accept_operator(",");
    if (!comma) break;
  }
  if (count == 0) return unexpected("a name");
  if (count != 1 || comma) unpack_into(begin, count);
  return good();
}

CORBEL_INLINE void Compiler::unpack_into(std::size_t begin, std::uint32_t count) {
  const Code items = cut(begin);
  emit(OpCode::kUnpack, count);
  append(items);
}

CORBEL_INLINE bool Compiler::target_name(bool with_member) {
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
