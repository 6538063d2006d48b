// Pre-tokenizers: the published patterns that cut a text into words before byte-level BPE, each as a hand-written
// scanner that reads every code point a bounded number of times. No regular expression engine.
#pragma once

#include <corbel/config.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

class TextCursor;

/// One pattern. Answers the end of the match that starts exactly at byte `at` of the cursor's text, or `at` where none
/// does. The text ends where the stretch being cut ends, so look-ahead never leaves it.
using Scanner = std::size_t (*)(TextCursor& cursor, std::size_t at);

/// A published pre-tokenizer: each scanner in turn cuts the stretches that those before it left; matches and the gaps
/// between them are stretches.
struct Pretokenizer {
  std::string_view name;  ///< of tokenizer.ggml.pre
  Scanner scanners[5];    ///< in order; the rest are null
  bool whole_words;       ///< a word that is a piece is that piece, whatever the merges say
  bool add_bos;           ///< what add_special does where the file does not say
};

/// The row with this name, or null.
CORBEL_API const Pretokenizer* find_pretokenizer(std::string_view name) noexcept;

/// Writes the end offset of every word of `text` (valid UTF-8) to `ends`. `spare` is scratch memory. `steps` counts the
/// code points looked at.
CORBEL_API void pretokenize(const Pretokenizer& pretokenizer, std::string_view text, std::vector<std::uint32_t>& ends,
                            std::vector<std::uint32_t>& spare, std::uint64_t& steps);

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/pretokenizer.ipp>
#endif
