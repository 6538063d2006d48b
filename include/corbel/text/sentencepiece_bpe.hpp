// SentencePiece-style BPE (tokenizer.ggml.model "llama"): spaces are U+2581, pieces have scores, what is no piece falls
// back to byte pieces. Not valid UTF-8 in: a byte that starts no character takes as many bytes as it announces, and all
// of them become byte pieces, as in the reference.
#pragma once

#include <corbel/text/tokenizer_model.hpp>

CORBEL_NAMESPACE_BEGIN
namespace text {

class SentencePieceBpe final : public TokenizerModel {
 public:
  static Result<std::shared_ptr<const TokenizerModel>> from_metadata(const Metadata& metadata, Vocabulary vocabulary);
  std::uint64_t memory_bytes() const noexcept override;

 private:
  Status read_scores(const Metadata& metadata);
  Status read_byte_pieces();
  void find_joined_spaces();
  /// `prefix`: as if one more space stood before the word.
  void encode_word(std::string_view word, bool prefix, EncodeScratch& scratch, std::vector<TokenId>& ids) const;
  void append_symbol(std::string_view bytes, TokenId id, EncodeScratch& scratch, std::vector<TokenId>& ids) const;

  bool normalize(std::string_view text, std::vector<TextSpan>& spans, std::string& out) const override;
  std::string special_spelling(std::string_view piece) const override;
  void encode_stretch(std::string_view text, EncodeScratch& scratch, std::vector<TokenId>& ids) const override;
  void append_text(TokenId id, bool after_special, std::string& out) const override;

  std::vector<std::uint32_t> priorities_;  // of each piece, from its score: lower merges first
  TokenId byte_ids_[256] = {};
  bool has_bytes_ = false;
  bool add_space_prefix_ = true;
  bool joins_space_[256] = {};  // a piece goes on with U+2581 after this byte: no cut there
};

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/sentencepiece_bpe.ipp>
#endif
