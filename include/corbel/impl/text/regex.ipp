// Definitions of RegexMatcher in text/regex.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/regex.hpp>

#include <fmt/format.h>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

namespace regex_detail {

inline constexpr std::size_t kBlock = 1024;  // positions

inline detail::CodePoint decode(std::string_view text, std::size_t at) noexcept {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1};
  const detail::CodePoint point = detail::decode_utf8(text, at);
  return point.length == 0 ? detail::CodePoint{0xFFFD, 1} : point;
}

}  // namespace regex_detail

CORBEL_INLINE void RegexMatcher::reset(std::string_view text) {
  const std::size_t words = regex_->columns_ * regex_detail::kBlock / 64;
  for (; first_block_ < blocks_.size(); ++first_block_) {
    if (blocks_[first_block_].empty()) continue;
    blocks_[first_block_].assign(words, 0);
    free_.push_back(std::move(blocks_[first_block_]));
    if (free_.size() > 4) {
      memory_ -= words * 8;
      free_.pop_back();
    }
  }
  blocks_.clear();
  blocks_.resize(text.size() / regex_detail::kBlock + 1);
  first_block_ = 0;
  entered_.assign(regex_->outer_.size(), 0);
  text_ = text;
  start_ = 0;
  last_end_ = kNone;
  limit_ = steps_ + kFreeSteps + kStepsPerByte * text.size();
}

// False where the state was entered before.
CORBEL_INLINE bool RegexMatcher::enter(std::uint32_t column, std::size_t at) {
  std::vector<std::uint64_t>& block = blocks_[at / regex_detail::kBlock];
  if (block.empty()) {
    const std::size_t words = regex_->columns_ * regex_detail::kBlock / 64;
    if (free_.empty()) {
      memory_ += words * 8;
      if (memory_ > kMaxMemory) out_of_budget_ = true;
      block.resize(words);
    } else {
      block = std::move(free_.back());
      free_.pop_back();
    }
  }
  const std::size_t bit = at % regex_detail::kBlock * regex_->columns_ + column;
  const std::uint64_t mask = std::uint64_t{1} << (bit & 63);
  if ((block[bit >> 6] & mask) != 0) return false;
  block[bit >> 6] |= mask;
  return true;
}

// Of the state that `at` has with what the loops around it took.
CORBEL_INLINE std::uint32_t RegexMatcher::column(const Regex::Instruction& instruction, std::size_t at) {
  std::uint32_t column = instruction.column;
  for (std::uint32_t loop = instruction.loop; loop != Regex::kNoLoop && entered_[loop] == at; ++column) {
    loop = regex_->outer_[loop];
    ++steps_;
  }
  return column;
}

// A match ended here: the states on its way did not fail.
CORBEL_INLINE void RegexMatcher::forget(std::size_t at) {
  std::vector<std::uint64_t>& block = blocks_[at / regex_detail::kBlock];
  if (block.empty()) return;
  const std::size_t bit = at % regex_detail::kBlock * regex_->columns_;
  const std::size_t end = bit + regex_->columns_;
  for (std::size_t i = bit; i < end;) {
    const bool whole = (i & 63) == 0 && end - i >= 64;
    block[i >> 6] &= whole ? 0 : ~(std::uint64_t{1} << (i & 63));
    i += whole ? 64 : 1;
  }
}

CORBEL_INLINE std::size_t RegexMatcher::before(std::size_t at) const noexcept {
  for (std::size_t length = 1; length <= 4 && length <= at; ++length) {
    if ((static_cast<unsigned char>(text_[at - length]) & 0xC0) != 0x80) {
      return regex_detail::decode(text_, at - length).length == length ? at - length : at - 1;
    }
  }
  return at - 1;
}

CORBEL_INLINE bool RegexMatcher::word_at(std::size_t at) const {
  return at < text_.size() && regex_->sets_[regex_->word_set_].contains(regex_detail::decode(text_, at).value);
}

