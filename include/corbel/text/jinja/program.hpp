// A compiled template: instructions for a stack machine. Immutable once made, shared by all threads.
#pragma once

#include <corbel/config.hpp>
#include <corbel/text/jinja/value.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

/// What an instruction does: `a` and `b` are its operands; the comment shows the top of the stack before -> after.
/// Jumps are relative to the instruction itself, so that code can be moved as a block.
enum class OpCode : std::uint8_t {
  kText,         ///< writes source[a, a + b)
  kConstant,     ///< -> constants[a]
  kLoad,         ///< -> the variable names[a]
  kStore,        ///< v ->                 names[a] = v in the innermost scope
  kStoreMember,  ///< v ->                 names[a].names[b] = v (a namespace)
  kPrint,        ///< v ->
  kAttribute,    ///< v -> v.names[a]
  kItem,         ///< v i -> v[i]
  kSlice,        ///< v start stop step -> v[start:stop:step]
  kList,         ///< a items -> list
  kTuple,        ///< a items -> tuple
  kDict,         ///< a pairs of key and value -> dict
  kNot,          ///< v -> bool
  kNegate,       ///< v -> -v
  kPlus,         ///< v -> +v
  kAdd,          ///< x y -> x + y; and so on
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
  kChain,   ///< x y -> y where the comparison b of them holds, else -> false and jumps by a: the middle of x < y < z
  kConcat,  ///< a values -> their texts joined
  kJump,    ///< by a
  kJumpIfFalse,    ///< v ->                 by a
  kJumpFalseKeep,  ///< v -> v and jumps by a where v is false, else v ->
  kJumpTrueKeep,   ///< v -> v and jumps by a where v is true, else v ->
  kFilter,         ///< v arguments -> filter a with shape b
  kTest,           ///< v arguments -> test a with shape b
  kCall,           ///< f arguments -> f(arguments) with shape b
  kScopeBegin,
  kScopeEnd,
  kUnpack,        ///< v -> its a items, the first on top
  kLoopBegin,     ///< v ->                 starts a loop over v; b: the loop is recursive
  kFilterNext,    ///< -> the next item to judge, in a new scope; jumps by a after the last
  kFilterKeep,    ///< v ->                 keeps the item if v; ends the scope
  kLoopNext,      ///< -> the next item, in a new scope with `loop`; jumps by a after the last
  kLoopEnd,       ///< ends a loop; jumps by a (over the else part) if it had items
  kLoopReturn,    ///< returns from loop(...), if that is how the loop was entered; a: distance back to the entry
  kMakeMacro,     ///< -> the macro macros[a]
  kJumpIfBound,   ///< by a if the parameter names[b] was given
  kReturn,        ///< ends a macro
  kCaptureBegin,  ///< output goes to a new buffer
  kCaptureEnd,    ///< -> the text of that buffer
  kFail,          ///< fails with constants[a]: what would be an error at compile time outside of branches
};

struct Op {
  OpCode code = OpCode::kText;
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t offset = 0;  ///< in the source, for messages
};

/// How arguments lie on the stack: positional ones, values of keywords, then *args and **kwargs.
struct CallShape {
  std::uint32_t positional = 0;
  std::vector<std::uint32_t> keywords;  ///< names
  bool spread_list = false;
  bool spread_dict = false;
};

struct Macro {
  struct Parameter {
    std::uint32_t name = 0;
    bool has_default = false;
  };
  std::uint32_t name = 0;
  std::vector<Parameter> parameters;
  std::uint32_t entry = 0;  ///< first instruction
  bool takes_varargs = false;
  bool takes_kwargs = false;
  bool takes_caller = false;
};

struct Program {
  std::string source;  ///< with normalized newlines
  std::vector<Op> ops;
  std::vector<Value> constants;
  std::vector<Value> names;  ///< strings
  std::vector<CallShape> shapes;
  std::vector<Macro> macros;

  std::vector<std::uint32_t> sorted_names;  ///< numbers of names, by their text

  std::string_view name(std::uint32_t index) const noexcept { return names[index].as_view(); }
  /// The number of a name, or -1 where the template never mentions it.
  std::int64_t find_name(std::string_view text) const noexcept {
    const auto found = std::partition_point(sorted_names.begin(), sorted_names.end(),
                                            [&](std::uint32_t index) { return name(index) < text; });
    return found != sorted_names.end() && name(*found) == text ? std::int64_t{*found} : -1;
  }
};

}  // namespace text::jinja
CORBEL_NAMESPACE_END
