// Replacing what is no valid UTF-8 by U+FFFD: the Unicode Standard 16.0, section 3.9, substitution of maximal subparts.
#pragma once

#include <corbel/config.hpp>
#include <corbel/detail/utf8.hpp>

#include <cstddef>
#include <string>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace detail {

/// Bytes at `text[at]` that begin a well-formed sequence without finishing it; 0 where they cannot (Unicode
/// Standard 16.0, table 3-7).
inline std::size_t unfinished_utf8(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const std::size_t left = text.size() - at;
  const unsigned char first = byte(0);
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t wanted = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  std::size_t have = 1;
  if (have < left) {
    const unsigned char low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (byte(1) < low || byte(1) > high) return have;
    for (have = 2; have < left && have < wanted && (byte(have) & 0xC0) == 0x80;) ++have;
  }
  return have < wanted ? have : 0;
}

/// Where no valid sequence begins: the bytes that one U+FFFD stands for, the longest part that begins one, or a single
/// byte.
inline std::size_t invalid_utf8_length(std::string_view text, std::size_t at) noexcept {
  const std::size_t begun = unfinished_utf8(text, at);
  return begun == 0 ? 1 : begun;
}

/// Moves the finished code points of `pending` to the end of `out`, with U+FFFD for every longest stretch that begins
/// none or breaks off; what may still be finished stays, unless `all`.
inline void take_whole_characters(std::string& pending, bool all, std::string& out) {
  std::size_t at = 0;
  while (at < pending.size()) {
    const CodePoint point = decode_utf8(pending, at);
    if (point.length != 0) {
      out.append(pending, at, point.length);
      at += point.length;
      continue;
    }
    if (!all && at + unfinished_utf8(pending, at) == pending.size()) break;
    out += "\xEF\xBF\xBD";
    at += invalid_utf8_length(pending, at);
  }
  pending.erase(0, at);
}

}  // namespace detail
CORBEL_NAMESPACE_END
