// Definitions of text/word_model.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/byte_stand_ins.hpp>
#include <corbel/text/word_model.hpp>

#include <algorithm>
#include <limits>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

// Appends what stands for `part`, which is in no piece, where bytes do.
CORBEL_INLINE bool append_byte_pieces(std::string_view part, const UnknownPolicy& policy, std::vector<TokenId>& ids) {
  if (!policy.bytes) return false;
  for (const char c : part) {
    if (policy.byte_ids[static_cast<unsigned char>(c)] < 0) return false;
  }
  for (const char c : part) ids.push_back(policy.byte_ids[static_cast<unsigned char>(c)]);
  return true;
}

CORBEL_INLINE BpeWords::BpeWords(const Vocabulary& vocabulary, MergeTable merges, Options options)
    : vocabulary_(vocabulary), merges_(std::move(merges)), options_(std::move(options)) {
  static constexpr std::uint32_t kDirect = 0x250;  // Latin, and all stand-ins of bytes
  if (!options_.prefix.empty() || !options_.suffix.empty()) return;
  std::string character;
  for (std::uint32_t point = 0; point < kDirect; ++point) {
    character.clear();
    detail::append_utf8(character, point);
    characters_.push_back(vocabulary_.find_text(character));
  }
  takes_bytes_ = options_.byte_level;
  for (std::uint32_t byte = 0; byte < 256; ++byte) takes_bytes_ = takes_bytes_ && characters_[stand_in(byte)] >= 0;
}

