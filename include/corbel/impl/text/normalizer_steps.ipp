// The steps of text/normalizer.hpp. Each reads a text once and appends what it becomes.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/error.hpp>
#include <corbel/impl/text/text_cursor.hpp>
#include <corbel/text/normalization.hpp>
#include <corbel/text/normalization_age.hpp>
#include <corbel/text/regex.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  /// Stops early, and says so by an error, where the output goes beyond `limit` bytes.
  virtual Status apply(Rewriting& rewriting, std::size_t limit, std::uint64_t& steps) const = 0;
  virtual std::uint64_t memory_bytes() const noexcept { return sizeof(*this); }
};

namespace normal {

inline Status too_long(std::size_t limit) {
  return Status(Errc::kLimitExceeded, fmt::format("a normalizer makes more than {} bytes of this text", limit));
}

class FormStep final : public NormalizerStep {
 public:
  explicit FormStep(NormalForm form) : form_(form) {}
  Status apply(Rewriting& rewriting, std::size_t, std::uint64_t&) const override {
    normalize(form_, rewriting);
    return {};
  }

 private:
  NormalForm form_;
};

class LowercaseStep final : public NormalizerStep {
 public:
  Status apply(Rewriting& rewriting, std::size_t, std::uint64_t&) const override {
    lowercase(rewriting);
    return {};
  }
};

/// What becomes of one code point.
struct Fate {
  enum Kind { kKept, kDropped, kSpace, kSpaced } kind = kKept;  // kSpaced: between two spaces
};

/// Decides on every code point alone.
template <class Decide>
class CharacterwiseStep final : public NormalizerStep {
 public:
  Status apply(Rewriting& rewriting, std::size_t, std::uint64_t&) const override {
    const std::string_view text = rewriting.text();
    std::uint64_t steps = 0;
    TextCursor cursor(text, steps);
    std::size_t kept = 0;  // text[kept, at) is to be kept and not written yet
    for (std::size_t at = 0; at < text.size();) {
      const TextCursor::Point point = cursor.point(at);
      const Fate::Kind fate = Decide()(point);
      const std::size_t end = at + point.length;
      if (fate != Fate::kKept) {
        if (kept < at) rewriting.keep(kept, at);
        rewriting.reached(at);
        if (fate != Fate::kDropped) rewriting.out() += ' ';
        if (fate == Fate::kSpaced) {
          rewriting.out().append(text, at, point.length);
          rewriting.out() += ' ';
        }
        kept = end;
      }
      at = end;
    }
    if (kept < text.size()) rewriting.keep(kept, text.size());
    rewriting.reached(~std::size_t{0});
    return {};
  }
};

/// All marks go.
struct DropMarks {
  Fate::Kind operator()(const TextCursor::Point& p) const noexcept {
    const bool was_mark = p.value == 0x1CF2 || p.value == 0x1CF3;  // to the reference they are no letters yet
    const bool mark = p.type == CharClass::kMark && !came_after_unicode_9(p.value);
    return mark || was_mark ? Fate::kDropped : Fate::kKept;
  }
};
/// Marks that take no space go.
struct DropNonspacingMarks {
  Fate::Kind operator()(const TextCursor::Point& p) const noexcept {
    if (p.type != CharClass::kMark) return Fate::kKept;
    const bool was_one = p.value == 0x1734 || p.value == 0x1171E;  // to the reference they take no space yet
    const bool mark = category_name(p.value) == "Mn" && !is_in(kNonspacingAfterUnicode8, p.value);
    return mark || was_one ? Fate::kDropped : Fate::kKept;
  }
};
/// BERT: controls and U+FFFD go, white space becomes a space.
struct CleanText {
  Fate::Kind operator()(const TextCursor::Point& p) const noexcept {
    if (p.space()) {
      // U+0085, and the vertical tab and form feed, count as controls first.
      return p.value == 0x0B || p.value == 0x0C || p.value == 0x85 ? Fate::kDropped : Fate::kSpace;
    }
    if (p.value == 0xFFFD) return Fate::kDropped;
    // Unassigned code points stay, and formats that the reference does not know (they came after Unicode 8.0).
    if (p.value == 0x890 || p.value == 0x891 || p.value == 0x8E2 || p.value == 0x110CD ||
        (p.value >= 0x13430 && p.value <= 0x1343F)) {
      return Fate::kKept;
    }
    return p.type == CharClass::kOther && (p.value < 0x80 || category_name(p.value) != "Cn") ? Fate::kDropped
                                                                                             : Fate::kKept;
  }
};
/// BERT: a space on both sides of every ideograph.
struct SpaceIdeographs {
  Fate::Kind operator()(const TextCursor::Point& p) const noexcept {
    const std::uint32_t v = p.value;
    const bool ideograph = (v >= 0x4E00 && v <= 0x9FFF) || (v >= 0x3400 && v <= 0x4DBF) ||
                           (v >= 0x20000 && v <= 0x2A6DF) || (v >= 0x2A700 && v <= 0x2B73F) ||
                           (v >= 0x2B740 && v <= 0x2B81F) || (v >= 0x2B920 && v <= 0x2CEAF) ||
                           (v >= 0xF900 && v <= 0xFAFF) || (v >= 0x2F800 && v <= 0x2FA1F);
    return ideograph ? Fate::kSpaced : Fate::kKept;
  }
};
/// The clean-up of SentencePiece's nmt rules.
struct Nmt {
  Fate::Kind operator()(const TextCursor::Point& p) const noexcept {
    const std::uint32_t v = p.value;
    if ((v >= 1 && v <= 8) || v == 0x0B || (v >= 0x0E && v <= 0x1F) || v == 0x7F || v == 0x8F || v == 0x9F) {
      return Fate::kDropped;
    }
    const bool space = v == 0x09 || v == 0x0A || v == 0x0C || v == 0x0D || v == 0x1680 ||
                       (v >= 0x200B && v <= 0x200F) || v == 0x2028 || v == 0x2029 || v == 0x2581 || v == 0xFEFF ||
                       v == 0xFFFD;
    return space ? Fate::kSpace : Fate::kKept;
  }
};

class LiteralReplaceStep final : public NormalizerStep {
 public:
  LiteralReplaceStep(std::string from, std::string to) : from_(std::move(from)), to_(std::move(to)) {}
  Status apply(Rewriting& rewriting, std::size_t limit, std::uint64_t& steps) const override {
    const std::string_view text = rewriting.text();
    steps += text.size();
    std::size_t kept = 0;
    for (;;) {
      const std::size_t at = text.find(from_, kept);
      rewriting.keep(kept, std::min(at, text.size()));
      if (at == std::string_view::npos) break;
      rewriting.reached(at);
      rewriting.out() += to_;
      if (rewriting.out().size() > limit) return too_long(limit);
      kept = at + from_.size();
    }
    rewriting.reached(~std::size_t{0});
    return {};
  }
  std::uint64_t memory_bytes() const noexcept override { return sizeof(*this) + from_.capacity() + to_.capacity(); }

