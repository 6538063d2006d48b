// Definitions of text/sentencepiece_bpe.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/impl/text/rewrite.ipp>
#include <corbel/text/sentencepiece_bpe.hpp>

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

CORBEL_INLINE Result<std::shared_ptr<const TokenizerModel>> SentencePieceBpe::from_metadata(const Metadata& metadata,
                                                                                            Vocabulary vocabulary) {
  auto model = std::make_shared<SentencePieceBpe>();
  Defaults defaults;
  defaults.add_bos = true;
  defaults.bos = "<s>";
  defaults.eos = "</s>";
  defaults.unknown = "<unk>";
  CORBEL_RETURN_IF_ERROR(model->read_common(metadata, std::move(vocabulary), defaults));
  CORBEL_ASSIGN_OR_RETURN(model->add_space_prefix_, metadata.get_bool_or("tokenizer.ggml.add_space_prefix", true));
  CORBEL_RETURN_IF_ERROR(model->read_scores(metadata));
  CORBEL_RETURN_IF_ERROR(model->read_byte_pieces());
  model->find_joined_spaces();
  model->add_special_pieces();
  return std::shared_ptr<const TokenizerModel>(std::move(model));
}

CORBEL_INLINE Status SentencePieceBpe::read_scores(const Metadata& metadata) {
  static constexpr std::string_view kScores = "tokenizer.ggml.scores";
  const MetaValue* scores = metadata.find(kScores);
  if (scores == nullptr) return Status(Errc::kMissingKey, fmt::format("{}: not in the file", kScores));
  const MetaType got = scores->is_array() ? scores->element_type() : scores->type();
  if (!scores->is_array() || (got != MetaType::kF32 && got != MetaType::kF64)) {
    return Status(Errc::kTypeMismatch,
                  fmt::format("{}: expected an array of f32, got {}", kScores, meta_type_name(got)));
  }
  if (scores->size() != vocabulary().size()) {
    return Status(Errc::kShapeMismatch,
                  fmt::format("{}: {} entries for {} tokens", kScores, scores->size(), vocabulary().size()));
  }
  priorities_.resize(scores->size());
  for (std::size_t at = 0; at < scores->size(); ++at) {
    const auto score = static_cast<float>(scores->float_at(at));
    if (score != score) return Status(Errc::kBadValue, fmt::format("{}[{}]: not a number", kScores, at));
    // The bits of a float in ascending order of its value, turned around: a higher score is a lower number.
    const auto bits = std::bit_cast<std::uint32_t>(score == 0.0f ? 0.0f : score);
    priorities_[at] = bits >> 31 != 0 ? bits : ~(bits | 0x80000000u);
  }
  return {};
}

CORBEL_INLINE Status SentencePieceBpe::read_byte_pieces() {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  std::fill(std::begin(byte_ids_), std::end(byte_ids_), kNoToken);
  for (std::size_t at = 0; at < vocabulary().size(); ++at) {
    const auto id = static_cast<TokenId>(at);
    if (vocabulary().type(id) != PieceType::kByte) continue;
    const std::string_view piece = vocabulary().piece(id);
    const bool shaped = piece.size() == 6 && piece.substr(0, 3) == "<0x" && piece[5] == '>';
    const std::size_t high = shaped ? kHex.find(piece[3]) : std::string_view::npos;
    const std::size_t low = shaped ? kHex.find(piece[4]) : std::string_view::npos;
    if (high == std::string_view::npos || low == std::string_view::npos) {
      return Status(Errc::kVocabInvalid,
                    fmt::format("tokenizer.ggml.tokens[{}]: '{}' is no byte piece (<0x00> to <0xFF>)", id,
                                detail::printable(piece, 32)));
    }
    byte_ids_[high * 16 + low] = id;
    has_bytes_ = true;
  }
  for (std::uint32_t byte = 0; byte < 256 && has_bytes_; ++byte) {
    if (byte_ids_[byte] < 0) {
      return Status(Errc::kVocabInvalid,
                    fmt::format("tokenizer.ggml.tokens: the byte piece <0x{:02X}> is missing", byte));
    }
  }
  if (!has_bytes_ && unknown() < 0) {
    return Status(Errc::kVocabInvalid, "tokenizer.ggml.tokens: neither byte pieces nor an unknown token");
  }
  return {};
}

