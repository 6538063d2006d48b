// Definitions of tokenizer.hpp.
#pragma once

#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/detail/utf8_repair.hpp>
#include <corbel/text/byte_level_bpe.hpp>
#include <corbel/text/pipeline_model.hpp>
#include <corbel/text/sentencepiece_bpe.hpp>
#include <corbel/text/tokenizer_model.hpp>
#include <corbel/text/vocabulary.hpp>
#include <corbel/tokenizer.hpp>

#include <fmt/format.h>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace detail {

CORBEL_INLINE Status no_tokenizer() {
  return Status(Errc::kInvalidArgument, "tokenizer: empty; the checkpoint has none (a folder needs tokenizer.json)");
}

CORBEL_INLINE Status bad_token(TokenId id, std::size_t size) {
  return Status(Errc::kInvalidArgument, fmt::format("token id {}: expected 0 to {}", id, size - 1));
}

/// The kinds of tokenizer by the name in the file.
CORBEL_INLINE Result<std::shared_ptr<const text::TokenizerModel>> load_tokenizer_model(const Metadata& metadata) {
  using Load = Result<std::shared_ptr<const text::TokenizerModel>> (*)(const Metadata&, text::Vocabulary);
  static constexpr std::pair<std::string_view, Load> kKinds[] = {
      {"gpt2", &text::ByteLevelBpe::from_metadata},
      {"gemma4", &text::ByteLevelBpe::from_metadata},
      {"llama", &text::SentencePieceBpe::from_metadata},
      {"bert", &text::PipelineModel::word_piece},
      {"t5", &text::PipelineModel::unigram},
  };
  static constexpr std::string_view kModel = "tokenizer.ggml.model";
  if (metadata.find("tokenizer.huggingface.json") != nullptr) {
    TokenizerDocuments documents;
    CORBEL_ASSIGN_OR_RETURN(documents.tokenizer_json, metadata.get_string("tokenizer.huggingface.json"));
    CORBEL_ASSIGN_OR_RETURN(documents.tokenizer_config, metadata.get_string_or("corbel.tokenizer.config", ""));
    CORBEL_ASSIGN_OR_RETURN(documents.special_tokens_map,
                            metadata.get_string_or("corbel.tokenizer.special_tokens_map", ""));
    CORBEL_ASSIGN_OR_RETURN(documents.generation_config,
                            metadata.get_string_or("corbel.tokenizer.generation_config", ""));
    return text::PipelineModel::from_documents(documents);
  }
  CORBEL_ASSIGN_OR_RETURN(const std::string_view name, metadata.get_string(kModel));
  for (const auto& [kind, load] : kKinds) {
    if (name != kind) continue;
    CORBEL_ASSIGN_OR_RETURN(text::Vocabulary vocabulary, text::Vocabulary::from_metadata(metadata));
    return load(metadata, std::move(vocabulary));
  }
  if (name == "none" || name == "no_vocab") {
    return Status(Errc::kUnsupported, fmt::format("{}: '{}': the file has no tokenizer", kModel, name));
  }
  return Status(Errc::kUnsupported,
                fmt::format("{}: '{}' is not supported (gpt2, llama, bert and t5 are)", kModel, name));
}

}  // namespace detail

namespace detail {

CORBEL_INLINE Result<Tokenizer> folder_tokenizer(const Checkpoint& checkpoint) {
  if (!checkpoint.has_document("tokenizer.json") && !checkpoint.has_document("vocab.json")) {
    if (checkpoint.has_document("tokenizer.model")) {
      return Status(Errc::kUnsupported,
                    "tokenizer.model: SentencePiece files are not read; save the tokenizer as tokenizer.json");
    }
    if (checkpoint.has_document("vocab.txt")) {
      return Status(Errc::kUnsupported,
                    "vocab.txt: not read without tokenizer.json; save the tokenizer as tokenizer.json");
    }
    return Status(Errc::kMissingKey, "tokenizer.json: not in the folder");
  }
  std::string texts[6];
  static constexpr std::string_view kNames[] = {
      "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "vocab.json",
      "merges.txt"};
  for (std::size_t at = 0; at < 6; ++at) {
    if (at >= 4 && !texts[0].empty()) break;
    if (!checkpoint.has_document(kNames[at])) continue;
    CORBEL_ASSIGN_OR_RETURN(texts[at], checkpoint.document(kNames[at]));
    if (at == 0 && texts[0].empty()) return Status(Errc::kBadJson, "tokenizer.json: the file is empty");
  }
  return Tokenizer::from_documents({texts[0], texts[1], texts[2], texts[3], texts[4], texts[5]});
}

}  // namespace detail

CORBEL_INLINE Result<Tokenizer> Tokenizer::from_checkpoint(const Checkpoint& checkpoint) {
  const bool folder = checkpoint.format() != CheckpointFormat::kGguf;
  Result<Tokenizer> tokenizer = folder ? detail::guard([&] { return detail::folder_tokenizer(checkpoint); })
                                       : from_metadata(checkpoint.metadata());
  if (!tokenizer.ok()) return tokenizer.status().with_place(detail::printable(checkpoint.name(), 200));
  return tokenizer;
}

