// The Unicode tables, and the scanners of the pre-tokenizers that read them.
#include <corbel/text/pretokenizer.hpp>
#include <corbel/text/unicode.hpp>
#include <corbel/text/word_cutter.hpp>

#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

using corbel::text::char_class;
using corbel::text::CharClass;

namespace {

std::vector<std::string> words(std::string_view pretokenizer, std::string_view text) {
  const auto cutter = corbel::text::WordCutter::from_name(pretokenizer);
  INFO(pretokenizer << ": " << cutter.status().message());
  REQUIRE(cutter.ok());
  corbel::text::CutScratch scratch;
  const auto cut = cutter->cut(text, true, scratch);
  REQUIRE(cut.ok());
  std::vector<std::string> out;
  for (const corbel::text::Word& word : scratch.words)
    out.emplace_back((*cut).substr(word.begin, word.end - word.begin));
  return out;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("every code point has its class of Unicode 16", "[unicode]") {
  // Counts of the Unicode Character Database 16.0.0, and a digest over all classes in order.
  std::uint32_t counts[11] = {};
  std::uint32_t digest = 0;
  for (std::uint32_t value = 0; value <= 0x10FFFF; ++value) {
    const auto type = static_cast<std::uint32_t>(char_class(value));
    REQUIRE(type < 11);
    ++counts[type];
    digest = digest * 31 + type;
  }
  const std::uint32_t expected[11] = {959278, 1858, 2258, 31, 404, 136477, 2501, 1911, 855, 8514, 25};
  for (std::size_t type = 0; type < 11; ++type) CHECK(counts[type] == expected[type]);
  CHECK(digest == 0x7C935ED7u);
  CHECK(char_class(0x110000) == CharClass::kOther);
  CHECK(char_class(0xFFFFFFFF) == CharClass::kOther);
}

TEST_CASE("classes that patterns depend on", "[unicode]") {
  CHECK(char_class('A') == CharClass::kUpper);
  CHECK(char_class(0x01C5) == CharClass::kTitle);
  CHECK(char_class(0x02B0) == CharClass::kModifier);
  CHECK(char_class(0x4E00) == CharClass::kOtherLetter);
  CHECK(char_class(0x0301) == CharClass::kMark);
  CHECK(char_class(0x00BD) == CharClass::kNumber);
  CHECK(char_class('_') == CharClass::kPunctuation);
  CHECK(char_class('$') == CharClass::kSymbol);
  for (const std::uint32_t space : {0x09u, 0x0Du, 0x20u, 0x85u, 0xA0u, 0x1680u, 0x2028u, 0x3000u}) {
    CHECK(char_class(space) == CharClass::kSpace);
  }
  for (const std::uint32_t other : {0x1Cu, 0x180Eu, 0x200Bu, 0xFEFFu, 0xD800u})
    CHECK(char_class(other) == CharClass::kOther);
  CHECK(char_class(0x1C89) == CharClass::kUpper);   // new in Unicode 16
  CHECK(char_class(0x11DB0) == CharClass::kOther);  // new in Unicode 17
}

TEST_CASE("gpt-2 words", "[pretokenizer]") {
  CHECK(words("gpt-2", "").empty());
  CHECK(words("gpt-2", "Hello world") == Words{"Hello", " world"});
  CHECK(words("gpt-2", "I've we'Ll  you") == Words{"I", "'ve", " we", "'", "Ll", " ", " you"});
  CHECK(words("gpt-2", "a  \n b") == Words{"a", "  \n", " b"});
  CHECK(words("gpt-2", "a \n\tb") == Words{"a", " \n", "\t", "b"});
  CHECK(words("gpt-2", "x   ") == Words{"x", "   "});
  CHECK(words("gpt-2", "12 345!?") == Words{"12", " 345", "!?"});
  CHECK(words("gpt-2", "cafe\xCC\x81s") == Words{"cafe", "\xCC\x81", "s"});
  CHECK(words("default", "a1") == words("gpt-2", "a1"));
}

TEST_CASE("smollm and starcoder cut single digits out first", "[pretokenizer]") {
  // TOK-07: two newlines before a word are two words, as they are two ids in the reference.
  CHECK(words("command-r", "\nThis is a sentence.\n\n### Sentence\n") ==
        Words{"\n", "This", " is", " a", " sentence", ".", "\n", "\n", "###", " Sentence", "\n"});
  for (const char* name : {"smollm", "starcoder", "refact", "command-r"}) {
    CHECK(words(name, "a 12b") == Words{"a", " ", "1", "2", "b"});
    CHECK(words(name, "\xC2\xBD's") == Words{"\xC2\xBD", "'s"});
  }
}

TEST_CASE("llama-bpe and qwen2 words", "[pretokenizer]") {
  CHECK(words("llama-bpe", "I'VE 12345") == Words{"I", "'VE", " ", "123", "45"});
  CHECK(words("qwen2", "I've 123") == Words{"I", "'ve", " ", "1", "2", "3"});
  CHECK(words("llama-bpe", "it'\xC5\xBFx") == Words{"it", "'\xC5\xBF", "x"});
  CHECK(words("llama-bpe", "a\n \n  b") == Words{"a", "\n \n", " ", " b"});
  CHECK(words("llama-bpe", "x = y;\n\nz\t(w)") == Words{"x", " =", " y", ";\n\n", "z", "\t", "(w", ")"});
  CHECK(words("llama-bpe", "\tx ...\r\n") == Words{"\tx", " ...\r\n"});
}

TEST_CASE("tekken and gpt-4o words follow case", "[pretokenizer]") {
  CHECK(words("tekken", "fooBarBAZ's") == Words{"foo", "Bar", "BAZ", "'s"});
  CHECK(words("gpt-4o", "fooBarBAZ's") == Words{"foo", "Bar", "BAZ's"});
  CHECK(words("tekken", "12 a/b//\n") == Words{"1", "2", " a", "/b", "//\n"});
  CHECK(words("gpt-4o", "1234") == Words{"123", "4"});
  CHECK(words("tekken",
              "\xCC\x81"
              "A") == Words{"\xCC\x81", "A"});  // a mark is no prefix where it is the body
}

TEST_CASE("deepseek-coder words", "[pretokenizer]") {
  CHECK(words("deepseek-coder", "a b\n\n c12, d") == Words{"a", " b", "\n", "\n", " c", "1", "2", ",", " d"});
  CHECK(words("deepseek-coder", "a+ b\xE4\xB8\xAD\xE6\x96\x87") == Words{"a", "+", " b", "\xE4\xB8\xAD\xE6\x96\x87"});
}

TEST_CASE("an unknown pre-tokenizer has no row", "[pretokenizer]") {
  CHECK(corbel::text::find_pretokenizer("") == nullptr);
  CHECK(corbel::text::find_pretokenizer("GPT-2") == nullptr);
}