CORBEL_INLINE bool RegexMatcher::holds(Regex::Assert assertion, std::size_t at) const {
  switch (assertion) {
    case Regex::Assert::kLineStart:
      return at == 0 || (text_[at - 1] == '\n' && at < text_.size());
    case Regex::Assert::kLineEnd:
      return at == text_.size() || text_[at] == '\n';
    case Regex::Assert::kTextStart:
      return at == 0;
    case Regex::Assert::kTextEnd:
      return at == text_.size();
    case Regex::Assert::kLastLine:
      return at == text_.size() || (at + 1 == text_.size() && text_[at] == '\n');
    case Regex::Assert::kWord:
    case Regex::Assert::kNotWord:
      break;
  }
  const bool boundary = (at > 0 && word_at(before(at))) != word_at(at);
  return boundary == (assertion == Regex::Assert::kWord);
}

CORBEL_INLINE bool RegexMatcher::look(const Regex::Instruction& instruction, std::uint32_t pc, std::size_t at) {
  if (!instruction.behind) return (run(pc + 1, at, kNone, false) != kNone) != instruction.negative;
  bool found = false;
  std::size_t begin = at;
  for (std::uint32_t width = 0; width <= instruction.most && !found; ++width) {
    if (width >= instruction.least) found = run(pc + 1, begin, at, false) != kNone;
    if (begin == 0) break;
    begin = before(begin);
  }
  return found != instruction.negative;
}

// The end of the match of the program from `pc` on that begins at `at`, or kNone. Calls itself for the bodies of
// lookaround and atomic groups, as deep as the pattern nests them.
CORBEL_INLINE std::size_t RegexMatcher::run(std::uint32_t pc, std::size_t at, std::size_t needed_end, bool remember) {
  static constexpr std::uint32_t kPlain = ~std::uint32_t{0};
  static constexpr std::uint32_t kUndo = kPlain - 1;  // puts back where a loop was entered
  const std::size_t bottom = frames_.size();
  const std::vector<Regex::Instruction>& program = regex_->program_;
  for (;;) {
    bool failed = false;
    if (++steps_ > limit_) out_of_budget_ = true;
    if (out_of_budget_) {
      frames_.resize(bottom);
      return kNone;
    }
    const Regex::Instruction& instruction = program[pc];
    switch (instruction.op) {
      case Regex::Op::kSet: {
        if (at < text_.size()) {
          const detail::CodePoint point = regex_detail::decode(text_, at);
          if (regex_->sets_[instruction.x].contains(point.value)) {
            at += point.length;
            ++pc;
            break;
          }
        }
        failed = true;
        break;
      }
      case Regex::Op::kRun: {
        if (remember && !enter(column(instruction, at), at)) {
          failed = true;
          break;
        }
        const CodePointSet& set = regex_->sets_[instruction.x];
        const bool endless = instruction.most == Regex::kForever && instruction.least == 0;
        const std::uint32_t most = instruction.mode == Regex::Mode::kLazy ? instruction.least : instruction.most;
        std::size_t end = at;
        std::size_t low = at;  // where the least is reached
        std::uint32_t count = 0;
        for (; count < most && end < text_.size(); ++count) {
          const detail::CodePoint point = regex_detail::decode(text_, end);
          if (!set.contains(point.value)) break;
          // From a place where this run failed before, what follows failed as well. With what was taken up to there,
          // all loops around it took something.
          if (endless && remember && instruction.mode != Regex::Mode::kLazy &&
              !enter(instruction.column, end + point.length)) {
            if (instruction.mode == Regex::Mode::kPossessive) failed = true;
            break;
          }
          ++steps_;
          end += point.length;
          if (count < instruction.least) low = end;
        }
        if (failed || count < instruction.least) {
          failed = true;
          break;
        }
        const bool more = instruction.mode == Regex::Mode::kLazy
                              ? count < instruction.most && end < text_.size()
                              : instruction.mode == Regex::Mode::kGreedy && end > low;
        if (more) {
          // A lazy run keeps in `low` how many it has taken.
          const std::uint32_t kept = instruction.mode == Regex::Mode::kLazy ? count : static_cast<std::uint32_t>(low);
          frames_.push_back({pc, static_cast<std::uint32_t>(end), kept});
        }
        at = end;
        ++pc;
        break;
      }
      case Regex::Op::kSplit:
        if (remember && !enter(column(instruction, at), at)) {
          failed = true;
          break;
        }
        frames_.push_back({instruction.y, static_cast<std::uint32_t>(at), kPlain});
        pc = instruction.x;
        break;
      case Regex::Op::kJump:
        pc = instruction.x;
        break;
      case Regex::Op::kAssert:
        failed = !holds(instruction.assertion, at);
        ++pc;
        break;
      case Regex::Op::kLook:
        failed = !look(instruction, pc, at);
        pc = instruction.x;
        break;
      case Regex::Op::kAtomic: {
        const std::size_t end = run(pc + 1, at, kNone, false);
        failed = end == kNone;
        at = end;
        pc = instruction.x;
        break;
      }
      case Regex::Op::kEnter: {
        std::uint32_t& entered = entered_[instruction.x];
        frames_.push_back({instruction.x, entered, kUndo});
        entered = static_cast<std::uint32_t>(at);
        ++pc;
        break;
      }
      case Regex::Op::kAgain:
        // A body that took nothing ends the loop.
        pc = entered_[instruction.x] == at ? pc + 1 : instruction.y;
        break;
      case Regex::Op::kEnd:
        if (needed_end == kNone || at == needed_end) {
          frames_.resize(bottom);
          return at;
        }
        failed = true;
        break;
    }
    while (failed) {
      if (frames_.size() == bottom) return kNone;
      Frame& frame = frames_.back();
      if (frame.low == kPlain) {
        pc = frame.pc;
        at = frame.at;
        frames_.pop_back();
        break;
      }
      if (frame.low == kUndo) {
        entered_[frame.pc] = frame.at;
        frames_.pop_back();
        continue;
      }
      const Regex::Instruction& again = program[frame.pc];
      pc = frame.pc + 1;
      if (again.mode == Regex::Mode::kLazy) {
        const detail::CodePoint point = regex_detail::decode(text_, frame.at);
        const bool fits = regex_->sets_[again.x].contains(point.value) &&
                          (!remember || again.least != 0 || again.most != Regex::kForever ||
                           enter(again.column, frame.at + point.length));
        if (!fits) {
          frames_.pop_back();
          continue;
        }
        at = frame.at + point.length;
        frame.at = static_cast<std::uint32_t>(at);
        if (++frame.low >= again.most || at >= text_.size()) frames_.pop_back();
        break;
      }
      at = before(frame.at);
      frame.at = static_cast<std::uint32_t>(at);
      if (at <= frame.low) frames_.pop_back();
      break;
    }
  }
}

