// Tokenizer: text to token ids and back, from a checkpoint's own vocabulary, without weights.
//
//   auto tokenizer = corbel::Tokenizer::from_checkpoint(checkpoint);
//   std::vector<corbel::TokenId> ids = tokenizer->encode("Hello", {.add_special = true}).value();
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/text/decode_state.hpp>
#include <corbel/text/token.hpp>
#include <corbel/text/tokenizer_documents.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN

struct EncodeOptions {
  bool parse_special =
      false;  ///< control pieces in the text (such as <|im_start|>) become their ids; else they are plain text
  bool add_special = false;  ///< add beginning- and end-of-sequence tokens as the file asks
};

struct DecodeOptions {
  bool special = false;  ///< write control tokens as their text; else they are left out
};

namespace text {
class TokenizerModel;  // the kind (byte-level BPE, SentencePiece BPE): text/
}

/// A piece of a rendered chat prompt. Content (what users and models wrote) can never become a control token.
struct PromptSegment {
  std::string text;
  bool is_content = false;
};

/// Immutable, cheap to copy (shared state), thread-safe.
class CORBEL_API Tokenizer {
 public:
  /// From the keys of a GGUF file, or the documents of a Hugging Face folder (from_documents()). Errors: missing_key,
  /// type_mismatch, vocab_invalid, unsupported (unknown tokenizer model or pre-tokenizer, by name; a folder with
  /// tokenizer.model alone), limit_exceeded.
  static Result<Tokenizer> from_checkpoint(const Checkpoint& checkpoint);
  /// The same from GGUF keys alone (tokenizer.ggml.*). Errors have no file name in front.
  static Result<Tokenizer> from_metadata(const Metadata& metadata);
  /// From the texts of a Hugging Face folder's tokenizer files: the kinds BPE, Unigram, WordPiece and WordLevel.
  /// Truncation, padding, BPE dropout and clean_up_tokenization_spaces are read over: ids are those of the whole text,
  /// and decode() gives the text as it was. Also kBadJson and what json::parse() gives; messages name the file and the
  /// JSON path.
  static Result<Tokenizer> from_documents(const TokenizerDocuments& documents);

  /// Time linear in the text (times the logarithm of its longest word); no recursion. Any bytes are accepted: invalid
  /// UTF-8 is treated as the file's kind of tokenizer does (byte tokens or U+FFFD).
  /// User-defined pieces of the vocabulary (such as runs of line ends) match whatever the options say. kLimitExceeded
  /// above 1 GiB of text.
  Result<std::vector<TokenId>> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// A rendered prompt: template text with control pieces parsed, content without. Words and merges run across the
  /// borders of segments as if they were one text; a control piece counts only where all of it is template text. Adds
  /// no special tokens of its own.
  Result<std::vector<TokenId>> encode(std::span<const PromptSegment> segments) const;
  /// The space that encode() puts before a text and after a special piece, where the file asks for one, is taken away
  /// again. kInvalidArgument for an id outside [0, size()). With the documents of a Hugging Face folder the result is
  /// valid UTF-8, as `tokenizers` gives it: U+FFFD for every longest part of an invalid sequence, or for every byte
  /// piece of a run that is invalid. With GGUF keys it is the bytes themselves: see StreamDecoder.
  Result<std::string> decode(std::span<const TokenId> ids, const DecodeOptions& options = {}) const;

  std::size_t size() const noexcept;
  /// The text of a token as in the vocabulary; empty for ids out of range.
  std::string_view piece(TokenId id) const noexcept;
  /// The token with exactly this vocabulary text, or kNoToken.
  TokenId find(std::string_view piece) const noexcept;
  bool is_control(TokenId id) const noexcept;
  TokenId bos()
      const noexcept;  ///< kNoToken where the file names none (of the llama kind: and has no <s>, </s>, <unk>)
  TokenId eos() const noexcept;
  TokenId unknown() const noexcept;
  bool adds_bos() const noexcept;  ///< what add_special does
  bool adds_eos() const noexcept;
  /// True for every token that ends a reply: eos, eot, eom as the file names them, and the published end-of-turn
  /// pieces.
  bool is_end_of_generation(TokenId id) const noexcept;
  /// Bytes held.
  std::uint64_t memory_bytes() const noexcept;

  const std::shared_ptr<const text::TokenizerModel>& model() const noexcept { return model_; }

 private:
  std::shared_ptr<const text::TokenizerModel> model_;
};

/// Writes a Hugging Face folder's tokenizer as the keys of a GGUF file: tokenizer.ggml.* as far as they can say it
/// (model gpt2, llama, t5 or bert; "none" where no model fits), and the documents themselves under
/// tokenizer.huggingface.json and corbel.tokenizer.*, which from_metadata() prefers: ids are those of the folder.
/// Errors as of from_documents().
CORBEL_API Status set_tokenizer_metadata(const TokenizerDocuments& documents, Metadata& metadata);

/// Turns a stream of ids into text that ends on whole code points only. One per reply; not thread-safe.
/// The concatenation of all push() results and finish() is what decode() gives, with U+FFFD for every longest part of
/// an invalid sequence. Where byte pieces <0xNN> only count as a whole run (tokenizer.json's ByteFallback), the run is
/// held back to its end.
class CORBEL_API StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, const DecodeOptions& options = {});
  /// The text that this token completes; may be empty. kInvalidArgument for an id out of range (the state stays).
  Result<std::string> push(TokenId id);
  /// The same at the end of `text`: allocates nothing where the text has room.
  Status push(TokenId id, std::string& text);
  /// What is still held back; the decoder is then as new.
  std::string finish();
  /// The same at the end of `text`.
  void finish(std::string& text);

 private:
  Tokenizer tokenizer_;
  DecodeOptions options_;
  std::string pending_;  // bytes of an unfinished code point
  text::DecodeState state_;
};

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/tokenizer.ipp>
#endif
