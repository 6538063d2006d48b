// Definitions of text/jinja/machine.hpp: the instructions for values and output.
#pragma once

#include <corbel/text/jinja/lexer.hpp>
#include <corbel/text/jinja/machine.hpp>
#include <corbel/text/jinja/operators.hpp>
#include <corbel/text/jinja/print.hpp>

#include <string>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

CORBEL_INLINE Machine::Machine(const Program& program, Runtime& runtime, std::uint64_t output_bytes,
                               std::uint32_t depth)
    : program_(program),
      runtime_(runtime),
      output_bytes_(output_bytes),
      depth_(depth),
      globals_(program.names.size()),
      scopes_(1),
      outputs_(1),
      loop_name_(program.find_name("loop")),
      caller_name_(program.find_name("caller")),
      varargs_name_(program.find_name("varargs")),
      kwargs_name_(program.find_name("kwargs")) {
  for (std::uint32_t i = 0; i < function_count(); ++i) define(function_at(i).name, Value::function(i));
}

CORBEL_INLINE Machine::~Machine() {
  for (const Value& space : namespaces_) {
    Dict& dict = space.as_namespace();
    dict.slots.clear();
    dict.entries.clear();
  }
  for (const Value& loop : loops_) loop.as_loop().previous.clear();
}

CORBEL_INLINE void Machine::define(std::string_view name, Value value) {
  const std::int64_t number = program_.find_name(name);
  if (number >= 0) globals_[static_cast<std::size_t>(number)] = std::move(value);
}

CORBEL_INLINE bool Machine::run() {
  while (at_ < program_.ops.size()) {
    const Op& op = program_.ops[at_];
    next_ = at_ + 1;
    if (!runtime_.charge(1) || !step(op)) {
      runtime_.place(describe_place(program_.source, op.offset));
      return false;
    }
    at_ = next_;
  }
  return true;
}

CORBEL_INLINE Value Machine::pop() {
  Value value = std::move(stack_.back());
  stack_.pop_back();
  return value;
}

CORBEL_INLINE bool Machine::step(const Op& op) {
  if (op.code >= OpCode::kLoopBegin && op.code <= OpCode::kLoopReturn) return step_loops(op);
  if (op.code >= OpCode::kAdd && op.code <= OpCode::kNotIn) {
    const Value y = pop();
    const Value x = pop();
    Value out;
    if (op.code <= OpCode::kPower) {
      if (!arithmetic(runtime_, op.code, x, y, out)) return false;
    } else {
      bool holds = false;
      if (!compare(runtime_, op.code, x, y, holds)) return false;
      out = Value::boolean(holds);
    }
    push(std::move(out));
    return true;
  }
  switch (op.code) {
    case OpCode::kText:
      return print_text(op);
    case OpCode::kConstant:
      push(program_.constants[op.a]);
      return true;
    case OpCode::kLoad:
      push(load(op.a));
      return true;
    case OpCode::kStore:
      store(op.a, pop());
      return true;
    case OpCode::kPrint:
      return print(pop());
    default:
      return op.code <= OpCode::kConcat ? step_values(op) : step_flow(op);
  }
}

CORBEL_INLINE bool Machine::step_values(const Op& op) {
  switch (op.code) {
    case OpCode::kStoreMember:
      return store_member(op);
    case OpCode::kAttribute:
      return attribute(op);
    case OpCode::kItem: {
      const Value key = pop();
      const Value value = pop();
      Value out;
      if (!get_item(runtime_, value, key, out)) return false;
      push(std::move(out));
      return true;
    }
    case OpCode::kSlice: {
      const Value step_by = pop();
      const Value stop = pop();
      const Value start = pop();
      const Value value = pop();
      Value out;
      if (!get_slice(runtime_, value, start, stop, step_by, out)) return false;
      push(std::move(out));
      return true;
    }
    case OpCode::kList:
      return collect(Kind::kList, op.a);
    case OpCode::kTuple:
      return collect(Kind::kTuple, op.a);
    case OpCode::kDict:
      return collect_dict(op.a);
    case OpCode::kNot:
      push(Value::boolean(!pop().truth()));
      return true;
    case OpCode::kNegate:
    case OpCode::kPlus: {
      const Value value = pop();
      Value out;
      if (!unary(runtime_, op.code, value, out)) return false;
      push(std::move(out));
      return true;
    }
    case OpCode::kChain:
      return chain(op);
    default:
      return concat(op.a);
  }
}

