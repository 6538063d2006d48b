// Definitions of text/special_matcher.hpp.
#pragma once

#include <corbel/text/special_matcher.hpp>

#include <algorithm>

CORBEL_NAMESPACE_BEGIN
namespace text {

CORBEL_INLINE void SpecialMatcher::add(std::string_view piece, TokenId id, bool in_content) {
  automaton_.add(piece.rbegin(), piece.rend(), id, in_content);
}

CORBEL_INLINE void SpecialMatcher::find(std::string_view text, std::span<const TextSpan> spans, std::size_t offset,
                                        std::vector<Match>& found, std::uint64_t& steps) const {
  found.clear();
  if (automaton_.empty() || text.empty()) return;
  steps += text.size();
  const auto first = std::lower_bound(spans.begin(), spans.end(), offset + text.size(),
                                      [](const TextSpan& span, std::size_t end) { return span.end < end; });
  auto span = static_cast<std::size_t>(first - spans.begin());
  PieceAutomaton::State any = 0;      // in all that is behind
  PieceAutomaton::State control = 0;  // in the text behind that is not literal, up to where it is
  for (std::size_t at = text.size();; --span) {
    const bool literal = spans[span].literal;
    const std::size_t before = span == 0 ? 0 : std::max(spans[span - 1].end, offset);
    const std::size_t begin = before > offset ? before - offset : 0;
    if (literal) control = 0;
    while (at > begin) {
      const auto byte = static_cast<unsigned char>(text[--at]);
      if (any == 0 && !automaton_.leaves_start(byte)) continue;  // then control is 0 too
      const bool same = control == any;
      any = automaton_.step(any, byte, steps);
      std::uint32_t piece = automaton_.longest(any);
      if (literal) {
        piece = automaton_.piece(piece).in_content;
      } else if (same) {
        control = any;
      } else {
        control = automaton_.step(control, byte, steps);
        const std::uint32_t inside = automaton_.longest(control);
        piece = automaton_.piece(piece).in_content;
        if (automaton_.piece(inside).length > automaton_.piece(piece).length) piece = inside;
      }
      if (piece == 0) continue;
      const PieceAutomaton::Piece& is = automaton_.piece(piece);
      found.push_back({static_cast<std::uint32_t>(at), is.length, is.id});
    }
    if (begin == 0) return;
  }
}

}  // namespace text
CORBEL_NAMESPACE_END
