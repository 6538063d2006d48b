// TokenizerModel: what all kinds of tokenizer share (vocabulary, special tokens, the cut at special pieces), and the
// two points where they differ: how a stretch of plain text becomes ids, and how an id becomes bytes.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/text/bpe_merge.hpp>
#include <corbel/text/decode_state.hpp>
#include <corbel/text/special_matcher.hpp>
#include <corbel/text/vocabulary.hpp>
#include <corbel/text/word_cutter.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// A word met earlier in the same call: its ids stand in the output already.
struct CachedWord {
  std::uint32_t begin = 0;   // of the word in the stretch of text
  std::uint32_t length = 0;  // 0: empty slot
  std::uint32_t ids_begin = 0;
  std::uint32_t ids_count = 0;
};

/// The best way to a byte of a word that is known so far (unigram).
struct PathNode {
  double score = 0;
  std::uint32_t begin = kNoSymbol;  // of the last piece; kNoSymbol: no way yet
  TokenId id = kNoToken;            // kNoToken: unknown
};

/// Memory of one encode call; nothing of it outlives the call.
struct EncodeScratch {
  MergeScratch merge;
  std::string escaped;  // the stretch as the vocabulary spells it (SentencePiece)
  CutScratch cut;
  std::vector<CachedWord> cache;                             // direct-mapped
  std::unordered_map<TokenId, std::uint32_t> unused_splits;  // unused piece -> bytes of its left half (SentencePiece)
  std::vector<PathNode> path;
  std::vector<TokenId> bytes;
  bool missing_unknown = false;  // a word has a part that no token stands for
};

/// Longest text that one call takes.
inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

/// Immutable; all members are thread-safe.
class CORBEL_API TokenizerModel {
 public:
  virtual ~TokenizerModel() = default;
  TokenizerModel(const TokenizerModel&) = delete;
  TokenizerModel& operator=(const TokenizerModel&) = delete;

  /// `spans` cover the text in order. Adds the work done to `steps`: look-ups, comparisons, and bytes or code points
  /// looked at. kLimitExceeded for a text above kMaxTextBytes.
  virtual Result<std::vector<TokenId>> encode(std::string_view text, std::span<const TextSpan> spans, bool add_special,
                                              std::uint64_t& steps) const;
  /// Appends the bytes of one token, of a control token only with `special`. `state` belongs to the text and knows the
  /// tokens before.
  virtual void append_bytes(TokenId id, bool special, DecodeState& state, std::string& out) const;
  /// Appends what the end of the text shows of what `state` holds back.
  virtual void finish_bytes(DecodeState&, std::string& /*out*/) const {}
  /// Whether decoding gives valid UTF-8 whatever the ids, as the tokenizer's own library does; else it gives bytes.
  virtual bool decodes_to_utf8() const noexcept { return false; }

  const Vocabulary& vocabulary() const noexcept { return vocabulary_; }
  TokenId bos() const noexcept { return bos_; }
  TokenId eos() const noexcept { return eos_; }
  TokenId unknown() const noexcept { return unknown_; }
  bool adds_bos() const noexcept { return add_bos_; }
  bool adds_eos() const noexcept { return add_eos_; }
  bool ends_generation(TokenId id) const noexcept;
  virtual std::uint64_t memory_bytes() const noexcept;

 protected:
  /// What a kind adds when the file does not say.
  struct Defaults {
    bool add_bos = false;
    bool add_eos = false;
    std::string_view bos;  // piece texts, looked up where the file names no id
    std::string_view eos;
    std::string_view unknown;
  };
  TokenizerModel() = default;
  /// Reads what both kinds share.
  Status read_common(const Metadata& metadata, Vocabulary vocabulary, const Defaults& defaults);
  /// The ids that read_common() finds in keys, given.
  struct SpecialIds {
    TokenId bos = kNoToken;
    TokenId eos = kNoToken;
    TokenId unknown = kNoToken;
    bool add_bos = false;
    bool add_eos = false;
    std::vector<TokenId> ends;  // more tokens that end a reply
  };
  void set_common(Vocabulary vocabulary, SpecialIds ids);
  static Status too_long(std::size_t bytes);
  /// Enters special pieces into the matcher, in the spelling of normalized text.
  void add_special_pieces();

  /// True, with `spans` moved along, where the text had to be rewritten into `out` before special pieces are looked
  /// for.
  virtual bool normalize(std::string_view text, std::vector<TextSpan>& spans, std::string& out) const;
  /// How a special piece is spelled in normalized text.
  virtual std::string special_spelling(std::string_view piece) const { return std::string(piece); }
  /// Appends the ids of a stretch without special pieces.
  virtual void encode_stretch(std::string_view, EncodeScratch&, std::vector<TokenId>&) const {}
  /// Appends the bytes of a piece that is neither control nor user-defined.
  virtual void append_text(TokenId, bool /*after_special*/, std::string&) const {}

  /// Appends the ids of text[begin, end), which `encode_word(word)` appends where they are not in the cache.
  template <class EncodeWord>
  static void encode_cached(std::string_view text, std::size_t begin, std::size_t end, EncodeScratch& scratch,
                            std::vector<TokenId>& ids, EncodeWord&& encode_word);
  /// The cache for a stretch of this size, empty.
  static void reset_cache(std::size_t text_bytes, EncodeScratch& scratch);

 private:
  Status read_special_ids(const Metadata& metadata, const Defaults& defaults);
  TokenId find_control(std::string_view piece) const noexcept;
  void find_end_ids();

  Vocabulary vocabulary_;
  SpecialMatcher specials_;
  std::vector<TokenId> end_ids_;  // sorted
  TokenId bos_ = -1;
  TokenId eos_ = -1;
  TokenId unknown_ = -1;
  bool add_bos_ = false;
  bool add_eos_ = false;
};

template <class EncodeWord>
void TokenizerModel::encode_cached(std::string_view text, std::size_t begin, std::size_t end, EncodeScratch& scratch,
                                   std::vector<TokenId>& ids, EncodeWord&& encode_word) {
  // Long words are rare and never come back; hashing them would only cost.
  constexpr std::size_t kLongestCached = 64;
  const std::string_view word = text.substr(begin, end - begin);
  scratch.merge.steps += word.size();
  if (scratch.cache.empty() || word.size() > kLongestCached) {
    encode_word(word);
    return;
  }
  CachedWord& slot = scratch.cache[static_cast<std::size_t>(hash_bytes(word)) & (scratch.cache.size() - 1)];
  if (slot.length == word.size() && text.substr(slot.begin, slot.length) == word) {
    for (std::uint32_t at = 0; at < slot.ids_count; ++at) ids.push_back(ids[slot.ids_begin + at]);
    return;
  }
  const std::size_t first = ids.size();
  encode_word(word);
  slot = {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(word.size()), static_cast<std::uint32_t>(first),
          static_cast<std::uint32_t>(ids.size() - first)};
}

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/tokenizer_model.ipp>
#endif
