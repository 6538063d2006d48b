// Definitions of text/jinja/compiler.hpp: {% statements %}.
#pragma once

#include <corbel/text/jinja/builtins.hpp>
#include <corbel/text/jinja/compiler.hpp>

#include <algorithm>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

// Reads one tag up to its "%}".
CORBEL_INLINE bool Compiler::statement() {
  const std::string_view tag = take_name();
  if (!good()) return false;
  if (tag == "if") return begin_if();
  if (tag == "elif") return begin_elif();
  if (tag == "else") return begin_else();
  if (tag == "for") return begin_for();
  if (tag == "set") return begin_set();
  if (tag == "macro") return begin_macro();
  if (tag == "call") return begin_call();
  if (tag == "filter") return begin_filter();
  if (tag == "with") return begin_with();
  if (tag == "break" || tag == "continue") return jump_out(tag == "continue");
  if (tag == "generation") {
    if (open(BlockKind::kGeneration) == nullptr) return false;
    begin_scope();
    return true;
  }
  if (tag == "print") {
    if (!tuple(true)) return false;
    emit(OpCode::kPrint);
    return true;
  }
  if (tag.substr(0, 3) == "end") return end_tag(tag);
  --at_;
  for (const std::string_view known : {"include", "import", "from", "extends", "block", "autoescape"}) {
    if (tag == known) return fail(Errc::kUnsupported, "{% " + std::string(tag) + " %} is not supported", peek().offset);
  }
  return fail("unknown tag '" + std::string(tag) + "'");
}

CORBEL_INLINE bool Compiler::end_tag(std::string_view tag) {
  if (tag == "endif") return end_if();
  if (tag == "endfor") return end_for();
  if (tag == "endset") return close(BlockKind::kSet) && end_simple();
  if (tag == "endfilter") return close(BlockKind::kFilter) && end_simple();
  if (tag == "endmacro") return end_macro();
  if (tag == "endcall") return end_call();
  if (tag == "endwith" || tag == "endgeneration") {
    if (!close(tag == "endwith" ? BlockKind::kWith : BlockKind::kGeneration)) return false;
    end_scope();
    blocks_.pop_back();
    return true;
  }
  --at_;
  return fail("unknown tag '" + std::string(tag) + "'");
}

CORBEL_INLINE Compiler::Block* Compiler::open(BlockKind kind) {
  if (blocks_.size() >= max_depth_) {
    fail(Errc::kDepthExceeded, "blocks nest too deep", peek().offset);
    return nullptr;
  }
  Block& block = blocks_.emplace_back();
  block.kind = kind;
  block.offset = peek().offset;
  block.scopes = scopes_;
  return &block;
}

// Checks that the innermost block is of this kind; it stays on the list for its end to be emitted.
CORBEL_INLINE bool Compiler::close(BlockKind kind) {
  if (!blocks_.empty() && blocks_.back().kind == kind) return true;
  --at_;
  return fail("this tag does not belong to the innermost open block");
}

// --- if

CORBEL_INLINE bool Compiler::begin_if() {
  if (open(BlockKind::kIf) == nullptr || !tuple(false)) return false;
  blocks_.back().pending = emit(OpCode::kJumpIfFalse);
  return true;
}

CORBEL_INLINE bool Compiler::begin_elif() {
  if (!close(BlockKind::kIf)) return false;
  if (blocks_.back().in_else) return fail("{% elif %} after {% else %}");
  blocks_.back().to_end.push_back(emit(OpCode::kJump));
  land(blocks_.back().pending);
  if (!tuple(false)) return false;
  blocks_.back().pending = emit(OpCode::kJumpIfFalse);
  return true;
}

CORBEL_INLINE bool Compiler::begin_else() {
  if (blocks_.empty() || blocks_.back().in_else ||
      (blocks_.back().kind != BlockKind::kIf && blocks_.back().kind != BlockKind::kFor)) {
    return fail("{% else %} without {% if %} or {% for %}");
  }
  Block& block = blocks_.back();
  if (block.kind == BlockKind::kFor) {
    end_for_items(block);
    begin_scope();
  } else {
    block.to_end.push_back(emit(OpCode::kJump));
    land(block.pending);
  }
  block.in_else = true;
  return true;
}

