// TextCursor: what the scanners of patterns read a text with.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/unicode.hpp>
#include <corbel/text/unicode_properties.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace text {

inline constexpr std::array<CharClass, 128> kAsciiClass = [] {
  std::array<CharClass, 128> out{};
  for (std::uint32_t value = 0; value < 128; ++value) out[value] = char_class(value);
  return out;
}();

/// The general category, two letters.
inline std::string_view category_name(std::uint32_t code_point) noexcept {
  std::size_t low = 0;
  for (std::size_t high = std::size(kCategoryRuns); high - low > 1;) {
    const std::size_t middle = (low + high) / 2;
    (kCategoryRuns[middle] >> 5 <= code_point ? low : high) = middle;
  }
  return kCategoryNames[kCategoryRuns[low] & 31];
}

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

  /// The cursor's text is text[0, end).
  TextCursor(std::string_view text, std::uint64_t& steps) noexcept : text_(text), steps_(steps) {}
  void set_text(std::string_view text) noexcept { text_ = text; }
  std::size_t size() const noexcept { return text_.size(); }

  Point point(std::size_t at) noexcept {
    if (at >= text_.size()) return {};
    ++steps_;
    const auto first = static_cast<unsigned char>(text_[at]);
    if (first < 0x80) return {first, 1, kAsciiClass[first]};
    const detail::CodePoint decoded = detail::decode_utf8(text_, at);
    if (decoded.length == 0) return {0xFFFD, 1, CharClass::kSymbol};
    return {decoded.value, decoded.length, char_class(decoded.value)};
  }

  /// A run of characters in which a scanner's match begins nowhere: remembered, so that each is looked at once.
  bool in_failed_run(std::size_t at) const noexcept { return at >= failed_begin_ && at < failed_end_; }
  void set_failed_run(std::size_t begin, std::size_t end) noexcept {
    failed_begin_ = begin;
    failed_end_ = end;
  }

  /// Decimal digits from `at` on, which is one of their run: how many are left. Linear over all calls in one run.
  std::size_t digits_left(std::size_t at) noexcept;
  std::size_t digits_end() const noexcept { return digits_end_; }

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
  std::size_t digits_at_ = 0;
  std::size_t digits_end_ = 0;
  std::size_t digits_left_ = 0;
  std::size_t failed_begin_ = 0;
  std::size_t failed_end_ = 0;
};

inline bool is_decimal(const TextCursor::Point& p) noexcept {
  return p.number() && (p.value < 0x80 || category_name(p.value) == "Nd");
}

/// \w as Oniguruma sees it.
inline bool is_word(const TextCursor::Point& p) noexcept {
  if (p.letter() || p.type == CharClass::kMark) return true;
  if (p.value < 0x80) return p.number() || p.value == '_';
  if (p.type == CharClass::kPunctuation) return category_name(p.value) == "Pc";
  if (p.number()) return category_name(p.value) != "No" || (p.value <= 0xBE && p.value >= 0xB2);
  return (p.value >= 0x24B6 && p.value <= 0x24E9) || (p.value >= 0x1F130 && p.value <= 0x1F149) ||
         (p.value >= 0x1F150 && p.value <= 0x1F169) || (p.value >= 0x1F170 && p.value <= 0x1F189);
}

inline std::size_t TextCursor::digits_left(std::size_t at) noexcept {
  // Asked for again further on in the same run, only what lies between is counted.
  if (at < digits_at_ || at >= digits_end_) {
    digits_at_ = at;
    digits_left_ = 0;
    digits_end_ = skip(at, [this](const Point& p) {
      digits_left_ += is_decimal(p) ? 1u : 0u;
      return is_decimal(p);
    });
  }
  while (digits_at_ < at) {
    digits_at_ += point(digits_at_).length;
    --digits_left_;
  }
  return digits_left_;
}

}  // namespace text
CORBEL_NAMESPACE_END
