// Normalizers, pre-tokenizers and patterns: what the tokenizers package answers for the same nodes of tokenizer.json
// (tests/data/text), scanners against the engine, and nodes, patterns and maps that are broken or hostile.
#include <corbel/checkpoint/json.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/impl/text/cutter_steps.ipp>
#include <corbel/text/normalizer.hpp>
#include <corbel/text/pretokenizer.hpp>
#include <corbel/text/regex.hpp>
#include <corbel/text/word_cutter.hpp>

#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

using corbel::Errc;
using corbel::text::CutScratch;
using corbel::text::Normalizer;
using corbel::text::Regex;
using corbel::text::RegexMatcher;
using corbel::text::Word;
using corbel::text::WordCutter;
namespace json = corbel::json;

namespace {

json::Value parsed(std::string_view text) {
  auto value = json::parse(text);
  INFO(text << ": " << value.status().message());
  REQUIRE(value.ok());
  return std::move(*value);
}

std::vector<std::string> words(const WordCutter& cutter, std::string_view text, bool spell = true) {
  CutScratch scratch;
  const auto cut = cutter.cut(text, true, scratch);
  INFO(cut.status().message());
  REQUIRE(cut.ok());
  std::vector<std::string> out;
  for (const Word& word : scratch.words) {
    const std::string_view plain = (*cut).substr(word.begin, word.end - word.begin);
    std::string spelled;
    for (const char c : plain) {
      corbel::detail::append_utf8(spelled,
                                  corbel::text::cutter::SpellBytesStep::spelled(static_cast<unsigned char>(c)));
    }
    out.push_back(spell && cutter.byte_level() ? spelled : std::string(plain));
  }
  return out;
}

Errc code_of(const char* kind, std::string_view node) {
  const json::Value value = parsed(node);
  if (std::string_view(kind) == "normalizer") return Normalizer::from_json(value, "normalizer").status().code();
  return WordCutter::from_json(value, "pre_tokenizer").status().code();
}

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (; times > 0; --times) out += text;
  return out;
}

// Where and how often a pattern matches: "begin-end" for each.
std::string matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::compile(pattern);
  INFO(pattern << ": " << regex.status().message());
  REQUIRE(regex.ok());
  RegexMatcher matcher(*regex);
  matcher.reset(text);
  std::string out;
  for (RegexMatcher::Match match;;) {
    const auto found = matcher.next(match);
    if (!found.ok()) return "budget";
    if (!*found) return out;
    out += (out.empty() ? "" : " ") + std::to_string(match.begin) + "-" + std::to_string(match.end);
  }
}

}  // namespace

TEST_CASE("normalizers and pre-tokenizers answer as the reference does", "[normalizer][pretokenizer]") {
  std::ifstream in(CORBEL_TEST_SOURCE_DIR "/data/text/steps.jsonl");
  std::size_t rows = 0;
  for (std::string line; std::getline(in, line); ++rows) {
    const json::Value row = parsed(line);
    const json::Value& node = *row.find("node");
    const auto& texts = row.find("texts")->items();
    const auto& expected = row.find("expected")->items();
    INFO(json::write(node));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string_view text = texts[i].as_string();
      INFO(json::write(texts[i]));
      if (row.find("kind")->as_string() == "normalizer") {
        const auto normalizer = Normalizer::from_json(node, "normalizer");
        REQUIRE(normalizer.ok());
        std::string out;
        REQUIRE(normalizer->apply(text, out).ok());
        CHECK(out == expected[i].as_string());
      } else {
        const auto cutter = WordCutter::from_json(node, "pre_tokenizer");
        REQUIRE(cutter.ok());
        std::vector<std::string> wanted;
        for (const json::Value& word : expected[i].items()) wanted.emplace_back(word.as_string());
        CHECK(words(*cutter, text) == wanted);
      }
    }
  }
  CHECK(rows > 200);
}

