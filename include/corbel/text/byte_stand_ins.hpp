// The printable stand-ins of byte-level vocabularies.
#pragma once

#include <corbel/config.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// The printable stand-ins of GPT-2 (openai/gpt-2, encoder.py): printable Latin-1 bytes stand for themselves, the other
/// 68 follow from U+0100 on.
constexpr std::uint32_t stand_in(std::uint32_t byte) noexcept {
  if (byte <= 32) return 256 + byte;
  if (byte >= 127 && byte <= 160) return 256 + 33 + (byte - 127);
  if (byte == 173) return 256 + 67;
  return byte;
}

/// The byte behind a stand-in, or -1.
constexpr int byte_behind(std::uint32_t code_point) noexcept {
  if (code_point >= 256 + 68) return -1;
  if (code_point == 256 + 67) return 173;
  if (code_point >= 256 + 33) return static_cast<int>(code_point - 256 - 33 + 127);
  if (code_point >= 256) return static_cast<int>(code_point - 256);
  return stand_in(code_point) == code_point ? static_cast<int>(code_point) : -1;
}

/// Appends the bytes that a piece of a byte-level vocabulary stands for; one that is not spelled in stand-ins is text
/// itself.
inline void append_behind_stand_ins(std::string_view piece, std::string& out) {
  const std::size_t before = out.size();
  for (std::size_t at = 0; at < piece.size();) {
    const auto first = static_cast<unsigned char>(piece[at]);
    if (first > 32 && first < 127) {
      out += static_cast<char>(first);
      ++at;
      continue;
    }
    // All others are of two bytes.
    const auto second = static_cast<unsigned char>(at + 1 < piece.size() ? piece[at + 1] : '\0');
    const bool pair = first >= 0xC2 && first <= 0xC5 && (second & 0xC0) == 0x80;
    const int byte = pair ? byte_behind((first & 0x1Fu) << 6 | (second & 0x3Fu)) : -1;
    if (byte < 0) {
      out.resize(before);
      out += piece;
      return;
    }
    out += static_cast<char>(byte);
    at += 2;
  }
}

}  // namespace text
CORBEL_NAMESPACE_END
