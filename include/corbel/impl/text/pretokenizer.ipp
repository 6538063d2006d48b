// Definitions of text/pretokenizer.hpp. To add a pre-tokenizer, add a row to kPretokenizers; to add a pattern, a
// scanner.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/pretokenizer.hpp>
#include <corbel/text/unicode.hpp>

#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// Code points of a valid UTF-8 text; counts how many are looked at.
class TextCursor {
 public:
  struct Point {
    std::uint32_t value = 0;
    std::uint32_t length = 0;  // 0 at the end of the text
    CharClass type = CharClass::kOther;

    bool letter() const noexcept { return is_letter(type); }
    bool number() const noexcept { return is_number(type); }
    bool space() const noexcept { return is_space(type); }
    bool newline() const noexcept { return value == '\n' || value == '\r'; }
    /// [^\s\p{L}\p{N}]
    bool other() const noexcept { return length != 0 && !letter() && !number() && !space(); }
    /// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
    bool upper_like() const noexcept { return caseless() || type == CharClass::kUpper || type == CharClass::kTitle; }
    /// [\p{Ll}\p{Lm}\p{Lo}\p{M}]
    bool lower_like() const noexcept { return caseless() || type == CharClass::kLower; }
    /// [\p{Lm}\p{Lo}\p{M}]: in both of the above
    bool caseless() const noexcept {
      return type == CharClass::kModifier || type == CharClass::kOtherLetter || type == CharClass::kMark;
    }
  };

  TextCursor(std::string_view text, std::uint64_t& steps) noexcept : text_(text), steps_(steps) {}
  std::size_t size() const noexcept { return text_.size(); }

  Point point(std::size_t at) noexcept {
    if (at >= text_.size()) return {};
    ++steps_;
    const detail::CodePoint decoded = detail::decode_utf8(text_, at);
    if (decoded.length == 0) return {0xFFFD, 1, CharClass::kSymbol};
    return {decoded.value, decoded.length, char_class(decoded.value)};
  }

  /// The end of the run of code points from `at` on for which `wanted` holds, at most `limit` of them.
  template <class Wanted>
  std::size_t skip(std::size_t at, Wanted&& wanted, std::size_t limit = ~std::size_t{0}) noexcept {
    for (Point here = point(at); here.length != 0 && limit != 0 && wanted(here); here = point(at)) {
      at += here.length;
      --limit;
    }
    return at;
  }
  std::size_t skip_letters(std::size_t at) noexcept {
    return skip(at, [](const Point& p) { return p.letter(); });
  }
  std::size_t skip_numbers(std::size_t at, std::size_t limit = ~std::size_t{0}) noexcept {
    return skip(
        at, [](const Point& p) { return p.number(); }, limit);
  }
  std::size_t skip_others(std::size_t at) noexcept {
    return skip(at, [](const Point& p) { return p.other(); });
  }
  std::size_t skip_newlines(std::size_t at) noexcept {
    return skip(at, [](const Point& p) { return p.newline(); });
  }

 private:
  std::string_view text_;
  std::uint64_t& steps_;
};

