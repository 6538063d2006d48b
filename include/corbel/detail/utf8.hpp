// Reading and repairing UTF-8. Decoding follows the Unicode Standard 16.0, table 3-7 (no overlong forms, no
// surrogates).
#pragma once

#include <corbel/config.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace detail {

/// One decoded code point; `length` is 0 where the bytes at the position are no valid sequence.
struct CodePoint {
  std::uint32_t value = 0;
  std::uint32_t length = 0;
};

/// Decodes the sequence that starts at text[at]; `at` must be inside the text.
inline CodePoint decode_utf8(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0x100u;
  };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0x1C0u) == 0x80u; };
  const std::uint32_t first = byte(0);
  if (first < 0x80u) return {first, 1};
  if (first >= 0xC2u && first <= 0xDFu && tail(1)) return {(first & 0x1Fu) << 6 | (byte(1) & 0x3Fu), 2};
  if (first >= 0xE0u && first <= 0xEFu && tail(1) && tail(2)) {
    const std::uint32_t value = (first & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    if (value >= 0x800u && (value < 0xD800u || value > 0xDFFFu)) return {value, 3};
  }
  if (first >= 0xF0u && first <= 0xF4u && tail(1) && tail(2) && tail(3)) {
    const std::uint32_t value =
        (first & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
    if (value >= 0x10000u && value <= 0x10FFFFu) return {value, 4};
  }
  return {};
}

/// Appends the UTF-8 form of a valid code point.
inline void append_utf8(std::string& out, std::uint32_t value) {
  if (value < 0x80u) {
    out += static_cast<char>(value);
  } else if (value < 0x800u) {
    out += static_cast<char>(0xC0u | value >> 6);
    out += static_cast<char>(0x80u | (value & 0x3Fu));
  } else if (value < 0x10000u) {
    out += static_cast<char>(0xE0u | value >> 12);
    out += static_cast<char>(0x80u | (value >> 6 & 0x3Fu));
    out += static_cast<char>(0x80u | (value & 0x3Fu));
  } else {
    out += static_cast<char>(0xF0u | value >> 18);
    out += static_cast<char>(0x80u | (value >> 12 & 0x3Fu));
    out += static_cast<char>(0x80u | (value >> 6 & 0x3Fu));
    out += static_cast<char>(0x80u | (value & 0x3Fu));
  }
}

/// True where the whole text is valid UTF-8.
inline bool is_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    if (point.length == 0) return false;
    at += point.length;
  }
  return true;
}

/// `text` as one printable line: control characters become \xNN, invalid bytes U+FFFD; cut to `limit` bytes (with
/// "..."; at least 3).
inline std::string printable(std::string_view text, std::size_t limit) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  std::size_t room_for_dots = 0;  // the length up to which "..." still fits behind
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    std::string piece;
    if (point.length == 0) {
      piece = "\xEF\xBF\xBD";
    } else if (point.value < 0x20u || (point.value >= 0x7Fu && point.value < 0xA0u)) {
      piece = {'\\', 'x', kHex[point.value >> 4 & 15u], kHex[point.value & 15u]};
    } else {
      piece = text.substr(at, point.length);
    }
    at += point.length == 0 ? 1 : point.length;
    if (out.size() + piece.size() > limit) {
      out.resize(room_for_dots);
      out += "...";
      break;
    }
    out += piece;
    if (out.size() + 3 <= limit) room_for_dots = out.size();
  }
  return out;
}

}  // namespace detail
CORBEL_NAMESPACE_END