 private:
  std::string from_;
  std::string to_;
};

class RegexReplaceStep final : public NormalizerStep {
 public:
  RegexReplaceStep(Regex regex, std::string to) : regex_(std::move(regex)), to_(std::move(to)) {}
  Status apply(Rewriting& rewriting, std::size_t limit, std::uint64_t& steps) const override {
    const std::string_view text = rewriting.text();
    RegexMatcher matcher(regex_);
    matcher.reset(text);
    std::size_t kept = 0;
    for (;;) {
      RegexMatcher::Match match;
      CORBEL_ASSIGN_OR_RETURN(const bool found, matcher.next(match));
      if (!found) break;
      rewriting.keep(kept, match.begin);
      rewriting.reached(match.begin);
      rewriting.out() += to_;
      if (rewriting.out().size() > limit) return too_long(limit);
      kept = match.end;
    }
    rewriting.keep(kept, text.size());
    rewriting.reached(~std::size_t{0});
    steps += matcher.steps();
    return {};
  }
  std::uint64_t memory_bytes() const noexcept override {
    return sizeof(*this) + regex_.memory_bytes() + to_.capacity();
  }

 private:
  Regex regex_;
  std::string to_;
};

/// Text before and after every text that is not empty.
class SurroundStep final : public NormalizerStep {
 public:
  SurroundStep(std::string before, std::string after) : before_(std::move(before)), after_(std::move(after)) {}
  Status apply(Rewriting& rewriting, std::size_t limit, std::uint64_t&) const override {
    if (rewriting.text().empty()) {
      rewriting.reached(0);
      return {};
    }
    if (before_.size() + after_.size() + rewriting.text().size() > limit) return too_long(limit);
    rewriting.reached(0);
    rewriting.out() += before_;
    rewriting.keep(0, rewriting.text().size());
    rewriting.out() += after_;
    return {};
  }

