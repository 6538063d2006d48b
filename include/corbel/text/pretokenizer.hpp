// Published patterns that cut a text into words before byte-level BPE, each as a hand-written scanner that reads every
// code point a bounded number of times; and the names that GGUF files have for lists of them.
#pragma once

#include <corbel/config.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

class TextCursor;

/// One pattern. Answers the end of the match that starts exactly at byte `at` of the cursor's text, or `at` where none
/// does. The text ends where the stretch being cut ends, so look-ahead never leaves it.
using Scanner = std::size_t (*)(TextCursor& cursor, std::size_t at);

/// A pattern with a scanner.
struct PublishedPattern {
  std::string_view text;
  Scanner scanner;
};
/// All of them. Static storage.
CORBEL_API std::span<const PublishedPattern> published_patterns() noexcept;
/// The scanner that cuts as this pattern does, matches and gaps between them being words; null where there is none.
CORBEL_API Scanner find_scanner(std::string_view pattern) noexcept;

/// A name of tokenizer.ggml.pre: each pattern in turn cuts the stretches that those before it left; matches and the
/// gaps between them are stretches.
struct Pretokenizer {
  std::string_view name;
  std::string_view patterns[6];  ///< in order; the rest are empty
  bool whole_words;              ///< a word that is a piece is that piece, whatever the merges say
  bool add_bos;                  ///< what add_special does where the file does not say
  bool byte_level = true;        ///< pieces are spelled in the stand-ins of bytes; else in text, with U+2581 for spaces
};

/// The row with this name, or null.
CORBEL_API const Pretokenizer* find_pretokenizer(std::string_view name) noexcept;
/// All rows. Static storage.
CORBEL_API std::span<const Pretokenizer> all_pretokenizers() noexcept;

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/pretokenizer.ipp>
#endif
