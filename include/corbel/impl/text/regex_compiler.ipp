// Definitions of Regex in text/regex.hpp: the tree of a pattern to a program.
#pragma once

#include <corbel/impl/text/regex_parser.ipp>
#include <corbel/text/regex.hpp>

#include <fmt/format.h>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

class RegexCompiler : private RegexParser {
 public:
  explicit RegexCompiler(std::string_view pattern) : RegexParser(pattern) {}

  Result<Regex> compile() {
    const std::uint32_t root = parse();
    if (!status_.ok()) return status_;
    emit(root);
    push({});
    if (!status_.ok()) return status_;
    find_first();
    return std::move(regex_);
  }

 private:
  std::uint32_t push(Regex::Instruction instruction) {
    if (regex_.program_.size() >= Regex::kMaxInstructions) {
      fail(Errc::kLimitExceeded, fmt::format("more than {} instructions", Regex::kMaxInstructions));
      return 0;
    }
    if (instruction.op == Op::kSplit || instruction.op == Op::kRun) {
      instruction.column = regex_.columns_;
      instruction.loop = loop_;
      regex_.columns_ += 1 + loop_depth_;
      if (regex_.columns_ > Regex::kMaxColumns) {
        fail(Errc::kLimitExceeded, fmt::format("more than {} choices in loops", Regex::kMaxColumns));
        return 0;
      }
    }
    regex_.program_.push_back(instruction);
    return static_cast<std::uint32_t>(regex_.program_.size() - 1);
  }
  std::uint32_t here() const { return static_cast<std::uint32_t>(regex_.program_.size()); }
  std::uint32_t push_split() {
    Regex::Instruction split;
    split.op = Op::kSplit;
    return push(split);
  }
  // Where a split goes; the lazy one prefers to leave.
  void aim(std::uint32_t at, std::uint32_t stay, std::uint32_t leave, bool lazy) {
    regex_.program_[at].x = lazy ? leave : stay;
    regex_.program_[at].y = lazy ? stay : leave;
  }
  void push_jump(std::uint32_t to) {
    Regex::Instruction jump;
    jump.op = Op::kJump;
    jump.x = to;
    push(jump);
  }

  // Calls itself as deep as the tree is: groups and quantifiers in a row, both bounded.
  void emit(std::uint32_t index) {
    if (!status_.ok()) return;
    const Node& node = nodes_[index];
    Regex::Instruction instruction;
    switch (node.kind) {
      case Kind::kEmpty:
        return;
      case Kind::kSet:
        instruction.op = Op::kSet;
        instruction.x = node.set;
        push(instruction);
        return;
      case Kind::kSequence:
        for (const std::uint32_t child : node.children) emit(child);
        return;
      case Kind::kAlternatives: {
        std::vector<std::uint32_t> jumps;
        for (std::size_t i = 0; i < node.children.size(); ++i) {
          if (i + 1 == node.children.size()) {
            emit(node.children[i]);
            break;
          }
          const std::uint32_t split = push_split();
          emit(node.children[i]);
          jumps.push_back(here());
          push_jump(0);
          if (!status_.ok()) return;
          aim(split, split + 1, here(), false);
        }
        if (!status_.ok()) return;
        for (const std::uint32_t jump : jumps) regex_.program_[jump].x = here();
        return;
      }
      case Kind::kRepeat:
        repeat(node);
        return;
      case Kind::kLook:
      case Kind::kAtomic: {
        instruction.op = node.kind == Kind::kLook ? Op::kLook : Op::kAtomic;
        instruction.negative = node.negative;
        instruction.behind = node.behind;
        instruction.least = node.least;
        instruction.most = node.most;
        const std::uint32_t at = push(instruction);
        emit(node.child);
        push({});
        if (status_.ok()) regex_.program_[at].x = here();
        return;
      }
      case Kind::kAssert:
        instruction.op = Op::kAssert;
        instruction.assertion = node.assertion;
        push(instruction);
        return;
    }
  }

  // Around a round that can take nothing.
  Regex::Instruction enter_loop() {
    Regex::Instruction enter;
    enter.op = Op::kEnter;
    enter.x = static_cast<std::uint32_t>(regex_.outer_.size());
    push(enter);
    regex_.outer_.push_back(loop_);
    loop_ = enter.x;
    ++loop_depth_;
    return enter;
  }
  void leave_loop() {
    loop_ = regex_.outer_[loop_];
    --loop_depth_;
  }