CORBEL_INLINE Result<Tokenizer> Tokenizer::from_metadata(const Metadata& metadata) {
  return detail::guard([&]() -> Result<Tokenizer> {
    Tokenizer tokenizer;
    CORBEL_ASSIGN_OR_RETURN(tokenizer.model_, detail::load_tokenizer_model(metadata));
    return tokenizer;
  });
}

CORBEL_INLINE Status set_tokenizer_metadata(const TokenizerDocuments& documents, Metadata& metadata) {
  return detail::guard([&] { return text::PipelineModel::write_metadata(documents, metadata); });
}

CORBEL_INLINE Result<Tokenizer> Tokenizer::from_documents(const TokenizerDocuments& documents) {
  return detail::guard([&]() -> Result<Tokenizer> {
    Tokenizer tokenizer;
    CORBEL_ASSIGN_OR_RETURN(tokenizer.model_, text::PipelineModel::from_documents(documents));
    return tokenizer;
  });
}

CORBEL_INLINE Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                                             const EncodeOptions& options) const {
  if (!model_) return detail::no_tokenizer();
  return detail::guard([&] {
    const text::TextSpan span = {text.size(), !options.parse_special};
    std::uint64_t steps = 0;
    return model_->encode(text, {&span, 1}, options.add_special, steps);
  });
}

CORBEL_INLINE Result<std::vector<TokenId>> Tokenizer::encode(std::span<const PromptSegment> segments) const {
  if (!model_) return detail::no_tokenizer();
  return detail::guard([&] {
    std::string joined;
    std::vector<text::TextSpan> spans;
    for (const PromptSegment& segment : segments) {
      joined += segment.text;
      spans.push_back({joined.size(), segment.is_content});
    }
    std::uint64_t steps = 0;
    return model_->encode(joined, spans, false, steps);
  });
}

CORBEL_INLINE Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  if (!model_) return detail::no_tokenizer();
  return detail::guard([&]() -> Result<std::string> {
    std::string out;
    text::DecodeState state;
    for (const TokenId id : ids) {
      if (!model_->vocabulary().contains(id)) return detail::bad_token(id, size());
      model_->append_bytes(id, options.special, state, out);
    }
    model_->finish_bytes(state, out);
    if (!model_->decodes_to_utf8() || detail::is_utf8(out)) return out;
    std::string repaired;
    detail::take_whole_characters(out, true, repaired);
    return repaired;
  });
}

CORBEL_INLINE std::size_t Tokenizer::size() const noexcept { return model_ ? model_->vocabulary().size() : 0; }

CORBEL_INLINE std::string_view Tokenizer::piece(TokenId id) const noexcept {
  return model_ && model_->vocabulary().contains(id) ? model_->vocabulary().piece(id) : std::string_view();
}

CORBEL_INLINE TokenId Tokenizer::find(std::string_view piece) const noexcept {
  return model_ ? model_->vocabulary().find(piece) : kNoToken;
}

CORBEL_INLINE bool Tokenizer::is_control(TokenId id) const noexcept {
  return model_ && model_->vocabulary().contains(id) && model_->vocabulary().type(id) == text::PieceType::kControl;
}

CORBEL_INLINE TokenId Tokenizer::bos() const noexcept { return model_ ? model_->bos() : kNoToken; }
CORBEL_INLINE TokenId Tokenizer::eos() const noexcept { return model_ ? model_->eos() : kNoToken; }
CORBEL_INLINE TokenId Tokenizer::unknown() const noexcept { return model_ ? model_->unknown() : kNoToken; }
CORBEL_INLINE bool Tokenizer::adds_bos() const noexcept { return model_ && model_->adds_bos(); }
CORBEL_INLINE bool Tokenizer::adds_eos() const noexcept { return model_ && model_->adds_eos(); }

CORBEL_INLINE bool Tokenizer::is_end_of_generation(TokenId id) const noexcept {
  return model_ && model_->ends_generation(id);
}

CORBEL_INLINE std::uint64_t Tokenizer::memory_bytes() const noexcept { return model_ ? model_->memory_bytes() : 0; }

CORBEL_INLINE StreamDecoder::StreamDecoder(Tokenizer tokenizer, const DecodeOptions& options)
    : tokenizer_(std::move(tokenizer)), options_(options) {}

CORBEL_INLINE Status StreamDecoder::push(TokenId id, std::string& text) {
  const std::shared_ptr<const text::TokenizerModel>& model = tokenizer_.model();
  if (!model) return detail::no_tokenizer();
  if (!model->vocabulary().contains(id)) return detail::bad_token(id, tokenizer_.size());
  return detail::guard([&] {
    model->append_bytes(id, options_.special, state_, pending_);
    detail::take_whole_characters(pending_, false, text);
    return Status();
  });
}

CORBEL_INLINE Result<std::string> StreamDecoder::push(TokenId id) {
  std::string text;
  CORBEL_RETURN_IF_ERROR(push(id, text));
  return text;
}

CORBEL_INLINE void StreamDecoder::finish(std::string& text) {
  if (tokenizer_.model()) tokenizer_.model()->finish_bytes(state_, pending_);
  state_ = {};
  detail::take_whole_characters(pending_, true, text);
}

CORBEL_INLINE std::string StreamDecoder::finish() {
  std::string text;
  finish(text);
  return text;
}

CORBEL_NAMESPACE_END
