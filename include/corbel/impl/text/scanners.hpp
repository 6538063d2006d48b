// The scanners of published patterns: each reads every code point a bounded number of times. Private to the words of
// texts; pretokenizer.ipp says which pattern each is of.
#pragma once

#include <corbel/impl/text/text_cursor.hpp>

#include <cstddef>
#include <cstdint>

CORBEL_NAMESPACE_BEGIN
namespace text {

namespace scan {

using Point = TextCursor::Point;

inline constexpr std::size_t kAny = ~std::size_t{0};

enum class Case : std::uint8_t {
  kNone,     // no contractions at all
  kLower,    // as written
  kLetters,  // both cases, spelled out: '[sS]
  kFolded,   // under (?i), where U+017F is a small s
};

// 's|'t|'re|'ve|'m|'ll|'d
inline std::size_t contraction(TextCursor& cursor, std::size_t at, Case letters) {
  if (cursor.point(at).value != '\'') return at;
  const auto letter = [&](const Point& p) -> std::uint32_t {
    if (letters == Case::kLower) return p.value;
    if (p.value == 0x17F && letters == Case::kFolded) return 's';
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
inline std::size_t spaces(TextCursor& cursor, std::size_t at) {
  std::size_t last = at;
  std::size_t end = at;
  for (Point here = cursor.point(end); here.length != 0 && here.space(); here = cursor.point(end)) {
    last = end;
    end += here.length;
  }
  return end < cursor.size() && last > at ? last : end;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ : the same, but a run that holds line ends goes up to the last of them.
inline std::size_t spaces_by_line(TextCursor& cursor, std::size_t at) {
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
inline std::size_t gpt2(TextCursor& cursor, std::size_t at) {
  if (const std::size_t end = contraction(cursor, at, Case::kLower); end > at) return end;
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

// cl100k and what follows it: contractions|[^\r\n\p{L}\p{N}]?L+|\p{N}{1,kDigits}| ?[^\sL\p{N}]+[\r\n]*|\s*[\r\n]+|
// \s+(?!\S)|\s+ with L = \p{L}, or [\p{L}\p{M}] with kMarks; [\r\n]* is absent without kLineEnds.
template <std::size_t kDigits, Case kCase, bool kMarks = false, bool kLineEnds = true>
std::size_t cl100k(TextCursor& cursor, std::size_t at) {
  if constexpr (kCase != Case::kNone) {
    if (const std::size_t end = contraction(cursor, at, kCase); end > at) return end;
  }
  const auto letters = [&](std::size_t from) {
    return cursor.skip(from, [](const Point& p) { return p.letter() || (kMarks && p.type == CharClass::kMark); });
  };
  const Point first = cursor.point(at);
  if (first.letter()) return letters(at);
  if (first.number()) return cursor.skip_numbers(at, kDigits);
  if (!first.newline()) {
    const std::size_t body = at + first.length;
    if (const std::size_t end = letters(body); end > body) return end;
    if (kMarks && first.type == CharClass::kMark) return body;
  }
  const std::size_t mark = first.value == ' ' ? at + 1 : at;
  const std::size_t end =
      cursor.skip(mark, [](const Point& p) { return p.other() && !(kMarks && p.type == CharClass::kMark); });
  if (end > mark) return kLineEnds ? cursor.skip_newlines(end) : end;
  return spaces_by_line(cursor, at);
}

inline bool is_han(const Point& p) noexcept;

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ from `at`, or `at`; Han is in neither set with kNoHan.
template <bool kNoHan = false>
std::size_t ends_lower(TextCursor& cursor, std::size_t at) {
  const auto allowed = [](const Point& p) { return !kNoHan || !is_han(p); };
  std::size_t end = at;
  std::size_t after_caseless = at;  // the place to which the first part gives back
  for (Point here = cursor.point(end); here.upper_like() && allowed(here); here = cursor.point(end)) {
    end += here.length;
    if (here.caseless()) after_caseless = end;
  }
  const std::size_t lower = cursor.skip(end, [&](const Point& p) { return p.lower_like() && allowed(p); });
  return lower > end ? lower : after_caseless;
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]* from `at`, or `at`.
template <bool kNoHan = false>
std::size_t starts_upper(TextCursor& cursor, std::size_t at) {
  const auto allowed = [](const Point& p) { return !kNoHan || !is_han(p); };
  const std::size_t end = cursor.skip(at, [&](const Point& p) { return p.upper_like() && allowed(p); });
  return end == at ? at : cursor.skip(end, [&](const Point& p) { return p.lower_like() && allowed(p); });
}

// o200k and tekken: [^\r\n\p{L}\p{N}]? before either of the two word shapes above (o200k: and a contraction after it),
// |\p{N}{1,kDigits} | ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <std::size_t kDigits, Case kCase>
std::size_t o200k(TextCursor& cursor, std::size_t at) {
  const Point first = cursor.point(at);
  if (first.number()) return cursor.skip_numbers(at, kDigits);
  const bool prefix = !first.letter() && !first.newline();
  const std::size_t body = prefix ? at + first.length : at;
  for (const auto shape : {ends_lower<false>, starts_upper<false>}) {
    std::size_t end = shape(cursor, body);
    std::size_t begin = body;
    if (end == body && prefix) end = shape(cursor, begin = at);  // a mark is no prefix where it has to be the body
    if (end > begin) return kCase == Case::kNone ? end : contraction(cursor, end, kCase);
  }
  const std::size_t mark = first.value == ' ' ? at + 1 : at;
  if (const std::size_t end = cursor.skip_others(mark); end > mark) {
    return cursor.skip(end, [](const Point& p) { return p.newline() || p.value == '/'; });
  }
  return spaces_by_line(cursor, at);
}

// [\r\n]
inline std::size_t newline(TextCursor& cursor, std::size_t at) { return at + (cursor.point(at).newline() ? 1 : 0); }

// \p{N}, one at a time. The reference implements this stage apart from its patterns, with the numbers of Unicode 17;
// they are added here.
inline std::size_t digit(TextCursor& cursor, std::size_t at) {
  const Point p = cursor.point(at);
  const bool newer = (p.value >= 0x11DE0 && p.value <= 0x11DE9) || (p.value >= 0x16FF4 && p.value <= 0x16FF6);
  return p.number() || newer ? at + p.length : at;
}

// \s?\p{L}+
inline std::size_t spaced_letters(TextCursor& cursor, std::size_t at) {
  const Point first = cursor.point(at);
  const std::size_t body = first.space() ? at + first.length : at;
  const std::size_t end = cursor.skip_letters(body);
  return end > body ? end : at;
}

// \p{P}+
inline std::size_t punctuation(TextCursor& cursor, std::size_t at) {
  return cursor.skip(at, [](const Point& p) { return p.type == CharClass::kPunctuation; });
}

// \s?\p{P}+
inline std::size_t spaced_punctuation(TextCursor& cursor, std::size_t at) {
  const Point first = cursor.point(at);
  const std::size_t body = first.space() ? at + first.length : at;
  const std::size_t end = punctuation(cursor, body);
  return end > body ? end : at;
}

// [\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+
inline std::size_t east_asian(TextCursor& cursor, std::size_t at) {
  return cursor.skip(at, [](const Point& p) {
    return (p.value >= 0x0800 && p.value <= 0x9FA5) || (p.value >= 0xAC00 && p.value <= 0xD7FF);
  });
}

// [0-9]
inline std::size_t ascii_digit(TextCursor& cursor, std::size_t at) {
  const Point p = cursor.point(at);
  return p.value >= '0' && p.value <= '9' ? at + 1 : at;
}

// \d
inline std::size_t decimal(TextCursor& cursor, std::size_t at) {
  const Point p = cursor.point(at);
  return is_decimal(p) ? at + p.length : at;
}

// [\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+
inline std::size_t kana_han(TextCursor& cursor, std::size_t at) {
  return cursor.skip(at, [](const Point& p) {
    return (p.value >= 0x4E00 && p.value <= 0x9FA5) || (p.value >= 0x3040 && p.value <= 0x30FF);
  });
}

// \p{N}+ or \p{N}{1,kLimit}
template <std::size_t kLimit>
std::size_t numbers(TextCursor& cursor, std::size_t at) {
  return cursor.skip_numbers(at, kLimit);
}

// \d{1,3}(?=(?:\d{3})*\b) : groups of three, counted from the right end of a run of digits that ends a word; without
// kAtWordEnd as with (?!\d) for \b.
template <bool kAtWordEnd>
std::size_t digit_groups(TextCursor& cursor, std::size_t at) {
  if (!is_decimal(cursor.point(at))) return at;
  const std::size_t left = cursor.digits_left(at);
  if (kAtWordEnd) {
    const Point after = cursor.point(cursor.digits_end());
    if (after.length != 0 && is_word(after)) return at;
  }
  const std::size_t size = left % 3 == 0 ? 3 : left % 3;
  return cursor.skip(
      at, [](const Point&) { return true; }, size);
}

// (?=(\d{3})+(?!\d)) : an empty match before every group of three, counted from the right end of a run of digits; as
// a scanner, what lies between two of them.
inline std::size_t before_digit_groups(TextCursor& cursor, std::size_t at) {
  while (at < cursor.size()) {
    at += cursor.point(at).length;
    if (is_decimal(cursor.point(at)) && cursor.digits_left(at) % 3 == 0) break;
  }
  return at;
}

// [^\n]+|[\n]+
inline std::size_t lines(TextCursor& cursor, std::size_t at) {
  const bool ends = cursor.point(at).value == '\n';
  return cursor.skip(at, [ends](const Point& p) { return (p.value == '\n') == ends; });
}

// \S+
inline std::size_t not_spaces(TextCursor& cursor, std::size_t at) {
  return cursor.skip(at, [](const Point& p) { return !p.space(); });
}

// ` ?[^(\s|.,!?` and the full stops and commas of five scripts `)]+`, as in bigscience/bloom.
inline std::size_t bloom(TextCursor& cursor, std::size_t at) {
  const auto inside = [](const Point& p) {
    if (p.value < 0x80)
      return !p.space() && std::string_view("(|.,!?)").find(static_cast<char>(p.value)) == std::string_view::npos;
    return !p.space() && p.value != 0x2026 && p.value != 0x3002 && p.value != 0xFF0C && p.value != 0x3001 &&
           p.value != 0x964 && p.value != 0x6D4 && p.value != 0x60C;
  };
  const std::size_t body = cursor.point(at).value == ' ' ? at + 1 : at;
  const std::size_t end = cursor.skip(body, inside);
  return end > body ? end : at;
}

// DeepSeek-V3, its third pattern: ASCII punctuation and ASCII letters|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
// ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ . Other characters (numbers, controls) are gaps.
inline std::size_t deepseek3(TextCursor& cursor, std::size_t at) {
  const auto mark = [](const Point& p) { return p.type == CharClass::kPunctuation || p.type == CharClass::kSymbol; };
  const auto letter = [](const Point& p) { return p.letter() || p.type == CharClass::kMark; };
  const auto ascii_letter = [](const Point& p) { return p.value < 0x80 && p.letter(); };
  const Point first = cursor.point(at);
  const std::size_t second = at + first.length;
  if (first.value < 0x80 && mark(first)) {
    if (const std::size_t end = cursor.skip(second, ascii_letter); end > second) return end;
  }
  if (!first.newline() && !first.letter() && !mark(first)) {
    if (const std::size_t end = cursor.skip(second, letter); end > second) return end;
  }
  if (letter(first)) return cursor.skip(at, letter);
  const std::size_t body = first.value == ' ' ? at + 1 : at;
  if (const std::size_t end = cursor.skip(body, mark); end > body) return cursor.skip_newlines(end);
  return first.space() ? spaces_by_line(cursor, at) : at;
}

}  // namespace scan

}  // namespace text
CORBEL_NAMESPACE_END
