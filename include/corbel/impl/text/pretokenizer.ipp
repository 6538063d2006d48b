// Definitions of text/pretokenizer.hpp. To add a name of GGUF files, add a row to kPretokenizers; to add a fast
// pattern, a scanner and a row in kPublished.
#pragma once

#include <corbel/impl/text/pattern_texts.hpp>
#include <corbel/impl/text/scanners.hpp>
#include <corbel/impl/text/scanners_families.hpp>
#include <corbel/text/pretokenizer.hpp>

CORBEL_NAMESPACE_BEGIN
namespace text {

// clang-format off
inline constexpr PublishedPattern kPublished[] = {
    {pattern::kGpt2, scan::gpt2},
    {pattern::kCl100k3, scan::cl100k<3, scan::Case::kFolded>},
    {pattern::kCl100k1, scan::cl100k<1, scan::Case::kFolded>},
    {pattern::kCl100kAny, scan::cl100k<scan::kAny, scan::Case::kFolded>},
    {pattern::kCl100kPlain, scan::cl100k<1, scan::Case::kNone>},
    {pattern::kCl100kMarks, scan::cl100k<1, scan::Case::kFolded, true>},
    {pattern::kCl100kNoLineEnds, scan::cl100k<1, scan::Case::kFolded, false, false>},
    {pattern::kO200k, scan::o200k<3, scan::Case::kFolded>},
    {pattern::kO200k1, scan::o200k<1, scan::Case::kFolded>},
    {pattern::kTekken, scan::o200k<1, scan::Case::kNone>},
    {pattern::kDeepseek3, scan::deepseek3},
    {pattern::kBloom, scan::bloom},
    {pattern::kEastAsian, scan::east_asian},
    {pattern::kKanaHan, scan::kana_han},
    {pattern::kNumbers3, scan::numbers<3>},
    {pattern::kNumbers, scan::numbers<scan::kAny>},
    {pattern::kNumber, scan::digit},
    {pattern::kNewline, scan::newline},
    {pattern::kSpacedLetters, scan::spaced_letters},
    {pattern::kSpacedPunctuation, scan::spaced_punctuation},
    {pattern::kLines, scan::lines},
    {pattern::kNotSpaces, scan::not_spaces},
    {pattern::kBeforeDigitGroups, scan::before_digit_groups},
    {pattern::kDigitGroups, scan::digit_groups<false>},
    {pattern::kDigitGroupsOfWords, scan::digit_groups<true>},
    {pattern::kPunctuationRuns, scan::marks<false>},
    {pattern::kFalconMarks, scan::marks<true>},
    {pattern::kThreeDigits, scan::three_digits},
    {pattern::kDeepseekLetters, scan::deepseek_letters},
    {pattern::kDeepseekMarks, scan::deepseek_marks},
    {pattern::kLastSpaces, scan::last_spaces},
    {pattern::kExaoneMoe, scan::exaone_moe},
    {pattern::kKimi, scan::kimi},
    // Other spellings of the same.
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)",
     scan::gpt2},
    {"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N"
    "}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     scan::cl100k<3, scan::Case::kLetters>},
    {"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N"
    "}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     scan::cl100k<1, scan::Case::kLetters>},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\"
    "n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     scan::cl100k<3, scan::Case::kFolded>},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\"
    "s*[\\r\\n]|\\s+(?!\\S)|\\s+",
     scan::cl100k<1, scan::Case::kFolded>},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\"
    "n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
     scan::cl100k<3, scan::Case::kFolded>},
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?:'"
    "[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\"
    "p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'["
    "lL][lL]|'[dD])?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     scan::o200k<3, scan::Case::kLetters>},
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?:'"
    "[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\"
    "p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'["
    "lL][lL]|'[dD])?|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     scan::o200k<1, scan::Case::kLetters>},
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|[^\\"
    "r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}{"
    "1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     scan::o200k<3, scan::Case::kNone>},
    {" ?[^(\\s|[.,!?\xE2\x80\xA6\xE3\x80\x82\xEF\xBC\x8C\xE3\x80\x81\xE0\xA5\xA4\xDB\x94\xD8\x8C])]"
    "+",
     scan::bloom},
    {"[0-9]",
     scan::ascii_digit},
    {"\\d",
     scan::decimal},
    {"[^\\n]+|\\n+",
     scan::lines},
};
// clang-format on

