// Tokenizers of Hugging Face folders: ids and texts as the reference gives them, added tokens, decoders, files that
// contradict themselves, linear time, and the way into a GGUF file.
#include <corbel/checkpoint/json.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/text/special_matcher.hpp>
#include <corbel/text/tokenizer_model.hpp>
#include <corbel/tokenizer.hpp>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/alloc_counter.hpp"
#include "support/build_kind.hpp"
#include "support/small_stack.hpp"
#include "support/support.hpp"
#include "support/tiny_vocabulary.hpp"

using corbel::Errc;
using corbel::TokenizerDocuments;
using corbel::json::Value;
using namespace corbel_test;

namespace {

constexpr const char* kFamilies[] = {
    "albert",     "bert",          "bert_cased", "bloom",      "clip",    "deepseek_llm", "deepseek_v3",    "falcon",
    "flags",      "gemma",         "gpt2",       "gpt_neox",   "gpt_oss", "llama2",       "llama2_new",     "llama3",
    "mistral_v3", "olmo",          "openai_gpt", "qwen2",      "roberta", "smollm",       "subword_prefix", "t5",
    "tekken",     "unigram_bytes", "unk_bpe",    "word_level", "xlm"};

std::string family_json(std::string_view name) {
  return read_file(test_data("tokenizers/" + std::string(name) + ".json"));
}

corbel::Result<Tokenizer> load(std::string_view tokenizer_json, std::string_view config = {},
                               std::string_view generation = {}, std::string_view special_map = {}) {
  TokenizerDocuments documents;
  documents.special_tokens_map = special_map;
  documents.tokenizer_json = tokenizer_json;
  documents.tokenizer_config = config;
  documents.generation_config = generation;
  return Tokenizer::from_documents(documents);
}

std::vector<Value> read_lines(const std::string& path) {
  std::vector<Value> lines;
  const std::string file = read_file(path);
  for (std::size_t begin = 0; begin < file.size();) {
    const std::size_t end = std::min(file.find('\n', begin), file.size());
    lines.push_back(corbel::json::parse(std::string_view(file).substr(begin, end - begin)).value());
    begin = end + 1;
  }
  return lines;
}

// What a user sees, piece by piece.
std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool special) {
  corbel::StreamDecoder stream(tokenizer, {.special = special});
  std::string out;
  for (const TokenId id : ids) out += stream.push(id).value();
  return out + stream.finish();
}

// A small file of each kind, with all parts; `change` replaces one stretch of its text.
const std::string kBpe =
    R"({"added_tokens":[{"id":5,"content":"<s>","special":true},{"id":6,"content":"<x>","special":false}],
"normalizer":null,"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"never"},"post_processor":{"type":"TemplateProcessing",
"single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[5],"tokens":["<s>"]}}},
"decoder":{"type":"Fuse"},"model":{"type":"BPE","unk_token":"<unk>","vocab":{"<unk>":0,"a":1,"b":2,"ab":3,"aab":4},"merges":["a b","a ab"]}})";
const std::string kUnigram = R"({"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["a",-1.5],["aa",-2]]}})";
const std::string kWordPiece =
    R"({"model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{"[UNK]":0,"a":1,"##b":2}}})";

