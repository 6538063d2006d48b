// PipelineModel: a tokenizer as tokenizer.json describes it, in five parts: added tokens are cut out, what is left is
// normalized, cut into words, and encoded word by word; a post-processor adds tokens around; a decoder turns ids back
// into text. GGUF's WordPiece and unigram vocabularies are built from the same parts.
#pragma once

#include <corbel/config.hpp>
#include <corbel/text/code_point_sets.hpp>
#include <corbel/text/decoder.hpp>
#include <corbel/text/normalizer.hpp>
#include <corbel/text/tokenizer_documents.hpp>
#include <corbel/text/tokenizer_model.hpp>
#include <corbel/text/word_cutter.hpp>
#include <corbel/text/word_model.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// Limits on what a file may ask for.
inline constexpr std::size_t kMaxAddedTokens = std::size_t{1} << 17;
inline constexpr std::size_t kMaxEndTokens = 4096;

/// RFC 4648, padded.
CORBEL_API std::string base64(std::span<const std::byte> bytes);

class PipelineModel final : public TokenizerModel {
 public:
  /// kMissingKey, kTypeMismatch, kVocabInvalid, kBadValue, kUnsupported, kLimitExceeded, and what json::parse() gives;
  /// messages name the file and the JSON path.
  static Result<std::shared_ptr<const TokenizerModel>> from_documents(const TokenizerDocuments& documents);
  /// See set_tokenizer_metadata() in tokenizer.hpp.
  static Status write_metadata(const TokenizerDocuments& documents, Metadata& metadata);
  /// tokenizer.ggml.model "bert": WordPiece, the first piece of a word starts with U+2581.
  static Result<std::shared_ptr<const TokenizerModel>> word_piece(const Metadata& metadata, Vocabulary vocabulary);
  /// tokenizer.ggml.model "gpt2" where the pre-tokenizer's row says that pieces are spelled in text: byte-pair encoding
  /// by rank with U+2581 for spaces and byte pieces for what is no piece.
  static Result<std::shared_ptr<const TokenizerModel>> text_bpe(const Metadata& metadata, Vocabulary vocabulary,
                                                                std::string_view pretokenizer);
  /// tokenizer.ggml.model "t5": unigram.
  static Result<std::shared_ptr<const TokenizerModel>> unigram(const Metadata& metadata, Vocabulary vocabulary);

  Result<std::vector<TokenId>> encode(std::string_view text, std::span<const TextSpan> spans, bool add_special,
                                      std::uint64_t& steps) const override;
  void append_bytes(TokenId id, bool special, DecodeState& state, std::string& out) const override;
  void finish_bytes(DecodeState& state, std::string& out) const override { decoder_.finish(state, out); }
  bool decodes_to_utf8() const noexcept override { return from_documents_; }
  std::uint64_t memory_bytes() const noexcept override;

 private:
  /// An entry of added_tokens.
  struct AddedToken {
    std::string_view content;
    TokenId id = kNoToken;
    bool single_word = false;  // only where no word character stands beside it
    bool strip_left = false;   // takes the spaces before it
    bool strip_right = false;  // and after it
    bool normalized = false;   // looked for in normalized text
    bool special = false;
  };
  struct Loader;
  struct Call;  // of encode()

  void add_token(const AddedToken& token);
  bool in_word(std::uint32_t point) const noexcept;
  Status add_typed_pieces();
  Status finish_added(const std::vector<AddedToken>& added);
  template <class Gap, class Token>
  void cut(std::string_view text, const SpecialMatcher& matcher, std::span<const TextSpan> spans, std::size_t offset,
           Call& call, Gap&& gap, Token&& token) const;
  Status encode_gap(std::string_view text, std::size_t begin, Call& call) const;
  Status encode_normalized(std::string_view text, bool template_text, bool first, Call& call) const;
  Status encode_words(std::string_view text, bool first, Call& call) const;

  std::unique_ptr<const WordModel> words_;
  Normalizer normalizer_;
  WordCutter cutter_;
  Decoder decoder_;
  std::vector<TokenId> before_;  // what add_special puts around
  std::vector<TokenId> after_;
  SpecialMatcher raw_;                  // looked for in the text as it is
  SpecialMatcher normalized_;           // looked for in normalized text
  SpecialMatcher normalized_controls_;  // those of them that message content must not spell, as they are
  std::vector<std::uint8_t> flags_;     // by id: bits of kSingleWord and its kind
  sets::Ranges word_characters_;        // \w, where some token asks
  std::unordered_map<TokenId, std::string> decoded_as_;
  bool from_documents_ = false;
};

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/pipeline_gguf.ipp>
#include <corbel/impl/text/pipeline_model.ipp>
#include <corbel/impl/text/tokenizer_json.ipp>
#include <corbel/impl/text/tokenizer_to_gguf.ipp>
#endif
