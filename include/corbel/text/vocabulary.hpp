// Vocabulary: the pieces of a tokenizer with their types, in one arena, and the look-up from text to id.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/text/hash.hpp>
#include <corbel/text/token.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// The numbers of tokenizer.ggml.token_type, and one more.
enum class PieceType : std::uint8_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
  kAdded = 7,  ///< user-defined, and no piece of the model: looked for in the text only, never made from words
};

/// Limits on what a file may ask for.
inline constexpr std::size_t kMaxPieces = std::size_t{1} << 22;
inline constexpr std::size_t kMaxMerges = std::size_t{1} << 22;
inline constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 16;
inline constexpr std::size_t kMaxArenaBytes = std::size_t{1} << 30;

/// One entry of a vocabulary that is made piece by piece.
struct Piece {
  std::string_view text;
  PieceType type = PieceType::kNormal;
};

class Vocabulary {
 public:
  /// From a list; `text` is copied. Of pieces with the same text the last is found; empty pieces are never found.
  /// kVocabInvalid where there is none, kLimitExceeded; `place` names the list in messages.
  static Result<Vocabulary> from_pieces(const std::vector<Piece>& pieces, std::string_view place);
  /// From tokenizer.ggml.tokens and tokenizer.ggml.token_type (absent: all normal). Of pieces with the same text the
  /// last is found, as in the reference; empty pieces are never found.
  static Result<Vocabulary> from_metadata(const Metadata& metadata);

  std::size_t size() const noexcept { return types_.size(); }
  bool contains(TokenId id) const noexcept { return id >= 0 && static_cast<std::size_t>(id) < size(); }
  /// `id` must be contained.
  std::string_view piece(TokenId id) const noexcept {
    const auto at = static_cast<std::size_t>(id);
    return {arena_.data() + ends_[at], ends_[at + 1] - ends_[at]};
  }
  PieceType type(TokenId id) const noexcept { return static_cast<PieceType>(types_[static_cast<std::size_t>(id)]); }
  /// Pieces that words may become: everything but control, unknown, byte and added pieces.
  bool is_text(TokenId id) const noexcept {
    const PieceType t = type(id);
    return t != PieceType::kControl && t != PieceType::kUnknown && t != PieceType::kByte && t != PieceType::kAdded;
  }
  /// -1 where there is none.
  TokenId find(std::string_view piece) const noexcept;
  /// find(), and is_text().
  TokenId find_text(std::string_view piece) const noexcept {
    const TokenId id = find(piece);
    return id >= 0 && is_text(id) ? id : -1;
  }
  std::size_t longest_piece() const noexcept { return longest_; }
  std::uint64_t memory_bytes() const noexcept;

 private:
  struct Slot {
    std::uint32_t tag = 0;    // high half of the hash: most failing look-ups end here
    std::uint32_t entry = 0;  // id + 1; 0 is empty
  };
  void insert(TokenId id) noexcept;
  static Status check_size(std::size_t count, std::string_view place);
  /// Adds what `text_at(id)` says for each id.
  template <class TextAt>
  Status fill(std::size_t count, std::string_view place, TextAt&& text_at);

  std::string arena_;
  std::vector<std::uint32_t> ends_;  // size() + 1 offsets into the arena
  std::vector<std::uint8_t> types_;
  std::vector<Slot> slots_;
  std::size_t longest_ = 0;
};

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/vocabulary.ipp>
#endif