std::string change(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("tokenizer.json: tokenizers of published shapes give the reference's ids and texts", "[tokenizer][hf]") {
  const Value texts = corbel::json::parse(read_file(test_data("tokenizers/texts.json"))).value();
  std::size_t count = 0;
  for (const char* name : kFamilies) {
    const std::string json = family_json(name);
    const corbel::Result<Tokenizer> loaded = load(json);
    CAPTURE(name);
    REQUIRE(loaded.ok());
    const std::vector<Value> lines = read_lines(test_data("tokenizers/" + std::string(name) + ".jsonl"));
    std::size_t at = 0;
    for (const Value& line : lines) {
      std::string text(texts.items()[at++].as_string());
      CAPTURE(text);
      Ids expected;
      for (const Value& id : line.find("ids")->items()) expected.push_back(static_cast<TokenId>(id.as_uint()));
      REQUIRE(encode(*loaded, text, true, true) == expected);
      const Value* decoded = line.find("decoded");
      const Value* special = line.find("special");
      const std::string plain(decoded == nullptr ? text : std::string(decoded->as_string()));
      REQUIRE(streamed(*loaded, expected, false) == plain);
      REQUIRE(streamed(*loaded, expected, true) == (special == nullptr ? plain : special->as_string()));
      const std::string bytes = decode(*loaded, expected);
      if (corbel::detail::is_utf8(bytes)) REQUIRE(bytes == plain);
      ++count;
    }
    CHECK(at == lines.size());
  }
  std::printf("tokenizer.json: %zu tokenizers, %zu strings\n", std::size(kFamilies), count);
  CHECK(count >= 29 * 40);
}

TEST_CASE("tokenizer.json: CH-07, TOK-11: message content never becomes a control token", "[tokenizer][hf]") {
  for (const char* name : kFamilies) {
    const Tokenizer tokenizer = load(family_json(name)).value();
    CAPTURE(name);
    std::string hostile = "x ";
    std::size_t controls = 0;
    for (TokenId id = 0; static_cast<std::size_t>(id) < tokenizer.size(); ++id) {
      if (!tokenizer.is_control(id)) continue;
      hostile += std::string(tokenizer.piece(id)) + " ";
      ++controls;
    }
    for (const TokenId id : encode(tokenizer, hostile)) REQUIRE_FALSE(tokenizer.is_control(id));
    const std::vector<corbel::PromptSegment> segments = {{"a ", false}, {hostile, true}, {" b", false}};
    for (const TokenId id : tokenizer.encode(segments).value()) REQUIRE_FALSE(tokenizer.is_control(id));
    if (controls == 0) continue;
    std::size_t found = 0;
    for (const TokenId id : encode(tokenizer, hostile, true)) found += tokenizer.is_control(id) ? 1u : 0u;
    CHECK(found > 0);
  }
}

TEST_CASE("tokenizer.json: K18: ids out of range, holes, and random ids decode or fail cleanly", "[tokenizer][hf]") {
  std::mt19937 random(5);
  for (const char* name : kFamilies) {
    const Tokenizer tokenizer = load(family_json(name)).value();
    CAPTURE(name);
    CHECK(tokenizer.decode(Ids{-1}).status().code() == Errc::kInvalidArgument);
    CHECK(tokenizer.decode(Ids{static_cast<TokenId>(tokenizer.size())}).status().code() == Errc::kInvalidArgument);
    corbel::StreamDecoder stream(tokenizer, {.special = true});
    for (int round = 0; round < 200; ++round) {
      const auto id = static_cast<TokenId>(random() % tokenizer.size());
      REQUIRE(corbel::detail::is_utf8(stream.push(id).value()));
    }
    REQUIRE(corbel::detail::is_utf8(stream.finish()));
  }
  const Tokenizer holes = load(change(kBpe, "\"id\":6", "\"id\":9")).value();
  CHECK(holes.size() == 10);
  CHECK(decode(holes, {7, 8}).empty());
  CHECK(encode(holes, "<x>") == Ids{9});
}

TEST_CASE("tokenizer.json: ids whose bytes are no valid UTF-8 decode as the reference decodes them",
          "[tokenizer][hf]") {
  // One U+FFFD for each byte piece of a run that is invalid; a run ends at the next token that is shown.
  const Tokenizer fallback = load(R"({"added_tokens":[{"id":5,"content":"<s>","special":true}],
"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},
{"type":"Strip","content":" ","start":1,"stop":0}]},"model":{"type":"BPE","byte_fallback":true,
"vocab":{"<0xE4>":0,"<0xBD>":1,"<0xA0>":2,"<0x41>":3,"_a":4},"merges":[]}})")
                                 .value();
  const std::pair<Ids, std::string> runs[] = {
      {{0, 1, 2}, "\xE4\xBD\xA0"},
      {{0, 1, 2, 3},
       "\xE4\xBD\xA0"
       "A"},
      {{3, 0, 1}, "\uFFFD\uFFFD\uFFFD"},
      {{0, 1, 4}, "\uFFFD\uFFFD a"},
      {{0, 5, 1, 2, 4, 2}, "\xE4\xBD\xA0 a\uFFFD"},
      {{4, 3, 4}, "aA a"},
  };
  for (const auto& [ids, expected] : runs) {
    CHECK(decode(fallback, ids) == expected);
    CHECK(streamed(fallback, ids, false) == expected);
  }
  CHECK(decode(fallback, {0, 5, 1}, true) == "\uFFFD<s>\uFFFD");
  // One U+FFFD for each longest part that begins a character.
  const Tokenizer bytes =
      load(R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},
"model":{"type":"BPE","vocab":{"\u00e4":0,"\u00bd":1,"\u0142":2,"A":3},"merges":[]}})")
          .value();
  const std::pair<Ids, std::string> parts[] = {
      {{0, 1, 2}, "\xE4\xBD\xA0"},
      {{0, 1, 3}, "\uFFFDA"},
      {{0, 0, 1, 2, 1, 1, 3}, "\uFFFD\xE4\xBD\xA0\uFFFD\uFFFDA"},
      {{0, 1}, "\uFFFD"},
  };
  for (const auto& [ids, expected] : parts) {
    CHECK(decode(bytes, ids) == expected);
    CHECK(streamed(bytes, ids, false) == expected);
  }
}