CORBEL_INLINE bool Machine::step_flow(const Op& op) {
  switch (op.code) {
    case OpCode::kJump:
      jump(op);
      return true;
    case OpCode::kJumpIfFalse:
      if (!pop().truth()) jump(op);
      return true;
    case OpCode::kJumpFalseKeep:
    case OpCode::kJumpTrueKeep:
      if (stack_.back().truth() == (op.code == OpCode::kJumpTrueKeep)) {
        jump(op);
      } else {
        stack_.pop_back();
      }
      return true;
    case OpCode::kFilter:
    case OpCode::kTest: {
      Arguments arguments;
      if (!pop_arguments(program_.shapes[op.b], arguments)) return false;
      const Value value = pop();
      Value out;
      const NamedBuiltin& builtin = op.code == OpCode::kFilter ? filter_at(op.a) : test_at(op.a);
      if (!builtin.call(runtime_, value, arguments, out)) return false;
      push(std::move(out));
      return true;
    }
    case OpCode::kCall:
      return call(op);
    case OpCode::kScopeBegin:
      return enter_scope(scope_);
    case OpCode::kScopeEnd:
      leave_scope();
      return true;
    case OpCode::kUnpack:
      return unpack(op.a);
    case OpCode::kMakeMacro:
      for (std::uint32_t scope = scope_; scope != 0 && !scopes_[scope].captured; scope = scopes_[scope].parent) {
        scopes_[scope].captured = true;
      }
      push(Value::macro(op.a, scope_));
      return true;
    case OpCode::kJumpIfBound:
      if (find_local(scopes_[scope_], op.b) != nullptr) jump(op);
      return true;
    case OpCode::kReturn:
      leave_scope();
      return end_call();
    case OpCode::kCaptureBegin:
      outputs_.emplace_back();
      return true;
    case OpCode::kCaptureEnd: {
      push(outputs_.back().take());
      outputs_.pop_back();
      return true;
    }
    default:
      return runtime_.fail(program_.constants[op.a].as_view());
  }
}

// --- output

CORBEL_INLINE bool Machine::check_output() {
  if (outputs_.back().size() <= output_bytes_) return true;
  return runtime_.fail(Errc::kTemplateBudget,
                       "the template writes more than " + std::to_string(output_bytes_) + " bytes");
}

CORBEL_INLINE bool Machine::print(const Value& value) {
  return append_str(runtime_, value, outputs_.back()) && check_output();
}

CORBEL_INLINE bool Machine::print_text(const Op& op) {
  if (!runtime_.charge_bytes(op.b)) return false;
  outputs_.back().append(std::string_view(program_.source).substr(op.a, op.b), false);
  return check_output();
}

// --- values

CORBEL_INLINE bool Machine::concat(std::uint32_t count) {
  TextBuilder builder;
  for (std::size_t i = stack_.size() - count; i < stack_.size(); ++i) {
    if (!append_str(runtime_, stack_[i], builder)) return false;
  }
  stack_.resize(stack_.size() - count);
  push(builder.take());
  return true;
}

CORBEL_INLINE bool Machine::collect(Kind kind, std::uint32_t count) {
  const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
  std::vector<Value> items(std::make_move_iterator(first), std::make_move_iterator(stack_.end()));
  stack_.resize(stack_.size() - count);
  Value out;
  if (!make_sequence(runtime_, kind, std::move(items), out)) return false;
  push(std::move(out));
  return true;
}

CORBEL_INLINE bool Machine::collect_dict(std::uint32_t pairs) {
  DictBuilder builder;
  const std::size_t first = stack_.size() - std::size_t{pairs} * 2;
  for (std::size_t i = first; i < stack_.size(); i += 2) {
    if (!builder.set(runtime_, stack_[i], std::move(stack_[i + 1]))) return false;
  }
  stack_.resize(first);
  push(builder.take());
  return true;
}

CORBEL_INLINE bool Machine::chain(const Op& op) {
  Value y = pop();
  const Value x = pop();
  bool holds = false;
  if (!compare(runtime_, static_cast<OpCode>(op.b), x, y, holds)) return false;
  push(holds ? std::move(y) : Value::boolean(false));
  if (!holds) jump(op);
  return true;
}

CORBEL_INLINE bool Machine::attribute(const Op& op) {
  const Value value = pop();
  const std::string_view name = program_.name(op.a);
  Value out;
  if (value.is(Kind::kMacro) && name == "name") {
    out = program_.names[program_.macros[value.index()].name];
  } else if (value.is(Kind::kMacro) && name == "arguments") {
    std::vector<Value> names;
    for (const Macro::Parameter& parameter : program_.macros[value.index()].parameters) {
      names.push_back(program_.names[parameter.name]);
    }
    if (!make_sequence(runtime_, Kind::kTuple, std::move(names), out)) return false;
  } else if (!get_attribute(runtime_, value, name, out)) {
    return false;
  }
  push(std::move(out));
  return true;
}

CORBEL_INLINE bool Machine::unpack(std::uint32_t count) {
  const Value value = pop();
  std::vector<Value> items;
  if (!iterate(runtime_, value, items)) return false;
  if (items.size() != count) {
    return runtime_.fail("expected " + std::to_string(count) + " values to unpack, found " +
                         std::to_string(items.size()));
  }
  for (std::size_t i = items.size(); i-- > 0;) push(std::move(items[i]));
  return true;
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
