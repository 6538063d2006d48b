// Definitions of text/pipeline_model.hpp: GGUF's WordPiece and unigram vocabularies.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/text/pipeline_model.hpp>
#include <corbel/text/pretokenizer.hpp>

#include <cmath>
#include <fmt/format.h>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

// An optional id, which must be in the vocabulary.
CORBEL_INLINE Result<TokenId> read_token_id(const Metadata& metadata, std::string_view key, std::size_t size) {
  if (metadata.find(key) == nullptr) return kNoToken;
  CORBEL_ASSIGN_OR_RETURN(const std::uint64_t value, metadata.get_uint(key));
  if (value >= size) {
    return Status(Errc::kVocabInvalid, fmt::format("{}: {} is not among the {} tokens", key, value, size));
  }
  return static_cast<TokenId>(value);
}

CORBEL_INLINE std::string base64(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t word = 0;
    for (std::size_t next = 0; next < 3; ++next) {
      word = word << 8 | (at + next < bytes.size() ? std::to_integer<std::uint32_t>(bytes[at + next]) : 0);
    }
    for (std::size_t digit = 0; digit < 4; ++digit) {
      out += at + digit <= bytes.size() ? kDigits[word >> (18 - 6 * digit) & 63] : '=';
    }
  }
  return out;
}

CORBEL_INLINE Result<std::shared_ptr<const TokenizerModel>> PipelineModel::word_piece(const Metadata& metadata,
                                                                                      Vocabulary vocabulary) {
  auto model = std::make_shared<PipelineModel>();
  const std::size_t size = vocabulary.size();
  CORBEL_RETURN_IF_ERROR(model->read_common(metadata, std::move(vocabulary), Defaults{}));
  CORBEL_ASSIGN_OR_RETURN(const bool lowercase, metadata.get_bool_or("tokenizer.ggml.normalizer.lowercase", true));
  static constexpr std::string_view kNormalizer =
      R"({{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,"strip_accents":{0},"lowercase":{0}}})";
  CORBEL_ASSIGN_OR_RETURN(const json::Value normalizer, json::parse(fmt::format(kNormalizer, lowercase)));
  CORBEL_ASSIGN_OR_RETURN(model->normalizer_, Normalizer::from_json(normalizer, "tokenizer.ggml.model: bert"));
  CORBEL_ASSIGN_OR_RETURN(const json::Value cutter, json::parse(R"({"type":"BertPreTokenizer"})"));
  CORBEL_ASSIGN_OR_RETURN(model->cutter_, WordCutter::from_json(cutter, "tokenizer.ggml.model: bert"));
  CORBEL_ASSIGN_OR_RETURN(const json::Value decoder, json::parse(R"({"type":"Sequence","decoders":[
    {"type":"Replace","pattern":{"String":"\u2581"},"content":" "},{"type":"Fuse"},
    {"type":"Strip","content":" ","start":1,"stop":0}]})"));
  CORBEL_ASSIGN_OR_RETURN(model->decoder_, Decoder::from_json(&decoder, "tokenizer.ggml.model: bert"));

  WordPieceWords::Options options;
  options.unknown = model->unknown();
  options.first = "\xE2\x96\x81";
  model->words_ = std::make_unique<WordPieceWords>(model->vocabulary(), std::move(options));

  CORBEL_ASSIGN_OR_RETURN(const TokenId first, read_token_id(metadata, "tokenizer.ggml.cls_token_id", size));
  CORBEL_ASSIGN_OR_RETURN(const TokenId last, read_token_id(metadata, "tokenizer.ggml.seperator_token_id", size));
  CORBEL_ASSIGN_OR_RETURN(const bool add_first, metadata.get_bool_or("tokenizer.ggml.add_bos_token", true));
  CORBEL_ASSIGN_OR_RETURN(const bool add_last, metadata.get_bool_or("tokenizer.ggml.add_sep_token", true));
  if (add_first && (first >= 0 || model->bos() >= 0)) model->before_.push_back(first >= 0 ? first : model->bos());
  if (add_last && (last >= 0 || model->eos() >= 0)) model->after_.push_back(last >= 0 ? last : model->eos());
  CORBEL_RETURN_IF_ERROR(model->add_typed_pieces());
  return std::shared_ptr<const TokenizerModel>(std::move(model));
}