TEST_CASE("tokenizer.json: added tokens are looked for in two passes, and are no pieces of the model",
          "[tokenizer][hf]") {
  // WordPiece finds "ab" as a word only where the model has it.
  const Tokenizer words = load(R"({"added_tokens":[{"id":3,"content":"ab","single_word":true,"normalized":false},
{"id":4,"content":" x","normalized":false,"rstrip":true},{"id":5,"content":"\n\n","single_word":true,"normalized":true}],
"model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,
"vocab":{"[UNK]":0,"a":1,"##b":2}}})")
                              .value();
  CHECK(encode(words, "ab") == Ids{3});
  CHECK(encode(words, "ab_") == Ids{0});
  CHECK(encode(words, "a x\n\n") == Ids{1, 4});  // the first pass takes the spaces
  CHECK(encode(words, "a x\n\n a") == Ids{1, 4, 1});
  CHECK(encode(words, "a\n\n") == Ids{0});      // beside a letter
  CHECK(encode(words, "ab\n\n") == Ids{3, 5});  // beside a token of the first pass
  const Tokenizer strips =
      load(R"({"added_tokens":[{"id":2,"content":"__","lstrip":true,"rstrip":true,"normalized":false},
{"id":3,"content":"  ","lstrip":true,"rstrip":true,"normalized":false}],"pre_tokenizer":{"type":"WhitespaceSplit"},
"model":{"type":"WordLevel","unk_token":"u","vocab":{"u":0,"a":1}}})")
          .value();
  CHECK(encode(strips, "    a") == Ids{3, 1});  // nothing is left for a second one
  CHECK(encode(strips, "a __ __ ") == Ids{1, 2, 2});
  const Tokenizer equal =
      load(R"({"added_tokens":[{"id":2,"content":"X","normalized":true},{"id":3,"content":"x","normalized":true},
{"id":4,"content":"Y","normalized":true},{"id":5,"content":"y","normalized":true,"special":true}],"normalizer":{"type":"Lowercase"},
"model":{"type":"WordLevel","unk_token":"u","vocab":{"u":0,"a":1}}})")
          .value();
  CHECK(encode(equal, "xXa", true) == Ids{2, 2, 1});  // of equal texts the first, special ones before others
  CHECK(encode(equal, "yYa", true) == Ids{5, 5, 1});
  // A suffix is a space between tokens and nothing in the last, wherever it stands.
  const Tokenizer suffix =
      load(R"({"decoder":{"type":"BPEDecoder","suffix":"e"},"model":{"type":"WordLevel","unk_token":"b",
"vocab":{"been":0,"he":1,"b":2}}})")
          .value();
  const std::pair<Ids, const char*> cases[] = {{{0}, "bn"},     {{0, 0}, "b  nbn"}, {{1}, "h"},
                                               {{1, 2}, "h b"}, {{1, 1}, "h h"},    {{2, 0, 2}, "bb  nb"}};
  for (const auto& [ids, expected] : cases) {
    CHECK(decode(suffix, ids) == expected);
    CHECK(streamed(suffix, ids, false) == expected);
  }
}

TEST_CASE("tokenizer.json: a vocabulary may have holes", "[tokenizer][hf]") {
  const Tokenizer holes = load(change(kBpe, "\"aab\":4", "\"aab\":99")).value();
  CHECK(holes.size() == 100);
  CHECK(encode(holes, "aab") == Ids{99});
  CHECK(decode(holes, {4, 99}) == "aab");
}

