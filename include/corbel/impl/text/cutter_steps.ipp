// The steps of text/word_cutter.hpp. Each cuts every word in parts, or rewrites the text.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/error.hpp>
#include <corbel/impl/text/scanners.hpp>
#include <corbel/impl/text/text_cursor.hpp>
#include <corbel/text/pretokenizer.hpp>
#include <corbel/text/regex.hpp>
#include <corbel/text/word_cutter.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

namespace cutter {

struct State {
  std::string_view text;
  bool at_start;  // the first word begins where the input does, if it begins at byte 0
  CutScratch& scratch;
};

}  // namespace cutter

class CutterStep {
 public:
  virtual ~CutterStep() = default;
  virtual Status apply(cutter::State& state) const = 0;
  virtual std::uint64_t memory_bytes() const noexcept { return sizeof(*this); }
};

namespace cutter {

/// What becomes of matches and of the gaps between them.
enum class Behavior : std::uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Takes the parts of one word in order and gives the new words.
class Emitter {
 public:
  Emitter(Behavior behavior, bool invert, std::vector<Word>& out) : behavior_(behavior), invert_(invert), out_(out) {}

  void begin(std::size_t at) {
    first_ = out_.size();
    end_ = at;
    before_ = false;
    any_ = false;
    held_ = false;
  }
  /// A match, behind the match before; what lies between is a gap. Matches may be empty.
  void match(std::size_t begin, std::size_t end) {
    if (end_ < begin) part(end_, begin, invert_);
    part(begin, end, !invert_);
    end_ = end;
  }
  void finish(std::size_t end) {
    if (end_ < end) part(end_, end, invert_);
    if (held_) push(hold_.begin, hold_.end);
  }