CORBEL_INLINE void SentencePieceBpe::find_joined_spaces() {
  for (std::size_t at = 0; at < vocabulary().size(); ++at) {
    const auto id = static_cast<TokenId>(at);
    if (!vocabulary().is_text(id)) continue;
    const std::string_view piece = vocabulary().piece(id);
    std::size_t after = 0;  // end of the space mark before, or the start
    for (std::size_t mark = piece.find(kSpaceMark); mark != std::string_view::npos;
         mark = piece.find(kSpaceMark, after)) {
      if (mark > after) joins_space_[static_cast<unsigned char>(piece[mark - 1])] = true;
      after = mark + kSpaceMark.size();
    }
  }
}

CORBEL_INLINE std::uint64_t SentencePieceBpe::memory_bytes() const noexcept {
  return TokenizerModel::memory_bytes() + sizeof(*this) + priorities_.capacity() * sizeof(std::uint32_t);
}

CORBEL_INLINE std::string SentencePieceBpe::special_spelling(std::string_view piece) const {
  std::string out(piece);
  for (std::size_t at = out.find(kSpaceMark); at != std::string::npos; at = out.find(kSpaceMark, at + 1)) {
    out.replace(at, kSpaceMark.size(), " ");
  }
  return out;
}

// A literal U+2581 is the same as a space, in pieces and in text.
CORBEL_INLINE bool SentencePieceBpe::normalize(std::string_view text, std::vector<TextSpan>& spans,
                                               std::string& out) const {
  if (text.find(kSpaceMark) == std::string_view::npos) return false;
  rewrite_text(text, spans, out, [text](std::size_t at, std::string& to) -> std::size_t {
    const bool mark = text.substr(at, kSpaceMark.size()) == kSpaceMark;
    to += mark ? ' ' : text[at];
    return mark ? kSpaceMark.size() : 1;
  });
  return true;
}

// The bytes that the character at text[at] takes, and whether they are valid UTF-8.
CORBEL_INLINE detail::CodePoint character_at(std::string_view text, std::size_t at) noexcept {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1};
  const detail::CodePoint point = detail::decode_utf8(text, at);
  if (point.length != 0) return point;
  const std::size_t announced = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  return {0xFFFFFFFFu, static_cast<std::uint32_t>(std::min(announced, text.size() - at))};
}

CORBEL_INLINE void SentencePieceBpe::encode_stretch(std::string_view text, EncodeScratch& scratch,
                                                    std::vector<TokenId>& ids) const {
  // Without byte pieces the ids of a word depend on the one before it: a run of unknown characters is one token.
  reset_cache(has_bytes_ ? text.size() : 0, scratch);
  std::size_t begin = 0;
  bool prefix = add_space_prefix_;
  const auto encode_until = [&](std::size_t end) {
    if (prefix) {
      encode_word(text.substr(begin, end - begin), true, scratch, ids);
    } else {
      encode_cached(text, begin, end, scratch, ids,
                    [&](std::string_view word) { encode_word(word, false, scratch, ids); });
    }
    prefix = false;
    begin = end;
  };
  // No merge reaches over a space after a byte that no piece continues with one: the words on both sides are
  // independent.
  for (std::size_t at = 0; at < text.size();) {
    ++scratch.merge.steps;
    if (text[at] == ' ' && at > begin && text[at - 1] != ' ' &&
        !joins_space_[static_cast<unsigned char>(text[at - 1])]) {
      encode_until(at);
    }
    at += character_at(text, at).length;
  }
  encode_until(text.size());
}