CORBEL_INLINE bool Compiler::end_if() {
  if (!close(BlockKind::kIf)) return false;
  const Block& block = blocks_.back();
  if (!block.in_else) land(block.pending);
  for (const std::size_t jump : block.to_end) land(jump);
  blocks_.pop_back();
  return true;
}

// --- for

//   iterable; kLoopBegin; [filter: kFilterNext; target; condition; kFilterKeep; jump back]
//   kLoopNext; target; body; kScopeEnd; jump back; kLoopEnd; [else part]; [kLoopReturn]
CORBEL_INLINE bool Compiler::begin_for() {
  if (open(BlockKind::kFor) == nullptr) return false;
  const std::size_t begin = program_.ops.size();
  if (!target(true, false)) return false;
  const Code assignment = cut(begin);
  if (!expect_name("in") || !tuple(false)) return false;
  const std::size_t entry = emit(OpCode::kLoopBegin);
  if (accept_name("if")) {
    const std::size_t next = emit(OpCode::kFilterNext);
    append(assignment);
    if (!expression()) return false;
    emit(OpCode::kFilterKeep);
    jump_back(OpCode::kJump, next);
    land(next);
  }
  Block& block = blocks_.back();
  block.recursive = accept_name("recursive");
  program_.ops[entry].b = block.recursive ? 1 : 0;
  block.entry = entry;
  block.pending = emit(OpCode::kLoopNext);
  ++scopes_;
  append(assignment);
  return true;
}

CORBEL_INLINE void Compiler::end_for_items(Block& block) {
  for (const std::size_t jump : block.to_next) land(jump);
  end_scope();
  jump_back(OpCode::kJump, block.pending);
  land(block.pending);
  for (const std::size_t jump : block.to_end) land(jump);
  block.pending = emit(OpCode::kLoopEnd);
}

CORBEL_INLINE bool Compiler::end_for() {
  if (!close(BlockKind::kFor)) return false;
  Block& block = blocks_.back();
  if (block.in_else) {
    end_scope();
  } else {
    end_for_items(block);
  }
  land(block.pending);
  if (block.recursive) jump_back(OpCode::kLoopReturn, block.entry);
  blocks_.pop_back();
  return true;
}

// {% break %} and {% continue %}.
CORBEL_INLINE bool Compiler::jump_out(bool next) {
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    Block& block = blocks_[i];
    if (block.kind == BlockKind::kFor && !block.in_else) {
      unwind_scopes(block.scopes + (next ? 1 : 0));
      (next ? block.to_next : block.to_end).push_back(emit(OpCode::kJump));
      return true;
    }
    const bool passes = block.kind == BlockKind::kIf || block.kind == BlockKind::kWith || block.kind == BlockKind::kFor;
    if (!passes) break;
  }
  return fail(next ? "{% continue %} outside of a loop" : "{% break %} outside of a loop");
}

// --- set, filter, with

CORBEL_INLINE bool Compiler::begin_set() {
  const std::size_t begin = program_.ops.size();
  if (!target(true, true)) return false;
  Code assignment = cut(begin);
  if (accept_operator("=")) {
    if (!tuple(true)) return false;
    append(assignment);
    return true;
  }
  while (good() && accept_operator("|")) filter();
  if (!good() || open(BlockKind::kSet) == nullptr) return false;
  blocks_.back().tail = cut(begin);
  blocks_.back().tail.insert(blocks_.back().tail.end(), assignment.begin(), assignment.end());
  emit(OpCode::kCaptureBegin);
  begin_scope();
  return true;
}

CORBEL_INLINE bool Compiler::begin_filter() {
  if (open(BlockKind::kFilter) == nullptr) return false;
  const std::size_t begin = program_.ops.size();
  do {
    if (!filter()) return false;
  } while (accept_operator("|"));
  emit(OpCode::kPrint);
  blocks_.back().tail = cut(begin);
  emit(OpCode::kCaptureBegin);
  begin_scope();
  return true;
}

// The captured text goes through the code that was kept for it.
CORBEL_INLINE bool Compiler::end_simple() {
  end_scope();
  emit(OpCode::kCaptureEnd);
  append(blocks_.back().tail);
  blocks_.pop_back();
  return true;
}

