// Definitions of text/tokenizer_model.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/impl/text/rewrite.ipp>
#include <corbel/text/tokenizer_model.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

CORBEL_INLINE Status TokenizerModel::read_common(const Metadata& metadata, Vocabulary vocabulary,
                                                 const Defaults& defaults) {
  vocabulary_ = std::move(vocabulary);
  CORBEL_RETURN_IF_ERROR(read_special_ids(metadata, defaults));
  CORBEL_ASSIGN_OR_RETURN(add_bos_, metadata.get_bool_or("tokenizer.ggml.add_bos_token", defaults.add_bos));
  CORBEL_ASSIGN_OR_RETURN(add_eos_, metadata.get_bool_or("tokenizer.ggml.add_eos_token", defaults.add_eos));
  add_bos_ = add_bos_ && bos_ >= 0;
  add_eos_ = add_eos_ && eos_ >= 0;
  return {};
}

CORBEL_INLINE Status TokenizerModel::read_special_ids(const Metadata& metadata, const Defaults& defaults) {
  const auto read = [&](std::string_view key, TokenId& id) -> Status {
    if (metadata.find(key) == nullptr) return {};
    const Result<std::uint64_t> value = metadata.get_uint(key);
    if (!value.ok() && value.status().code() != Errc::kBadValue) return value.status();
    if (!value.ok() || *value >= vocabulary_.size()) {
      return Status(Errc::kVocabInvalid,
                    value.ok() ? fmt::format("{}: {} is not among the {} tokens", key, *value, vocabulary_.size())
                               : std::string(value.status().message()));
    }
    id = static_cast<TokenId>(*value);
    return {};
  };
  if (!defaults.bos.empty()) bos_ = find_control(defaults.bos);
  if (!defaults.eos.empty()) eos_ = find_control(defaults.eos);
  if (!defaults.unknown.empty()) unknown_ = find_control(defaults.unknown);
  CORBEL_RETURN_IF_ERROR(read("tokenizer.ggml.bos_token_id", bos_));
  CORBEL_RETURN_IF_ERROR(read("tokenizer.ggml.eos_token_id", eos_));
  CORBEL_RETURN_IF_ERROR(read("tokenizer.ggml.unknown_token_id", unknown_));
  TokenId padding = kNoToken;
  CORBEL_RETURN_IF_ERROR(read("tokenizer.ggml.padding_token_id", padding));

  TokenId eot = kNoToken;
  TokenId eom = kNoToken;
  CORBEL_RETURN_IF_ERROR(read("tokenizer.ggml.eot_token_id", eot));
  CORBEL_RETURN_IF_ERROR(read("tokenizer.ggml.eom_token_id", eom));
  end_ids_ = {eos_, eot, eom};
  find_end_ids();
  return {};
}

CORBEL_INLINE TokenId TokenizerModel::find_control(std::string_view piece) const noexcept {
  const TokenId id = vocabulary_.find(piece);
  return id >= 0 && !vocabulary_.is_text(id) ? id : kNoToken;
}

CORBEL_INLINE void TokenizerModel::set_common(Vocabulary vocabulary, SpecialIds ids) {
  vocabulary_ = std::move(vocabulary);
  bos_ = ids.bos;
  eos_ = ids.eos;
  unknown_ = ids.unknown;
  add_bos_ = ids.add_bos && bos_ >= 0;
  add_eos_ = ids.add_eos && eos_ >= 0;
  end_ids_ = std::move(ids.ends);
  end_ids_.push_back(eos_);
  find_end_ids();
}

CORBEL_INLINE void TokenizerModel::find_end_ids() {
  // The end-of-turn pieces that model cards name; files often name only one of several. A file may use the same text
  // for an ordinary piece.
  for (const std::string_view piece : {"</s>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>",
                                       "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|return|>", "<|call|>",
                                       "<\xEF\xBD\x9C"
                                       "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"}) {
    // Where a vocabulary has <|return|>, <|end|> closes one message of a reply that goes on.
    if (piece == "<|end|>" && find_control("<|return|>") >= 0) continue;
    end_ids_.push_back(find_control(piece));
  }
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
  if (end_ids_.front() < 0) end_ids_.erase(end_ids_.begin());
}