TEST_CASE("tokenizer.json: files that contradict themselves", "[tokenizer][hf][malformed]") {
  struct Case {
    std::string json;
    Errc code;
    std::string place;
  };
  const auto vocab = [](std::string_view with) {
    return change(kBpe, R"({"<unk>":0,"a":1,"b":2,"ab":3,"aab":4})", with);
  };
  const auto merges = [](std::string_view with) { return change(kBpe, R"(["a b","a ab"])", with); };
  const auto normalizer = [](std::string_view with) {
    return change(kBpe, "\"normalizer\":null", "\"normalizer\":" + std::string(with));
  };
  const auto cutter = [](std::string_view with) {
    return change(kBpe, R"({"type":"Metaspace","replacement":"_","prepend_scheme":"never"})", with);
  };
  const auto decoder = [](std::string_view with) { return change(kBpe, R"({"type":"Fuse"})", with); };
  const auto added = [](std::string_view with) {
    return change(kBpe, R"({"id":6,"content":"<x>","special":false})", with);
  };
  std::string many = R"({"id":6,"content":"<x>"})";
  for (int at = 7; at < 131100; ++at) {
    many += ",{\"id\":" + std::to_string(at) + ",\"content\":\"" + std::to_string(at) + "\"}";
  }
  const std::string deep = repeat(R"({"type":"Sequence","decoders":[)", 10000) + repeat("]}", 10000);
  const Case cases[] = {
      {"", Errc::kMissingKey, "tokenizer.json"},
      {"[]", Errc::kTypeMismatch, "tokenizer.json"},
      {"{", Errc::kBadJson, "tokenizer.json"},
      // K01
      {decoder(deep), Errc::kDepthExceeded, "tokenizer.json"},
      {normalizer(repeat(R"({"type":"Sequence","normalizers":[)", 10000) + repeat("]}", 10000)), Errc::kDepthExceeded,
       "tokenizer.json"},
      // K02
      {"{}", Errc::kMissingKey, "model"},
      {R"({"model":null})", Errc::kMissingKey, "model"},
      {R"({"model":[]})", Errc::kTypeMismatch, "model"},
      {R"({"model":{"vocab":{"a":0}}})", Errc::kMissingKey, "model.type"},
      {change(kBpe, "\"BPE\"", "\"RWKV\""), Errc::kUnsupported, "'RWKV'"},
      {change(kBpe, "\"BPE\"", "7"), Errc::kTypeMismatch, "model.type"},
      // K03
      {vocab(R"({"<unk>":0,"a":1,"b":1,"ab":3,"aab":4})"), Errc::kVocabInvalid, "model.vocab[\"b\"]"},
      {vocab(R"({"<unk>":0,"a":1,"a":2,"ab":3,"aab":4})"), Errc::kDuplicate, "tokenizer.json"},
      {vocab(R"({"<unk>":0,"a":-1,"b":2,"ab":3,"aab":4})"), Errc::kVocabInvalid, "model.vocab[\"a\"]"},
      {vocab(R"({"<unk>":0,"a":2147483648,"b":2,"ab":3,"aab":4})"), Errc::kVocabInvalid, "model.vocab[\"a\"]"},
      {vocab(R"({"<unk>":0,"a":1e300,"b":2,"ab":3,"aab":4})"), Errc::kVocabInvalid, "model.vocab[\"a\"]"},
      {vocab(R"({"<unk>":0,"a":1.5,"b":2,"ab":3,"aab":4})"), Errc::kVocabInvalid, "model.vocab[\"a\"]"},
      {vocab(R"({"<unk>":0,"a":"1","b":2,"ab":3,"aab":4})"), Errc::kTypeMismatch, "model.vocab[\"a\"]"},
      {vocab(R"({"<unk>":0,"a":77777,"b":2,"ab":3,"aab":4})"), Errc::kVocabInvalid, "id"},
      {vocab("{}"), Errc::kVocabInvalid, "model.vocab"},
      {vocab("[]"), Errc::kTypeMismatch, "model.vocab"},
      {change(kBpe, "\"vocab\"", "\"vocabulary\""), Errc::kMissingKey, "model.vocab"},
      // K04, K05
      {merges(R"(["a b","b b"])"), Errc::kVocabInvalid, "model.merges[1]"},
      {merges(R"(["a b","a nosuch"])"), Errc::kVocabInvalid, "'nosuch'"},
      {merges(R"(["a b","a "])"), Errc::kVocabInvalid, "model.merges[1]"},
      {merges(R"(["a b","a b b"])"), Errc::kVocabInvalid, "model.merges[1]"},
      {merges(R"(["a b",["a","b","b"]])"), Errc::kVocabInvalid, "model.merges[1]"},
      {merges(R"(["a b",["a",1]])"), Errc::kTypeMismatch, "model.merges[1][1]"},
      {merges(R"(["a b",7])"), Errc::kTypeMismatch, "model.merges[1]"},
      {merges(R"("a b")"), Errc::kTypeMismatch, "model.merges"},
      {change(kBpe, "\"merges\"", "\"merge\""), Errc::kMissingKey, "model.merges"},
      // K06
      {change(kBpe, "\"unk_token\"", "\"continuing_subword_prefix\":\"###\",\"unk_token\""), Errc::kVocabInvalid,
       "shorter than the prefix"},
      // K07
      {added(R"({"id":1,"content":"<x>"})"), Errc::kVocabInvalid, "added_tokens[1]"},
      {added(R"({"id":2147483648,"content":"<x>"})"), Errc::kVocabInvalid, "added_tokens[1].id"},
      {added(R"({"id":4000000,"content":"<x>"})"), Errc::kVocabInvalid, "added_tokens[1]"},
      {added(R"({"id":-1,"content":"<x>"})"), Errc::kVocabInvalid, "added_tokens[1].id"},
      {added(R"({"id":6,"content":""})"), Errc::kVocabInvalid, "added_tokens[1].content"},
      {added(R"({"content":"<x>"})"), Errc::kMissingKey, "added_tokens[1].id"},
      {added(R"({"id":6,"content":"<x>","lstrip":1})"), Errc::kTypeMismatch, "added_tokens[1].lstrip"},
      {added("7"), Errc::kTypeMismatch, "added_tokens[1]"},
      {added(many), Errc::kLimitExceeded, "added_tokens"},
      // K09
      {normalizer(R"({"type":"Precompiled","precompiled_charsmap":"!!!!"})"), Errc::kVocabInvalid, "normalizer"},
      {normalizer(R"({"type":"Precompiled","precompiled_charsmap":"AA=="})"), Errc::kVocabInvalid, "normalizer"},
      {normalizer(R"({"type":"Precompiled","precompiled_charsmap":"/////w=="})"), Errc::kVocabInvalid, "normalizer"},
      // K10
      {cutter(R"({"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated","invert":false})"), Errc::kUnsupported,
       "pre_tokenizer"},
      {cutter(R"({"type":"Split","pattern":{"Regex":"(a)\\1"},"behavior":"Isolated","invert":false})"),
       Errc::kUnsupported, "pre_tokenizer"},
      {cutter(R"({"type":"Nosuch"})"), Errc::kUnsupported, "pre_tokenizer"},
      // K11
      {decoder(R"({"type":"Strip","content":" ","start":9223372036854775808,"stop":0})"), Errc::kVocabInvalid,
       "decoder.start"},
      {decoder(R"({"type":"Strip","content":"","start":1,"stop":0})"), Errc::kVocabInvalid, "decoder.content"},
      {decoder(R"({"type":"Replace","pattern":{"String":""},"content":"x"})"), Errc::kVocabInvalid, "decoder.pattern"},
      {normalizer(R"({"type":"Replace","pattern":{"String":""},"content":"x"})"), Errc::kVocabInvalid, "normalizer"},
      {cutter(R"({"type":"FixedLength","length":0})"), Errc::kVocabInvalid, "pre_tokenizer"},
      {decoder(R"({"type":"Nosuch"})"), Errc::kUnsupported, "decoder.type"},
      {decoder(R"({"type":"Sequence","decoders":[{"type":"Fuse"},{}]})"), Errc::kMissingKey,
       "decoder.decoders[1].type"},
      // K12
      {change(kBpe, R"("ids":[5])", R"("ids":[99])"), Errc::kVocabInvalid, "post_processor.single[0]"},
      {change(kBpe, R"("special_tokens":{"<s>")", R"("special_tokens":{"<t>")"), Errc::kVocabInvalid,
       "post_processor.single[0]"},
      {change(kBpe, R"({"Sequence":{"id":"A","type_id":0}})", "7"), Errc::kTypeMismatch, "post_processor.single[1]"},
      {change(kBpe, R"(,{"Sequence":{"id":"A","type_id":0}})", ""), Errc::kUnsupported, "post_processor.single"},
      // K14
      {change(kUnigram, "-1.5", "\"NaN\""), Errc::kTypeMismatch, "model.vocab[1]"},
      {change(kUnigram, "-1.5", "-1e999"), Errc::kBadJson, "tokenizer.json"},
      {change(kUnigram, "\"unk_id\":0", "\"unk_id\":3"), Errc::kVocabInvalid, "model.unk_id"},
      {change(kUnigram, "\"unk_id\":0", "\"unk_id\":-1"), Errc::kVocabInvalid, "model.unk_id"},
      {change(kUnigram, R"([["<unk>",0.0],["a",-1.5],["aa",-2]])", "[]"), Errc::kVocabInvalid, "model.vocab"},
      {change(kUnigram, R"(["a",-1.5])", R"(["a"])"), Errc::kTypeMismatch, "model.vocab[1]"},
      // K15
      {change(kWordPiece, ":100", ":0"), Errc::kBadValue, "max_input_chars_per_word"},
      {change(kWordPiece, ":100", ":9223372036854775808"), Errc::kBadValue, "max_input_chars_per_word"},
      {change(kWordPiece, ":100", ":-1"), Errc::kBadValue, "max_input_chars_per_word"},
  };
  for (const std::string& base : {kBpe, kUnigram, kWordPiece}) REQUIRE(load(base).ok());
  for (const Case& c : cases) {
    AllocationScope scope;
    const corbel::Result<Tokenizer> result = load(c.json);
    const std::size_t largest = scope.stats().largest;
    CAPTURE(c.json.substr(0, 400), c.place);
    REQUIRE_FALSE(result.ok());
    CAPTURE(std::string(result.status().message()));
    CHECK(result.status().code() == c.code);
    CHECK(result.status().message().find(c.place) != std::string_view::npos);
    CHECK(largest <= c.json.size() + (1u << 20));
  }
  // K13: truncation and padding change nothing.
  const Tokenizer padded =
      load(
          change(
              kBpe, "\"normalizer\"",
              R"("truncation":{"max_length":1,"stride":5},"padding":{"strategy":{"Fixed":1099511627776}},"normalizer")"))
          .value();
  CHECK(encode(padded, "aabab") == Ids{4, 3});
  // K16: a text that grows and grows.
  std::string grow;
  for (int at = 0; at < 12; ++at) {
    grow += std::string(at == 0 ? "" : ",") + R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaa"})";
  }
  const Tokenizer growing = load(normalizer(R"({"type":"Sequence","normalizers":[)" + grow + "]}")).value();
  CHECK(growing.encode(std::string(1 << 16, 'a')).status().code() == Errc::kLimitExceeded);
}

TEST_CASE("tokenizer.json: every truncation and every changed byte is an error or a file that works",
          "[tokenizer][hf][malformed]") {
  std::size_t errors = 0;
  std::size_t loads = 0;
  const auto check = [&](const std::string& json) {
    const corbel::Result<Tokenizer> result = load(json);
    if (!result.ok()) {
      ++errors;
      REQUIRE_FALSE(result.status().message().empty());
      return;
    }
    ++loads;
    const corbel::Result<Ids> ids = result->encode("aab<s> <x>_");
    for (const TokenId id : ids.ok() ? *ids : Ids{}) {
      REQUIRE(id >= 0);
      REQUIRE(static_cast<std::size_t>(id) < result->size());
    }
  };
  for (const std::string& base : {kBpe, kUnigram, kWordPiece}) {
    for (std::size_t end = 0; end < base.size(); ++end) check(base.substr(0, end));
    for (std::size_t at = 0; at < base.size(); ++at) {
      for (const char c : {'\0', '\xFF', '0', '"', '-'}) {
        std::string changed = base;
        changed[at] = c;
        check(changed);
      }
    }
  }
  CHECK(errors > 3000);
  CHECK(loads > 100);
}

TEST_CASE("tokenizer.json: K08: two thousand added tokens that are prefixes of each other", "[tokenizer][hf]") {
  std::string list;
  std::string piece;
  for (int at = 0; at < 2000; ++at) {
    piece += 'z';
    list += ",{\"id\":" + std::to_string(7 + at) + ",\"content\":\"" + piece + "\"}";
  }
  const Tokenizer tokenizer =
      load(change(kBpe, R"(,{"id":6,"content":"<x>","special":false})", R"(,{"id":6,"content":"<x>"})" + list)).value();
  CHECK(encode(tokenizer, std::string(4500, 'z')) == Ids{2006, 2006, 506});
}

TEST_CASE("tokenizer_config.json: tokens around a text, roles, and tokens that end a reply", "[tokenizer][hf]") {
  const Tokenizer plain = load(kBpe).value();
  CHECK(plain.adds_bos());
  CHECK(plain.bos() == 5);
  CHECK(encode(plain, "ab", false, true) == Ids{5, 3});
  const Tokenizer without = load(kBpe, R"({"add_bos_token":false,"bos_token":"<s>"})").value();
  CHECK_FALSE(without.adds_bos());
  CHECK(encode(without, "ab", false, true) == Ids{3});
  const Tokenizer both =
      load(kBpe, R"({"add_bos_token":true,"add_eos_token":true,"bos_token":{"content":"<s>"},"eos_token":"<x>"})",
           R"({"eos_token_id":[4,6]})")
          .value();
  CHECK(encode(both, "ab", false, true) == Ids{5, 3, 6});
  CHECK(both.eos() == 6);
  CHECK(both.is_end_of_generation(4));
  CHECK(both.is_end_of_generation(6));
  CHECK_FALSE(both.is_end_of_generation(3));
  const Tokenizer more =
      load(kBpe, R"({"added_tokens_decoder":{"7":{"content":"<more>","special":true}},"eos_token":"<more>"})").value();
  CHECK(encode(more, "ab<more>", true) == Ids{3, 7});
  CHECK(more.eos() == 7);
  CHECK(load(kBpe, R"({"added_tokens_decoder":{"x":{"content":"<more>"}}})").status().code() == Errc::kVocabInvalid);
  CHECK(load(kBpe, R"({"bos_token":7})").status().code() == Errc::kTypeMismatch);
  CHECK(load(kBpe, R"({"add_bos_token":"yes"})").status().code() == Errc::kTypeMismatch);
  for (const std::string role : {"bos", "eos", "unk", "pad", "sep", "cls", "mask"}) {
    const std::string key = role + "_token";
    const std::pair<const char*, Errc> values[] = {{"7", Errc::kTypeMismatch},
                                                   {"true", Errc::kTypeMismatch},
                                                   {R"(["<s>"])", Errc::kTypeMismatch},
                                                   {R"({"content":7})", Errc::kTypeMismatch},
                                                   {"{}", Errc::kMissingKey},
                                                   {"null", Errc::kOk},
                                                   {R"("<s>")", Errc::kOk},
                                                   {R"({"content":"<s>"})", Errc::kOk}};
    for (const auto& [value, code] : values) {
      const std::string text = "{\"" + key + "\":" + value + "}";
      for (const auto& [document, result] : {std::pair("tokenizer_config.json", load(kBpe, text)),
                                             std::pair("special_tokens_map.json", load(kBpe, "", "", text))}) {
        CAPTURE(document, text, std::string(result.status().message()));
        CHECK(result.status().code() == code);
        if (!result.ok()) {
          CHECK(std::string(result.status().message()).find(std::string(document) + ": " + key) == 0);
        }
      }
    }
  }
  CHECK(load(kBpe, "", R"({"eos_token_id":99})").status().code() == Errc::kVocabInvalid);
  CHECK(load(kBpe, "", R"({"eos_token_id":-2})").status().code() == Errc::kVocabInvalid);
  CHECK(load(kBpe, "", R"({"eos_token_id":-1})").ok());
  CHECK(load(kBpe, "", R"({"eos_token_id":[-1,4]})").ok());
  CHECK(load(kBpe, "", R"({"eos_token_id":[)" + repeat("1,", 1000000) + "1]}").status().code() == Errc::kLimitExceeded);
  // As GPT-2 was published.
  TokenizerDocuments documents;
  const std::string vocabulary = R"({"h":0,"e":1,"he":2,"<|endoftext|>":3})";
  documents.vocab_json = vocabulary;
  documents.merges_txt = "#version: 0.2\nh e\n";
  documents.tokenizer_config = R"({"eos_token":"<|endoftext|>"})";
  const Tokenizer gpt2 = Tokenizer::from_documents(documents).value();
  CHECK(encode(gpt2, "he<|endoftext|>", true) == Ids{2, 3});
  CHECK(gpt2.is_control(3));
}

TEST_CASE("tokenizer.json: a folder's tokenizer in a GGUF file gives the same ids", "[tokenizer][hf]") {
  const Value texts = corbel::json::parse(read_file(test_data("tokenizers/texts.json"))).value();
  const std::pair<const char*, const char*> expressible[] = {
      {"gpt2", "gpt-2"},  {"llama3", "llama-bpe"}, {"smollm", "smollm"}, {"gpt_oss", "gpt-4o"}, {"tekken", "tekken"},
      {"bloom", "bloom"}, {"llama2", ""},          {"llama2_new", ""},   {"bert", ""}};
  std::size_t keys_alone = 0;
  for (const char* name : kFamilies) {
    CAPTURE(name);
    const std::string json = family_json(name);
    const Tokenizer folder = load(json).value();
    TokenizerDocuments documents;
    documents.tokenizer_json = json;
    Metadata metadata;
    REQUIRE(corbel::set_tokenizer_metadata(documents, metadata).ok());
    const Tokenizer file = Tokenizer::from_metadata(metadata).value();
    for (const Value& text : texts.items()) {
      CHECK(encode(file, text.as_string(), true, true) == encode(folder, text.as_string(), true, true));
    }
    CHECK(metadata.get_string("tokenizer.ggml.model").ok());
    CHECK(metadata.find("tokenizer.ggml.tokens")->size() == folder.size());
    // What other programs read: the keys without the document.
    for (const auto& [family, pre] : expressible) {
      if (std::string_view(family) != name) continue;
      CHECK(metadata.get_string_or("tokenizer.ggml.pre", "").value() == pre);
      REQUIRE(metadata.erase("tokenizer.huggingface.json"));
      const Tokenizer keys = Tokenizer::from_metadata(metadata).value();
      for (const Value& text : texts.items()) {
        CAPTURE(std::string(text.as_string()));
        // A GGUF file cannot say that a text which starts with a space gets no other.
        if (family == std::string_view("llama2_new") && text.as_string().substr(0, 1) == " ") continue;
        CHECK(encode(keys, text.as_string()) == encode(folder, text.as_string()));
      }
      ++keys_alone;
    }
  }
  CHECK(keys_alone == std::size(expressible));
}

TEST_CASE("tokenizer.json: K17: time is linear in the text, on a small stack", "[tokenizer][hf][linear]") {
  constexpr std::size_t kUnit = kSanitized ? std::size_t{1} << 14 : std::size_t{1} << 17;
  const auto random_bytes = [](std::size_t bytes) {
    std::mt19937 random(3);
    std::string text(bytes, ' ');
    for (char& c : text) c = static_cast<char>(random());
    return text;
  };
  const char* units[] = {"a", " ", "\n", "\xCC\x81", "\xF0\x9F\x99\x82", "<", "z"};
  for (const char* name : {"bert", "flags", "gemma", "llama2", "llama2_new", "openai_gpt", "qwen2", "t5",
                           "unigram_bytes", "unk_bpe", "word_level", "xlm", "subword_prefix"}) {
    const Tokenizer tokenizer = load(family_json(name)).value();
    for (std::size_t kind = 0; kind <= std::size(units); ++kind) {
      std::uint64_t steps[2] = {};
      bool ok[2] = {};
      for (const std::size_t size : {std::size_t{1}, std::size_t{2}}) {
        const std::string text =
            kind == std::size(units) ? random_bytes(size * kUnit) : repeat(units[kind], size * kUnit / 4);
        REQUIRE(on_small_stack([&] {
          const corbel::text::TextSpan span = {text.size(), true};
          ok[size - 1] = tokenizer.model()->encode(text, {&span, 1}, false, steps[size - 1]).ok();
        }));
      }
      CAPTURE(name, kind, steps[0], steps[1]);
      CHECK(ok[0]);
      CHECK(ok[1]);
      CHECK(static_cast<double>(steps[1]) <= 2.3 * static_cast<double>(steps[0]));
    }
  }
}

TEST_CASE("tokenizer.json: K17: time is linear in a text that begins long pieces everywhere and is none",
          "[tokenizer][hf][linear]") {
  constexpr std::size_t kPiece = 60000;
  const std::string run(kPiece - 1, 'a');
  const auto added = [&](std::string_view flags) {
    return change(kBpe, R"({"id":6,"content":"<x>","special":false})",
                  R"({"id":1,"content":"a","special":false},{"id":6,"content":")" + run +
                      "b\",\"special\":" + std::string(flags) + "}");
  };
  const auto normalizing = [](std::string json) {
    return change(std::move(json), "\"normalizer\":null", R"("normalizer":{"type":"Lowercase"})");
  };
  const std::string word_piece = change(kWordPiece, ":100", ":1000000");
  const struct {
    const char* name;
    std::string json;
    std::string_view unit;
  } rows[] = {
      {"added, as it is", added("false"), "a"},
      {"control, as it is", added("true"), "a"},
      {"control, repeated in two", change(added("true"), run, repeat("xa", kPiece / 2)), "xa"},
      {"added, in normalized text", normalizing(added("false,\"normalized\":true")), "A"},
      {"unigram", change(kUnigram, R"(["aa",-2])", "[\"" + run + "b\",-2]"), "a"},
      {"unigram, characters of two bytes",
       change(kUnigram, R"(["aa",-2])", "[\"" + repeat("\u00E9", kPiece / 2) + "b\",-2]"), "\u00E9"},
      {"wordpiece", change(word_piece, R"("##b":2)", R"("##a":2,"##)" + run + R"(b":3,")" + run + R"(c":4)"), "a"},
      {"wordpiece, unknown", change(word_piece, R"("##b":2)", R"("##)" + run + R"(b":2)"), "a"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.name);
    const corbel::Result<Tokenizer> tokenizer = load(row.json);
    REQUIRE(tokenizer.ok());
    for (const bool literal : {true, false}) {
      std::uint64_t steps[2] = {};
      bool ok[2] = {};
      for (const std::size_t size : {std::size_t{1}, std::size_t{2}}) {
        const std::string text = repeat(row.unit, size * kPiece / 4 / row.unit.size());
        REQUIRE(on_small_stack([&] {
          // The other kind of text stands at the end of it.
          const corbel::text::TextSpan spans[] = {{text.size() - 40, literal}, {text.size(), !literal}};
          ok[size - 1] = tokenizer->model()->encode(text, spans, false, steps[size - 1]).ok();
        }));
      }
      CAPTURE(literal, steps[0], steps[1]);
      CHECK(ok[0]);
      CHECK(ok[1]);
      CHECK(steps[0] <= 20 * kPiece / 4);
      CHECK(static_cast<double>(steps[1]) <= 2.3 * static_cast<double>(steps[0]));
    }
  }
  // What is found, where it is one.
  CHECK(encode(load(rows[0].json).value(), "aa" + run + "ba") == Ids{1, 1, 6, 1});
  CHECK(encode(load(rows[1].json).value(), run + "b", true) == Ids{6});
  CHECK(encode(load(rows[3].json).value(), "AA" + run + "BA") == Ids{1, 1, 6, 1});
  CHECK(encode(load(rows[4].json).value(), "aa" + run + "ba") == Ids{1, 1, 2, 1});
  CHECK(encode(load(rows[6].json).value(), "a" + run + "b") == Ids{1, 3});
  CHECK(encode(load(rows[6].json).value(), run + "caa") == Ids{4, 2, 2});
  CHECK(encode(load(rows[7].json).value(), run + "b" + run + "c") == Ids{0});
}

TEST_CASE("tokenizer.json: pieces are found as by trying every length", "[tokenizer][hf]") {
  std::mt19937 random(11);
  const auto text_of = [&](std::size_t length, std::size_t letters) {
    std::string text;
    while (text.size() < length) text += "abc"[random() % letters];
    return text;
  };
  std::size_t found_any = 0;
  for (int round = 0; round < 400; ++round) {
    const std::size_t letters = 1 + random() % 3;
    struct Known {
      std::string piece;
      bool in_content;
    };
    std::vector<Known> known;
    corbel::text::SpecialMatcher matcher;
    for (std::size_t count = 1 + random() % 12; count > 0; --count) {
      known.push_back({text_of(1 + random() % (count % 3 == 0 ? 20 : 5), letters), random() % 2 == 0});
      matcher.add(known.back().piece, static_cast<TokenId>(known.size() - 1), known.back().in_content);
    }
    matcher.finish();
    const std::string whole = text_of(random() % 80, letters);
    std::vector<corbel::text::TextSpan> spans;
    for (std::size_t end = 0; end < whole.size();) {
      end = std::min(whole.size(), end + random() % 30);
      spans.push_back({end, random() % 2 == 0});
    }
    const std::size_t offset = whole.empty() ? 0 : random() % whole.size();
    const std::string_view text = std::string_view(whole).substr(offset, random() % (whole.size() + 1));

    std::vector<corbel::text::SpecialMatcher::Match> found;
    std::uint64_t steps = 0;
    matcher.find(text, spans, offset, found, steps);
    CHECK(steps <= 5 * text.size());
    for (std::size_t at = 0; at < text.size(); ++at) {
      std::size_t span = 0;
      while (spans[span].end <= offset + at) ++span;
      std::size_t control_end = 0;
      for (; span < spans.size() && !spans[span].literal; ++span) control_end = spans[span].end - offset;
      TokenId id = corbel::kNoToken;
      std::size_t longest = 0;
      for (std::size_t piece = 0; piece < known.size(); ++piece) {
        const std::string& is = known[piece].piece;
        // Of equal pieces the last counts.
        bool last = true;
        for (std::size_t other = piece + 1; other < known.size(); ++other) last = last && known[other].piece != is;
        if (!last || text.substr(at, is.size()) != is || is.size() <= longest) continue;
        if (!known[piece].in_content && at + is.size() > control_end) continue;
        longest = is.size();
        id = static_cast<TokenId>(piece);
      }
      CAPTURE(whole, offset, at, longest);
      if (longest == 0) {
        REQUIRE((found.empty() || found.back().begin != at));
        continue;
      }
      ++found_any;
      REQUIRE_FALSE(found.empty());
      REQUIRE(found.back().begin == at);
      REQUIRE(found.back().length == longest);
      REQUIRE(found.back().id == id);
      found.pop_back();
    }
    REQUIRE(found.empty());
  }
  CHECK(found_any > 1000);
}
