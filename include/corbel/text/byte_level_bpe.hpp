// Byte-level BPE (tokenizer.ggml.model "gpt2"): every byte has a printable stand-in, words come from a pre-tokenizer,
// merges have ranks. Not valid UTF-8 in: every byte that belongs to no character becomes U+FFFD.
#pragma once

#include <corbel/text/pretokenizer.hpp>
#include <corbel/text/tokenizer_model.hpp>

CORBEL_NAMESPACE_BEGIN
namespace text {

class ByteLevelBpe final : public TokenizerModel {
 public:
  static Result<std::shared_ptr<const TokenizerModel>> from_metadata(const Metadata& metadata, Vocabulary vocabulary);
  std::uint64_t memory_bytes() const noexcept override;

 private:
  struct Merge {
    std::uint64_t pair = 0;  // left id + 1, right id; 0 is empty
    std::uint32_t rank = 0;
    TokenId result = -1;
  };
  Status read_merges(const Metadata& metadata);
  void insert(TokenId left, TokenId right, std::uint32_t rank, TokenId result) noexcept;
  MergeCandidate find_merge(TokenId left, TokenId right) const noexcept;
  void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& ids) const;

  bool normalize(std::string_view text, std::vector<TextSpan>& spans, std::string& out) const override;
  std::string special_spelling(std::string_view piece) const override { return std::string(piece); }
  void encode_stretch(std::string_view text, EncodeScratch& scratch, std::vector<TokenId>& ids) const override;
  void append_text(TokenId id, bool after_special, std::string& out) const override;

  const Pretokenizer* pretokenizer_ = nullptr;
  TokenId byte_ids_[256] = {};
  std::vector<Merge> merges_;
};

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/byte_level_bpe.ipp>
#endif
