// Scanners of the patterns that one model family each uses: Falcon, DeepSeek-LLM, EXAONE-MoE, Kimi-K2. As scanners.hpp.
#pragma once

#include <corbel/impl/text/scanners.hpp>

#include <algorithm>
#include <iterator>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace text {

namespace scan {

struct CodePoints {
  std::uint32_t first;
  std::uint32_t last;
};

template <std::size_t kCount>
bool is_among(const CodePoints (&ranges)[kCount], std::uint32_t point) noexcept {
  const CodePoints* range = std::partition_point(std::begin(ranges), std::end(ranges),
                                                 [point](const CodePoints& r) { return r.last < point; });
  return range != std::end(ranges) && range->first <= point;
}

// clang-format off
// The letters with case that DeepSeek-LLM's pattern lists.
inline constexpr CodePoints kDeepseekLetterPoints[] = {
    {0x41, 0x5A}, {0x61, 0x7A}, {0xB5, 0xB5}, {0xC0, 0xD6}, {0xD8, 0xF6}, {0xF8, 0x1BA}, {0x1BC, 0x1BF},
    {0x1C4, 0x293}, {0x295, 0x2AF}, {0x370, 0x373}, {0x376, 0x376}, {0x377, 0x377}, {0x37B, 0x37D}, {0x37F, 0x37F},
    {0x386, 0x386}, {0x388, 0x38A}, {0x38C, 0x38C}, {0x38E, 0x3A1}, {0x3A3, 0x3F5}, {0x3F7, 0x481}, {0x48A, 0x52F},
    {0x531, 0x556}, {0x10A0, 0x10C5}, {0x13A0, 0x13F5}, {0x13F8, 0x13FD}, {0x1C90, 0x1CBA}, {0x1CBD, 0x1CBF},
    {0x1D00, 0x1D2B}, {0x1D6B, 0x1D77}, {0x1D79, 0x1D9A}, {0x1E00, 0x1F15}, {0x1F18, 0x1F1D}, {0x1F20, 0x1F45},
    {0x1F48, 0x1F4D}, {0x1F50, 0x1F57}, {0x1F59, 0x1F59}, {0x1F5B, 0x1F5B}, {0x1F5D, 0x1F5D}, {0x1F5F, 0x1F7D},
    {0x1F80, 0x1FB4}, {0x1FB6, 0x1FBC}, {0x1FBE, 0x1FBE}, {0x1FC2, 0x1FC4}, {0x1FC6, 0x1FCC}, {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB}, {0x1FE0, 0x1FEC}, {0x1FF2, 0x1FF4}, {0x1FF6, 0x1FFC}, {0x2102, 0x2102}, {0x2107, 0x2107},
    {0x210A, 0x2113}, {0x2115, 0x2115}, {0x2119, 0x211D}, {0x2124, 0x2124}, {0x2126, 0x2126}, {0x2128, 0x2128},
    {0x212A, 0x212D}, {0x212F, 0x2134}, {0x2139, 0x2139}, {0x213C, 0x213F}, {0x2145, 0x2149}, {0x214E, 0x214E},
    {0x2183, 0x2183}, {0x2184, 0x2184}, {0x2C00, 0x2C7B}, {0x2C7E, 0x2CE4}, {0x2CEB, 0x2CEE}, {0x2CF2, 0x2CF2},
    {0x2CF3, 0x2CF3}, {0xA640, 0xA66D}, {0xA680, 0xA69B}, {0xA722, 0xA76F}, {0xA771, 0xA787}, {0xA78B, 0xA78E},
    {0xAB70, 0xABBF}, {0xFB00, 0xFB06}, {0xFB13, 0xFB17}, {0xFF21, 0xFF3A}, {0xFF41, 0xFF5A}, {0x10400, 0x1044F},
    {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF},
    {0x1E900, 0x1E943}};

// \p{Han}
inline constexpr CodePoints kHanPoints[] = {
    {0x2E80, 0x2E99}, {0x2E9B, 0x2EF3}, {0x2F00, 0x2FD5}, {0x3005, 0x3005}, {0x3007, 0x3007}, {0x3021, 0x3029},
    {0x3038, 0x303B}, {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFA6D}, {0xFA70, 0xFAD9}, {0x16FE2, 0x16FE3},
    {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739}, {0x2B740, 0x2B81D}, {0x2B820, 0x2CEA1},
    {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D}, {0x30000, 0x3134A}, {0x31350, 0x323AF}};
// clang-format on

inline bool is_han(const Point& p) noexcept { return p.value >= 0x2E80 && is_among(kHanPoints, p.value); }

// [\p{P}\$\+<=>\^~\|]+, with kBacktick also `
template <bool kBacktick>
std::size_t marks(TextCursor& cursor, std::size_t at) {
  return cursor.skip(at, [](const Point& p) {
    if (p.type == CharClass::kPunctuation) return true;
    if (p.value >= 0x80 || p.length == 0) return false;
    const char c = static_cast<char>(p.value);
    return std::string_view("$+<=>^~|").find(c) != std::string_view::npos || (kBacktick && c == '`');
  });
}

// [0-9][0-9][0-9]
inline std::size_t three_digits(TextCursor& cursor, std::size_t at) {
  for (std::size_t i = 0; i < 3; ++i) {
    const Point p = cursor.point(at + i);
    if (p.value < '0' || p.value > '9') return at;
  }
  return at + 3;
}

// \s?[...]+ : a white space that is itself in the set is part of it where nothing else follows.
template <class Inside>
std::size_t spaced_run(TextCursor& cursor, std::size_t at, Inside&& inside) {
  const Point first = cursor.point(at);
  if (first.space()) {
    const std::size_t body = at + first.length;
    if (const std::size_t end = cursor.skip(body, inside); end > body) return end;
  }
  return cursor.skip(at, inside);
}

inline std::size_t deepseek_letters(TextCursor& cursor, std::size_t at) {
  return spaced_run(cursor, at, [](const Point& p) { return is_among(kDeepseekLetterPoints, p.value); });
}

// \s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+
inline std::size_t deepseek_marks(TextCursor& cursor, std::size_t at) {
  return spaced_run(cursor, at, [](const Point& p) {
    return (p.value >= '!' && p.value <= '/') || (p.value >= ':' && p.value <= '~') ||
           (p.value >= 0xFF01 && p.value <= 0xFF0F) || (p.value >= 0xFF1A && p.value <= 0xFF5E) ||
           (p.value >= 0x2018 && p.value <= 0x201F) || (p.value >= 0x3000 && p.value <= 0x3002);
  });
}

// \s+$ : white space up to the last place in its run where a line or the text ends.
inline std::size_t last_spaces(TextCursor& cursor, std::size_t at) {
  if (cursor.in_failed_run(at)) return at;
  std::size_t found = at;
  std::size_t end = at;
  for (Point here = cursor.point(at); here.length != 0 && here.space(); here = cursor.point(end)) {
    end += here.length;
    if (end >= cursor.size() || cursor.point(end).value == '\n') found = end;
  }
  if (found == at) cursor.set_failed_run(at, end);
  return found;
}

// contractions|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|
// \s+(?!\S)|\s+ : words with single spaces between them are one.
inline std::size_t exaone_moe(TextCursor& cursor, std::size_t at) {
  if (const std::size_t end = contraction(cursor, at, Case::kFolded); end > at) return end;
  const auto words = [&](std::size_t from) {
    std::size_t end = from;
    for (;;) {
      const Point here = cursor.point(end);
      const bool spaced = end > from && here.value == ' ';
      const Point letter = spaced ? cursor.point(end + 1) : here;
      if (!letter.letter()) return end;
      end += (spaced ? 1 : 0) + letter.length;
      end = cursor.skip(end, [](const Point& p) { return p.type == CharClass::kMark; });
    }
  };
  const Point first = cursor.point(at);
  if (first.letter()) return words(at);
  if (first.number()) return at + first.length;
  if (!first.newline()) {
    const std::size_t body = at + first.length;
    if (const std::size_t end = words(body); end > body) return end;
  }
  const std::size_t mark = first.value == ' ' ? at + 1 : at;
  if (const std::size_t end = cursor.skip_others(mark); end > mark) {
    return cursor.point(end).newline() ? end + 1 : end;
  }
  return spaces_by_line(cursor, at);
}

// Kimi-K2: [\p{Han}]+|[^\r\n\p{L}\p{N}]? before the two word shapes of o200k without Han, and a contraction after it|
// \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
inline std::size_t kimi(TextCursor& cursor, std::size_t at) {
  const Point first = cursor.point(at);
  if (is_han(first)) return cursor.skip(at, is_han);
  if (first.number()) return cursor.skip_numbers(at, 3);
  const bool prefix = !first.letter() && !first.newline();
  const std::size_t body = prefix ? at + first.length : at;
  for (const auto shape : {ends_lower<true>, starts_upper<true>}) {
    std::size_t end = shape(cursor, body);
    std::size_t begin = body;
    if (end == body && prefix) end = shape(cursor, begin = at);
    if (end > begin) return contraction(cursor, end, Case::kFolded);
  }
  const std::size_t mark = first.value == ' ' ? at + 1 : at;
  if (const std::size_t end = cursor.skip_others(mark); end > mark) return cursor.skip_newlines(end);
  return spaces_by_line(cursor, at);
}

}  // namespace scan

}  // namespace text
CORBEL_NAMESPACE_END