// Names as converters write them; lists of patterns and defaults are those under which the reference reads such files.
inline constexpr Pretokenizer kPretokenizers[] = {
    {"default",
     {pattern::kPunctuationRuns, pattern::kGpt2Gaps, pattern::kNumbers, pattern::kThreeDigits},
     false,
     false},
    {"gpt-2", {pattern::kGpt2}, false, false},
    {"phi-2", {pattern::kGpt2}, false, false},
    {"mpt", {pattern::kGpt2}, false, false},
    {"olmo", {pattern::kGpt2}, false, false},
    {"jais", {pattern::kGpt2}, false, false},
    {"trillion", {pattern::kGpt2}, false, false},
    {"granite-docling", {pattern::kGpt2}, false, false},
    {"jina-es", {pattern::kGpt2}, false, false},
    {"jina-de", {pattern::kGpt2}, false, false},
    {"jina-v2-es", {pattern::kGpt2}, false, false},
    {"jina-v2-de", {pattern::kGpt2}, false, false},
    {"jina-v1-en", {pattern::kGpt2}, false, false},
    {"jina-v2-code", {pattern::kGpt2}, false, false},
    {"roberta-bpe", {pattern::kGpt2}, false, false},
    {"gigachat", {pattern::kGpt2}, false, false},
    {"a.x-4.0", {pattern::kGpt2}, false, false},
    {"mellum", {pattern::kGpt2}, false, false},
    {"modern-bert", {pattern::kGpt2}, false, false},
    {"exaone4", {pattern::kGpt2}, false, false},
    {"smollm", {pattern::kNumber, pattern::kGpt2}, false, false},
    {"starcoder", {pattern::kNumber, pattern::kGpt2}, false, false},
    {"refact", {pattern::kNumber, pattern::kGpt2}, false, false},
    {"command-r", {pattern::kNumber, pattern::kGpt2}, false, false},
    {"codeshell", {pattern::kNumber, pattern::kGpt2}, false, false},
    {"exaone", {pattern::kNumber, pattern::kGpt2}, false, false},
    {"minerva-7b", {pattern::kNumber, pattern::kGpt2}, false, false},
    {"mellum2", {pattern::kNumber, pattern::kGpt2}, false, false},
    {"falcon", {pattern::kFalconMarks, pattern::kGpt2Gaps, pattern::kThreeDigits}, false, false},
    {"deepseek-llm",
     {pattern::kNewline, pattern::kDeepseekLetters, pattern::kDeepseekMarks, pattern::kLastSpaces, pattern::kEastAsian,
      pattern::kNumbers},
     false,
     false},
    {"deepseek-coder",
     {pattern::kNewline, pattern::kSpacedLetters, pattern::kSpacedPunctuation, pattern::kEastAsian, pattern::kNumber},
     false,
     false},
    {"deepseek-v3", {pattern::kNumbers3, pattern::kKanaHan, pattern::kDeepseek3}, false, false},
    {"hunyuan-dense", {pattern::kNumbers3, pattern::kKanaHan, pattern::kDeepseek3}, false, false},
    {"joyai-llm", {pattern::kNumbers3, pattern::kKanaHan, pattern::kDeepseek3}, false, false},
    {"hy_v4", {pattern::kNumbers3, pattern::kKanaHan, pattern::kDeepseek3}, false, false},
    {"spark2_5", {pattern::kNumbers3, pattern::kKanaHan, pattern::kSpark, pattern::kNumber}, false, false},
    {"llama-bpe", {pattern::kCl100k3}, true, true},
    {"llama3", {pattern::kCl100k3}, true, true},
    {"llama-v3", {pattern::kCl100k3}, true, true},
    {"falcon3", {pattern::kCl100k3}, true, true},
    {"falcon-h1", {pattern::kCl100k3}, true, true},
    {"pixtral", {pattern::kCl100k3}, true, true},
    {"midm-2.0", {pattern::kCl100k3}, true, true},
    {"lfm2", {pattern::kCl100k3}, true, true},
    {"jina-v5-nano", {pattern::kCl100k3}, true, true},
    {"dbrx", {pattern::kCl100k3}, false, false},
    {"smaug-bpe", {pattern::kCl100k3}, false, false},
    {"glm4", {pattern::kCl100k3}, true, false},
    {"glm5", {pattern::kCl100k3}, true, false},
    {"chatglm-bpe", {pattern::kCl100k3}, false, false},
    {"minicpm5", {pattern::kNumbers3, pattern::kCl100kAny}, true, false},
    {"qwen2", {pattern::kCl100k1}, false, false},
    {"deepseek-r1-qwen", {pattern::kCl100k1}, false, false},
    {"kormo", {pattern::kCl100k1}, false, false},
    {"f2llmv2", {pattern::kCl100k1}, false, false},
    {"stablelm2", {pattern::kCl100k1}, false, false},
    {"megrez", {pattern::kCl100k1}, false, false},
    {"hunyuan", {pattern::kCl100k1}, false, false},
    {"solar-open", {pattern::kCl100k1}, false, false},
    {"grok-2", {pattern::kCl100k1}, false, false},
    {"qwen35", {pattern::kCl100kMarks}, false, false},
    {"ufakzeka", {pattern::kCl100kPlain}, false, false},
    {"bailingmoe", {pattern::kBailing}, false, false},
    {"bailingmoe2", {pattern::kBailing}, false, false},
    {"llada-moe", {pattern::kBailing}, false, false},
    {"seed-coder", {pattern::kCl100kNoLineEnds}, false, false},
    {"laguna", {pattern::kLines, pattern::kCl100k1}, false, false},
    {"exaone-moe", {pattern::kExaoneMoe}, false, false},
    {"jais-2", {pattern::kJais2}, false, false},
    {"tekken", {pattern::kTekken}, true, true},
    {"gpt-4o", {pattern::kO200k}, false, false},
    {"llama4", {pattern::kO200k}, false, false},
    {"kanana2", {pattern::kO200k}, false, false},
    {"talkie", {pattern::kO200k}, false, false},
    {"minimax-m2", {pattern::kO200k}, false, false},
    {"granite-embed-multi-97m", {pattern::kO200k}, true, false},
    {"tiny_aya", {pattern::kDigitGroupsOfWords, pattern::kO200k}, false, false},
    {"cohere2moe", {pattern::kDigitGroupsOfWords, pattern::kO200k}, false, false},
    {"youtu", {pattern::kHangulBopomofo, pattern::kO200k1Letters}, true, false},
    {"kimi-k2", {pattern::kKimi}, false, false},
    {"superbpe", {pattern::kNumbers, pattern::kBeforeDigitGroups}, false, false},
    {"afmoe", {pattern::kDigitGroups, pattern::kAsian, pattern::kDeepseek3}, false, false},
    {"bloom", {pattern::kBloom}, false, false},
    {"gpt3-finnish", {pattern::kBloom}, false, false},
    {"poro-chat", {pattern::kBloom}, false, false},
    {"viking", {pattern::kBloom, pattern::kNumber}, false, false},
    {"chameleon",
     {pattern::kSentinels, pattern::kImages, pattern::kTabs, pattern::kNumber, pattern::kMarks, pattern::kGpt2Gaps},
     false,
     true},
    {"gemma4", {pattern::kLines}, false, false, false},
    {"granite-embed-multi-311m", {pattern::kLines}, false, false, false},
    {"sarvam-moe", {pattern::kLines}, false, false, false},
    {"whitespace", {pattern::kNotSpaces}, false, false, false},
};

CORBEL_INLINE Scanner find_scanner(std::string_view pattern) noexcept {
  for (const PublishedPattern& row : kPublished) {
    if (row.text == pattern) return row.scanner;
  }
  return nullptr;
}

CORBEL_INLINE std::span<const PublishedPattern> published_patterns() noexcept { return kPublished; }
CORBEL_INLINE std::span<const Pretokenizer> all_pretokenizers() noexcept { return kPretokenizers; }

CORBEL_INLINE const Pretokenizer* find_pretokenizer(std::string_view name) noexcept {
  for (const Pretokenizer& row : kPretokenizers) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace text
CORBEL_NAMESPACE_END
