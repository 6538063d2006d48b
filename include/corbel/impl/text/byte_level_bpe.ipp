// Definitions of text/byte_level_bpe.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/byte_level_bpe.hpp>
#include <corbel/text/rewrite.hpp>

#include <fmt/format.h>
#include <unordered_set>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

// The printable stand-ins of GPT-2 (openai/gpt-2, encoder.py): printable Latin-1 bytes stand for themselves, the other
// 68 follow from U+0100 on.
CORBEL_INLINE constexpr std::uint32_t stand_in(std::uint32_t byte) noexcept {
  if (byte <= 32) return 256 + byte;
  if (byte >= 127 && byte <= 160) return 256 + 33 + (byte - 127);
  if (byte == 173) return 256 + 67;
  return byte;
}

// The byte behind a stand-in, or -1.
CORBEL_INLINE constexpr int byte_behind(std::uint32_t code_point) noexcept {
  if (code_point >= 256 + 68) return -1;
  if (code_point == 256 + 67) return 173;
  if (code_point >= 256 + 33) return static_cast<int>(code_point - 256 - 33 + 127);
  if (code_point >= 256) return static_cast<int>(code_point - 256);
  return stand_in(code_point) == code_point ? static_cast<int>(code_point) : -1;
}

CORBEL_INLINE Result<std::shared_ptr<const TokenizerModel>> ByteLevelBpe::from_metadata(const Metadata& metadata,
                                                                                        Vocabulary vocabulary) {
  static constexpr std::string_view kPre = "tokenizer.ggml.pre";
  CORBEL_ASSIGN_OR_RETURN(const std::string_view name, metadata.get_string_or(kPre, "default"));
  auto model = std::make_shared<ByteLevelBpe>();
  model->pretokenizer_ = find_pretokenizer(name);
  if (model->pretokenizer_ == nullptr) {
    return Status(Errc::kUnsupported, fmt::format("{}: the pre-tokenizer '{}' is not supported", kPre, name));
  }
  Defaults defaults;
  defaults.add_bos = model->pretokenizer_->add_bos;
  CORBEL_RETURN_IF_ERROR(model->read_common(metadata, std::move(vocabulary), defaults));
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::string piece;
    detail::append_utf8(piece, stand_in(byte));
    model->byte_ids_[byte] = model->vocabulary().find_text(piece);
  }
  CORBEL_RETURN_IF_ERROR(model->read_merges(metadata));
  model->add_special_pieces();
  return std::shared_ptr<const TokenizerModel>(std::move(model));
}

CORBEL_INLINE Status ByteLevelBpe::read_merges(const Metadata& metadata) {
  static constexpr std::string_view kMerges = "tokenizer.ggml.merges";
  const MetaValue* merges = metadata.find(kMerges);
  if (merges == nullptr) return Status(Errc::kMissingKey, fmt::format("{}: not in the file", kMerges));
  if (!merges->is_array() || merges->element_type() != MetaType::kString) {
    const MetaType got = merges->is_array() ? merges->element_type() : merges->type();
    return Status(Errc::kTypeMismatch,
                  fmt::format("{}: expected an array of string, got {}", kMerges, meta_type_name(got)));
  }
  if (merges->size() > kMaxMerges) {
    return Status(Errc::kLimitExceeded,
                  fmt::format("{}: {} merges, at most {} are read", kMerges, merges->size(), kMaxMerges));
  }
  merges_.resize(table_capacity(merges->size()));
  std::string joined;
  std::unordered_set<std::string> without_piece;  // results of merges that are no piece: such merges are never made
  for (std::size_t rank = 0; rank < merges->size(); ++rank) {
    const std::string_view merge = merges->string_at(rank);
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos || merge.front() == ' ') {
      return Status(Errc::kVocabInvalid, fmt::format("{}[{}]: '{}' is not two pieces with one space between them",
                                                     kMerges, rank, detail::printable(merge, 64)));
    }
    const std::string_view halves[2] = {merge.substr(0, space), merge.substr(space + 1)};
    TokenId half_ids[2];
    for (int side = 0; side < 2; ++side) {
      half_ids[side] = vocabulary().find(halves[side]);
      if (half_ids[side] < 0 && without_piece.count(std::string(halves[side])) == 0) {
        return Status(Errc::kVocabInvalid, fmt::format("{}[{}]: '{}' is not in the vocabulary", kMerges, rank,
                                                       detail::printable(halves[side], 64)));
      }
    }
    joined.assign(halves[0]).append(halves[1]);
    const TokenId result = vocabulary().find_text(joined);
    if (result < 0) {
      without_piece.insert(joined);
    } else if (half_ids[0] >= 0 && half_ids[1] >= 0) {
      insert(half_ids[0], half_ids[1], static_cast<std::uint32_t>(rank), result);
    }
  }
  return {};
}