CORBEL_INLINE void TokenizerModel::add_special_pieces() {
  for (std::size_t at = 0; at < vocabulary_.size(); ++at) {
    const auto id = static_cast<TokenId>(at);
    const PieceType type = vocabulary_.type(id);
    const bool user_defined = type == PieceType::kUserDefined;
    if (!user_defined && type != PieceType::kControl && type != PieceType::kUnknown) continue;
    if (const std::string_view piece = vocabulary_.piece(id); !piece.empty()) {
      specials_.add(special_spelling(piece), id, user_defined);
    }
  }
  specials_.finish();
}

CORBEL_INLINE bool TokenizerModel::ends_generation(TokenId id) const noexcept {
  return std::binary_search(end_ids_.begin(), end_ids_.end(), id);
}

CORBEL_INLINE std::uint64_t TokenizerModel::memory_bytes() const noexcept {
  return vocabulary_.memory_bytes() + specials_.memory_bytes() + end_ids_.capacity() * sizeof(TokenId);
}

CORBEL_INLINE Status TokenizerModel::too_long(std::size_t bytes) {
  return Status(Errc::kLimitExceeded,
                fmt::format("text to encode: {} bytes, at most {} are taken at once", bytes, kMaxTextBytes));
}

// Every byte that belongs to no character becomes U+FFFD.
CORBEL_INLINE bool TokenizerModel::normalize(std::string_view text, std::vector<TextSpan>& spans,
                                             std::string& out) const {
  if (detail::is_utf8(text)) return false;
  rewrite_text(text, spans, out, [text](std::size_t at, std::string& to) -> std::size_t {
    const detail::CodePoint point = detail::decode_utf8(text, at);
    to += point.length == 0 ? std::string_view("\xEF\xBF\xBD") : text.substr(at, point.length);
    return point.length == 0 ? 1 : point.length;
  });
  return true;
}

CORBEL_INLINE Result<std::vector<TokenId>> TokenizerModel::encode(std::string_view text,
                                                                  std::span<const TextSpan> spans, bool add_special,
                                                                  std::uint64_t& steps) const {
  if (text.size() > kMaxTextBytes) return too_long(text.size());
  std::vector<TextSpan> moved(spans.begin(), spans.end());
  std::string rewritten;
  if (normalize(text, moved, rewritten)) text = rewritten;
  if (text.size() > kMaxTextBytes) return too_long(text.size());

  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 2);
  EncodeScratch scratch;
  if (add_special && add_bos_) ids.push_back(bos_);
  std::vector<SpecialMatcher::Match> found;
  specials_.find(text, moved, 0, found, scratch.merge.steps);
  std::size_t begin = 0;  // of the stretch that is still to be encoded
  for (; !found.empty(); found.pop_back()) {
    const SpecialMatcher::Match match = found.back();
    if (match.begin < begin) continue;
    if (begin < match.begin) encode_stretch(text.substr(begin, match.begin - begin), scratch, ids);
    ids.push_back(match.id);
    begin = match.end();
  }
  if (begin < text.size()) encode_stretch(text.substr(begin), scratch, ids);
  if (add_special && add_eos_) ids.push_back(eos_);
  steps += scratch.merge.steps;
  return ids;
}

CORBEL_INLINE void TokenizerModel::append_bytes(TokenId id, bool special, DecodeState& state, std::string& out) const {
  switch (vocabulary_.type(id)) {
    case PieceType::kControl:
    case PieceType::kUnknown:
      if (special) out += vocabulary_.piece(id);
      state.after_special = true;
      break;
    case PieceType::kUserDefined:
      out += special_spelling(vocabulary_.piece(id));
      state.after_special = true;
      break;
    default:
      append_text(id, state.after_special, out);
      state.after_special = false;
  }
}

CORBEL_INLINE void TokenizerModel::reset_cache(std::size_t text_bytes, EncodeScratch& scratch) {
  std::size_t slots = 0;
  if (text_bytes >= 256) {
    slots = 64;
    while (slots < text_bytes / 8 && slots < 16384) slots *= 2;
  }
  scratch.cache.assign(slots, CachedWord{});
}

}  // namespace text
CORBEL_NAMESPACE_END