TEST_CASE("scanners cut as the engine does", "[pretokenizer]") {
  static constexpr std::string_view kParts[] = {"a",
                                                "B",
                                                "s",
                                                "'",
                                                "'ll",
                                                "'RE",
                                                " ",
                                                "  ",
                                                "\n",
                                                "\r",
                                                "\t",
                                                "0",
                                                "19",
                                                "234",
                                                ".",
                                                "/",
                                                "$",
                                                "_",
                                                "\xC3\xA9",
                                                "\xC5\xBF",
                                                "\xCC\x81",
                                                "\xC2\xBD",
                                                "\xC2\xA0",
                                                "\xD9\xA0",
                                                "\xE4\xB8\xAD",
                                                "\xE3\x81\x82",
                                                "\xEA\xB0\x80",
                                                "\xE3\x80\x82",
                                                "\xC7\x85",
                                                "\xCA\xB0",
                                                "\xF0\x9F\x98\x80",
                                                "\xE2\x80\xA6",
                                                "\xE2\x92\xB6",
                                                "\xE2\x80\x8D",
                                                "\xE3\x80\x80",
                                                "\xE3\x80\x85",
                                                "\xE3\x80\x87",
                                                "\xE2\xBA\x80",
                                                "\xE2\x80\x99",
                                                "`"};
  std::uint64_t state = 88172645463325252ull;
  const auto random = [&state] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  for (const auto& row : corbel::text::published_patterns()) {
    const std::string pattern(row.text);
    auto regex = Regex::compile(pattern);
    INFO(pattern << ": " << regex.status().message());
    REQUIRE(regex.ok());
    const corbel::text::cutter::ScannerStep fast(row.scanner);
    const corbel::text::cutter::RegexStep slow(std::move(*regex), corbel::text::cutter::Behavior::kIsolated, false);
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (std::uint64_t left = 1 + random() % 16; left > 0; --left) text += kParts[random() % std::size(kParts)];
      std::vector<std::uint32_t> ends[2];
      const corbel::text::CutterStep* const steps[2] = {&fast, &slow};
      for (int i = 0; i < 2; ++i) {
        CutScratch scratch;
        scratch.words = {{0, static_cast<std::uint32_t>(text.size())}};
        corbel::text::cutter::State all{text, true, scratch};
        REQUIRE(steps[i]->apply(all).ok());
        for (const Word& word : scratch.words) ends[i].push_back(word.end);
      }
      INFO(text);
      REQUIRE(ends[0] == ends[1]);
    }
  }
}

TEST_CASE("every name of a pre-tokenizer has patterns that compile", "[pretokenizer]") {
  std::size_t names = 0;
  for (const auto& row : corbel::text::all_pretokenizers()) {
    const auto cutter = WordCutter::from_name(row.name);
    INFO(row.name << ": " << cutter.status().message());
    REQUIRE(cutter.ok());
    CHECK(cutter->byte_level() == row.byte_level);
    std::string joined;
    for (const std::string& word : words(*cutter, "Hello, 12345 w\xC3\xB6rld's\n \n \xE4\xB8\xAD\xE6\x96\x87!", false))
      joined += word;
    CHECK(joined == "Hello, 12345 w\xC3\xB6rld's\n \n \xE4\xB8\xAD\xE6\x96\x87!");
    ++names;
  }
  CHECK(names > 80);
  CHECK(WordCutter::from_name("no-such").status().code() == Errc::kUnsupported);
}

TEST_CASE("cuts follow the text that a normalizer rewrites", "[normalizer]") {
  const auto normalizer = Normalizer::from_json(
      parsed(
          R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Replace","pattern":{"String":"b"},"content":"123"}]})"),
      "n");
  REQUIRE(normalizer.ok());
  const std::string text =
      "ae\xCC\x81"
      "bcb";  // a e U+0301 b c b
  std::vector<std::size_t> cuts = {0, 1, 2, 4, 5, 6, 7};
  std::string out;
  std::uint64_t steps = 0;
  REQUIRE(normalizer->apply(text, out, cuts, steps).ok());
  CHECK(out ==
        "a\xC3\xA9"
        "123c123");
  // The cut before the accent moves behind the letter that it became a part of.
  CHECK(cuts == std::vector<std::size_t>{0, 1, 3, 3, 6, 7, 10});
  CHECK(steps > 0);
}