CORBEL_INLINE void ByteLevelBpe::insert(TokenId left, TokenId right, std::uint32_t rank, TokenId result) noexcept {
  const std::uint64_t pair = (static_cast<std::uint64_t>(left) + 1) << 32 | static_cast<std::uint32_t>(right);
  const std::size_t mask = merges_.size() - 1;
  std::size_t at = static_cast<std::size_t>(mix_hash(pair)) & mask;
  for (; merges_[at].pair != 0; at = (at + 1) & mask) {
    if (merges_[at].pair == pair) return;  // named twice: the first rank counts
  }
  merges_[at] = {pair, rank, result};
}

CORBEL_INLINE MergeCandidate ByteLevelBpe::find_merge(TokenId left, TokenId right) const noexcept {
  if (left < 0 || right < 0) return {};
  const std::uint64_t pair = (static_cast<std::uint64_t>(left) + 1) << 32 | static_cast<std::uint32_t>(right);
  const std::size_t mask = merges_.size() - 1;
  for (std::size_t at = static_cast<std::size_t>(mix_hash(pair)) & mask; merges_[at].pair != 0; at = (at + 1) & mask) {
    if (merges_[at].pair == pair) return {merges_[at].result, merges_[at].rank};
  }
  return {};
}

CORBEL_INLINE std::uint64_t ByteLevelBpe::memory_bytes() const noexcept {
  return TokenizerModel::memory_bytes() + sizeof(*this) + merges_.capacity() * sizeof(Merge);
}

CORBEL_INLINE bool ByteLevelBpe::normalize(std::string_view text, std::vector<TextSpan>& spans,
                                           std::string& out) const {
  if (detail::is_utf8(text)) return false;
  rewrite_text(text, spans, out, [text](std::size_t at, std::string& to) -> std::size_t {
    const detail::CodePoint point = detail::decode_utf8(text, at);
    to += point.length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(at, point.length);
    return point.length == 0 ? 1 : point.length;
  });
  return true;
}

CORBEL_INLINE void ByteLevelBpe::encode_stretch(std::string_view text, EncodeScratch& scratch,
                                                std::vector<TokenId>& ids) const {
  pretokenize(*pretokenizer_, text, scratch.word_ends, scratch.spare_ends, scratch.merge.steps);
  reset_cache(text.size(), scratch);
  std::size_t begin = 0;
  for (const std::uint32_t end : scratch.word_ends) {
    encode_cached(text, begin, end, scratch, ids, [&](std::string_view word) { encode_word(word, scratch, ids); });
    begin = end;
  }
}

CORBEL_INLINE void ByteLevelBpe::encode_word(std::string_view word, EncodeScratch& scratch,
                                             std::vector<TokenId>& ids) const {
  if (pretokenizer_->whole_words && word.size() <= vocabulary().longest_piece()) {
    scratch.escaped.clear();
    for (const char c : word) detail::append_utf8(scratch.escaped, stand_in(static_cast<unsigned char>(c)));
    if (const TokenId id = vocabulary().find_text(scratch.escaped); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  std::vector<Symbol>& symbols = scratch.merge.symbols;
  symbols.resize(word.size());
  for (std::size_t at = 0; at < word.size(); ++at) {
    symbols[at].start = static_cast<std::uint32_t>(at);
    symbols[at].length = 1;
    symbols[at].id = byte_ids_[static_cast<unsigned char>(word[at])];
  }
  merge_symbols(scratch.merge,
                [this](const Symbol& left, const Symbol& right) { return find_merge(left.id, right.id); });
  for (std::uint32_t at = 0; at != kNoSymbol; at = symbols[at].next) {
    // A byte that the vocabulary lacks has no id to stand for it: it is left out, as in the references.
    if (symbols[at].id >= 0) ids.push_back(symbols[at].id);
  }
}

CORBEL_INLINE void ByteLevelBpe::append_text(TokenId id, bool, std::string& out) const {
  const std::string_view piece = vocabulary().piece(id);
  const std::size_t before = out.size();
  for (std::size_t at = 0; at < piece.size();) {
    const detail::CodePoint point = detail::decode_utf8(piece, at);
    const int byte = point.length == 0 ? -1 : byte_behind(point.value);
    if (byte < 0) {  // not spelled in stand-ins: the text itself
      out.resize(before);
      out += piece;
      return;
    }
    out += static_cast<char>(byte);
    at += point.length;
  }
}

}  // namespace text
CORBEL_NAMESPACE_END
