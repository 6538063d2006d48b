// Definitions of text/vocabulary.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/vocabulary.hpp>

#include <fmt/format.h>

CORBEL_NAMESPACE_BEGIN
namespace text {

CORBEL_INLINE Result<Vocabulary> Vocabulary::from_metadata(const Metadata& metadata) {
  static constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  static constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
  const MetaValue* tokens = metadata.find(kTokens);
  if (tokens == nullptr) return Status(Errc::kMissingKey, fmt::format("{}: not in the file", kTokens));
  if (!tokens->is_array() || tokens->element_type() != MetaType::kString) {
    const MetaType got = tokens->is_array() ? tokens->element_type() : tokens->type();
    return Status(Errc::kTypeMismatch,
                  fmt::format("{}: expected an array of string, got {}", kTokens, meta_type_name(got)));
  }
  const std::size_t count = tokens->size();
  CORBEL_RETURN_IF_ERROR(check_size(count, kTokens));
  Vocabulary vocabulary;
  vocabulary.types_.assign(count, static_cast<std::uint8_t>(PieceType::kNormal));
  if (const MetaValue* types = metadata.find(kTypes); types != nullptr) {
    const MetaType element = types->is_array() ? types->element_type() : MetaType::kArray;
    if (!types->is_array() || element == MetaType::kString || element == MetaType::kBool || element == MetaType::kF32 ||
        element == MetaType::kF64) {
      const MetaType got = types->is_array() ? element : types->type();
      return Status(Errc::kTypeMismatch,
                    fmt::format("{}: expected an array of integers, got {}", kTypes, meta_type_name(got)));
    }
    if (types->size() != count) {
      return Status(Errc::kShapeMismatch, fmt::format("{}: {} entries for {} tokens", kTypes, types->size(), count));
    }
    for (std::size_t id = 0; id < count; ++id) {
      const std::int64_t type = types->int_at(id);
      if (type < 0 || type > static_cast<std::int64_t>(PieceType::kByte)) {
        return Status(Errc::kVocabInvalid, fmt::format("{}[{}]: {} is no token type (0 to 6)", kTypes, id, type));
      }
      vocabulary.types_[id] = static_cast<std::uint8_t>(type);
    }
  }

  CORBEL_RETURN_IF_ERROR(vocabulary.fill(count, kTokens, [tokens](std::size_t id) { return tokens->string_at(id); }));
  return vocabulary;
}

CORBEL_INLINE Result<Vocabulary> Vocabulary::from_pieces(const std::vector<Piece>& pieces, std::string_view place) {
  CORBEL_RETURN_IF_ERROR(check_size(pieces.size(), place));
  Vocabulary vocabulary;
  vocabulary.types_.reserve(pieces.size());
  for (const Piece& piece : pieces) vocabulary.types_.push_back(static_cast<std::uint8_t>(piece.type));
  CORBEL_RETURN_IF_ERROR(vocabulary.fill(pieces.size(), place, [&pieces](std::size_t id) { return pieces[id].text; }));
  return vocabulary;
}

CORBEL_INLINE Status Vocabulary::check_size(std::size_t count, std::string_view place) {
  if (count == 0) return Status(Errc::kVocabInvalid, fmt::format("{}: no tokens", place));
  if (count > kMaxPieces) {
    return Status(Errc::kLimitExceeded, fmt::format("{}: {} tokens, at most {} are read", place, count, kMaxPieces));
  }
  return {};
}

template <class TextAt>
Status Vocabulary::fill(std::size_t count, std::string_view place, TextAt&& text_at) {
  std::size_t total = 0;
  for (std::size_t id = 0; id < count; ++id) {
    const std::size_t bytes = text_at(id).size();
    if (bytes > kMaxPieceBytes) {
      return Status(Errc::kLimitExceeded,
                    fmt::format("{}[{}]: {} bytes, at most {} are read", place, id, bytes, kMaxPieceBytes));
    }
    total += bytes;
    if (bytes > longest_) longest_ = bytes;
  }
  if (total > kMaxArenaBytes) {
    return Status(Errc::kLimitExceeded, fmt::format("{}: {} bytes, at most {} are read", place, total, kMaxArenaBytes));
  }
  arena_.reserve(total);
  ends_.reserve(count + 1);
  ends_.push_back(0);
  slots_.resize(table_capacity(count));
  for (std::size_t id = 0; id < count; ++id) {
    arena_ += text_at(id);
    ends_.push_back(static_cast<std::uint32_t>(arena_.size()));
    if (!text_at(id).empty()) insert(static_cast<TokenId>(id));
  }
  return {};
}

CORBEL_INLINE void Vocabulary::insert(TokenId id) noexcept {
  const std::uint64_t hash = hash_bytes(piece(id));
  const std::size_t mask = slots_.size() - 1;
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  std::size_t at = static_cast<std::size_t>(hash) & mask;
  while (slots_[at].entry != 0) {
    if (slots_[at].tag == tag && piece(static_cast<TokenId>(slots_[at].entry - 1)) == piece(id)) break;
    at = (at + 1) & mask;
  }
  slots_[at] = {tag, static_cast<std::uint32_t>(id) + 1};
}

CORBEL_INLINE TokenId Vocabulary::find(std::string_view text) const noexcept {
  const std::uint64_t hash = hash_bytes(text);
  const std::size_t mask = slots_.size() - 1;
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  for (std::size_t at = static_cast<std::size_t>(hash) & mask; slots_[at].entry != 0; at = (at + 1) & mask) {
    const auto id = static_cast<TokenId>(slots_[at].entry - 1);
    if (slots_[at].tag == tag && piece(id) == text) return id;
  }
  return -1;
}

CORBEL_INLINE std::uint64_t Vocabulary::memory_bytes() const noexcept {
  return arena_.capacity() + ends_.capacity() * sizeof(std::uint32_t) + types_.capacity() +
         slots_.capacity() * sizeof(Slot);
}

}  // namespace text
CORBEL_NAMESPACE_END