  void repeat(const Node& node) {
    if (node.most == 0) return;
    if (nodes_[node.child].kind == Kind::kSet) {
      Regex::Instruction run;
      run.op = Op::kRun;
      run.mode = node.mode;
      run.x = nodes_[node.child].set;
      run.least = node.least;
      run.most = node.most;
      if (node.most == Regex::kForever) {
        for (; run.least > 0; --run.least) emit(node.child);
      }
      push(run);
      return;
    }
    std::uint32_t atomic = 0;
    if (node.mode == Mode::kPossessive) {
      Regex::Instruction instruction;
      instruction.op = Op::kAtomic;
      atomic = push(instruction);
    }
    const bool lazy = node.mode == Mode::kLazy;
    const bool can_be_empty = width_of(node.child).least == 0;
    std::vector<std::uint32_t> splits;
    std::vector<std::uint32_t> leaves;  // jumps of rounds that took nothing
    // A round that takes nothing ends the repeat, be it one that must be; not that of '+', which is one before a loop.
    const auto round = [&](bool counts) {
      if (!counts || !can_be_empty) return emit(node.child);
      Regex::Instruction again = enter_loop();
      emit(node.child);
      leave_loop();
      again.op = Op::kAgain;
      again.y = here() + 2;
      push(again);
      leaves.push_back(here());
      push_jump(0);
    };
    if (node.most == Regex::kForever) {
      for (std::uint32_t i = 0; i < node.least && status_.ok(); ++i) round(node.least > 1);
      const std::uint32_t split = push_split();
      splits.push_back(split);
      if (can_be_empty) {
        Regex::Instruction again = enter_loop();
        emit(node.child);
        leave_loop();
        again.op = Op::kAgain;
        again.y = split;
        push(again);
      } else {
        emit(node.child);
        push_jump(split);
      }
    } else {
      for (std::uint32_t i = 0; i < node.most && status_.ok(); ++i) {
        if (i >= node.least) splits.push_back(push_split());
        round(i + 1 < node.most);
      }
    }
    if (!status_.ok()) return;
    for (const std::uint32_t split : splits) aim(split, split + 1, here(), lazy);
    for (const std::uint32_t leave : leaves) regex_.program_[leave].x = here();
    if (node.mode == Mode::kPossessive && status_.ok()) {
      push({});
      if (status_.ok()) regex_.program_[atomic].x = here();
    }
  }

  // What of ASCII a match can begin with, where every match begins with a character.
  void find_first() {
    std::vector<bool> seen(regex_.program_.size());
    std::vector<std::uint32_t> todo = {0};
    while (!todo.empty()) {
      const std::uint32_t pc = todo.back();
      todo.pop_back();
      if (seen[pc]) continue;
      seen[pc] = true;
      const Regex::Instruction& instruction = regex_.program_[pc];
      switch (instruction.op) {
        case Op::kSet:
        case Op::kRun:
          for (int i = 0; i < 2; ++i) regex_.first_ascii_[i] |= regex_.sets_[instruction.x].ascii[i];
          if (instruction.op == Op::kRun && instruction.least == 0) todo.push_back(pc + 1);
          break;
        case Op::kSplit:
          todo.push_back(instruction.x);
          todo.push_back(instruction.y);
          break;
        case Op::kJump:
        case Op::kLook:
          todo.push_back(instruction.x);
          break;
        case Op::kAgain:
          todo.push_back(instruction.y);
          todo.push_back(pc + 1);
          break;
        case Op::kAssert:
        case Op::kAtomic:
        case Op::kEnter:
          todo.push_back(pc + 1);
          break;
        case Op::kEnd:
          return;  // may be empty (or an atomic body is)
      }
    }
    regex_.any_first_ = false;
  }

  std::uint32_t loop_ = Regex::kNoLoop;  // the innermost around what is emitted whose body can be empty
  std::uint32_t loop_depth_ = 0;
};

CORBEL_INLINE Result<Regex> Regex::compile(std::string_view pattern) { return RegexCompiler(pattern).compile(); }

CORBEL_INLINE std::uint64_t Regex::memory_bytes() const noexcept {
  std::uint64_t bytes = sizeof(*this) + program_.capacity() * sizeof(Instruction);
  for (const CodePointSet& set : sets_) bytes += sizeof(set) + set.ranges.capacity() * sizeof(CodePointSet::Range);
  bytes += outer_.capacity() * sizeof(std::uint32_t);
  return bytes;
}

}  // namespace text
CORBEL_NAMESPACE_END