 private:
  std::string before_;
  std::string after_;
};

/// White space at the ends goes.
class StripStep final : public NormalizerStep {
 public:
  StripStep(bool left, bool right) : left_(left), right_(right) {}
  Status apply(Rewriting& rewriting, std::size_t, std::uint64_t& steps) const override {
    const std::string_view text = rewriting.text();
    TextCursor cursor(text, steps);
    std::size_t begin = left_ ? cursor.skip(0, [](const TextCursor::Point& p) { return p.space(); }) : 0;
    std::size_t end = text.size();
    while (right_ && end > begin) {
      std::size_t last = end - 1;
      while (last > begin && (static_cast<unsigned char>(text[last]) & 0xC0) == 0x80) --last;
      if (!cursor.point(last).space()) break;
      end = last;
    }
    rewriting.reached(begin);
    rewriting.keep(begin, end);
    rewriting.reached(~std::size_t{0});
    return {};
  }

 private:
  bool left_;
  bool right_;
};

/// Every byte by its printable stand-in (openai/gpt-2, encoder.py).
class SpellBytesStep final : public NormalizerStep {
 public:
  Status apply(Rewriting& rewriting, std::size_t, std::uint64_t&) const override {
    const std::string_view text = rewriting.text();
    for (std::size_t at = 0; at < text.size(); ++at) {
      rewriting.reached(at);
      const std::uint32_t byte = static_cast<unsigned char>(text[at]);
      std::uint32_t spelled = byte;
      if (byte <= 32) spelled = 256 + byte;
      if (byte >= 127 && byte <= 160) spelled = 256 + 33 + (byte - 127);
      if (byte == 173) spelled = 256 + 67;
      detail::append_utf8(rewriting.out(), spelled);
    }
    rewriting.reached(~std::size_t{0});
    return {};
  }
};

/// SentencePiece's precompiled_charsmap: a size, a double-array trie of that many bytes, and strings that end with NUL,
/// which the leaves of the trie give the offsets of. As in the tokenizers package, a short cluster of characters is
/// replaced as a whole where any beginning of it is in the trie, else character by character.
class CharsmapStep final : public NormalizerStep {
 public:
  /// `map` is the decoded map. kVocabInvalid where a part is missing or an offset leads outside.
  static Result<std::unique_ptr<const CharsmapStep>> make(std::string map) {
    auto step = std::make_unique<CharsmapStep>();
    if (map.size() < 4) return Status(Errc::kVocabInvalid, fmt::format("a map of {} bytes", map.size()));
    const std::uint32_t trie_bytes = word(map, 0);
    if (trie_bytes % 4 != 0 || trie_bytes > map.size() - 4) {
      return Status(Errc::kVocabInvalid, fmt::format("a trie of {} bytes in a map of {}", trie_bytes, map.size()));
    }
    step->trie_.resize(trie_bytes / 4);
    for (std::size_t i = 0; i < step->trie_.size(); ++i) step->trie_[i] = word(map, 4 + 4 * i);
    step->strings_ = map.substr(4 + trie_bytes);
    if (!detail::is_utf8(step->strings_)) return Status(Errc::kVocabInvalid, "the strings are not valid UTF-8");
    CORBEL_RETURN_IF_ERROR(step->check());
    for (std::uint32_t c = 0; c < 128; ++c) {
      const char text[1] = {static_cast<char>(c)};
      step->ascii_[c] = step->find({text, 1});
    }
    return std::unique_ptr<const CharsmapStep>(std::move(step));
  }