CORBEL_INLINE void SentencePieceBpe::encode_word(std::string_view word, bool prefix, EncodeScratch& scratch,
                                                 std::vector<TokenId>& ids) const {
  std::string& text = scratch.escaped;
  std::vector<Symbol>& symbols = scratch.merge.symbols;
  text.clear();
  symbols.clear();
  scratch.unused_splits.clear();
  const auto add = [&](std::string_view character, bool valid) {
    Symbol symbol;
    symbol.start = static_cast<std::uint32_t>(text.size());
    symbol.length = static_cast<std::uint32_t>(character.size());
    symbol.id = valid ? vocabulary().find_text(character) : kNoToken;
    text += character;
    symbols.push_back(symbol);
  };
  if (prefix) add(kSpaceMark, true);
  for (std::size_t at = 0; at < word.size();) {
    const detail::CodePoint character = character_at(word, at);
    add(character.value == ' ' ? kSpaceMark : word.substr(at, character.length), character.value <= 0x10FFFF);
    at += character.length;
  }
  merge_symbols(scratch.merge, [&](const Symbol& left, const Symbol& right) -> MergeCandidate {
    const std::string_view joined(text.data() + left.start, left.length + right.length);
    if (joined.size() > vocabulary().longest_piece()) return {};
    const TokenId id = vocabulary().find_text(joined);
    // User-defined pieces were cut out before: here one could only come from the space that was put before the text.
    if (id < 0 || vocabulary().type(id) == PieceType::kUserDefined) return {};
    if (vocabulary().type(id) == PieceType::kUnused) scratch.unused_splits[id] = left.length;
    return {id, priorities_[static_cast<std::size_t>(id)]};
  });
  for (std::uint32_t at = 0; at != kNoSymbol; at = symbols[at].next) {
    append_symbol({text.data() + symbols[at].start, symbols[at].length}, symbols[at].id, scratch, ids);
  }
}

CORBEL_INLINE void SentencePieceBpe::append_symbol(std::string_view bytes, TokenId id, EncodeScratch& scratch,
                                                   std::vector<TokenId>& ids) const {
  if (id >= 0 && vocabulary().type(id) == PieceType::kUnused) {
    // An unused piece may carry merges but is never written: it comes apart again, left half first.
    std::vector<std::string_view> parts = {bytes};
    while (!parts.empty()) {
      const std::string_view part = parts.back();
      parts.pop_back();
      ++scratch.merge.steps;
      const TokenId part_id = vocabulary().find_text(part);
      const auto split = scratch.unused_splits.find(part_id);
      if (part_id >= 0 && vocabulary().type(part_id) == PieceType::kUnused && split != scratch.unused_splits.end()) {
        parts.push_back(part.substr(split->second));
        parts.push_back(part.substr(0, split->second));
      } else if (part_id >= 0) {
        ids.push_back(part_id);
      } else {
        append_symbol(part, kNoToken, scratch, ids);
      }
    }
  } else if (id >= 0) {
    ids.push_back(id);
  } else if (has_bytes_) {
    for (const char c : bytes) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  } else if (ids.empty() || ids.back() != unknown()) {
    ids.push_back(unknown());  // one for a run of characters that are no pieces
  }
}

CORBEL_INLINE void SentencePieceBpe::append_text(TokenId id, bool after_special, std::string& out) const {
  if (vocabulary().type(id) == PieceType::kByte) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'A' + 10; };
    const std::string_view piece = vocabulary().piece(id);
    out += static_cast<char>(digit(piece[3]) * 16 + digit(piece[4]));
    return;
  }
  const std::string spelled = special_spelling(vocabulary().piece(id));
  const bool strip = after_special && add_space_prefix_ && !spelled.empty() && spelled.front() == ' ';
  out.append(spelled, strip ? 1 : 0);
}

}  // namespace text
CORBEL_NAMESPACE_END
