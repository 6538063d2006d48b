// Definitions of text/jinja/strings.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/jinja/case_tables.hpp>
#include <corbel/text/jinja/strings.hpp>
#include <corbel/text/unicode.hpp>

#include <algorithm>
#include <iterator>
#include <string>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

CORBEL_INLINE bool is_space(std::uint32_t point) noexcept {
  return (point >= 0x09 && point <= 0x0D) || (point >= 0x1C && point <= 0x20) || point == 0x85 || point == 0xA0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

CORBEL_INLINE std::size_t space_length(std::string_view text, std::size_t at) noexcept {
  const detail::CodePoint point = detail::decode_utf8(text, at);
  return point.length != 0 && is_space(point.value) ? point.length : 0;
}

// --- case

CORBEL_INLINE std::uint32_t map_case(std::uint32_t point, const CaseRange* begin, const CaseRange* end) noexcept {
  const CaseRange* range = std::partition_point(begin, end, [point](const CaseRange& r) { return r.last < point; });
  if (range == end || point < range->first || (point - range->first) % range->step != 0) return point;
  return static_cast<std::uint32_t>(static_cast<std::int64_t>(point) + range->delta);
}

CORBEL_INLINE std::uint32_t to_lower(std::uint32_t point) noexcept {
  if (point < 0x80) return point >= 'A' && point <= 'Z' ? point + 32 : point;
  return map_case(point, std::begin(kToLower), std::end(kToLower));
}

CORBEL_INLINE std::uint32_t to_upper(std::uint32_t point) noexcept {
  if (point < 0x80) return point >= 'a' && point <= 'z' ? point - 32 : point;
  return map_case(point, std::begin(kToUpper), std::end(kToUpper));
}

CORBEL_INLINE const CaseExpansion* upper_expansion(std::uint32_t point) noexcept {
  const CaseExpansion* end = std::end(kUpperExpansions);
  const CaseExpansion* found = std::partition_point(std::begin(kUpperExpansions), end,
                                                    [point](const CaseExpansion& e) { return e.from < point; });
  return found != end && found->from == point ? found : nullptr;
}

CORBEL_INLINE bool is_upper(std::uint32_t point) noexcept { return to_lower(point) != point; }
CORBEL_INLINE bool is_lower(std::uint32_t point) noexcept {
  return to_upper(point) != point || upper_expansion(point) != nullptr;
}
CORBEL_INLINE bool is_cased(std::uint32_t point) noexcept { return is_upper(point) || is_lower(point); }

CORBEL_INLINE void append_upper(std::string& out, std::uint32_t point, bool title) {
  if (const CaseExpansion* expansion = upper_expansion(point)) {
    for (std::size_t i = 0; i < 3 && expansion->to[i] != 0; ++i) {
      detail::append_utf8(out, title && i > 0 ? to_lower(expansion->to[i]) : expansion->to[i]);
    }
    return;
  }
  std::uint32_t mapped = to_upper(point);
  if (title) {  // the digraphs have a form of their own, and Georgian letters stay as they are
    if (point >= 0x1C4 && point <= 0x1CC) mapped = point <= 0x1C6 ? 0x1C5 : point <= 0x1C9 ? 0x1C8 : 0x1CB;
    if (point >= 0x1F1 && point <= 0x1F3) mapped = 0x1F2;
    if (point >= 0x10D0 && point <= 0x10FF) mapped = point;
  }
  detail::append_utf8(out, mapped);
}

// A capital sigma is a final one after a letter and before none.
CORBEL_INLINE bool is_final_sigma(std::string_view text, std::size_t at, bool after_letter) noexcept {
  if (!after_letter) return false;
  const std::size_t next = at + 2;
  return next >= text.size() || !is_cased(detail::decode_utf8(text, next).value);
}

CORBEL_INLINE void append_lower(std::string& out, std::string_view text, std::size_t at, std::uint32_t point,
                                bool after_letter) {
  if (point == 0x3A3) {
    detail::append_utf8(out, is_final_sigma(text, at, after_letter) ? 0x3C2 : 0x3C3);
  } else if (point == 0x130) {
    out += "i\xCC\x87";
  } else {
    detail::append_utf8(out, to_lower(point));
  }
}

CORBEL_INLINE bool starts_word(Case to, std::uint32_t before, bool after_letter) noexcept {
  if (to == Case::kTitle) return !after_letter;
  return before == 0 || is_space(before) || before == '-' || before == '(' || before == '{' || before == '[' ||
         before == '<';
}

CORBEL_INLINE Value change_case(const Text& text, Case to) {
  TextBuilder builder;
  std::size_t cursor = 0;
  std::uint32_t before = 0;
  bool after_letter = false;
  std::string piece;
  for (std::size_t at = 0; at < text.bytes.size();) {
    const detail::CodePoint point = detail::decode_utf8(text.bytes, at);
    piece.clear();
    if (point.length == 0) {
      piece = text.bytes[at];
    } else {
      bool upper = to == Case::kUpper || (to == Case::kSwap && is_lower(point.value) && !is_upper(point.value));
      bool title = false;
      if (to == Case::kCapitalize) title = at == 0;
      if (to == Case::kTitle || to == Case::kTitleFilter) title = starts_word(to, before, after_letter);
      upper = upper || title;
      if (upper) {
        append_upper(piece, point.value, title && to != Case::kTitleFilter);
      } else {
        append_lower(piece, text.bytes, at, point.value, after_letter);
      }
    }
    builder.append(piece, is_content_at(text, at, cursor));
    before = point.length == 0 ? 0xFFFD : point.value;
    after_letter = point.length != 0 && is_cased(point.value);
    at += point.length == 0 ? 1 : point.length;
  }
  return builder.take();
}

CORBEL_INLINE bool all_of_class(std::string_view text, CharacterClass wanted) noexcept {
  bool any = false;
  for (std::size_t at = 0; at < text.size(); at += character_length(text, at)) {
    const std::uint32_t point = detail::decode_utf8(text, at).value;
    const CharClass kind = char_class(point);
    const bool alpha = is_letter(kind);
    const bool digit = is_number(kind);
    if (wanted == CharacterClass::kUpper || wanted == CharacterClass::kLower) {
      const bool upper = wanted == CharacterClass::kUpper;
      if (upper ? is_lower(point) && !is_upper(point) : is_upper(point)) return false;
      any = any || is_cased(point);
      continue;
    }
    any = true;
    const bool member = wanted == CharacterClass::kSpace   ? is_space(point)
                        : wanted == CharacterClass::kAlpha ? alpha
                        : wanted == CharacterClass::kDigit ? digit
                                                           : alpha || digit;
    if (!member) return false;
  }
  return any;
}

// --- cutting

CORBEL_INLINE Value strip(const Text& text, const Text* characters, bool left, bool right) {
  const std::string_view bytes = text.bytes;
  const auto removable = [&](std::size_t at, std::size_t length) {
    if (characters == nullptr) return space_length(bytes, at) == length;
    const std::string_view set = characters->bytes;
    for (std::size_t i = 0; i < set.size(); i += character_length(set, i)) {
      if (set.substr(i, character_length(set, i)) == bytes.substr(at, length)) return true;
    }
    return false;
  };
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (left && begin < end) {
    const std::size_t length = character_length(bytes, begin);
    if (!removable(begin, length)) break;
    begin += length;
  }
  while (right && begin < end) {
    std::size_t at = end - 1;  // back to the first byte of the last character
    while (at > begin && end - at < 4 && (static_cast<unsigned char>(bytes[at]) & 0xC0u) == 0x80u) --at;
    if (at + character_length(bytes, at) != end) at = end - 1;
    if (!removable(at, end - at)) break;
    end = at;
  }
  return slice_bytes(text, begin, end);
}

CORBEL_INLINE std::vector<ByteRange> split_at_space(std::string_view text) {
  std::vector<ByteRange> words;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t space = space_length(text, at);
    if (space != 0) {
      inside = false;
      at += space;
      continue;
    }
    const std::size_t length = character_length(text, at);
    if (!inside) words.push_back({at, at});
    inside = true;
    at += length;
    words.back().end = at;
  }
  return words;
}