CORBEL_INLINE bool Compiler::begin_with() {
  if (open(BlockKind::kWith) == nullptr) return false;
  std::vector<Code> assignments;
  while (good() && peek().type != TokenType::kBlockEnd) {
    if (!assignments.empty() && !expect_operator(",")) return false;
    const std::size_t begin = program_.ops.size();
    if (!target(false, false)) return false;
    assignments.push_back(cut(begin));
    if (!expect_operator("=") || !expression()) return false;
  }
  begin_scope();
  for (std::size_t i = assignments.size(); i-- > 0;) append(assignments[i]);
  return good();
}

// --- macro, call

// (a, b=default): emits the code of the defaults, which run in the macro.
CORBEL_INLINE bool Compiler::parameters(Macro& macro) {
  if (!expect_operator("(")) return false;
  while (!at_operator(")")) {
    if (!macro.parameters.empty() && !expect_operator(",")) return false;
    if (at_operator(")")) break;
    const std::string_view name = take_name();
    if (!good()) return false;
    Macro::Parameter parameter{name_id(name), false};
    if (accept_operator("=")) {
      parameter.has_default = true;
      const std::size_t bound = emit(OpCode::kJumpIfBound, 0, parameter.name);
      if (!expression()) return false;
      emit(OpCode::kStore, parameter.name);
      land(bound);
    } else if (!macro.parameters.empty() && macro.parameters.back().has_default) {
      return fail("a parameter without default follows one with a default");
    }
    macro.parameters.push_back(parameter);
  }
  ++at_;
  return true;
}

CORBEL_INLINE bool Compiler::begin_macro() {
  const std::string_view name = take_name();
  if (!good() || open(BlockKind::kMacro) == nullptr) return false;
  blocks_.back().pending = emit(OpCode::kJump);
  blocks_.back().index = static_cast<std::uint32_t>(program_.macros.size());
  Macro& macro = program_.macros.emplace_back();
  macro.name = name_id(name);
  macro.entry = static_cast<std::uint32_t>(program_.ops.size());
  return parameters(macro);
}

CORBEL_INLINE bool Compiler::end_macro() {
  if (!close(BlockKind::kMacro)) return false;
  const Block& block = blocks_.back();
  emit(OpCode::kReturn);
  land(block.pending);
  emit(OpCode::kMakeMacro, block.index);
  emit(OpCode::kStore, program_.macros[block.index].name);
  blocks_.pop_back();
  return true;
}

// {% call(parameters) function(arguments) %}: the call waits on the stack until its body, a macro given as `caller`,
// has been passed.
CORBEL_INLINE bool Compiler::begin_call() {
  if (open(BlockKind::kCall) == nullptr) return false;
  Macro macro;
  macro.name = name_id("caller");
  const std::size_t begin = program_.ops.size();
  if (at_operator("(") && !parameters(macro)) return false;
  const Code defaults = cut(begin);
  // Loads in the expression belong to what is around the block.
  Block block = std::move(blocks_.back());
  blocks_.pop_back();
  if (peek().type != TokenType::kName || !primary() || !postfix()) return fail("expected a call");
  if (program_.ops.back().code != OpCode::kCall) return fail("expected a call");
  block.shape = program_.shapes[program_.ops.back().b];
  if (block.shape.spread_list || block.shape.spread_dict) {
    return fail(Errc::kUnsupported, "{% call %} with * or ** arguments is not supported", block.offset);
  }
  program_.ops.pop_back();
  block.shape.keywords.push_back(macro.name);
  block.pending = emit(OpCode::kJump);
  block.index = static_cast<std::uint32_t>(program_.macros.size());
  macro.entry = static_cast<std::uint32_t>(program_.ops.size());
  program_.macros.push_back(std::move(macro));
  append(defaults);
  blocks_.push_back(std::move(block));
  return true;
}

CORBEL_INLINE bool Compiler::end_call() {
  if (!close(BlockKind::kCall)) return false;
  Block& block = blocks_.back();
  emit(OpCode::kReturn);
  land(block.pending);
  emit(OpCode::kMakeMacro, block.index);
  emit(OpCode::kCall, 0, shape_id(std::move(block.shape)));
  emit(OpCode::kPrint);
  blocks_.pop_back();
  return true;
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
