// What tokenizers ask about a code point, from Unicode 16 tables of our own: ids never depend on the host's locale or
// libraries.
#pragma once

#include <corbel/config.hpp>
#include <corbel/text/unicode_tables.hpp>

#include <cstdint>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// General category, as coarse as the published patterns need it. Values are those of the generated table.
enum class CharClass : std::uint8_t {
  kOther = 0,        ///< C*: controls, formats, private, unassigned
  kUpper = 1,        ///< Lu
  kLower = 2,        ///< Ll
  kTitle = 3,        ///< Lt
  kModifier = 4,     ///< Lm
  kOtherLetter = 5,  ///< Lo
  kMark = 6,         ///< M*
  kNumber = 7,       ///< N*
  kPunctuation = 8,  ///< P*
  kSymbol = 9,       ///< S*
  kSpace = 10,       ///< the property White_Space (all of Z*, and six controls)
};

/// Code points above 10FFFF are kOther.
constexpr CharClass char_class(std::uint32_t code_point) noexcept {
  if (code_point > 0x10FFFFu) return CharClass::kOther;
  const std::uint32_t block = kUnicodeBlockOf[code_point >> 8];
  const std::uint64_t word = kUnicodeBlocks[block * 16 + (code_point >> 4 & 15u)];
  return static_cast<CharClass>(word >> (4 * (code_point & 15u)) & 15u);
}

inline bool is_letter(CharClass c) noexcept { return c >= CharClass::kUpper && c <= CharClass::kOtherLetter; }
inline bool is_number(CharClass c) noexcept { return c == CharClass::kNumber; }
inline bool is_space(CharClass c) noexcept { return c == CharClass::kSpace; }

}  // namespace text
CORBEL_NAMESPACE_END
