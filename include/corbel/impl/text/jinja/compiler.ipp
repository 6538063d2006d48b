// Definitions of text/jinja/compiler.hpp: tokens and emission.
#pragma once

#include <corbel/text/jinja/compiler.hpp>

#include <algorithm>
#include <numeric>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

CORBEL_INLINE Result<Program> compile_program(std::string_view source, std::uint32_t depth) {
  Program program;
  program.source = normalize_newlines(source);
  CORBEL_ASSIGN_OR_RETURN(const std::vector<Token> tokens, tokenize(program.source));
  Compiler compiler(program, tokens, depth);
  CORBEL_RETURN_IF_ERROR(compiler.run());
  return program;
}

CORBEL_INLINE Status Compiler::run() {
  program_.shapes.emplace_back();  // shape 0: no arguments
  while (good() && peek().type != TokenType::kEnd) {
    const Token& token = peek();
    ++at_;
    switch (token.type) {
      case TokenType::kData:
        emit(OpCode::kText, token.offset, static_cast<std::uint32_t>(token.text.size()));
        break;
      case TokenType::kPrintBegin:
        if (tuple(true) && expect(TokenType::kPrintEnd, "'}}'")) emit(OpCode::kPrint);
        break;
      default:
        if (statement()) expect(TokenType::kBlockEnd, "'%}'");
        break;
    }
  }
  if (good() && !blocks_.empty()) fail(Errc::kTemplateError, "the block is not closed", blocks_.back().offset);
  program_.sorted_names.resize(program_.names.size());
  std::iota(program_.sorted_names.begin(), program_.sorted_names.end(), 0u);
  std::sort(program_.sorted_names.begin(), program_.sorted_names.end(),
            [this](std::uint32_t a, std::uint32_t b) { return program_.name(a) < program_.name(b); });
  return status_;
}

// --- tokens

CORBEL_INLINE const Token& Compiler::peek(std::size_t ahead) const noexcept {
  return tokens_[at_ + ahead < tokens_.size() ? at_ + ahead : tokens_.size() - 1];
}

CORBEL_INLINE bool Compiler::is_operator(const Token& token, std::string_view text) noexcept {
  return token.type == TokenType::kOperator && token.text == text;
}

CORBEL_INLINE bool Compiler::at_name(std::string_view text) const noexcept {
  return peek().type == TokenType::kName && peek().text == text;
}

CORBEL_INLINE bool Compiler::accept_operator(std::string_view text) noexcept {
  if (!at_operator(text)) return false;
  ++at_;
  return true;
}

CORBEL_INLINE bool Compiler::accept_name(std::string_view text) noexcept {
  if (!at_name(text)) return false;
  ++at_;
  return true;
}

CORBEL_INLINE bool Compiler::expect_operator(std::string_view text) {
  return accept_operator(text) || unexpected("'" + std::string(text) + "'");
}

CORBEL_INLINE bool Compiler::expect_name(std::string_view text) {
  return accept_name(text) || unexpected("'" + std::string(text) + "'");
}

CORBEL_INLINE bool Compiler::expect(TokenType type, std::string_view what) {
  if (!good()) return false;
  if (peek().type != type) return unexpected(what);
  ++at_;
  return true;
}

CORBEL_INLINE std::string_view Compiler::take_name() {
  if (peek().type != TokenType::kName) {
    unexpected("a name");
    return {};
  }
  return tokens_[at_++].text;
}

CORBEL_INLINE bool Compiler::fail(Errc code, std::string_view message, std::uint32_t offset) {
  if (good()) status_ = Status(code, message).with_place(describe_place(program_.source, offset));
  return false;
}

CORBEL_INLINE bool Compiler::unexpected(std::string_view wanted) {
  std::string got = "'" + std::string(peek().text.substr(0, 40)) + "'";
  if (peek().type == TokenType::kEnd) got = "the end of the template";
  return fail("expected " + std::string(wanted) + ", found " + got);
}

// --- emission

CORBEL_INLINE std::size_t Compiler::emit(OpCode code, std::uint32_t a, std::uint32_t b) {
  return emit_at(tokens_[at_ == 0 ? 0 : at_ - 1].offset, code, a, b);
}

CORBEL_INLINE std::size_t Compiler::emit_at(std::uint32_t offset, OpCode code, std::uint32_t a, std::uint32_t b) {
  program_.ops.push_back({code, a, b, offset});
  return program_.ops.size() - 1;
}

CORBEL_INLINE std::uint32_t Compiler::constant(Value value) {
  program_.constants.push_back(std::move(value));
  return static_cast<std::uint32_t>(program_.constants.size() - 1);
}

CORBEL_INLINE std::uint32_t Compiler::name_id(std::string_view name) {
  const auto [position, fresh] = names_.try_emplace(name, static_cast<std::uint32_t>(program_.names.size()));
  if (fresh) program_.names.push_back(Value::string(name));
  return position->second;
}

CORBEL_INLINE std::uint32_t Compiler::shape_id(CallShape&& shape) {
  if (shape.positional == 0 && shape.keywords.empty() && !shape.spread_list && !shape.spread_dict) return 0;
  program_.shapes.push_back(std::move(shape));
  return static_cast<std::uint32_t>(program_.shapes.size() - 1);
}

CORBEL_INLINE void Compiler::load(std::string_view name) {
  for (std::size_t i = blocks_.size(); i-- > 0;) {  // a macro accepts extra arguments where its body looks at them
    if (blocks_[i].kind != BlockKind::kMacro && blocks_[i].kind != BlockKind::kCall) continue;
    Macro& macro = program_.macros[blocks_[i].index];
    if (name == "varargs") macro.takes_varargs = true;
    if (name == "kwargs") macro.takes_kwargs = true;
    if (name == "caller") macro.takes_caller = true;
    break;
  }
  emit(OpCode::kLoad, name_id(name));
}

CORBEL_INLINE void Compiler::land(std::size_t from) {
  program_.ops[from].a = static_cast<std::uint32_t>(program_.ops.size() - from);
}

CORBEL_INLINE void Compiler::jump_back(OpCode code, std::size_t to) {
  const std::size_t from = emit(code);
  program_.ops[from].a = static_cast<std::uint32_t>(to - from);  // wraps, as does the addition that undoes it
}

CORBEL_INLINE Compiler::Code Compiler::cut(std::size_t from) {
  Code code(program_.ops.begin() + static_cast<std::ptrdiff_t>(from), program_.ops.end());
  program_.ops.resize(from);
  return code;
}

CORBEL_INLINE void Compiler::append(const Code& code) {
  program_.ops.insert(program_.ops.end(), code.begin(), code.end());
}

CORBEL_INLINE void Compiler::begin_scope() {
  emit(OpCode::kScopeBegin);
  ++scopes_;
}

CORBEL_INLINE void Compiler::end_scope() {
  emit(OpCode::kScopeEnd);
  --scopes_;
}

CORBEL_INLINE void Compiler::unwind_scopes(std::size_t to) {
  for (std::size_t i = to; i < scopes_; ++i) emit(OpCode::kScopeEnd);
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