CORBEL_INLINE void BpeWords::merge(EncodeScratch& scratch, std::vector<TokenId>& ids) const {
  const std::vector<Symbol>& symbols = scratch.merge.symbols;
  if (symbols.empty()) return;
  merge_symbols(scratch.merge,
                [this](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
  for (std::uint32_t at = 0; at != kNoSymbol; at = symbols[at].next) ids.push_back(symbols[at].id);
}

CORBEL_INLINE void BpeWords::encode_bytes(std::string_view word, EncodeScratch& scratch,
                                          std::vector<TokenId>& ids) const {
  if (options_.whole_words && word.size() <= vocabulary_.longest_piece()) {
    scratch.escaped.clear();
    for (const char c : word) detail::append_utf8(scratch.escaped, stand_in(static_cast<unsigned char>(c)));
    if (const TokenId id = vocabulary_.find_text(scratch.escaped); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  std::vector<Symbol>& symbols = scratch.merge.symbols;
  symbols.resize(word.size());
  for (std::size_t at = 0; at < word.size(); ++at) {
    symbols[at].length = 1;
    symbols[at].id = characters_[stand_in(static_cast<unsigned char>(word[at]))];
  }
  merge(scratch, ids);
}

CORBEL_INLINE void BpeWords::encode_word(std::string_view word, EncodeScratch& scratch,
                                         std::vector<TokenId>& ids) const {
  if (takes_bytes_) return encode_bytes(word, scratch, ids);
  if (options_.whole_words) {
    if (const TokenId id = vocabulary_.find_text(word); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  std::vector<Symbol>& symbols = scratch.merge.symbols;
  std::string& spelled = scratch.escaped;
  std::vector<TokenId>& bytes = scratch.bytes;
  symbols.clear();
  std::size_t unknown = 0;  // bytes of the unknown character, or run of them, that is not a symbol yet
  const auto add = [&symbols](TokenId id, std::size_t length) {
    Symbol symbol;
    symbol.length = static_cast<std::uint32_t>(length);
    symbol.id = id;
    symbols.push_back(symbol);
  };
  for (std::size_t at = 0; at < word.size();) {
    const detail::CodePoint point = detail::decode_utf8(word, at);
    const std::size_t length = point.length == 0 ? 1 : point.length;
    std::string_view part = word.substr(at, length);
    TokenId id = kNoToken;
    if (point.length != 0 && point.value < characters_.size()) {
      id = characters_[point.value];
    } else {
      const bool first = at == 0;
      const bool last = at + length == word.size();
      if ((!first && !options_.prefix.empty()) || (last && !options_.suffix.empty())) {
        spelled.clear();
        if (!first) spelled += options_.prefix;
        spelled += part;
        if (last) spelled += options_.suffix;
        part = spelled;
      }
      id = vocabulary_.find_text(part);
    }
    at += length;
    if (id >= 0) {
      if (unknown != 0) add(options_.unknown.unknown, unknown);
      unknown = 0;
      add(id, length);
      continue;
    }
    bytes.clear();
    if (append_byte_pieces(part, options_.unknown, bytes)) {
      for (const TokenId byte : bytes) add(byte, 1);
    } else if (options_.unknown.unknown >= 0) {
      if (unknown != 0 && !options_.unknown.fuse) {
        add(options_.unknown.unknown, unknown);
        unknown = 0;
      }
      unknown += length;
    }
    // Else it has no id to stand for it: it is left out, as in the reference.
  }
  if (unknown != 0) add(options_.unknown.unknown, unknown);
  merge(scratch, ids);
}

CORBEL_INLINE std::uint64_t BpeWords::memory_bytes() const noexcept {
  return sizeof(*this) + merges_.memory_bytes() + characters_.capacity() * sizeof(TokenId);
}

CORBEL_INLINE UnigramWords::UnigramWords(const Vocabulary& vocabulary, std::vector<double> scores,
                                         const UnknownPolicy& unknown)
    : vocabulary_(vocabulary), scores_(std::move(scores)), unknown_(unknown) {
  static constexpr double kUnknownPenalty = 10;
  unknown_score_ = scores_.empty() ? 0 : *std::min_element(scores_.begin(), scores_.end());
  unknown_score_ -= kUnknownPenalty;
  for (std::size_t at = 0; at < scores_.size(); ++at) {
    const auto id = static_cast<TokenId>(at);
    const std::string_view piece = vocabulary_.piece(id);
    if (!piece.empty() && vocabulary_.find_text(piece) == id) pieces_.add(piece.begin(), piece.end(), id, true);
  }
  pieces_.finish();
}

CORBEL_INLINE void UnigramWords::encode_word(std::string_view word, EncodeScratch& scratch,
                                             std::vector<TokenId>& ids) const {
  std::vector<PathNode>& best = scratch.path;
  best.assign(word.size() + 1, PathNode{});
  PieceAutomaton::State state = 0;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t end = at + std::max(detail::decode_utf8(word, at).length, 1u);
    for (std::size_t byte = at; byte < end && !pieces_.empty(); ++byte) {
      state = pieces_.step(state, static_cast<unsigned char>(word[byte]), scratch.merge.steps);
    }
    PathNode& node = best[end];
    bool single = false;
    const auto consider = [&](std::size_t begin, double score, TokenId id) {
      if (node.begin == kNoSymbol || score > node.score) node = {score, static_cast<std::uint32_t>(begin), id};
    };
    for (std::uint32_t number = pieces_.empty() ? 0 : pieces_.longest(state); number != 0;) {
      ++scratch.merge.steps;
      const PieceAutomaton::Piece& piece = pieces_.piece(number);
      number = piece.shorter;
      const std::size_t begin = end - piece.length;
      if (begin != 0 && best[begin].begin == kNoSymbol) continue;  // within a character
      consider(begin, scores_[static_cast<std::size_t>(piece.id)] + best[begin].score, piece.id);
      single = single || begin == at;
    }
    if (!single) consider(at, unknown_score_ + best[at].score, kNoToken);
    at = end;
  }
  // From the end to the start; `ids` is turned around afterwards.
  const std::size_t first = ids.size();
  const auto unknown = [&](std::size_t begin, std::size_t end) {
    const std::size_t before = ids.size();
    if (append_byte_pieces(word.substr(begin, end - begin), unknown_, ids)) {
      std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
    } else if (unknown_.unknown >= 0) {
      ids.push_back(unknown_.unknown);
    } else {
      scratch.missing_unknown = true;
    }
  };
  std::size_t run_end = 0;  // of the unknown characters met last; 0: none
  for (std::size_t end = word.size(); end > 0;) {
    const PathNode& node = best[end];
    if (node.id < 0) {
      if (!unknown_.fuse) {
        unknown(node.begin, end);
      } else if (run_end == 0) {
        run_end = end;
      }
    } else {
      if (run_end != 0) unknown(end, run_end);
      run_end = 0;
      ids.push_back(node.id);
    }
    end = node.begin;
  }
  if (run_end != 0) unknown(0, run_end);
  std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
}

CORBEL_INLINE std::uint64_t UnigramWords::memory_bytes() const noexcept {
  return sizeof(*this) + scores_.capacity() * sizeof(double) + pieces_.memory_bytes();
}

CORBEL_INLINE WordPieceWords::WordPieceWords(const Vocabulary& vocabulary, Options options)
    : vocabulary_(vocabulary), options_(std::move(options)) {
  static constexpr std::size_t kLong = 512;
  long_ = vocabulary_.longest_piece() > kLong && options_.longest > kLong;
  if (!long_) return;
  const auto enter = [](std::string_view piece, TokenId id, std::string_view lead, PieceAutomaton& automaton) {
    if (piece.size() <= lead.size() || piece.substr(0, lead.size()) != lead) return;
    piece.remove_prefix(lead.size());
    if (detail::is_utf8(piece)) automaton.add(piece.rbegin(), piece.rend(), id, true);
  };
  for (std::size_t at = 0; at < vocabulary_.size(); ++at) {
    const auto id = static_cast<TokenId>(at);
    const std::string_view piece = vocabulary_.piece(id);
    if (vocabulary_.find_text(piece) != id) continue;
    enter(piece, id, options_.first, first_);
    enter(piece, id, options_.prefix, rest_);
  }
  first_.finish();
  rest_.finish();
}

// False where a part is in no piece.
CORBEL_INLINE bool WordPieceWords::encode_long(std::string_view word, EncodeScratch& scratch,
                                               std::vector<TokenId>& ids) const {
  std::vector<PathNode>& longest = scratch.path;  // from each byte; `begin` is where the piece ends
  longest.assign(word.size(), PathNode{});
  const auto fill = [&](const PieceAutomaton& automaton, std::size_t begin, std::size_t end) {
    PieceAutomaton::State state = 0;
    for (std::size_t at = word.size(); at > begin && !automaton.empty(); --at) {
      state = automaton.step(state, static_cast<unsigned char>(word[at - 1]), scratch.merge.steps);
      const PieceAutomaton::Piece& piece = automaton.piece(automaton.longest(state));
      if (at <= end) longest[at - 1] = {0, static_cast<std::uint32_t>(at - 1) + piece.length, piece.id};
    }
  };
  fill(rest_, 1, word.size());
  fill(first_, 0, 1);
  for (std::size_t at = 0; at < word.size(); at = longest[at].begin) {
    if (longest[at].id < 0) return false;
    ids.push_back(longest[at].id);
  }
  return true;
}

CORBEL_INLINE void WordPieceWords::encode_word(std::string_view word, EncodeScratch& scratch,
                                               std::vector<TokenId>& ids) const {
  const auto unknown = [&] {
    if (options_.unknown >= 0) {
      ids.push_back(options_.unknown);
    } else {
      scratch.missing_unknown = true;
    }
  };
  const auto starts_character = [word](std::size_t at) {
    return at == word.size() || (static_cast<unsigned char>(word[at]) & 0xC0) != 0x80;
  };
  std::size_t characters = 0;
  for (std::size_t at = 0; at < word.size(); ++at) characters += starts_character(at) ? 1u : 0u;
  if (characters > options_.longest) return unknown();

  const std::size_t first = ids.size();
  if (long_) {
    if (encode_long(word, scratch, ids)) return;
    ids.resize(first);
    return unknown();
  }
  std::string& spelled = scratch.escaped;
  for (std::size_t begin = 0; begin < word.size();) {
    const std::string& lead = begin == 0 ? options_.first : options_.prefix;
    const std::size_t room = vocabulary_.longest_piece() - std::min(vocabulary_.longest_piece(), lead.size());
    std::size_t end = begin + std::min(word.size() - begin, room);
    TokenId found = kNoToken;
    for (; end > begin; --end) {
      if (!starts_character(end)) continue;
      ++scratch.merge.steps;
      std::string_view part = word.substr(begin, end - begin);
      if (!lead.empty()) part = spelled.assign(lead).append(part);
      found = vocabulary_.find_text(part);
      if (found >= 0) break;
    }
    if (found < 0) {
      ids.resize(first);
      return unknown();
    }
    ids.push_back(found);
    begin = end;
  }
}

CORBEL_INLINE std::uint64_t WordPieceWords::memory_bytes() const noexcept {
  return sizeof(*this) + first_.memory_bytes() + rest_.memory_bytes();
}

CORBEL_INLINE void WordLevelWords::encode_word(std::string_view word, EncodeScratch& scratch,
                                               std::vector<TokenId>& ids) const {
  if (const TokenId id = vocabulary_.find_text(word); id >= 0) {
    ids.push_back(id);
  } else if (unknown_ >= 0) {
    ids.push_back(unknown_);
  } else {
    scratch.missing_unknown = true;
  }
}

}  // namespace text
CORBEL_NAMESPACE_END
