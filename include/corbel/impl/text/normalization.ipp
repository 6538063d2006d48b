// Definitions of text/normalization.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/normalization.hpp>
#include <corbel/text/normalization_age.hpp>
#include <corbel/text/normalization_tables.hpp>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

namespace forms {

// Hangul by arithmetic: The Unicode Standard 16.0, 3.12.
inline constexpr std::uint32_t kSyllables = 0xAC00;
inline constexpr std::uint32_t kLeads = 0x1100;
inline constexpr std::uint32_t kVowels = 0x1161;
inline constexpr std::uint32_t kTails = 0x11A7;
inline constexpr std::uint32_t kVowelCount = 21;
inline constexpr std::uint32_t kTailCount = 28;
inline constexpr std::uint32_t kSyllableCount = 11172;

// True where the code point has no class, no decomposition, and composes with nothing before it, or where the reference
// thinks so.
inline bool inert(std::uint32_t value) noexcept {
  const std::uint32_t block = value >> 8;
  if (value < 0x80 || (kNormalizationBlocks[block >> 6] >> (block & 63) & 1) == 0) return true;
  return came_after_unicode_9(value);
}

inline std::uint32_t combining_class(std::uint32_t value) noexcept {
  if (inert(value)) return 0;
  std::size_t low = 0;
  for (std::size_t high = std::size(kCombiningRuns); high - low > 1;) {
    const std::size_t middle = (low + high) / 2;
    (kCombiningRuns[middle] >> 8 <= value ? low : high) = middle;
  }
  return kCombiningRuns[low] & 0xFF;
}

// What two code points compose to, or 0.
inline std::uint32_t compose(std::uint32_t first, std::uint32_t second) noexcept {
  if (first - kLeads < 19 && second - kVowels < kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  if (first - kSyllables < kSyllableCount && (first - kSyllables) % kTailCount == 0 && second > kTails &&
      second < kTails + kTailCount) {
    return first + (second - kTails);
  }
  if (inert(second)) return 0;
  const std::uint64_t pair = static_cast<std::uint64_t>(first) << 21 | second;
  const std::uint64_t* at = std::lower_bound(std::begin(kPairs), std::end(kPairs), pair);
  const std::uint32_t both = at != std::end(kPairs) && *at == pair ? kComposed[at - std::begin(kPairs)] : 0;
  return came_after_unicode_9(both) ? 0 : both;
}

// Calls `part` for every code point of the full decomposition.
template <class Part>
void decompose(std::uint32_t value, bool compatible, Part&& part) {
  if (inert(value)) return part(value);
  if (value - kSyllables < kSyllableCount) {
    const std::uint32_t index = value - kSyllables;
    part(kLeads + index / (kVowelCount * kTailCount));
    part(kVowels + index / kTailCount % kVowelCount);
    if (index % kTailCount != 0) part(kTails + index % kTailCount);
    return;
  }
  const std::uint32_t* at = std::lower_bound(std::begin(kDecomposed), std::end(kDecomposed), value);
  if (at == std::end(kDecomposed) || *at != value) return part(value);
  const std::uint64_t both = kDecomposition[at - std::begin(kDecomposed)];
  const auto entry = static_cast<std::uint32_t>(compatible ? both >> 32 : both);
  const std::uint32_t length = entry >> 14 & 31;
  if (length == 0) return part(value);
  for (std::uint32_t i = 0; i < length; ++i) part(kDecompositions[(entry & 0x3FFF) + i]);
}

// A starter and the marks behind it, put in order and composed when the next starter comes.
class Segment {
 public:
  Segment(bool composing, Rewriting& rewriting) : composing_(composing), rewriting_(rewriting) {}

  void add(std::uint32_t value, std::size_t from) {
    const std::uint32_t order = combining_class(value);
    if (order != 0) {
      if (!open_) begin(from);
      marks_.emplace_back(order, value);
      return;
    }
    if (open_ && composing_ && has_starter_) {
      settle();
      const std::uint32_t both = marks_.empty() ? compose(starter_, value) : 0;
      if (both != 0) {
        starter_ = both;
        return;
      }
    }
    flush();
    begin(from);
    starter_ = value;
    has_starter_ = true;
  }
  void flush() {
    if (!open_) return;
    settle();
    rewriting_.reached(from_);
    if (has_starter_) detail::append_utf8(rewriting_.out(), starter_);
    for (const auto& [order, value] : marks_) detail::append_utf8(rewriting_.out(), value);
    marks_.clear();
    settled_ = 0;
    open_ = has_starter_ = false;
  }

 private:
  void begin(std::size_t from) {
    open_ = true;
    from_ = from;
  }
  // Orders the marks; those that compose with the starter leave.
  void settle() {
    if (settled_ == marks_.size()) return;
    const auto by_order = [](const auto& a, const auto& b) { return a.first < b.first; };
    if (!std::is_sorted(marks_.begin(), marks_.end(), by_order)) {
      std::stable_sort(marks_.begin(), marks_.end(), by_order);
    }
    if (composing_ && has_starter_) {
      std::size_t kept = 0;
      for (const auto& mark : marks_) {
        const bool blocked = kept > 0 && marks_[kept - 1].first == mark.first;
        const std::uint32_t both = blocked ? 0 : compose(starter_, mark.second);
        if (both != 0) {
          starter_ = both;
        } else {
          marks_[kept++] = mark;
        }
      }
      marks_.resize(kept);
    }
    settled_ = marks_.size();
  }

  bool composing_;
  Rewriting& rewriting_;
  bool open_ = false;
  bool has_starter_ = false;
  std::uint32_t starter_ = 0;
  std::size_t from_ = 0;
  std::size_t settled_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> marks_;  // class, code point
};

}  // namespace forms

CORBEL_INLINE void normalize(NormalForm form, Rewriting& rewriting) {
  const bool composing = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const std::string_view text = rewriting.text();
  forms::Segment segment(composing, rewriting);
  for (std::size_t at = 0; at < text.size();) {
    // A run in which nothing happens; its last character may still compose with what follows.
    std::size_t end = at;
    std::size_t last = at;
    while (end < text.size()) {
      std::size_t length = 1;
      if (static_cast<unsigned char>(text[end]) >= 0x80) {
        const detail::CodePoint point = detail::decode_utf8(text, end);
        if (point.length != 0 && !forms::inert(point.value)) break;
        length = std::max<std::size_t>(point.length, 1);
      }
      last = end;
      end += length;
    }
    const bool whole = !composing || end == text.size();
    const std::size_t kept = whole ? end : last;
    if (kept > at) {
      segment.flush();
      rewriting.keep(at, kept);
      at = kept;
    }
    if (at == text.size()) break;
    const detail::CodePoint point = detail::decode_utf8(text, at);
    forms::decompose(point.value, compatible, [&](std::uint32_t value) { segment.add(value, at); });
    at += std::max<std::size_t>(point.length, 1);
  }
  segment.flush();
  rewriting.reached(~std::size_t{0});
}

CORBEL_INLINE void lowercase(Rewriting& rewriting) {
  const std::string_view text = rewriting.text();
  std::string& out = rewriting.out();
  for (std::size_t at = 0; at < text.size();) {
    rewriting.reached(at);
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80) {
      out += static_cast<char>(first >= 'A' && first <= 'Z' ? first + ('a' - 'A') : first);
      ++at;
      continue;
    }
    const detail::CodePoint point = detail::decode_utf8(text, at);
    const LowerRange* range =
        std::lower_bound(std::begin(kLowerRanges), std::end(kLowerRanges), point.value,
                         [](const LowerRange& candidate, std::uint32_t value) { return candidate.last < value; });
    const bool has = range != std::end(kLowerRanges) && point.value >= range->first &&
                     (point.value - range->first) % range->step == 0 && point.length != 0;
    if (point.value == 0x130) {
      out += "i\xCC\x87";
    } else if (point.value == 0xA7CE || point.value == 0xA7D2 || point.value == 0xA7D4) {  // of Unicode 17
      detail::append_utf8(out, point.value + 1);
    } else if (point.value >= 0x16EA0 && point.value <= 0x16EB8) {
      detail::append_utf8(out, point.value + 27);
    } else if (has) {
      detail::append_utf8(out, static_cast<std::uint32_t>(static_cast<std::int32_t>(point.value) + range->delta));
    } else {
      out.append(text, at, std::max<std::size_t>(point.length, 1));
    }
    at += std::max<std::size_t>(point.length, 1);
  }
  rewriting.reached(~std::size_t{0});
}

}  // namespace text
CORBEL_NAMESPACE_END
