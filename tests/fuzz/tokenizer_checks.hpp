// What holds for every tokenizer that loaded, whatever its file said.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/tokenizer.hpp>

#include <array>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "fuzz/fuzz.hpp"

namespace corbel_fuzz {

/// Bytes that can begin a character without finishing it, from the definition: what stands at the front of some code
/// point's UTF-8 form.
class Utf8Prefixes {
 public:
  Utf8Prefixes() {
    for (std::uint32_t point = 0x80; point <= 0x10FFFF; ++point) {
      if (point >= 0xD800 && point <= 0xDFFF) continue;
      if (point >= 0x10000 && point % 64 != 0) continue;  // the last byte is no part of a prefix
      std::string text;
      corbel::detail::append_utf8(text, point);
      for (std::size_t length = 1; length < text.size(); ++length) prefixes_.insert(text.substr(0, length));
    }
  }
  /// Longest prefix of a character at the front of `text`, in bytes.
  std::size_t longest(std::string_view text) const {
    std::size_t length = 0;
    while (length < 3 && length < text.size() && prefixes_.count(std::string(text.substr(0, length + 1))) != 0) ++length;
    return length;
  }

 private:
  std::unordered_set<std::string> prefixes_;
};

/// The text with U+FFFD for each longest stretch that begins no character or breaks off (Unicode Standard 16.0, 3.9).
inline std::string repaired(std::string_view text) {
  static const Utf8Prefixes prefixes;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const corbel::detail::CodePoint point = corbel::detail::decode_utf8(text, at);
    if (point.length != 0) {
      out += text.substr(at, point.length);
      at += point.length;
    } else {
      out += "\xEF\xBF\xBD";
      at += std::max<std::size_t>(prefixes.longest(text.substr(at)), 1);
    }
  }
  return out;
}

/// Pushes `ids` one by one; every piece is valid UTF-8, and together they are what decode() gives, repaired.
inline void check_stream(const corbel::Tokenizer& tokenizer, const std::vector<corbel::TokenId>& ids, bool special) {
  const corbel::DecodeOptions options{special};
  const corbel::Result<std::string> whole = tokenizer.decode(ids, options);
  FUZZ_CHECK(whole.ok(), whole.status().message());
  corbel::StreamDecoder stream(tokenizer, options);
  std::string joined;
  for (const corbel::TokenId id : ids) {
    const corbel::Result<std::string> piece = stream.push(id);
    FUZZ_CHECK(piece.ok() && corbel::detail::is_utf8(*piece), piece.status().message());
    joined += *piece;
  }
  joined += stream.finish();
  FUZZ_CHECK(joined == repaired(*whole), joined);
}

inline std::vector<corbel::TokenId> checked_encode(const corbel::Tokenizer& tokenizer, std::string_view text,
                                                   const corbel::EncodeOptions& options) {
  const corbel::Result<std::vector<corbel::TokenId>> ids = tokenizer.encode(text, options);
  check_status(ids.status());
  if (!ids.ok()) return {};
  for (const corbel::TokenId id : *ids)
    FUZZ_CHECK(id >= 0 && static_cast<std::size_t>(id) < tokenizer.size(), std::to_string(id));
  return *ids;
}

/// Encodes and decodes fixed texts and the pieces of the vocabulary itself.
inline void check_tokenizer(const corbel::Tokenizer& tokenizer) {
  using namespace std::string_view_literals;
  static constexpr std::array kTexts = {
      ""sv, "Hello hello, world's 12345 <s> </s> <|end|> [user]\n\n\t  x"sv, "aaaaaaaaaaaaaaaaaaaaaaaa"sv,
      "\xC3\xA4\xCC\x81\xF0\x9F\x99\x82\xE4\xB8\xAD\xE2\x96\x81 \xE2\x80\x8D"sv, "\xFF\xC0\x80\xED\xA0\x80\xF4\x90\x80\x80\xE2\x82"sv};
  for (const std::string_view text : kTexts) {
    for (const bool special : {false, true}) {
      const auto ids = checked_encode(tokenizer, text, {.parse_special = special, .add_special = special});
      check_stream(tokenizer, ids, special);
    }
  }
  const std::vector<corbel::PromptSegment> segments = {{"<s>[user] hell", false}, {"o </s><|e", true}, {"nd|> a", false}};
  const auto prompt = tokenizer.encode(segments);
  check_status(prompt.status());
  if (prompt.ok()) check_stream(tokenizer, *prompt, true);

  std::string pieces;
  const auto size = static_cast<corbel::TokenId>(tokenizer.size());
  for (corbel::TokenId id = 0; id < size && pieces.size() < 2000; ++id) {
    pieces += tokenizer.piece(id);
    check_stream(tokenizer, {id, size - 1 - id}, true);
  }
  checked_encode(tokenizer, pieces, {.parse_special = true});
  for (const corbel::TokenId id : {corbel::TokenId{-1}, size, corbel::TokenId{INT32_MAX}, corbel::TokenId{INT32_MIN}}) {
    FUZZ_CHECK(tokenizer.piece(id).empty() && !tokenizer.is_control(id) && !tokenizer.is_end_of_generation(id), "");
    FUZZ_CHECK(tokenizer.decode(std::array{id}).status().code() == corbel::Errc::kInvalidArgument, "");
  }
  for (const corbel::TokenId id : {tokenizer.bos(), tokenizer.eos(), tokenizer.unknown()})
    FUZZ_CHECK(id == corbel::kNoToken || (id >= 0 && id < size), std::to_string(id));
}

}  // namespace corbel_fuzz
