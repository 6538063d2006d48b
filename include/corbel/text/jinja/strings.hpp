// Operations on strings that methods and filters share. All keep track of content, and none looks at the locale.
#pragma once

#include <corbel/config.hpp>
#include <corbel/text/jinja/value.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

/// Python's str.isspace() for one code point.
bool is_space(std::uint32_t point) noexcept;
/// Python's "\s": the bytes of the white space that begins at `at`, or 0.
std::size_t space_length(std::string_view text, std::size_t at) noexcept;

enum class Case : std::uint8_t {
  kUpper,
  kLower,
  kSwap,
  kCapitalize,   ///< first character upper, rest lower
  kTitle,        ///< str.title(): after every character that is no letter
  kTitleFilter,  ///< the filter: after spaces, hyphens and opening brackets
};
Value change_case(const Text& text, Case to);

enum class CharacterClass : std::uint8_t { kSpace, kUpper, kLower, kAlpha, kDigit, kAlnum };
/// Python's isspace() and its kind: true where the text is not empty and all characters are of the class (of the cased
/// ones, for kUpper and kLower). Every number of Unicode counts as kDigit.
bool all_of_class(std::string_view text, CharacterClass wanted) noexcept;

/// str.strip and its halves: `characters` to remove, or white space where null.
Value strip(const Text& text, const Text* characters, bool left, bool right);
/// str.split and str.rsplit: at white space where `separator` is null; at most `limit` cuts where it is not negative.
/// The separator is not empty.
std::vector<Value> split(const Text& text, const Text* separator, std::int64_t limit, bool from_right);
std::vector<Value> split_lines(const Text& text, bool keep_ends);
/// str.replace; an empty `from` matches between characters. Charged for the result as it grows.
bool replace(Runtime& runtime, const Text& text, const Text& from, const Text& to, std::int64_t limit, Value& out);
/// Positions by bytes; npos where absent.
std::size_t find(std::string_view text, std::string_view needle, bool last) noexcept;
/// The number of characters in the first `bytes` bytes.
std::size_t count_characters(std::string_view text, std::size_t bytes) noexcept;
/// The byte position of a character; the size for positions past the end.
std::size_t byte_of_character(const Text& text, std::size_t character) noexcept;

/// The string as markup: itself where nothing else holds it.
Value as_markup(Value text);
/// & < > " ' as character references; markup is the result as it is.
Value escape_markup(const Value& text);

enum class Align : std::uint8_t { kLeft, kRight, kCenter };
/// Pads with `fill` to `width` characters.
bool pad(Runtime& runtime, const Text& text, std::int64_t width, Align align, std::string_view fill, Value& out);

}  // namespace text::jinja
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/jinja/strings.ipp>
#endif
