// WordCutter: pre-tokenizers of tokenizer.json and of GGUF files as one pipeline that cuts a text into words.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

class CutterStep;

/// A part of a text, in bytes.
struct Word {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

/// Memory of one or more calls of WordCutter::cut. Nothing in it is input.
struct CutScratch {
  std::vector<Word> words;  ///< out: not empty, ascending, parts of the text that cut() answered
  std::uint64_t steps = 0;  ///< out: code points looked at, added up
  std::string text;         ///< the text as steps rewrote it
  std::string spare_text;
  std::vector<Word> spare_words;
};

/// A sequence of steps. Immutable; all members are thread-safe. Movable.
class CORBEL_API WordCutter {
 public:
  /// The whole text is one word.
  WordCutter() noexcept;
  WordCutter(WordCutter&&) noexcept;
  WordCutter& operator=(WordCutter&&) noexcept;
  ~WordCutter();

  /// From the node "pre_tokenizer" of a tokenizer.json (null: one word); `place` is its JSON path, for messages.
  /// kUnsupported for a type or a pattern that is not supported (with the offset in the pattern), kMissingKey,
  /// kTypeMismatch, kBadValue, kVocabInvalid, kLimitExceeded, kDepthExceeded.
  static Result<WordCutter> from_json(const json::Value& node, std::string_view place);
  /// From a name of tokenizer.ggml.pre (text/pretokenizer.hpp has the table). kUnsupported where it is unknown.
  static Result<WordCutter> from_name(std::string_view name);

  /// True where words are to be spelled in the stand-ins of bytes (text/byte_stand_ins.hpp): the last step is
  /// ByteLevel. The words that cut() gives are then still plain bytes; spelling them, or starting from ids of bytes, is
  /// the caller's. (Where a step follows ByteLevel, the text is rewritten and this is false.)
  bool byte_level() const noexcept { return byte_level_; }

  /// Cuts `text` (valid UTF-8, at most 2^30 bytes) to scratch.words and answers the text that they are parts of: `text`
  /// itself, or scratch.text where a step rewrites (valid until the next call). `at_start`: the text is the beginning
  /// of the input, which Metaspace with prepend_scheme "first" asks. Linear in the text. kLimitExceeded where a pattern
  /// goes beyond its budget of steps or memory.
  Result<std::string_view> cut(std::string_view text, bool at_start, CutScratch& scratch) const;

  std::uint64_t memory_bytes() const noexcept;

 private:
  std::vector<std::unique_ptr<const CutterStep>> steps_;
  bool byte_level_ = false;
};

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/word_cutter.ipp>
#endif