CORBEL_INLINE std::vector<ByteRange> split_at(std::string_view text, std::string_view separator) {
  std::vector<ByteRange> parts;
  std::size_t begin = 0;
  for (std::size_t at = text.find(separator); at != std::string_view::npos; at = text.find(separator, begin)) {
    parts.push_back({begin, at});
    begin = at + separator.size();
  }
  parts.push_back({begin, text.size()});
  return parts;
}

// From the right the cuts lie elsewhere where the separator overlaps itself.
CORBEL_INLINE std::vector<ByteRange> split_at_from_right(std::string_view text, std::string_view separator) {
  std::vector<ByteRange> parts;
  std::size_t end = text.size();
  while (end >= separator.size()) {
    const std::size_t at = text.substr(0, end).rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back({at + separator.size(), end});
    end = at;
  }
  parts.push_back({0, end});
  std::reverse(parts.begin(), parts.end());
  return parts;
}

CORBEL_INLINE std::vector<Value> split(const Text& text, const Text* separator, std::int64_t limit, bool from_right) {
  std::vector<ByteRange> parts = separator == nullptr ? split_at_space(text.bytes)
                                 : from_right         ? split_at_from_right(text.bytes, separator->bytes)
                                                      : split_at(text.bytes, separator->bytes);
  // Beyond the limit the rest is one part. At white space it also keeps what stands at its outer end.
  if (limit >= 0 && parts.size() > static_cast<std::size_t>(limit) + 1) {
    const auto keep = static_cast<std::ptrdiff_t>(limit);
    if (from_right) {
      const std::ptrdiff_t drop = static_cast<std::ptrdiff_t>(parts.size()) - keep - 1;
      parts.front().end = parts[static_cast<std::size_t>(drop)].end;
      parts.erase(parts.begin() + 1, parts.begin() + drop + 1);
    } else {
      parts[static_cast<std::size_t>(keep)].end = text.bytes.size();
      parts.resize(static_cast<std::size_t>(keep) + 1);
    }
  }
  if (separator == nullptr && limit >= 0 && parts.size() == static_cast<std::size_t>(limit) + 1) {
    if (from_right) {
      parts.front().begin = 0;
    } else {
      parts.back().end = text.bytes.size();
    }
  }
  std::vector<Value> out;
  out.reserve(parts.size());
  for (const ByteRange& part : parts) out.push_back(slice_bytes(text, part.begin, part.end));
  return out;
}

