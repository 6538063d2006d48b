// SpecialMatcher: finds control and user-defined pieces in a text, the longest at each position.
#pragma once

#include <corbel/config.hpp>
#include <corbel/text/piece_automaton.hpp>
#include <corbel/text/token.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// A part of a text up to `end`; `literal`: control pieces in it are plain text.
struct TextSpan {
  std::size_t end = 0;
  bool literal = false;
};

/// Reads a text once, from its end, and meets the beginnings of pieces; between them it looks at one byte of a table
/// for each byte of text.
class CORBEL_API SpecialMatcher {
 public:
  struct Match {
    std::uint32_t begin = 0;
    std::uint32_t length = 0;
    TokenId id = kNoToken;
    std::size_t end() const noexcept { return std::size_t{begin} + length; }
  };

  /// `in_content`: the piece matches also in text that may not become control tokens. Pieces must not be empty.
  void add(std::string_view piece, TokenId id, bool in_content);
  /// After the last piece.
  void finish() { automaton_.finish(); }
  bool empty() const noexcept { return automaton_.empty(); }

  /// The longest piece that begins at each byte of `text`, the last byte first; bytes where none begins are left out,
  /// and pieces may overlap. `text` begins at byte `offset` of what `spans` cover; pieces that do not match in content
  /// lie between literal spans. Adds the bytes looked at to `steps`. `text` is at most kMaxTextBytes long.
  void find(std::string_view text, std::span<const TextSpan> spans, std::size_t offset, std::vector<Match>& found,
            std::uint64_t& steps) const;
  std::uint64_t memory_bytes() const noexcept { return automaton_.memory_bytes(); }

 private:
  PieceAutomaton automaton_;  // of pieces backwards
};

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/special_matcher.ipp>
#endif
