// Small vocabularies of both kinds, made in memory and easy to change.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/tokenizer.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace corbel_test {

using corbel::Metadata;
using corbel::MetaValue;
using corbel::TokenId;
using corbel::Tokenizer;
using Ids = std::vector<TokenId>;

inline constexpr std::int32_t kNormal = 1;
inline constexpr std::int32_t kUnknown = 2;
inline constexpr std::int32_t kControl = 3;
inline constexpr std::int32_t kUserDefined = 4;
inline constexpr std::int32_t kUnused = 5;
inline constexpr std::int32_t kByte = 6;

// What a vocabulary file holds, easy to change before it is made into metadata.
struct Spec {
  std::string model = "gpt2";
  std::string pre = "gpt-2";
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  std::vector<std::string> merges;

  TokenId add(std::string token, std::int32_t type = kNormal, float score = 0) {
    tokens.push_back(std::move(token));
    types.push_back(type);
    scores.push_back(score);
    return static_cast<TokenId>(tokens.size() - 1);
  }
  void merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    for (const std::string& token : tokens) {
      if (token == left + right) return;
    }
    add(left + right);
  }
  Metadata metadata() const {
    Metadata out;
    out.set("tokenizer.ggml.model", MetaValue::from_string(model));
    out.set("tokenizer.ggml.pre", MetaValue::from_string(pre));
    out.set("tokenizer.ggml.tokens", MetaValue::from_strings(tokens));
    out.set("tokenizer.ggml.token_type", MetaValue::from_ints(types));
    if (model == "llama") out.set("tokenizer.ggml.scores", MetaValue::from_floats(scores));
    if (model == "gpt2") out.set("tokenizer.ggml.merges", MetaValue::from_strings(merges));
    return out;
  }
};

inline std::string stand_in(unsigned byte) {
  unsigned next = 256;
  for (unsigned at = 0; at < 256; ++at) {
    const bool printable = (at >= 33 && at <= 126) || (at >= 161 && at <= 172) || at >= 174;
    std::string out;
    corbel::detail::append_utf8(out, printable ? at : next);
    if (at == byte) return out;
    if (!printable) ++next;
  }
  return {};
}

inline std::string stand_ins(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += stand_in(static_cast<unsigned char>(c));
  return out;
}

inline Spec byte_level() {
  Spec spec;
  for (unsigned byte = 0; byte < 256; ++byte) spec.add(stand_in(byte));
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{{"a", "a"},
                                                                                    {"aa", "aa"},
                                                                                    {"aaaa", "aa"},
                                                                                    {"h", "e"},
                                                                                    {"l", "l"},
                                                                                    {"he", "ll"},
                                                                                    {"hell", "o"},
                                                                                    {" ", "hello"},
                                                                                    {" ", " "},
                                                                                    {"\n", "\n"},
                                                                                    {"\xCC", "\x81"},
                                                                                    {"\xF0", "\x9F"},
                                                                                    {"\x99", "\x82"},
                                                                                    {"'", "s"},
                                                                                    {"<", "|"}}) {
    spec.merge(stand_ins(left), stand_ins(right));
  }
  spec.add("<|start|>", kControl);
  spec.add("<|end|>", kControl);
  spec.add("<|end|>>", kControl);
  spec.add("[user]", kUserDefined);
  return spec;
}

inline Spec sentence_piece() {
  Spec spec;
  spec.model = "llama";
  spec.add("<unk>", kUnknown);
  spec.add("<s>", kControl);
  spec.add("</s>", kControl);
  static constexpr char kHex[] = "0123456789ABCDEF";
  for (unsigned byte = 0; byte < 256; ++byte) {
    spec.add({'<', '0', 'x', kHex[byte / 16], kHex[byte % 16], '>'}, kByte);
  }
  float score = -1;
  for (const char* piece : {"aa",
                            "aaaa",
                            "he",
                            "ll",
                            "hell",
                            "hello",
                            "\xE2\x96\x81hello",
                            "\xE2\x96\x81h",
                            "\xCC\x81\xCC\x81",
                            "\n\n",
                            "\xE2\x96\x81\xE2\x96\x81",
                            "\xE2\x96\x81",
                            "h",
                            "e",
                            "l",
                            "o",
                            "a",
                            "x",
                            "<",
                            "s",
                            ">",
                            "|"}) {
    spec.add(piece, kNormal, score);
    score -= 1;
  }
  spec.add("[user]", kUserDefined);
  spec.add("<|start|>", kControl);
  spec.add("<|end|>", kControl);
  return spec;
}

inline Tokenizer make(const Spec& spec) { return Tokenizer::from_metadata(spec.metadata()).value(); }

inline Ids encode(const Tokenizer& tokenizer, std::string_view text, bool parse_special = false,
                  bool add_special = false) {
  corbel::EncodeOptions options;
  options.parse_special = parse_special;
  options.add_special = add_special;
  return tokenizer.encode(text, options).value();
}

inline std::string decode(const Tokenizer& tokenizer, const Ids& ids, bool special = false) {
  corbel::DecodeOptions options;
  options.special = special;
  return tokenizer.decode(ids, options).value();
}

}  // namespace corbel_test