namespace scan {

using Point = TextCursor::Point;

// 's|'t|'re|'ve|'m|'ll|'d; with `any_case` as under (?i), where U+017F is a small s.
CORBEL_INLINE std::size_t contraction(TextCursor& cursor, std::size_t at, bool any_case) {
  if (cursor.point(at).value != '\'') return at;
  const auto letter = [&](const Point& p) -> std::uint32_t {
    if (!any_case) return p.value;
    if (p.value == 0x17F) return 's';
    return p.value >= 'A' && p.value <= 'Z' ? p.value + ('a' - 'A') : p.value;
  };
  const Point first = cursor.point(at + 1);
  const std::size_t after = at + 1 + first.length;
  switch (letter(first)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return after;
    case 'r':
    case 'v':
      return letter(cursor.point(after)) == 'e' ? after + 1 : at;
    case 'l':
      return letter(cursor.point(after)) == 'l' ? after + 1 : at;
    default:
      return at;
  }
}

// \s+(?!\S)|\s+ : a run of spaces, without its last one where something follows and the run has two or more.
CORBEL_INLINE std::size_t spaces(TextCursor& cursor, std::size_t at) {
  std::size_t last = at;
  std::size_t end = at;
  for (Point here = cursor.point(end); here.length != 0 && here.space(); here = cursor.point(end)) {
    last = end;
    end += here.length;
  }
  return end < cursor.size() && last > at ? last : end;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ : the same, but a run that holds line ends goes up to the last of them.
CORBEL_INLINE std::size_t spaces_by_line(TextCursor& cursor, std::size_t at) {
  std::size_t line_end = at;
  for (std::size_t end = at;;) {
    const Point here = cursor.point(end);
    if (here.length == 0 || !here.space()) break;
    end += here.length;
    if (here.newline()) line_end = end;
  }
  return line_end > at ? line_end : spaces(cursor, at);
}

// GPT-2: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
CORBEL_INLINE std::size_t gpt2(TextCursor& cursor, std::size_t at) {
  if (const std::size_t end = contraction(cursor, at, false); end > at) return end;
  std::size_t body = at;
  Point lead = cursor.point(at);
  if (lead.value == ' ') {
    const Point second = cursor.point(at + 1);
    if (second.length != 0 && !second.space()) {
      body = at + 1;
      lead = second;
    }
  }
  if (lead.letter()) return cursor.skip_letters(body);
  if (lead.number()) return cursor.skip_numbers(body);
  if (lead.other()) return cursor.skip_others(body);
  return spaces(cursor, at);
}

// cl100k and what follows it: (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,kDigits}|
// ?[^\s\p{L}\p{N}]+[\r\n]*
// |\s*[\r\n]+|\s+(?!\S)|\s+
template <std::size_t kDigits>
std::size_t cl100k(TextCursor& cursor, std::size_t at) {
  if (const std::size_t end = contraction(cursor, at, true); end > at) return end;
  const Point first = cursor.point(at);
  if (first.number()) return cursor.skip_numbers(at, kDigits);
  const std::size_t body = first.letter() || first.newline() ? at : at + first.length;
  if (const std::size_t end = cursor.skip_letters(body); end > body) return end;
  const std::size_t mark = first.value == ' ' ? at + 1 : at;
  if (const std::size_t end = cursor.skip_others(mark); end > mark) return cursor.skip_newlines(end);
  return spaces_by_line(cursor, at);
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ from `at`, or `at`.
CORBEL_INLINE std::size_t ends_lower(TextCursor& cursor, std::size_t at) {
  std::size_t end = at;
  std::size_t after_caseless = at;  // the place to which the first part gives back
  for (Point here = cursor.point(end); here.upper_like(); here = cursor.point(end)) {
    end += here.length;
    if (here.caseless()) after_caseless = end;
  }
  const std::size_t lower = cursor.skip(end, [](const Point& p) { return p.lower_like(); });
  return lower > end ? lower : after_caseless;
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]* from `at`, or `at`.
CORBEL_INLINE std::size_t starts_upper(TextCursor& cursor, std::size_t at) {
  const std::size_t end = cursor.skip(at, [](const Point& p) { return p.upper_like(); });
  return end == at ? at : cursor.skip(end, [](const Point& p) { return p.lower_like(); });
}

// o200k and tekken: [^\r\n\p{L}\p{N}]? before either of the two word shapes above (o200k: and a contraction after it),
// |\p{N}{1,kDigits} | ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <std::size_t kDigits, bool kContractions>
std::size_t o200k(TextCursor& cursor, std::size_t at) {
  const Point first = cursor.point(at);
  if (first.number()) return cursor.skip_numbers(at, kDigits);
  const bool prefix = !first.letter() && !first.newline();
  const std::size_t body = prefix ? at + first.length : at;
  for (const Scanner shape : {ends_lower, starts_upper}) {
    std::size_t end = shape(cursor, body);
    std::size_t begin = body;
    if (end == body && prefix) end = shape(cursor, begin = at);  // a mark is no prefix where it has to be the body
    if (end > begin) return kContractions ? contraction(cursor, end, true) : end;
  }
  const std::size_t mark = first.value == ' ' ? at + 1 : at;
  if (const std::size_t end = cursor.skip_others(mark); end > mark) {
    return cursor.skip(end, [](const Point& p) { return p.newline() || p.value == '/'; });
  }
  return spaces_by_line(cursor, at);
}

// [\r\n]
CORBEL_INLINE std::size_t newline(TextCursor& cursor, std::size_t at) {
  return at + (cursor.point(at).newline() ? 1 : 0);
}

// \p{N}, one at a time. The reference implements this stage apart from its patterns, with the numbers of Unicode 17;
// they are added here.
CORBEL_INLINE std::size_t digit(TextCursor& cursor, std::size_t at) {
  const Point p = cursor.point(at);
  const bool newer = (p.value >= 0x11DE0 && p.value <= 0x11DE9) || (p.value >= 0x16FF4 && p.value <= 0x16FF6);
  return p.number() || newer ? at + p.length : at;
}

// \s?\p{L}+
CORBEL_INLINE std::size_t spaced_letters(TextCursor& cursor, std::size_t at) {
  const Point first = cursor.point(at);
  const std::size_t body = first.space() ? at + first.length : at;
  const std::size_t end = cursor.skip_letters(body);
  return end > body ? end : at;
}

// \p{P}+
CORBEL_INLINE std::size_t punctuation(TextCursor& cursor, std::size_t at) {
  return cursor.skip(at, [](const Point& p) { return p.type == CharClass::kPunctuation; });
}

// \s?\p{P}+
CORBEL_INLINE std::size_t spaced_punctuation(TextCursor& cursor, std::size_t at) {
  const Point first = cursor.point(at);
  const std::size_t body = first.space() ? at + first.length : at;
  const std::size_t end = punctuation(cursor, body);
  return end > body ? end : at;
}

// [\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+
CORBEL_INLINE std::size_t east_asian(TextCursor& cursor, std::size_t at) {
  return cursor.skip(at, [](const Point& p) {
    return (p.value >= 0x0800 && p.value <= 0x9FA5) || (p.value >= 0xAC00 && p.value <= 0xD7FF);
  });
}

}  // namespace scan

// Published by: openai/gpt-2; HuggingFaceTB/SmolLM, bigcode/starcoder, smallcloudai/Refact, CohereForAI/c4ai-command-r
// (single digits, then GPT-2); deepseek-ai/deepseek-coder; meta-llama/Meta-Llama-3; Qwen/Qwen2; mistralai/Mistral-Nemo;
// openai/tiktoken (o200k), in tokenizer.json or source.
inline constexpr Pretokenizer kPretokenizers[] = {
    {"default", {scan::gpt2}, false, false},
    {"gpt-2", {scan::gpt2}, false, false},
    {"phi-2", {scan::gpt2}, false, false},
    {"mpt", {scan::gpt2}, false, false},
    {"olmo", {scan::gpt2}, false, false},
    {"smollm", {scan::digit, scan::gpt2}, false, false},
    {"starcoder", {scan::digit, scan::gpt2}, false, false},
    {"refact", {scan::digit, scan::gpt2}, false, false},
    {"command-r", {scan::digit, scan::gpt2}, false, false},
    {"codeshell", {scan::digit, scan::gpt2}, false, false},
    {"deepseek-coder",
     {scan::newline, scan::spaced_letters, scan::spaced_punctuation, scan::east_asian, scan::digit},
     false,
     false},
    {"llama-bpe", {scan::cl100k<3>}, true, true},
    {"llama3", {scan::cl100k<3>}, true, true},
    {"llama-v3", {scan::cl100k<3>}, true, true},
    {"dbrx", {scan::cl100k<3>}, false, false},
    {"smaug-bpe", {scan::cl100k<3>}, false, false},
    {"qwen2", {scan::cl100k<1>}, false, false},
    {"deepseek-r1-qwen", {scan::cl100k<1>}, false, false},
    {"stablelm2", {scan::cl100k<1>}, false, false},
    {"tekken", {scan::o200k<1, false>}, true, true},
    {"gpt-4o", {scan::o200k<3, true>}, false, false},
};

CORBEL_INLINE const Pretokenizer* find_pretokenizer(std::string_view name) noexcept {
  for (const Pretokenizer& row : kPretokenizers) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

CORBEL_INLINE void pretokenize(const Pretokenizer& pretokenizer, std::string_view text,
                               std::vector<std::uint32_t>& ends, std::vector<std::uint32_t>& spare,
                               std::uint64_t& steps) {
  ends.clear();
  if (text.empty()) return;
  ends.push_back(static_cast<std::uint32_t>(text.size()));
  for (const Scanner scanner : pretokenizer.scanners) {
    if (scanner == nullptr) break;
    spare.clear();
    std::size_t begin = 0;
    for (const std::uint32_t end : ends) {
      TextCursor cursor(text.substr(0, end), steps);
      std::size_t gap = begin;
      for (std::size_t at = begin; at < end;) {
        const std::size_t match = scanner(cursor, at);
        if (match == at) {
          at += cursor.point(at).length;
          continue;
        }
        if (gap < at) spare.push_back(static_cast<std::uint32_t>(at));
        spare.push_back(static_cast<std::uint32_t>(match));
        at = gap = match;
      }
      if (gap < end) spare.push_back(end);
      begin = end;
    }
    ends.swap(spare);
  }
}

}  // namespace text
CORBEL_NAMESPACE_END