  Status apply(Rewriting& rewriting, std::size_t limit, std::uint64_t& steps) const override {
    const std::string_view text = rewriting.text();
    TextCursor cursor(text, steps);
    std::size_t kept = 0;
    const auto replace = [&](std::size_t begin, std::size_t end, std::uint32_t offset) {
      if (kept < begin) rewriting.keep(kept, begin);
      rewriting.reached(begin);
      rewriting.out().append(strings_, offset, strings_.find('\0', offset) - offset);
      kept = end;
    };
    for (std::size_t at = 0; at < text.size();) {
      // Plain ASCII that stands alone.
      const auto first = static_cast<unsigned char>(text[at]);
      if (first < 0x80 && first != '\r' && (at + 1 == text.size() || static_cast<unsigned char>(text[at + 1]) < 0x80)) {
        if (ascii_[first] != kNone) replace(at, at + 1, ascii_[first]);
        ++at;
        continue;
      }
      if (rewriting.out().size() > limit) return too_long(limit);
      const std::size_t end = cluster_end(cursor, at);
      if (end - at < 6) {
        if (const std::uint32_t offset = find(text.substr(at, end - at)); offset != kNone) {
          replace(at, end, offset);
          at = end;
          continue;
        }
      }
      while (at < end) {
        const std::size_t next = at + cursor.point(at).length;
        if (const std::uint32_t offset = find(text.substr(at, next - at)); offset != kNone) replace(at, next, offset);
        at = next;
      }
    }
    if (kept < text.size()) rewriting.keep(kept, text.size());
    rewriting.reached(~std::size_t{0});
    return rewriting.out().size() > limit ? too_long(limit) : Status();
  }
  std::uint64_t memory_bytes() const noexcept override {
    return sizeof(*this) + trie_.capacity() * 4 + strings_.capacity();
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  static std::uint32_t word(const std::string& map, std::size_t at) noexcept {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value |= std::uint32_t{static_cast<unsigned char>(map[at + i])} << (8 * i);
    return value;
  }
  static bool has_leaf(std::uint32_t unit) noexcept { return (unit >> 8 & 1) != 0; }
  static std::uint32_t value_of(std::uint32_t unit) noexcept { return unit & 0x7FFFFFFFu; }
  static std::uint32_t label_of(std::uint32_t unit) noexcept { return unit & 0x800000FFu; }
  static std::uint32_t offset_of(std::uint32_t unit) noexcept { return (unit >> 10) << ((unit & 0x200u) >> 6); }

  // Walks everything that can be reached, each unit once.
  Status check() const {
    if (trie_.empty()) return {};
    std::vector<bool> seen(trie_.size());
    std::vector<std::uint32_t> nodes = {offset_of(trie_[0])};
    while (!nodes.empty()) {
      const std::uint32_t node = nodes.back();
      nodes.pop_back();
      for (std::uint32_t label = 1; label < 256; ++label) {
        const std::uint32_t child = node ^ label;
        if (child >= trie_.size() || label_of(trie_[child]) != label || seen[child]) continue;
        seen[child] = true;
        const std::uint32_t next = child ^ offset_of(trie_[child]);
        if (has_leaf(trie_[child])) {
          if (next >= trie_.size()) return Status(Errc::kVocabInvalid, fmt::format("unit {} leads outside", child));
          const std::uint32_t offset = value_of(trie_[next]);
          if (offset >= strings_.size() || strings_.find('\0', offset) == std::string::npos ||
              (static_cast<unsigned char>(strings_[offset]) & 0xC0) == 0x80) {
            return Status(Errc::kVocabInvalid, fmt::format("unit {}: no string at byte {}", next, offset));
          }
        }
        nodes.push_back(next);
      }
    }
    return {};
  }

  // The offset of what the shortest beginning of `text` in the trie becomes.
  std::uint32_t find(std::string_view text) const noexcept {
    if (trie_.empty()) return kNone;
    std::uint32_t node = offset_of(trie_[0]);
    for (const char c : text) {
      const std::uint32_t label = static_cast<unsigned char>(c);
      if (label == 0) break;
      node ^= label;
      if (node >= trie_.size() || label_of(trie_[node]) != label) return kNone;
      const bool leaf = has_leaf(trie_[node]);
      node ^= offset_of(trie_[node]);
      if (leaf) return node < trie_.size() ? value_of(trie_[node]) : kNone;
    }
    return kNone;
  }

  // The end of the cluster (UAX 29) that begins at `at`, as exactly as clusters below 6 bytes need: line ends, and
  // marks, joiners and modifiers behind a character, or a prepended mark before one.
  static std::size_t cluster_end(TextCursor& cursor, std::size_t at) noexcept {
    TextCursor::Point point = cursor.point(at);
    std::size_t end = at + point.length;
    if (point.value == '\r') return cursor.point(end).value == '\n' ? end + 1 : end;
    const auto control = [](const TextCursor::Point& p) {
      if (p.value == 0x200C || p.value == 0x200D) return false;
      if (p.value < 0x80)
        return p.type == CharClass::kOther || p.newline() || p.value == '\t' || p.value == '\v' || p.value == '\f';
      return p.value == 0x85 || p.value == 0x2028 || p.value == 0x2029 ||
             (p.type == CharClass::kOther && !prepended(p.value) && category_name(p.value) != "Co" &&
              !(p.value >= 0xE0020 && p.value <= 0xE007F) && assigned_control(p.value));
    };
    if (control(point)) return end;
    while (prepended(point.value)) {
      const TextCursor::Point next = cursor.point(end);
      if (next.length == 0 || control(next)) return end;
      point = next;
      end += next.length;
    }
    return cursor.skip(end, [](const TextCursor::Point& p) { return extends(p); });
  }
  static bool assigned_control(std::uint32_t value) noexcept {
    const std::string_view category = category_name(value);
    return category == "Cc" || category == "Cf";
  }
  static bool prepended(std::uint32_t v) noexcept {
    return (v >= 0x600 && v <= 0x605) || v == 0x6DD || v == 0x70F || v == 0x890 || v == 0x891 || v == 0x8E2 ||
           v == 0xD4E || v == 0x110BD || v == 0x110CD;
  }
  static bool extends(const TextCursor::Point& p) noexcept {
    const std::uint32_t v = p.value;
    if (v < 0x300) return false;
    if (p.type == CharClass::kMark) {
      const bool apart = v == 0x102B || v == 0x102C || v == 0x1038 || (v >= 0x1062 && v <= 0x1064) ||
                         (v >= 0x1067 && v <= 0x106D) || v == 0x1083 || (v >= 0x1087 && v <= 0x108C) || v == 0x108F ||
                         (v >= 0x109A && v <= 0x109C) || v == 0x1A61 || v == 0x1A63 || v == 0x1A64 || v == 0xAA7B ||
                         v == 0xAA7D || v == 0x11720 || v == 0x11721;
      return !apart || category_name(v) != "Mc";
    }
    return v == 0x200C || v == 0x200D || v == 0xFF9E || v == 0xFF9F || v == 0xE33 || v == 0xEB3 ||
           (v >= 0x1F3FB && v <= 0x1F3FF) || (v >= 0xE0020 && v <= 0xE007F);
  }

  std::vector<std::uint32_t> trie_;
  std::string strings_;
  std::uint32_t ascii_[128] = {};
};

}  // namespace normal
}  // namespace text
CORBEL_NAMESPACE_END
