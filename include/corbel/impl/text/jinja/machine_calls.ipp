// Definitions of text/jinja/machine.hpp: variables, calls and loops.
#pragma once

#include <corbel/text/jinja/machine.hpp>
#include <corbel/text/jinja/operators.hpp>

#include <string>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

// --- variables

CORBEL_INLINE const Value* Machine::find_local(const Scope& scope, std::uint32_t name) const noexcept {
  for (const auto& entry : scope.names) {
    if (entry.first == name) return &entry.second;
  }
  return nullptr;
}

CORBEL_INLINE Value Machine::load(std::uint32_t name) {
  for (std::uint32_t scope = scope_; scope != 0; scope = scopes_[scope].parent) {
    if (const Value* found = find_local(scopes_[scope], name)) return *found;
    (void)runtime_.charge(scopes_[scope].names.size() / 8);  // the next step reports it
  }
  const Value& global = globals_[name];
  if (!global.is_undefined()) return global;
  return Value::undefined("'" + std::string(program_.name(name)) + "' is undefined");
}

CORBEL_INLINE void Machine::store(std::uint32_t name, Value value) {
  if (scope_ == 0) {
    globals_[name] = std::move(value);
    return;
  }
  for (auto& entry : scopes_[scope_].names) {
    if (entry.first != name) continue;
    entry.second = std::move(value);
    return;
  }
  scopes_[scope_].names.emplace_back(name, std::move(value));
}

CORBEL_INLINE bool Machine::store_member(const Op& op) {
  Value value = pop();
  const Value space = load(op.a);
  if (!space.is(Kind::kNamespace)) return runtime_.fail("cannot assign attribute on non-namespace object");
  if (program_.name(op.b).substr(0, 1) == "_") return runtime_.fail("names in a namespace do not begin with '_'");
  return dict_set(runtime_, space.as_namespace(), program_.names[op.b], std::move(value));
}

CORBEL_INLINE bool Machine::enter_scope(std::uint32_t parent) {
  if (!runtime_.charge(8)) return false;
  scopes_.emplace_back().parent = parent;
  scope_ = static_cast<std::uint32_t>(scopes_.size() - 1);
  return true;
}

CORBEL_INLINE void Machine::leave_scope() {
  const std::uint32_t left = scope_;
  scope_ = scopes_[left].parent;
  if (left + 1 == scopes_.size() && !scopes_[left].captured) scopes_.pop_back();
}

// --- calls

CORBEL_INLINE bool Machine::pop_arguments(const CallShape& shape, Arguments& out) {
  const std::size_t spread = (shape.spread_list ? 1u : 0u) + (shape.spread_dict ? 1u : 0u);
  const std::size_t count = shape.positional + shape.keywords.size() + spread;
  std::size_t at = stack_.size() - count;
  for (std::uint32_t i = 0; i < shape.positional; ++i) out.positional.push_back(std::move(stack_[at++]));
  for (const std::uint32_t name : shape.keywords)
    out.keywords.emplace_back(program_.names[name], std::move(stack_[at++]));
  if (shape.spread_list) {
    std::vector<Value> items;
    if (!iterate(runtime_, stack_[at++], items)) return false;
    out.positional.insert(out.positional.end(), items.begin(), items.end());
  }
  if (shape.spread_dict) {
    const Value& members = stack_[at];
    if (!members.is(Kind::kDict)) return runtime_.fail("what follows ** must be a mapping");
    for (const auto& [key, value] : members.as_dict().entries) {
      if (!key.is_string() || !runtime_.charge(2)) return runtime_.fail("keywords must be strings");
      out.keywords.emplace_back(key, value);
    }
  }
  stack_.resize(stack_.size() - count);
  return true;
}

CORBEL_INLINE bool Machine::call(const Op& op) {
  Arguments arguments;
  if (!pop_arguments(program_.shapes[op.b], arguments)) return false;
  const Value callee = pop();
  Value out;
  switch (callee.kind()) {
    case Kind::kUndefined:
      return fail_undefined(runtime_, callee);
    case Kind::kMacro:
      return call_macro(callee, arguments);
    case Kind::kLoop:
      return call_loop(callee, arguments);
    case Kind::kJoiner:
      return call_joiner(callee);
    case Kind::kFunction:
      if (!function_at(callee.index()).call(runtime_, Value(), arguments, out)) return false;
      if (out.is(Kind::kNamespace)) namespaces_.push_back(out);
      break;
    case Kind::kMethod: {
      const Method& method = callee.as_method();
      if (!method_at(method.index).call(runtime_, method.receiver, arguments, out)) return false;
      if (method.receiver.is_markup() && !markup_strings(runtime_, out)) return false;
      break;
    }
    default:
      return runtime_.fail(std::string("'") + callee.type_name() + "' object is not callable");
  }
  push(std::move(out));
  return true;
}

CORBEL_INLINE bool Machine::begin_call(std::uint32_t parent, std::size_t target, std::size_t entry) {
  if (calls_.size() >= depth_) {
    return runtime_.fail(Errc::kTemplateBudget,
                         "macros and loops call each other deeper than " + std::to_string(depth_));
  }
  if (!runtime_.charge(16)) return false;
  calls_.push_back({next_, scope_, entry});
  outputs_.emplace_back();
  scope_ = parent;
  next_ = target;
  return true;
}

CORBEL_INLINE bool Machine::end_call() {
  push(outputs_.back().take());
  outputs_.pop_back();
  next_ = calls_.back().return_to;
  scope_ = calls_.back().scope;
  calls_.pop_back();
  return true;
}

CORBEL_INLINE bool Machine::call_macro(const Value& macro, const Arguments& arguments) {
  const Macro& called = program_.macros[macro.index()];
  return begin_call(macro.scope(), called.entry, 0) && enter_scope(macro.scope()) && bind_arguments(called, arguments);
}

