// Decoder: the decoders of a tokenizer.json, as one chain that takes a token at a time.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/text/decode_state.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// Immutable but for keep_bytes(); thread-safe. A run of byte pieces <0xNN> shows when it ends: as its bytes where they
/// are valid UTF-8, else as one U+FFFD for each. The bytes of byte-level pieces come out as they are.
class Decoder {
 public:
  /// `node`: null (tokens are joined with spaces), or an object with "type". kUnsupported for an unknown type or a
  /// pattern that is no plain text, kDepthExceeded, kVocabInvalid, kMissingKey, kTypeMismatch; `path` stands in front.
  static Result<Decoder> from_json(const json::Value* node, std::string_view path);

  /// Appends what `token` (its text in the vocabulary) adds to a text whose tokens so far made `state`.
  void append(std::string_view token, DecodeState& state, std::string& out) const;
  /// Appends what the text's end shows: a run of byte pieces, what stands behind a suffix.
  void finish(DecodeState& state, std::string& out) const;
  /// From here on byte pieces come out as their bytes, one by one.
  void keep_bytes() noexcept;
  std::uint64_t memory_bytes() const noexcept { return steps_.capacity() * sizeof(Step); }
  /// Whether it does the same as the chain of a byte-level tokenizer: only that.
  bool is_byte_level() const noexcept { return steps_.size() == 1 && steps_[0].kind == Kind::kByteLevel; }
  /// True where some step turns a piece <0xNN> into its byte.
  bool has_byte_fallback() const noexcept;

 private:
  enum class Kind : std::uint8_t {
    kJoin,  // no decoder: a space between tokens
    kByteLevel,
    kReplace,
    kByteFallback,
    kFuse,
    kStrip,
    kMetaspace,
    kWordPiece,
    kSuffix,  // BPEDecoder
    kCtc,
  };
  struct Step {
    Kind kind = Kind::kJoin;
    bool whole = false;  // after Fuse: works on the text so far, not on tokens
    bool flag = false;   // Metaspace: the first token loses its space; WordPiece, CTC: clean up; ByteFallback: raw
    std::size_t start = 0;
    std::size_t stop = 0;
    std::string from;  // what is replaced, stripped, or a prefix or suffix
    std::string to;
  };
  static Status read_step(const json::Value& node, const std::string& path, std::vector<Step>& steps);
  static void apply(const Step& step, DecodeState::Step& state, std::string& token);
  void run(std::size_t first_step, std::string& token, DecodeState& state, std::string& out) const;
  void end_byte_run(std::size_t step, DecodeState& state, std::string& out) const;

  std::vector<Step> steps_;
};

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/decoder.ipp>
#endif