CORBEL_INLINE std::vector<Value> split_lines(const Text& text, bool keep_ends) {
  const std::string_view bytes = text.bytes;
  std::vector<Value> out;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const detail::CodePoint point = detail::decode_utf8(bytes, at);
    std::size_t length = point.length == 0 ? 1 : point.length;
    const bool ends = point.length != 0 &&
                      ((point.value >= 0x0A && point.value <= 0x0D) || (point.value >= 0x1C && point.value <= 0x1E) ||
                       point.value == 0x85 || point.value == 0x2028 || point.value == 0x2029);
    if (point.value == '\r' && at + 1 < bytes.size() && bytes[at + 1] == '\n') length = 2;
    if (ends) {
      out.push_back(slice_bytes(text, begin, keep_ends ? at + length : at));
      begin = at + length;
    }
    at += length;
  }
  if (begin < bytes.size()) out.push_back(slice_bytes(text, begin, bytes.size()));
  return out;
}

CORBEL_INLINE bool replace(Runtime& runtime, const Text& text, const Text& from, const Text& to, std::int64_t limit,
                           Value& out) {
  TextBuilder builder;
  std::size_t at = 0;
  const std::string_view bytes = text.bytes;
  for (std::int64_t done = 0; (limit < 0 || done < limit) && at <= bytes.size(); ++done) {
    if (!runtime.charge_bytes(to.bytes.size())) return false;
    if (from.bytes.empty()) {
      builder.append(to);
      if (at == bytes.size()) break;
      const std::size_t length = character_length(bytes, at);
      builder.append(text, at, at + length);
      at += length;
      continue;
    }
    const std::size_t found = bytes.find(from.bytes, at);
    if (found == std::string_view::npos) break;
    builder.append(text, at, found);
    builder.append(to);
    at = found + from.bytes.size();
  }
  if (at < bytes.size()) builder.append(text, at, bytes.size());
  if (!runtime.charge_bytes(bytes.size())) return false;
  out = builder.take();
  return true;
}

CORBEL_INLINE std::size_t find(std::string_view text, std::string_view needle, bool last) noexcept {
  return last ? text.rfind(needle) : text.find(needle);
}

CORBEL_INLINE std::size_t count_characters(std::string_view text, std::size_t bytes) noexcept {
  std::size_t count = 0;
  for (std::size_t at = 0; at < bytes; at += character_length(text, at)) ++count;
  return count;
}

CORBEL_INLINE std::size_t byte_of_character(const Text& text, std::size_t character) noexcept {
  if (text.characters == text.bytes.size()) return std::min(character, text.bytes.size());
  std::size_t at = 0;
  for (; character > 0 && at < text.bytes.size(); --character) at += character_length(text.bytes, at);
  return at;
}

CORBEL_INLINE Value as_markup(Value text) {
  if (text.as_text().markup) return text;
  Text* own = static_cast<Text*>(text.heap());
  if (own->references.load(std::memory_order_acquire) == 1) {
    own->markup = true;
    return text;
  }
  Text* copy = new Text;
  Value out = Value::object(copy);
  copy->bytes = own->bytes;
  copy->content = own->content;
  copy->characters = own->characters;
  copy->markup = true;
  return out;
}

CORBEL_INLINE Value escape_markup(const Value& text) {
  if (text.is_markup()) return text;
  TextBuilder builder;
  std::size_t cursor = 0;
  const std::string_view bytes = text.as_view();
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    const char c = bytes[at];
    const std::string_view reference = c == '&'    ? "&amp;"
                                       : c == '<'  ? "&lt;"
                                       : c == '>'  ? "&gt;"
                                       : c == '"'  ? "&#34;"
                                       : c == '\'' ? "&#39;"
                                                   : bytes.substr(at, 1);
    builder.append(reference, is_content_at(text.as_text(), at, cursor));
  }
  return as_markup(builder.take());
}

CORBEL_INLINE bool pad(Runtime& runtime, const Text& text, std::int64_t width, Align align, std::string_view fill,
                       Value& out) {
  const std::size_t missing =
      width > static_cast<std::int64_t>(text.characters) ? static_cast<std::size_t>(width) - text.characters : 0;
  if (missing > 0 && !runtime.charge(1 + missing)) return false;
  if (!runtime.charge_bytes(text.bytes.size())) return false;
  // Python puts the odd one to the left where the width is odd.
  const std::size_t left = align == Align::kLeft    ? 0
                           : align == Align::kRight ? missing
                                                    : missing / 2 + (missing & static_cast<std::size_t>(width) & 1u);
  TextBuilder builder;
  for (std::size_t i = 0; i < left; ++i) builder.append(fill, false);
  builder.append(text);
  for (std::size_t i = left; i < missing; ++i) builder.append(fill, false);
  out = builder.take();
  return true;
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
