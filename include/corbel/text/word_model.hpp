// WordModel: how one word, cut out by a pre-tokenizer, becomes ids. The four kinds of tokenizer.json.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/text/merge_table.hpp>
#include <corbel/text/piece_automaton.hpp>
#include <corbel/text/tokenizer_model.hpp>
#include <corbel/text/vocabulary.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// Immutable; thread-safe. The vocabulary given at construction must live as long.
class WordModel {
 public:
  virtual ~WordModel() = default;
  /// Appends the ids of `word`, which is not empty. Sets scratch.missing_unknown where a part is in no piece and the
  /// model names no unknown token.
  virtual void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& ids) const = 0;
  /// Whether encode_word() takes the plain bytes of a word though the vocabulary spells them in stand-ins.
  virtual bool takes_bytes() const noexcept { return false; }
  virtual std::uint64_t memory_bytes() const noexcept = 0;
};

/// What all kinds do with a text that is in no piece.
struct UnknownPolicy {
  TokenId unknown = kNoToken;
  bool fuse = false;           ///< one token for a run of unknown characters
  bool bytes = false;          ///< the pieces <0x00> to <0xFF> instead, where all that are needed exist
  TokenId byte_ids[256] = {};  ///< with `bytes`; kNoToken where absent
};

/// Byte-pair encoding over the characters of a word, merges by rank. Sennrich et al. 2016, arXiv:1508.07909.
class BpeWords final : public WordModel {
 public:
  struct Options {
    UnknownPolicy unknown;
    bool whole_words = false;  ///< a word that is a piece is that piece, whatever the merges say
    std::string prefix;        ///< before every character but the first, as in the vocabulary ("##")
    std::string suffix;        ///< after the last character ("</w>")
    bool byte_level = false;   ///< words are plain bytes where the vocabulary has a stand-in for every byte
  };
  BpeWords(const Vocabulary& vocabulary, MergeTable merges, Options options);
  void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& ids) const override;
  bool takes_bytes() const noexcept override { return takes_bytes_; }
  std::uint64_t memory_bytes() const noexcept override;

 private:
  void encode_bytes(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& ids) const;
  void merge(EncodeScratch& scratch, std::vector<TokenId>& ids) const;

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  Options options_;
  std::vector<TokenId> characters_;  // pieces of one code point below its size, most of all look-ups; -1: none
  bool takes_bytes_ = false;
};

/// The segmentation with the highest sum of scores (Kudo 2018, arXiv:1804.10959), found by Viterbi's algorithm; of
/// equal sums the one whose last piece is found first. Sums are f64, as in the reference.
class UnigramWords final : public WordModel {
 public:
  /// `scores` of all pieces, none NaN.
  UnigramWords(const Vocabulary& vocabulary, std::vector<double> scores, const UnknownPolicy& unknown);
  void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& ids) const override;
  std::uint64_t memory_bytes() const noexcept override;

 private:
  const Vocabulary& vocabulary_;
  std::vector<double> scores_;
  UnknownPolicy unknown_;
  double unknown_score_ = 0;
  PieceAutomaton pieces_;
};

/// Longest piece first (Schuster and Nakajima 2012); a word with a part that is no piece is unknown as a whole.
class WordPieceWords final : public WordModel {
 public:
  struct Options {
    TokenId unknown = kNoToken;
    std::string first;          ///< before the first piece, as in the vocabulary (U+2581 in GGUF files)
    std::string prefix;         ///< before every other piece ("##")
    std::size_t longest = 100;  ///< characters; longer words are unknown
  };
  WordPieceWords(const Vocabulary& vocabulary, Options options);
  void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& ids) const override;
  std::uint64_t memory_bytes() const noexcept override;

 private:
  bool encode_long(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& ids) const;

  const Vocabulary& vocabulary_;
  Options options_;
  // Pieces backwards, where both pieces and words can be so long that trying every length would take a time that grows
  // with their product; else empty.
  bool long_ = false;
  PieceAutomaton first_;  // without options.first
  PieceAutomaton rest_;   // without options.prefix
};

/// A word is a piece or unknown.
class WordLevelWords final : public WordModel {
 public:
  WordLevelWords(const Vocabulary& vocabulary, TokenId unknown) : vocabulary_(vocabulary), unknown_(unknown) {}
  void encode_word(std::string_view word, EncodeScratch& scratch, std::vector<TokenId>& ids) const override;
  std::uint64_t memory_bytes() const noexcept override { return sizeof(*this); }

 private:
  const Vocabulary& vocabulary_;
  TokenId unknown_;
};

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/word_model.ipp>
#endif