CORBEL_INLINE Result<bool> RegexMatcher::next(Match& found) {
  while (start_ <= text_.size()) {
    if (!regex_->any_first_) {
      for (; start_ < text_.size(); ++start_) {
        const auto c = static_cast<unsigned char>(text_[start_]);
        if (c >= 0x80 ? (c & 0xC0) != 0x80 : (regex_->first_ascii_[c >> 6] >> (c & 63) & 1) != 0) break;
        ++steps_;
      }
      if (start_ == text_.size()) break;
    }
    const std::size_t block = start_ / regex_detail::kBlock;
    for (; first_block_ < block; ++first_block_) {
      if (blocks_[first_block_].empty()) continue;
      blocks_[first_block_].assign(blocks_[first_block_].size(), 0);
      free_.push_back(std::move(blocks_[first_block_]));
    }
    const std::size_t end = run(0, start_, kNone, true);
    if (out_of_budget_) {
      return Status(Errc::kLimitExceeded,
                    fmt::format("a pattern needs more than {} steps a byte on this text", kStepsPerByte));
    }
    const std::size_t begin = start_;
    const std::size_t step = begin < text_.size() ? regex_detail::decode(text_, begin).length : 1;
    if (end == kNone) {
      start_ += step;
      continue;
    }
    forget(end);
    if (end == begin) {
      start_ += step;
      if (begin == last_end_) continue;
    } else {
      start_ = end;
    }
    last_end_ = end;
    found = {begin, end};
    return true;
  }
  start_ = text_.size() + 1;
  return false;
}

}  // namespace text
CORBEL_NAMESPACE_END