CORBEL_INLINE Result<std::shared_ptr<const TokenizerModel>> PipelineModel::text_bpe(const Metadata& metadata,
                                                                                    Vocabulary vocabulary,
                                                                                    std::string_view pretokenizer) {
  static constexpr std::string_view kMerges = "tokenizer.ggml.merges";
  static constexpr std::string_view kPlace = "tokenizer.ggml.pre";
  auto model = std::make_shared<PipelineModel>();
  const Pretokenizer* row = find_pretokenizer(pretokenizer);
  Defaults defaults;
  defaults.add_bos = row->add_bos;
  CORBEL_RETURN_IF_ERROR(model->read_common(metadata, std::move(vocabulary), defaults));
  const Vocabulary& pieces = model->vocabulary();
  CORBEL_ASSIGN_OR_RETURN(const json::Value normalizer,
                          json::parse(R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})"));
  CORBEL_ASSIGN_OR_RETURN(model->normalizer_, Normalizer::from_json(normalizer, kPlace));
  CORBEL_ASSIGN_OR_RETURN(model->cutter_, WordCutter::from_name(pretokenizer));
  CORBEL_ASSIGN_OR_RETURN(const json::Value decoder, json::parse(R"({"type":"Sequence","decoders":[
    {"type":"Replace","pattern":{"String":"\u2581"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"}]})"));
  CORBEL_ASSIGN_OR_RETURN(model->decoder_, Decoder::from_json(&decoder, kPlace));
  model->decoder_.keep_bytes();

  const MetaValue* merges = metadata.find(kMerges);
  if (merges == nullptr) return Status(Errc::kMissingKey, fmt::format("{}: not in the file", kMerges));
  if (!merges->is_array() || merges->element_type() != MetaType::kString) {
    return Status(Errc::kTypeMismatch, fmt::format("{}: expected an array of string", kMerges));
  }
  if (merges->size() > kMaxMerges) {
    return Status(Errc::kLimitExceeded,
                  fmt::format("{}: {} merges, at most {} are read", kMerges, merges->size(), kMaxMerges));
  }
  MergeTable table;
  table.reserve(merges->size());
  for (std::size_t rank = 0; rank < merges->size(); ++rank) {
    const std::string_view merge = merges->string_at(rank);
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return Status(Errc::kVocabInvalid, fmt::format("{}[{}]: '{}' is not two pieces with a space between them",
                                                     kMerges, rank, detail::printable(merge, 64)));
    }
    const TokenId left = pieces.find(merge.substr(0, space));
    const TokenId right = pieces.find(merge.substr(space + 1));
    if (left < 0 || right < 0) {
      return Status(Errc::kVocabInvalid, fmt::format("{}[{}]: '{}' has a half that is not in the vocabulary", kMerges,
                                                     rank, detail::printable(merge, 64)));
    }
    const TokenId result = pieces.find_text(std::string(merge.substr(0, space)).append(merge.substr(space + 1)));
    if (result >= 0) table.insert(left, right, static_cast<std::uint32_t>(rank), result);
  }
  BpeWords::Options options;
  options.unknown.unknown = model->unknown();
  options.unknown.fuse = true;
  options.whole_words = row->whole_words;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    options.unknown.byte_ids[byte] = pieces.find(fmt::format("<0x{:02X}>", byte));
    options.unknown.bytes = options.unknown.bytes || options.unknown.byte_ids[byte] >= 0;
  }
  model->words_ = std::make_unique<BpeWords>(pieces, std::move(table), std::move(options));
  if (model->adds_bos()) model->before_.push_back(model->bos());
  if (model->adds_eos()) model->after_.push_back(model->eos());
  CORBEL_RETURN_IF_ERROR(model->add_typed_pieces());
  return std::shared_ptr<const TokenizerModel>(std::move(model));
}

