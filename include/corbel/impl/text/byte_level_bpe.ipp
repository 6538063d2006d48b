// Definitions of text/byte_level_bpe.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/byte_level_bpe.hpp>
#include <corbel/text/byte_stand_ins.hpp>
#include <corbel/text/pipeline_model.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <unordered_set>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

// Insertions, deletions and changes that make one name of the other.
CORBEL_INLINE std::size_t name_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t at = 0; at <= b.size(); ++at) row[at] = at;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

// " (known names like it: ...)", or nothing where no name is like it.
CORBEL_INLINE std::string near_pretokenizers(std::string_view name) {
  name = name.substr(0, 64);
  std::vector<std::pair<std::size_t, std::string_view>> near;
  for (const Pretokenizer& row : all_pretokenizers()) {
    const std::size_t distance = name_distance(name, row.name);
    if (distance <= 1 + std::max(name.size(), row.name.size()) / 2) near.emplace_back(distance, row.name);
  }
  std::sort(near.begin(), near.end());
  std::string out;
  for (std::size_t at = 0; at < near.size() && at < 3; ++at) {
    out.append(at == 0 ? " (known names like it: " : ", ").append(near[at].second);
  }
  return out.empty() ? out : out + ")";
}

CORBEL_INLINE Result<std::shared_ptr<const TokenizerModel>> ByteLevelBpe::from_metadata(const Metadata& metadata,
                                                                                        Vocabulary vocabulary) {
  static constexpr std::string_view kPre = "tokenizer.ggml.pre";
  CORBEL_ASSIGN_OR_RETURN(const std::string_view kind, metadata.get_string_or("tokenizer.ggml.model", "gpt2"));
  CORBEL_ASSIGN_OR_RETURN(std::string_view name, metadata.get_string_or(kPre, "default"));
  if (kind == "gemma4") name = kind;  // the model's name says all of it; its files name no pre-tokenizer
  auto model = std::make_shared<ByteLevelBpe>();
  model->pretokenizer_ = find_pretokenizer(name);
  if (model->pretokenizer_ == nullptr) {
    return Status(Errc::kUnsupported, fmt::format("{}: the pre-tokenizer '{}' is not supported{}", kPre,
                                                  detail::printable(name, 64), near_pretokenizers(name)));
  }
  if (!model->pretokenizer_->byte_level) return PipelineModel::text_bpe(metadata, std::move(vocabulary), name);
  CORBEL_ASSIGN_OR_RETURN(model->cutter_, WordCutter::from_name(name));
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
  merges_.reserve(merges->size());
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
      merges_.insert(half_ids[0], half_ids[1], static_cast<std::uint32_t>(rank), result);
    }
  }
  return {};
}

CORBEL_INLINE std::uint64_t ByteLevelBpe::memory_bytes() const noexcept {
  return TokenizerModel::memory_bytes() + sizeof(*this) + merges_.memory_bytes();
}

CORBEL_INLINE void ByteLevelBpe::encode_stretch(std::string_view text, EncodeScratch& scratch,
                                                std::vector<TokenId>& ids) const {
  const Result<std::string_view> cut = cutter_.cut(text, false, scratch.cut);
  scratch.merge.steps += std::exchange(scratch.cut.steps, 0);
  if (!cut.ok()) scratch.cut.words.assign(1, {0, static_cast<std::uint32_t>(text.size())});
  reset_cache(text.size(), scratch);
  for (const Word& word : scratch.cut.words) {
    encode_cached(text, word.begin, word.end, scratch, ids,
                  [&](std::string_view part) { encode_word(part, scratch, ids); });
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
                [this](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
  for (std::uint32_t at = 0; at != kNoSymbol; at = symbols[at].next) {
    // A byte that the vocabulary lacks has no id to stand for it: it is left out, as in the references.
    if (symbols[at].id >= 0) ids.push_back(symbols[at].id);
  }
}

CORBEL_INLINE void ByteLevelBpe::append_text(TokenId id, bool, std::string& out) const {
  append_behind_stand_ins(vocabulary().piece(id), out);
}

}  // namespace text
CORBEL_NAMESPACE_END
