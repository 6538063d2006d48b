// Byte-level BPE (tokenizer.ggml.model "gpt2"): every byte has a printable stand-in, words come from a pre-tokenizer,
// merges have ranks. Not valid UTF-8 in: every byte that belongs to no character becomes U+FFFD.
#pragma once

#include <corbel/text/merge_table.hpp>
#include <corbel/text/pretokenizer.hpp>
#include <corbel/text/tokenizer_model.hpp>
#include <corbel/text/word_cutter.hpp>

CORBEL_NAMESPACE_BEGIN
namespace text {

class ByteLevelBpe final : public TokenizerModel {
 public:
  static Result<std::shared_ptr<const TokenizerModel>> from_metadata(const Metadata& metadata, Vocabulary vocabulary);
  std::uint64_t memory_bytes() const noexcept override;

 private:
  Status read_merges(const Metadata& metadata);
  void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& ids) const;

  void encode_stretch(std::string_view text, EncodeScratch& scratch, std::vector<TokenId>& ids) const override;
  void append_text(TokenId id, bool after_special, std::string& out) const override;

  const Pretokenizer* pretokenizer_ = nullptr;
  WordCutter cutter_;
  TokenId byte_ids_[256] = {};
  MergeTable merges_;
};

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/byte_level_bpe.ipp>
#endif
