// Template source to tokens, with Jinja's white-space rules: trim_blocks and lstrip_blocks on, the last newline
// dropped.
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

enum class TokenType : std::uint8_t {
  kData,  ///< text between tags, also of {% raw %}
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,  ///< with its quotes
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

/// A piece of the source; `text` points into it.
struct Token {
  TokenType type = TokenType::kEnd;
  std::string_view text;
  std::uint32_t offset = 0;
};

/// The source as tokens see it: every kind of newline is "\n" and one at the very end is gone.
std::string normalize_newlines(std::string_view source);
/// Tokens of a normalized source, the last one kEnd. kTemplateError with the place.
Result<std::vector<Token>> tokenize(std::string_view source);
/// "line 3, column 14", both from 1, columns in characters.
std::string describe_place(std::string_view source, std::size_t offset);

}  // namespace text::jinja
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/jinja/lexer.ipp>
#endif