TEST_CASE("broken nodes are errors", "[normalizer][pretokenizer]") {
  struct Row {
    const char* kind;
    const char* node;
    Errc code;
  };
  static constexpr Row kRows[] = {
      {"normalizer", R"([])", Errc::kTypeMismatch},
      {"normalizer", R"({})", Errc::kMissingKey},
      {"normalizer", R"({"type":7})", Errc::kTypeMismatch},
      {"normalizer", R"({"type":"Nope"})", Errc::kUnsupported},
      {"normalizer", R"({"type":"Sequence"})", Errc::kMissingKey},
      {"normalizer", R"({"type":"Sequence","normalizers":{}})", Errc::kTypeMismatch},
      {"normalizer", R"({"type":"Sequence","normalizers":[null]})", Errc::kTypeMismatch},
      {"normalizer", R"({"type":"Replace","pattern":{"String":""},"content":"x"})", Errc::kVocabInvalid},
      {"normalizer", R"({"type":"Replace","pattern":{"Regex":"("},"content":"x"})", Errc::kUnsupported},
      {"normalizer", R"({"type":"Replace","pattern":3,"content":"x"})", Errc::kTypeMismatch},
      {"normalizer", R"({"type":"Replace","pattern":{"String":"a"}})", Errc::kMissingKey},
      {"normalizer", R"({"type":"Prepend"})", Errc::kMissingKey},
      {"normalizer", R"({"type":"Strip","strip_left":"yes"})", Errc::kTypeMismatch},
      {"normalizer", R"({"type":"Precompiled","precompiled_charsmap":"!!!!"})", Errc::kVocabInvalid},
      {"normalizer", R"({"type":"Precompiled","precompiled_charsmap":"AAA="})", Errc::kVocabInvalid},
      {"normalizer", R"({"type":"Precompiled","precompiled_charsmap":"CAAAAAAA"})", Errc::kVocabInvalid},
      {"normalizer", R"({"type":"Precompiled","precompiled_charsmap":"/////w=="})", Errc::kVocabInvalid},
      {"pretokenizer", R"({"type":"Nope"})", Errc::kUnsupported},
      {"pretokenizer", R"({"type":"Split","pattern":{"Regex":"a"}})", Errc::kMissingKey},
      {"pretokenizer", R"({"type":"Split","behavior":"Isolated"})", Errc::kMissingKey},
      {"pretokenizer", R"({"type":"Split","behavior":"Odd","pattern":{"String":"a"}})", Errc::kUnsupported},
      {"pretokenizer", R"({"type":"Split","behavior":"Isolated","pattern":{"Regex":"(a)\\1"}})", Errc::kUnsupported},
      {"pretokenizer", R"({"type":"FixedLength","length":0})", Errc::kVocabInvalid},
      {"pretokenizer", R"({"type":"FixedLength","length":-1})", Errc::kTypeMismatch},
      {"pretokenizer", R"({"type":"CharDelimiterSplit","delimiter":"ab"})", Errc::kTypeMismatch},
      {"pretokenizer", R"({"type":"Metaspace","replacement":""})", Errc::kTypeMismatch},
      {"pretokenizer", R"({"type":"Metaspace","prepend_scheme":"maybe"})", Errc::kUnsupported},
  };
  for (const Row& row : kRows) {
    INFO(row.node);
    CHECK(code_of(row.kind, row.node) == row.code);
  }
  std::string many = R"({"type":"NFC"})";
  for (int i = 0; i < 300; ++i) many += R"(,{"type":"NFC"})";
  CHECK(code_of("normalizer", R"({"type":"Sequence","normalizers":[)" + many + "]}") == Errc::kLimitExceeded);
}

TEST_CASE("a normalizer's output is bounded", "[normalizer]") {
  std::string steps = R"({"type":"NFKD"})";
  for (int i = 0; i < 40; ++i) steps += R"(,{"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaa"})";
  const auto normalizer =
      Normalizer::from_json(parsed(R"({"type":"Sequence","normalizers":[)" + steps + "]}"), "normalizer");
  REQUIRE(normalizer.ok());
  std::string out;
  CHECK(normalizer->apply("banana", out).code() == Errc::kLimitExceeded);
  CHECK(out.size() < (4u << 20));
}

TEST_CASE("patterns that are none, or not supported", "[regex]") {
  struct Row {
    std::string pattern;
    Errc code;
  };
  const Row rows[] = {
      {"(", Errc::kBadValue},
      {")", Errc::kBadValue},
      {"[a", Errc::kBadValue},
      {"[b-a]", Errc::kBadValue},
      {"*a", Errc::kBadValue},
      {"a\\", Errc::kBadValue},
      {"\\p{Nope}", Errc::kUnsupported},
      {"\\p{L", Errc::kBadValue},
      {"\\x{110000}", Errc::kBadValue},
      {"(a)\\1", Errc::kUnsupported},
      {"(?<n>a)\\k<n>", Errc::kUnsupported},
      {"(?(1)a|b)", Errc::kUnsupported},
      {"(?~a)", Errc::kUnsupported},
      {"(?<=a*)b", Errc::kUnsupported},
      {"\\Ga", Errc::kUnsupported},
      {"\xFF", Errc::kBadUtf8},
      {"a{1,1000000}", Errc::kLimitExceeded},
      {"((((a{99}){99}){99}){99})", Errc::kLimitExceeded},
      {"((((){999}){999}){999}){999}", Errc::kLimitExceeded},
      {std::string(100000, 'a'), Errc::kLimitExceeded},
      {repeated("(?:", 30) + "(?:a?){1000}" + repeated(")*", 30), Errc::kLimitExceeded},
      {std::string(40, '(') + "a" + std::string(40, ')'), Errc::kDepthExceeded},
      {std::string(40, '[') + "a" + std::string(40, ']'), Errc::kDepthExceeded},
      {"a" + std::string(60, '*'), Errc::kDepthExceeded},
  };
  for (const Row& row : rows) {
    const auto regex = Regex::compile(row.pattern);
    INFO(row.pattern.substr(0, 60) << ": " << regex.status().message());
    CHECK(regex.status().code() == row.code);
    CHECK(regex.status().message().find("pattern") != std::string_view::npos);
  }
}

TEST_CASE("matches of patterns", "[regex]") {
  CHECK(matches("a|ab", "ab") == "0-1");
  CHECK(matches("ab|a", "ab") == "0-2");
  CHECK(matches("a*?b", "aab") == "0-3");
  CHECK(matches("x*", "axb") == "0-0 1-2 3-3");
  CHECK(matches("(?<=a)b|(?<!a)c", "abcac") == "1-2 2-3");
  CHECK(matches("\\s+(?!\\S)|\\s+", "a   b ") == "1-3 3-4 5-6");
  CHECK(matches("(?i:k)", "Kk\xE2\x84\xAA") == "0-1 1-2 2-5");
  CHECK(matches("(?>a|ab)c", "abcac") == "3-5");
  CHECK(matches("a++a|b", "aaab") == "3-4");
  CHECK(matches("^.", "a\nb") == "0-1 2-3");
}

// Where the reference cuts. A round of a repeat that took nothing ends it, also one that must be (not the one before
// the loop of '+'); what failed after a round that took something may fit after one that took nothing, and the other
// way round.
TEST_CASE("rounds of loops that take nothing", "[regex]") {
  struct Row {
    const char* pattern;
    const char* text;
    const char* expected;
  };
  static constexpr Row kRows[] = {
      {"(?:a*|b)*", "ab", "0-1 2-2"},
      {"(?:1??[ab]*)*", "bbab11", "0-4 5-5 6-6"},
      {"(?:(?:1*|b){0,2})*", "1b", "0-1 2-2"},
      {"(?:(?:(?:1*)|[0-9b-d]){0,2}|b)*", "1cb", "0-1 2-2 3-3"},
      {"(?:(?:a*|b)?)*", "ab", "0-1 2-2"},
      {"(?:b*|(?:a+)*)*", "bab", "0-1 2-3"},
      {"(?:(?:a*|b)+|c)*", "abc", "0-1 2-2 3-3"},
      {"(?:[0-9b-d]*?a*)*", "aabcc", "0-2 3-3 4-4 5-5"},
      {"(?:(?:b*|a)*?c|ba)*", "babac", "0-5"},
      {"(?:a|b*?)*", "ab", "0-1 2-2"},
      {"(?:(?:a??b*)*|c)*", "abcb", "0-0 1-2 3-4"},
      {"(?:b||c){0,2}(?!c)", "cb", "0-2"},
      {"(?:b||a){2}(?!a)", "bcab", "0-1 2-4"},
      {"(?:a|b*?){2,4}(?!b)", "bba", "0-3"},
      {"(?:a|b*?){2,}?(?!b)", "ba", "0-2"},
      {"(?:|ab|a){1,3}?b", "ababb", "0-5"},
      {R"((?:(?:(?:(?:1*)|[0-9b-d]){0,2}|(\p{N}*[^a\r\n])\x{E4}?)"
       R"((?:[^a\r\n]*?[0-9b-d]|$[^\s\p{L}\p{N}]\p{N}+)*?)*|\x{E4}*^))",
       "\nbca1cb\n\r", "0-0 1-1 2-2 3-3 4-5 6-6 7-7 8-8 9-9"},
  };
  for (const Row& row : kRows) {
    INFO(row.pattern << " on " << row.text);
    CHECK(matches(row.pattern, row.text) == row.expected);
  }
}

TEST_CASE("patterns made to be slow stay linear", "[regex]") {
  static constexpr const char* kPatterns[] = {"(a+)+$",
                                              "(a*)*b",
                                              "(.*){50}x",
                                              "(a|a)*b",
                                              "(?:a?){200}b",
                                              "a*b|a",
                                              "(x+x+)+y",
                                              "(?:(?:(?:a*|b)*|c)*|a)*d",
                                              "(?:(?:(?:a?)*?|b*)*?c*)*?d",
                                              "(?:(?:a*?|a)+a*){0,3}d"};
  for (const char* pattern : kPatterns) {
    const auto regex = Regex::compile(pattern);
    REQUIRE(regex.ok());
    std::uint64_t steps[2] = {};
    for (int i = 0; i < 2; ++i) {
      const std::string text(i == 0 ? 20000 : 40000, pattern[1] == 'x' ? 'x' : 'a');
      RegexMatcher matcher(*regex);
      matcher.reset(text + "c");
      const std::string whole = text + "c";
      matcher.reset(whole);
      RegexMatcher::Match match;
      for (;;) {
        const auto found = matcher.next(match);
        if (!found.ok() || !*found) break;
      }
      steps[i] = matcher.steps();
    }
    INFO(pattern << ": " << steps[0] << " and " << steps[1] << " steps");
    CHECK(steps[1] <= steps[0] * 23 / 10);
  }
  // Without remembered states the budget ends it.
  CHECK(matches("(?=(a|a)*b)", std::string(100, 'a')) == "budget");
}

TEST_CASE("work is linear in the text", "[normalizer][pretokenizer]") {
  static constexpr std::string_view kUnits[] = {"a", " ", "\n",          "\xCC\x81", "\xF0\x9F\x98\x80",
                                                "1", "'", "\xEA\xB0\x80"};
  const auto normalizer = Normalizer::from_json(
      parsed(R"({"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Lowercase"},{"type":"StripAccents"}]})"),
      "n");
  REQUIRE(normalizer.ok());
  for (const auto& row : corbel::text::all_pretokenizers()) {
    const auto cutter = WordCutter::from_name(row.name);
    REQUIRE(cutter.ok());
    for (const std::string_view unit : kUnits) {
      std::uint64_t steps[2] = {};
      for (int i = 0; i < 2; ++i) {
        std::string text;
        for (int k = 0; k < (i == 0 ? 2000 : 4000); ++k) text += unit;
        CutScratch scratch;
        INFO(row.name << " on many '" << unit << "'");
        REQUIRE(cutter->cut(text, true, scratch).ok());
        steps[i] = scratch.steps;
        std::string out;
        REQUIRE(normalizer->apply(text, out).ok());
      }
      INFO(row.name << " on many '" << unit << "': " << steps[0] << ", " << steps[1]);
      CHECK(steps[1] <= steps[0] * 23 / 10 + 4096);
    }
  }
}