 private:
  void push(std::size_t begin, std::size_t end) {
    if (begin < end) out_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
  }
  void extend(std::size_t begin, std::size_t end) {
    if (out_.size() > first_ && out_.back().end == begin) {
      out_.back().end = static_cast<std::uint32_t>(end);
    } else {
      push(begin, end);
    }
  }
  void part(std::size_t begin, std::size_t end, bool matched) {
    switch (behavior_) {
      case Behavior::kRemoved:
        if (!matched) push(begin, end);
        break;
      case Behavior::kIsolated:
        push(begin, end);
        break;
      case Behavior::kContiguous:
        if (any_ && matched == before_) {
          extend(begin, end);
        } else {
          push(begin, end);
        }
        break;
      case Behavior::kMergedWithPrevious:
        if (matched && !before_ && held_) {
          hold_.end = static_cast<std::uint32_t>(end);
          break;
        }
        if (held_) push(hold_.begin, hold_.end);
        hold_ = {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
        held_ = true;
        break;
      case Behavior::kMergedWithNext:
        if (matched) {
          if (held_) push(hold_.begin, hold_.end);
          hold_ = {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
        } else {
          push(held_ ? hold_.begin : begin, end);
        }
        held_ = matched;
        break;
    }
    before_ = matched;
    any_ = true;
  }

  Behavior behavior_;
  bool invert_;
  std::vector<Word>& out_;
  std::size_t first_ = 0;
  std::size_t end_ = 0;
  bool before_ = false;
  bool any_ = false;
  bool held_ = false;
  Word hold_;
};

// Runs `parts(word, emitter)` over all words.
template <class Parts>
Status cut_all(State& state, Behavior behavior, bool invert, Parts&& parts) {
  CutScratch& scratch = state.scratch;
  scratch.spare_words.clear();
  Emitter emitter(behavior, invert, scratch.spare_words);
  for (const Word& word : scratch.words) {
    emitter.begin(word.begin);
    CORBEL_RETURN_IF_ERROR(parts(word, emitter));
    emitter.finish(word.end);
  }
  scratch.words.swap(scratch.spare_words);
  if (scratch.words.empty() || scratch.words.front().begin != 0) state.at_start = false;
  return {};
}

// Runs `rewrite(word, first, out)` over all words: it appends what the word becomes.
template <class Rewrite>
void rewrite_all(State& state, Rewrite&& rewrite) {
  CutScratch& scratch = state.scratch;
  std::string& out = scratch.spare_text;
  out.clear();
  out.reserve(state.text.size() + state.text.size() / 4);
  bool first = state.at_start;
  for (Word& word : scratch.words) {
    const std::size_t begin = out.size();
    rewrite(state.text.substr(word.begin, word.end - word.begin), first, out);
    word = {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(out.size())};
    first = false;
  }
  scratch.text.swap(scratch.spare_text);
  state.text = scratch.text;
}

/// Matches of a scanner and the gaps between them, each a word.
class ScannerStep final : public CutterStep {
 public:
  explicit ScannerStep(Scanner scanner) : scanner_(scanner) {}
  Status apply(State& state) const override {
    std::vector<Word>& out = state.scratch.spare_words;
    out.clear();
    std::uint64_t steps = 0;
    TextCursor cursor(state.text, steps);
    for (const Word& word : state.scratch.words) {
      cursor.set_text(state.text.substr(0, word.end));
      std::uint32_t gap = word.begin;
      for (std::uint32_t at = word.begin; at < word.end;) {
        const auto end = static_cast<std::uint32_t>(scanner_(cursor, at));
        if (end == at) {
          at += cursor.point(at).length;
          continue;
        }
        if (gap < at) out.push_back({gap, at});
        out.push_back({at, end});
        at = gap = end;
      }
      if (gap < word.end) out.push_back({gap, word.end});
    }
    state.scratch.words.swap(out);
    state.scratch.steps += steps;
    return {};
  }

 private:
  Scanner scanner_;
};

class RegexStep final : public CutterStep {
 public:
  RegexStep(Regex regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  Status apply(State& state) const override {
    RegexMatcher matcher(regex_);
    const Status cut = cut_all(state, behavior_, invert_, [&](const Word& word, Emitter& emitter) -> Status {
      matcher.reset(state.text.substr(word.begin, word.end - word.begin));
      for (;;) {
        RegexMatcher::Match match;
        CORBEL_ASSIGN_OR_RETURN(const bool found, matcher.next(match));
        if (!found) return {};
        emitter.match(word.begin + match.begin, word.begin + match.end);
      }
    });
    state.scratch.steps += matcher.steps();
    return cut;
  }
  std::uint64_t memory_bytes() const noexcept override { return sizeof(*this) + regex_.memory_bytes(); }

 private:
  Regex regex_;
  Behavior behavior_;
  bool invert_;
};

class LiteralStep final : public CutterStep {
 public:
  LiteralStep(std::string literal, Behavior behavior, bool invert)
      : literal_(std::move(literal)), behavior_(behavior), invert_(invert) {}
  Status apply(State& state) const override {
    state.scratch.steps += state.text.size();
    return cut_all(state, behavior_, invert_, [&](const Word& word, Emitter& emitter) -> Status {
      if (literal_.empty()) return {};
      const std::string_view text = state.text.substr(0, word.end);
      for (std::size_t at = text.find(literal_, word.begin); at != std::string_view::npos;
           at = text.find(literal_, at + literal_.size())) {
        emitter.match(at, at + literal_.size());
      }
      return {};
    });
  }

 private:
  std::string literal_;
  Behavior behavior_;
  bool invert_;
};

/// \p{N} with the numbers that Unicode 17 added: the reference asks its language's library here.
struct IsNumber {
  bool operator()(const TextCursor::Point& p) const noexcept {
    const bool newer = (p.value >= 0x11DE0 && p.value <= 0x11DE9) || (p.value >= 0x16FF4 && p.value <= 0x16FF6);
    return p.number() || newer;
  }
};
struct IsSpace {
  bool operator()(const TextCursor::Point& p) const noexcept { return p.space(); }
};
/// Punctuation of Unicode, and all of ASCII that is neither letter, number, space nor control.
struct IsPunctuation {
  bool operator()(const TextCursor::Point& p) const noexcept {
    return p.type == CharClass::kPunctuation || (p.value < 0x80 && p.type == CharClass::kSymbol);
  }
};

/// Each code point of a kind is a match.
template <class Kind>
class CharacterStep final : public CutterStep {
 public:
  explicit CharacterStep(Behavior behavior) : behavior_(behavior) {}
  Status apply(State& state) const override {
    std::uint64_t steps = 0;
    TextCursor cursor(state.text, steps);
    const Status cut = cut_all(state, behavior_, false, [&](const Word& word, Emitter& emitter) -> Status {
      for (std::size_t at = word.begin; at < word.end;) {
        const TextCursor::Point point = cursor.point(at);
        if (Kind()(point)) emitter.match(at, at + point.length);
        at += point.length;
      }
      return {};
    });
    state.scratch.steps += steps;
    return cut;
  }

 private:
  Behavior behavior_;
};

/// \w+|[^\w\s]+ with the word characters of Unicode (UTS 18): what lies between is removed.
class WordsAndMarksStep final : public CutterStep {
 public:
  Status apply(State& state) const override {
    std::uint64_t steps = 0;
    TextCursor cursor(state.text, steps);
    const Status cut = cut_all(state, Behavior::kRemoved, true, [&](const Word& word, Emitter& emitter) -> Status {
      int kind = 0;  // of the run: 0 spaces, 1 words, 2 the rest
      std::size_t begin = word.begin;
      for (std::size_t at = word.begin; at < word.end;) {
        const TextCursor::Point point = cursor.point(at);
        const bool joiner = point.value == 0x200C || point.value == 0x200D;
        const bool fraction = point.value >= 0xB2 && point.value <= 0xBE;  // \w for Oniguruma only
        const int now = point.space() ? 0 : (is_word(point) && !(fraction && point.number())) || joiner ? 1 : 2;
        if (now != kind) {
          if (kind != 0) emitter.match(begin, at);
          begin = at;
          kind = now;
        }
        at += point.length;
      }
      if (kind != 0) emitter.match(begin, word.end);
      return {};
    });
    state.scratch.steps += steps;
    return cut;
  }
};

/// Pieces of a number of code points, the last may be shorter.
class FixedLengthStep final : public CutterStep {
 public:
  explicit FixedLengthStep(std::uint64_t length) : length_(length) {}
  Status apply(State& state) const override {
    std::uint64_t steps = 0;
    TextCursor cursor(state.text, steps);
    const Status cut = cut_all(state, Behavior::kIsolated, false, [&](const Word& word, Emitter& emitter) -> Status {
      cursor.set_text(state.text.substr(0, word.end));
      for (std::size_t at = word.begin; at < word.end;) {
        const std::size_t end = cursor.skip(
            at, [](const TextCursor::Point&) { return true; }, static_cast<std::size_t>(length_));
        emitter.match(at, end);
        at = end;
      }
      return {};
    });
    state.scratch.steps += steps;
    return cut;
  }

 private:
  std::uint64_t length_;
};

/// Cuts where the script changes. Kana is Han; a space or an unassigned code point goes with what is before it;
/// those before the first script are dropped, as in the reference.
class ScriptsStep final : public CutterStep {
 public:
  Status apply(State& state) const override {
    std::uint64_t steps = 0;
    TextCursor cursor(state.text, steps);
    const Status cut = cut_all(state, Behavior::kRemoved, true, [&](const Word& word, Emitter& emitter) -> Status {
      static constexpr std::uint32_t kAnything = ~std::uint32_t{0};
      std::uint32_t last = kAnything;
      std::size_t begin = word.begin;
      for (std::size_t at = word.begin; at < word.end;) {
        const TextCursor::Point point = cursor.point(at);
        const std::uint32_t script = script_of(point.value);
        if (script != kAnything) {
          if (last != script) {
            if (last != kAnything) emitter.match(begin, at);
            begin = at;
          }
          last = script;
        }
        at += point.length;
      }
      if (last != kAnything) emitter.match(begin, word.end);
      return {};
    });
    state.scratch.steps += steps;
    return cut;
  }

 private:
  static std::uint32_t script_of(std::uint32_t value) noexcept {
    if (value == ' ') return ~std::uint32_t{0};
    std::size_t low = 0;
    for (std::size_t high = std::size(kScriptRuns); high - low > 1;) {
      const std::size_t middle = (low + high) / 2;
      (kScriptRuns[middle] >> 8 <= value ? low : high) = middle;
    }
    const std::string_view code = kScriptNames[kScriptRuns[low] & 0xFF].code;
    if (code == "Zzzz") return ~std::uint32_t{0};
    if (code == "Hira" || code == "Kana" || value == 0x30FC) return kHan;
    return kScriptRuns[low] & 0xFF;
  }
  static constexpr std::uint32_t kHan = [] {
    for (std::uint32_t script = 0; script < std::size(kScriptNames); ++script) {
      if (std::string_view(kScriptNames[script].code) == "Hani") return script;
    }
    return ~std::uint32_t{0};
  }();
};

/// A space before every word that does not begin with one.
class PrefixSpaceStep final : public CutterStep {
 public:
  Status apply(State& state) const override {
    std::size_t without = 0;
    for (const Word& word : state.scratch.words) without += state.text[word.begin] != ' ' ? 1u : 0u;
    if (without == 0) return {};
    rewrite_all(state, [](std::string_view word, bool, std::string& out) {
      if (word.front() != ' ') out += ' ';
      out += word;
    });
    return {};
  }
};

enum class Prepend : std::uint8_t { kAlways, kFirst, kNever };

/// The replacement (U+2581) for every space, and before words that do not begin with it.
class MetaspaceStep final : public CutterStep {
 public:
  MetaspaceStep(std::string replacement, Prepend prepend) : replacement_(std::move(replacement)), prepend_(prepend) {}
  Status apply(State& state) const override {
    state.scratch.steps += state.text.size();
    rewrite_all(state, [this](std::string_view word, bool first, std::string& out) {
      const bool wanted = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && first);
      if (wanted && word.front() != ' ' && word.substr(0, replacement_.size()) != replacement_) out += replacement_;
      for (std::size_t at = 0; at < word.size();) {
        const std::size_t space = std::min(word.find(' ', at), word.size());
        out += word.substr(at, space - at);
        if (space < word.size()) out += replacement_;
        at = space + 1;
      }
    });
    return {};
  }

 private:
  std::string replacement_;
  Prepend prepend_;
};

/// Every byte by its stand-in (openai/gpt-2, encoder.py), for steps behind ByteLevel.
class SpellBytesStep final : public CutterStep {
 public:
  Status apply(State& state) const override {
    state.scratch.steps += state.text.size();
    rewrite_all(state, [](std::string_view word, bool, std::string& out) {
      for (const char c : word) detail::append_utf8(out, spelled(static_cast<unsigned char>(c)));
    });
    return {};
  }
  static std::uint32_t spelled(std::uint32_t byte) noexcept {
    if (byte <= 32) return 256 + byte;
    if (byte >= 127 && byte <= 160) return 256 + 33 + (byte - 127);
    return byte == 173 ? 256 + 67 : byte;
  }
};

}  // namespace cutter
}  // namespace text
CORBEL_NAMESPACE_END