CORBEL_INLINE bool Machine::bind_arguments(const Macro& macro, const Arguments& arguments) {
  const auto where = [&] { return "macro '" + std::string(program_.name(macro.name)) + "' "; };
  std::vector<Value> extra;
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < macro.parameters.size()) {
      scopes_[scope_].names.emplace_back(macro.parameters[i].name, arguments.positional[i]);
    } else {
      extra.push_back(arguments.positional[i]);
    }
  }
  if (!extra.empty() && !macro.takes_varargs) {
    return runtime_.fail(where() + "takes not more than " + std::to_string(macro.parameters.size()) + " argument(s)");
  }
  DictBuilder keywords;
  Value caller = Value::undefined("no caller defined");
  for (const auto& [keyword, value] : arguments.keywords) {
    const Macro::Parameter* parameter = nullptr;
    for (const Macro::Parameter& candidate : macro.parameters) {
      if (program_.name(candidate.name) == keyword.as_view()) parameter = &candidate;
    }
    if (!runtime_.charge(1 + macro.parameters.size())) return false;
    if (parameter != nullptr) {
      if (find_local(scopes_[scope_], parameter->name) != nullptr) {
        return runtime_.fail(where() + "got two values for '" + std::string(keyword.as_view()) + "'");
      }
      scopes_[scope_].names.emplace_back(parameter->name, value);
    } else if (macro.takes_caller && keyword.as_view() == "caller") {
      caller = value;
    } else if (!macro.takes_kwargs) {
      return runtime_.fail(where() + "takes no keyword argument '" + std::string(keyword.as_view()) + "'");
    } else if (!keywords.set(runtime_, keyword, value)) {
      return false;
    }
  }
  for (const Macro::Parameter& parameter : macro.parameters) {
    if (parameter.has_default || find_local(scopes_[scope_], parameter.name) != nullptr) continue;
    store(parameter.name,
          Value::undefined("parameter '" + std::string(program_.name(parameter.name)) + "' was not provided"));
  }
  if (macro.takes_varargs) {
    Value varargs;
    if (!make_sequence(runtime_, Kind::kTuple, std::move(extra), varargs)) return false;
    store(static_cast<std::uint32_t>(varargs_name_), std::move(varargs));
  }
  if (macro.takes_kwargs) store(static_cast<std::uint32_t>(kwargs_name_), keywords.take());
  if (macro.takes_caller) store(static_cast<std::uint32_t>(caller_name_), std::move(caller));
  return true;
}

CORBEL_INLINE bool Machine::call_loop(const Value& loop, const Arguments& arguments) {
  const Loop& state = loop.as_loop();
  if (state.entry == 0 || !state.running)
    return runtime_.fail("only a running loop marked as 'recursive' can be called");
  if (arguments.positional.size() != 1 || !arguments.keywords.empty())
    return runtime_.fail("loop() takes one argument");
  if (!begin_call(state.outer, state.entry, state.entry)) return false;
  loop_level_ = state.level + 1;
  push(arguments.positional[0]);
  return true;
}

CORBEL_INLINE bool Machine::call_joiner(const Value& joiner) {
  Cycle& state = joiner.as_cycle();
  push(state.position == 0 ? Value::string("") : state.items[0]);
  state.position = 1;
  return true;
}

// --- loops

CORBEL_INLINE bool Machine::step_loops(const Op& op) {
  switch (op.code) {
    case OpCode::kLoopBegin:
      return begin_loop(op);
    case OpCode::kFilterNext:
      return next_to_filter(op);
    case OpCode::kFilterKeep:
      return keep_filtered();
    case OpCode::kLoopNext:
      return next_item(op);
    case OpCode::kLoopEnd:
      end_loop(op);
      return true;
    default:  // kLoopReturn
      return calls_.empty() || calls_.back().entry != static_cast<std::uint32_t>(at_ + op.a) || end_call();
  }
}

CORBEL_INLINE bool Machine::begin_loop(const Op& op) {
  const Value iterable = pop();
  Loop* loop = new Loop;
  loops_.push_back(Value::object(loop));
  loop->level = loop_level_;
  loop->entry = op.b != 0 ? static_cast<std::uint32_t>(at_) : 0;
  loop->outer = scope_;
  loop_level_ = 0;
  return runtime_.charge(16) && iterate(runtime_, iterable, loop->items);
}

CORBEL_INLINE bool Machine::next_to_filter(const Op& op) {
  Loop& loop = loops_.back().as_loop();
  if (loop.next_item == loop.items.size()) {
    loop.items = std::move(loop.kept);
    loop.kept.clear();
    loop.next_item = 0;
    jump(op);
    return true;
  }
  push(loop.items[loop.next_item++]);
  return enter_scope(scope_);
}

CORBEL_INLINE bool Machine::keep_filtered() {
  Loop& loop = loops_.back().as_loop();
  if (pop().truth()) loop.kept.push_back(loop.items[loop.next_item - 1]);
  leave_scope();
  return true;
}

CORBEL_INLINE bool Machine::next_item(const Op& op) {
  Loop& loop = loops_.back().as_loop();
  if (loop.next_item == loop.items.size()) {
    jump(op);
    return true;
  }
  push(loop.items[loop.next_item++]);
  if (!enter_scope(scope_)) return false;
  if (loop_name_ >= 0) store(static_cast<std::uint32_t>(loop_name_), loops_.back());
  return true;
}

CORBEL_INLINE void Machine::end_loop(const Op& op) {
  Loop& loop = loops_.back().as_loop();
  loop.running = false;
  loop.previous.clear();
  if (loop.next_item > 0) jump(op);
  loops_.pop_back();
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