CORBEL_INLINE Result<std::shared_ptr<const TokenizerModel>> PipelineModel::unigram(const Metadata& metadata,
                                                                                   Vocabulary vocabulary) {
  static constexpr std::string_view kScores = "tokenizer.ggml.scores";
  static constexpr std::string_view kPlace = "tokenizer.ggml.model: t5";
  auto model = std::make_shared<PipelineModel>();
  Defaults defaults;
  defaults.add_eos = true;
  defaults.eos = "</s>";
  defaults.unknown = "<unk>";
  CORBEL_RETURN_IF_ERROR(model->read_common(metadata, std::move(vocabulary), defaults));
  const Vocabulary& pieces = model->vocabulary();

  const MetaValue* list = metadata.find(kScores);
  if (list == nullptr) return Status(Errc::kMissingKey, fmt::format("{}: not in the file", kScores));
  const MetaType got = list->is_array() ? list->element_type() : list->type();
  if (!list->is_array() || (got != MetaType::kF32 && got != MetaType::kF64)) {
    return Status(Errc::kTypeMismatch,
                  fmt::format("{}: expected an array of f32, got {}", kScores, meta_type_name(got)));
  }
  if (list->size() != pieces.size()) {
    return Status(Errc::kShapeMismatch,
                  fmt::format("{}: {} entries for {} tokens", kScores, list->size(), pieces.size()));
  }
  std::vector<double> scores(pieces.size());
  for (std::size_t at = 0; at < scores.size(); ++at) {
    scores[at] = list->float_at(at);
    if (!std::isfinite(scores[at])) return Status(Errc::kBadValue, fmt::format("{}[{}]: not a number", kScores, at));
  }
  UnknownPolicy unknown;
  unknown.unknown = model->unknown();
  unknown.fuse = true;
  model->words_ = std::make_unique<UnigramWords>(pieces, std::move(scores), unknown);

  CORBEL_ASSIGN_OR_RETURN(const bool prefix, metadata.get_bool_or("tokenizer.ggml.add_space_prefix", true));
  CORBEL_ASSIGN_OR_RETURN(const bool squeeze, metadata.get_bool_or("tokenizer.ggml.remove_extra_whitespaces", true));
  std::string charsmap;
  if (const MetaValue* map = metadata.find("tokenizer.ggml.precompiled_charsmap"); map != nullptr) {
    if (!map->is_array() || (map->element_type() != MetaType::kU8 && map->element_type() != MetaType::kI8)) {
      return Status(Errc::kTypeMismatch, "tokenizer.ggml.precompiled_charsmap: expected an array of u8");
    }
    charsmap = base64(map->raw());
  }
  std::string steps;
  if (!charsmap.empty()) {
    steps = fmt::format(R"({{"type":"Precompiled","precompiled_charsmap":"{}"}})", charsmap);
  }
  if (squeeze) {
    if (!steps.empty()) steps += ',';
    steps += R"({"type":"Strip","strip_left":true,"strip_right":true},)"
             R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})";
  }
  CORBEL_ASSIGN_OR_RETURN(const json::Value normalizer,
                          json::parse(fmt::format(R"({{"type":"Sequence","normalizers":[{}]}})", steps)));
  CORBEL_ASSIGN_OR_RETURN(model->normalizer_, Normalizer::from_json(normalizer, kPlace));
  const std::string metaspace = fmt::format(R"({{"type":"Metaspace","replacement":"{}","prepend_scheme":"{}"}})",
                                            "\xE2\x96\x81", prefix ? "always" : "never");
  CORBEL_ASSIGN_OR_RETURN(const json::Value space, json::parse(metaspace));
  CORBEL_ASSIGN_OR_RETURN(model->cutter_, WordCutter::from_json(space, kPlace));
  CORBEL_ASSIGN_OR_RETURN(model->decoder_, Decoder::from_json(&space, kPlace));
  if (model->adds_bos()) model->before_.push_back(model->bos());
  if (model->adds_eos()) model->after_.push_back(model->eos());
  CORBEL_RETURN_IF_ERROR(model->add_typed_pieces());
  return std::shared_ptr<const TokenizerModel>(std::move(model));
}

// Control, unknown and user-defined pieces are what added tokens are in a tokenizer.json.
CORBEL_INLINE Status PipelineModel::add_typed_pieces() {
  std::vector<AddedToken> added;
  for (std::size_t at = 0; at < vocabulary().size(); ++at) {
    const auto id = static_cast<TokenId>(at);
    const PieceType type = vocabulary().type(id);
    AddedToken token;
    token.content = vocabulary().piece(id);
    token.id = id;
    token.special = type == PieceType::kControl || type == PieceType::kUnknown;
    if (token.special || type == PieceType::kUserDefined) added.push_back(token);
  }
  flags_.resize(vocabulary().size());
  return finish_added(added);
}

}  // namespace text
CORBEL_NAMESPACE_END
