// A small regular expression engine for untrusted patterns of tokenizer.json: the syntax of Oniguruma as far as
// tokenizers use it, Unicode 16, the leftmost match with the first alternative that fits, in linear time.
//
// A match is looked for by backtracking that never takes the same way twice: states that failed at a position are
// remembered, also from one match to the next (as in RE2's BitState, Cox 2010). Only lookaround and atomic groups are
// outside of this; a budget of steps bounds them.
//
// A round of a repeat that took nothing ends the repeat, so what follows from a place depends on which of the loops
// around it took something in their round so far. An outer loop took whatever an inner one took: a state is the
// instruction, the position and how many of the loops around it, from the innermost out, took nothing yet.
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// A set of code points: ascending ranges, and a bit for each of ASCII.
struct CodePointSet {
  using Range = std::pair<std::uint32_t, std::uint32_t>;  // first, last
  std::vector<Range> ranges;
  std::uint64_t ascii[2] = {};

  bool contains(std::uint32_t value) const noexcept {
    if (value < 128) return (ascii[value >> 6] >> (value & 63) & 1) != 0;
    std::size_t low = 0;
    for (std::size_t count = ranges.size(); count > 0;) {
      const std::size_t half = count / 2;
      if (ranges[low + half].second < value) {
        low += half + 1;
        count -= half + 1;
      } else {
        count = half;
      }
    }
    return low < ranges.size() && ranges[low].first <= value;
  }
};

/// A compiled pattern. Immutable; thread-safe.
class CORBEL_API Regex {
 public:
  /// kUnsupported for a construct outside the subset (back-references, subexpression calls, conditionals, absence,
  /// \G \K \X, loops in lookbehind), kBadValue for what is no pattern, kBadUtf8, kLimitExceeded beyond kMaxPattern or
  /// kMaxInstructions (bounded repeats count as often as they say) or kMaxColumns (choices, each counted once more for
  /// every repeat around it whose body can be empty), kDepthExceeded beyond kMaxDepth groups in each other.
  /// Messages give the byte offset in the pattern.
  static Result<Regex> compile(std::string_view pattern);

  std::uint64_t memory_bytes() const noexcept;

  static constexpr std::size_t kMaxPattern = 1 << 16;
  static constexpr std::size_t kMaxInstructions = 1 << 14;
  static constexpr std::uint32_t kMaxColumns = 1 << 14;
  static constexpr std::size_t kMaxRanges = 1 << 18;
  static constexpr std::uint32_t kMaxRepeat = 1000;
  static constexpr std::uint32_t kMaxDepth = 32;

 private:
  friend class RegexParser;
  friend class RegexCompiler;
  friend class RegexMatcher;
  enum class Op : std::uint8_t { kSet, kRun, kSplit, kJump, kAssert, kLook, kAtomic, kEnter, kAgain, kEnd };
  enum class Assert : std::uint8_t { kLineStart, kLineEnd, kTextStart, kTextEnd, kLastLine, kWord, kNotWord };
  enum class Mode : std::uint8_t { kGreedy, kLazy, kPossessive };
  struct Instruction {
    Op op = Op::kEnd;
    Mode mode = Mode::kGreedy;         // kRun
    bool negative = false;             // kLook
    bool behind = false;               // kLook
    Assert assertion = Assert::kWord;  // kAssert
    std::uint32_t x = 0;               // set; first choice; target; what follows the body
    std::uint32_t y = 0;               // second choice
    std::uint32_t least = 0;           // of a run; code points that a look behind covers
    std::uint32_t most = 0;
    std::uint32_t column = 0;      // the first of its remembered states: all loops around it took something
    std::uint32_t loop = kNoLoop;  // the innermost around it whose body can be empty
  };
  static constexpr std::uint32_t kNoLoop = ~std::uint32_t{0};
  static constexpr std::uint32_t kForever = ~std::uint32_t{0};

  std::vector<Instruction> program_;
  std::vector<CodePointSet> sets_;
  std::uint32_t columns_ = 0;
  std::vector<std::uint32_t> outer_;  // of each loop whose body can be empty: the next such loop around it, or kNoLoop
  std::uint32_t word_set_ = 0;
  bool any_first_ = true;              // a match can begin with anything, or be empty
  std::uint64_t first_ascii_[2] = {};  // else: what of ASCII it can begin with
};

/// Finds the matches of one pattern in one text after the other. Not thread-safe; the pattern must live as long.
class CORBEL_API RegexMatcher {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  explicit RegexMatcher(const Regex& regex) : regex_(&regex) {}

  /// Starts on `text` (valid UTF-8, below 2^32 bytes), which must live while it is searched.
  void reset(std::string_view text);
  /// The next match in `found`; false where there is none. An empty match right behind the match before is passed over.
  /// kLimitExceeded beyond kStepsPerByte steps a byte (and kFreeSteps), or kMaxMemory of remembered states.
  Result<bool> next(Match& found);
  std::uint64_t steps() const noexcept { return steps_; }

  static constexpr std::uint64_t kStepsPerByte = 512;
  static constexpr std::uint64_t kFreeSteps = 1 << 20;
  static constexpr std::uint64_t kMaxMemory = 256ull << 20;

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  struct Frame {
    std::uint32_t pc;
    std::uint32_t at;
    std::uint32_t low;
  };
  std::size_t run(std::uint32_t pc, std::size_t at, std::size_t needed_end, bool remember);
  bool look(const Regex::Instruction& instruction, std::uint32_t pc, std::size_t at);
  bool holds(Regex::Assert assertion, std::size_t at) const;
  bool enter(std::uint32_t column, std::size_t at);
  std::uint32_t column(const Regex::Instruction& instruction, std::size_t at);
  void forget(std::size_t at);
  std::size_t before(std::size_t at) const noexcept;
  bool word_at(std::size_t at) const;

  const Regex* regex_;
  std::string_view text_;
  std::size_t start_ = 0;
  std::size_t last_end_ = kNone;
  std::uint64_t steps_ = 0;
  std::uint64_t limit_ = 0;
  bool out_of_budget_ = false;
  std::vector<Frame> frames_;
  std::vector<std::uint32_t> entered_;              // where each loop's body was entered last
  std::vector<std::vector<std::uint64_t>> blocks_;  // of remembered states, per kBlock positions
  std::vector<std::vector<std::uint64_t>> free_;
  std::size_t first_block_ = 0;
  std::uint64_t memory_ = 0;
};

/// To a file's reader what is no pattern is the same as one that is not supported.
inline Status unsupported_pattern(const Status& status) {
  return status.code() == Errc::kBadValue ? Status(Errc::kUnsupported, status.message()) : status;
}

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/regex.ipp>
#include <corbel/impl/text/regex_compiler.ipp>
#endif
