// Template source to a Program. Expressions are read by precedence climbing and emit code as they go; blocks are kept
// on a list, not on the call stack.
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/text/jinja/lexer.hpp>
#include <corbel/text/jinja/program.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

/// Compiles a template. kTemplateError with line and column, kUnsupported for inclusion and inheritance, kDepthExceeded
/// where blocks or expressions nest deeper than `depth`.
Result<Program> compile_program(std::string_view source, std::uint32_t depth);

class Compiler {
 public:
  Compiler(Program& program, const std::vector<Token>& tokens, std::uint32_t depth)
      : program_(program), tokens_(tokens), max_depth_(depth) {}
  Status run();

 private:
  using Code = std::vector<Op>;
  enum class BlockKind : std::uint8_t { kIf, kFor, kMacro, kCall, kFilter, kSet, kWith, kGeneration };
  /// An open {% block %}. Jumps are positions of instructions whose target is still to be set.
  struct Block {
    BlockKind kind = BlockKind::kIf;
    std::uint32_t offset = 0;
    bool in_else = false;
    std::size_t pending = 0;  // if: the jump to the next branch; macro and call: the jump over the body; for: kLoopNext
    std::vector<std::size_t> to_end;   // if: jumps behind the block; for: of {% break %}
    std::vector<std::size_t> to_next;  // for: jumps of {% continue %}
    std::size_t entry = 0;             // for: kLoopBegin
    std::size_t scopes = 0;            // open scopes inside which the block stands
    bool recursive = false;
    Code tail;                // code that belongs behind the body: filters and assignments
    std::uint32_t index = 0;  // macro: its number; call: of its body
    CallShape shape;          // call: of the call that the body completes
  };
  static constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

  // --- tokens
  const Token& peek(std::size_t ahead = 0) const noexcept;
  bool at_operator(std::string_view text) const noexcept { return is_operator(peek(), text); }
  bool at_name(std::string_view text) const noexcept;
  static bool is_operator(const Token& token, std::string_view text) noexcept;
  bool accept_operator(std::string_view text) noexcept;
  bool accept_name(std::string_view text) noexcept;
  bool expect_operator(std::string_view text);
  bool expect_name(std::string_view text);
  bool expect(TokenType type, std::string_view what);
  std::string_view take_name();
  bool fail(std::string_view message) { return fail(Errc::kTemplateError, message, peek().offset); }
  bool fail(Errc code, std::string_view message, std::uint32_t offset);
  bool unexpected(std::string_view wanted);
  bool good() const noexcept { return status_.ok(); }

  // --- emission
  std::size_t emit(OpCode code, std::uint32_t a = 0, std::uint32_t b = 0);
  std::size_t emit_at(std::uint32_t offset, OpCode code, std::uint32_t a = 0, std::uint32_t b = 0);
  std::uint32_t constant(Value value);
  std::uint32_t name_id(std::string_view name);
  std::uint32_t shape_id(CallShape&& shape);
  void load(std::string_view name);
  /// Makes the jump at `from` go to the next instruction to be emitted.
  void land(std::size_t from);
  void jump_back(OpCode code, std::size_t to);
  Code cut(std::size_t from);
  void append(const Code& code);
  void begin_scope();
  void end_scope();
  void unwind_scopes(std::size_t to);

  // --- expressions (compiler_expressions.ipp); they return false after an error
  bool expression();
  bool conditions(std::size_t begin);
  bool otherwise();
  bool too_deep();
  bool tuple(bool conditional, bool parenthesized = false);
  bool at_tuple_end() const noexcept;
  bool binary(int level);
  bool operators(int level);
  bool comparison_rest();
  bool operand(bool with_filters);
  bool signed_operand();
  bool primary();
  bool parenthesis();
  bool literal();
  bool name_or_literal();
  bool string_literal();
  bool number_literal();
  bool list_literal();
  bool dict_literal();
  bool postfix();
  bool call();
  bool member();
  bool subscript();
  bool subscript_item(bool& slice);
  bool slice_part();
  bool filters_and_tests();
  bool filter();
  bool test();
  bool test_argument(CallShape& shape);
  bool bare_argument();
  bool emit_named(std::uint32_t offset, OpCode code, std::string_view name, CallShape&& shape);
  bool arguments(CallShape& shape);
  bool begin_argument(CallShape& shape);
  bool dotted_name(std::string_view& name);
  bool target(bool with_tuple, bool with_member);
  bool target_name(bool with_member);
  void unpack_into(std::size_t begin, std::uint32_t count);
  bool unescape(std::string_view quoted, std::string& out);

  // --- statements (compiler_statements.ipp)
  bool statement();
  bool begin_if();
  bool begin_elif();
  bool begin_else();
  bool end_if();
  bool begin_for();
  bool end_for();
  void end_for_items(Block& block);
  bool jump_out(bool next);
  bool begin_set();
  bool end_set();
  bool begin_macro();
  bool end_macro();
  bool parameters(Macro& macro);
  bool begin_call();
  bool end_call();
  bool begin_filter();
  bool begin_with();
  bool end_simple();
  bool end_tag(std::string_view tag);
  Block* open(BlockKind kind);
  bool close(BlockKind kind);

  Program& program_;
  const std::vector<Token>& tokens_;
  std::uint32_t max_depth_;
  std::size_t at_ = 0;
  std::uint32_t depth_ = 0;
  std::size_t scopes_ = 0;
  std::vector<Block> blocks_;
  std::unordered_map<std::string_view, std::uint32_t> names_;  // keys point into the source
  Status status_;
};

}  // namespace text::jinja
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/jinja/compiler.ipp>
#include <corbel/impl/text/jinja/compiler_expressions.ipp>
#include <corbel/impl/text/jinja/compiler_literals.ipp>
#include <corbel/impl/text/jinja/compiler_statements.ipp>
#endif
