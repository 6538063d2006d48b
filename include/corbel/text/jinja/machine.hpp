// Runs a Program: a stack machine without recursion, so that what a template does never uses the call stack.
#pragma once

#include <corbel/config.hpp>
#include <corbel/text/jinja/builtins.hpp>
#include <corbel/text/jinja/program.hpp>
#include <corbel/text/jinja/runtime.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

/// One rendering; used once, by one thread. The program must outlive it.
class Machine {
 public:
  Machine(const Program& program, Runtime& runtime, std::uint64_t output_bytes, std::uint32_t depth);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Sets a variable; without effect where the template never mentions it.
  void define(std::string_view name, Value value);
  /// False after an error, which the runtime then holds with its place.
  bool run();
  /// What was written.
  const TextBuilder& output() const noexcept { return outputs_.front(); }

 private:
  struct Scope {
    std::uint32_t parent = 0;
    bool captured = false;  // a macro was defined inside: it stays until the end
    std::vector<std::pair<std::uint32_t, Value>> names;
  };
  struct Call {
    std::size_t return_to = 0;
    std::uint32_t scope = 0;  // of the caller
    std::size_t entry = 0;    // kLoopBegin of a recursive loop; 0 for a macro
  };

  bool step(const Op& op);
  bool step_values(const Op& op);
  bool step_flow(const Op& op);
  bool step_loops(const Op& op);

  void push(Value value) { stack_.push_back(std::move(value)); }
  Value pop();
  void jump(const Op& op) noexcept { next_ = static_cast<std::uint32_t>(at_ + op.a); }
  bool print(const Value& value);
  bool print_text(const Op& op);
  bool check_output();
  bool concat(std::uint32_t count);
  bool collect(Kind kind, std::uint32_t count);
  bool collect_dict(std::uint32_t pairs);
  bool chain(const Op& op);
  bool attribute(const Op& op);
  bool unpack(std::uint32_t count);

  Value load(std::uint32_t name);
  void store(std::uint32_t name, Value value);
  bool store_member(const Op& op);
  const Value* find_local(const Scope& scope, std::uint32_t name) const noexcept;
  bool enter_scope(std::uint32_t parent);
  void leave_scope();

  bool pop_arguments(const CallShape& shape, Arguments& out);
  bool call(const Op& op);
  bool call_macro(const Value& macro, const Arguments& arguments);
  bool bind_arguments(const Macro& macro, const Arguments& arguments);
  bool call_loop(const Value& loop, const Arguments& arguments);
  bool call_joiner(const Value& joiner);
  bool begin_call(std::uint32_t parent, std::size_t target, std::size_t entry);
  bool end_call();

  bool begin_loop(const Op& op);
  bool next_to_filter(const Op& op);
  bool keep_filtered();
  bool next_item(const Op& op);
  void end_loop(const Op& op);

  const Program& program_;
  Runtime& runtime_;
  std::uint64_t output_bytes_;
  std::uint32_t depth_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  std::vector<Value> stack_;
  std::vector<Value> globals_;  // by name
  std::vector<Scope> scopes_;   // the first stands for the globals
  std::uint32_t scope_ = 0;
  std::vector<Call> calls_;
  std::vector<Value> loops_;
  std::uint32_t loop_level_ = 0;      // of the next loop to begin
  std::vector<TextBuilder> outputs_;  // the innermost capture last
  std::vector<Value> namespaces_;     // all ever made: they may hold themselves, and are emptied at the end
  std::int64_t loop_name_;
  std::int64_t caller_name_;
  std::int64_t varargs_name_;
  std::int64_t kwargs_name_;
};

}  // namespace text::jinja
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/jinja/machine.ipp>
#include <corbel/impl/text/jinja/machine_calls.ipp>
#endif
