// Vocabularies that contradict themselves: the kind of error, and the key that its message names.
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/error.hpp>
#include <corbel/text/vocabulary.hpp>
#include <corbel/tokenizer.hpp>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/tiny_vocabulary.hpp"

using corbel::Errc;
using namespace corbel_test;

namespace {

void check_error(const Metadata& metadata, Errc code, std::string_view place) {
  const corbel::Result<Tokenizer> result = Tokenizer::from_metadata(metadata);
  REQUIRE_FALSE(result.ok());
  CAPTURE(std::string(result.status().message()));
  CHECK(result.status().code() == code);
  CHECK(result.status().message().find(place) != std::string_view::npos);
}

}  // namespace

TEST_CASE("vocabularies that contradict themselves: G098 to G106", "[tokenizer][malformed]") {
  const Spec spec = sentence_piece();
  const std::size_t size = spec.tokens.size();
  const auto with = [](Metadata metadata, const char* key, MetaValue value) {
    metadata.set(key, std::move(value));
    return metadata;
  };
  const auto without = [](Metadata metadata, const char* key) {
    metadata.erase(key);
    return metadata;
  };
  const Metadata llama = spec.metadata();
  const Metadata gpt2 = byte_level().metadata();
  static constexpr const char* kTokens = "tokenizer.ggml.tokens";
  static constexpr const char* kScores = "tokenizer.ggml.scores";
  static constexpr const char* kTypes = "tokenizer.ggml.token_type";
  static constexpr const char* kMerges = "tokenizer.ggml.merges";
  REQUIRE(Tokenizer::from_metadata(llama).ok());
  REQUIRE(Tokenizer::from_metadata(gpt2).ok());

  SECTION("G098: keys that are absent or of another type") {
    check_error(without(llama, "tokenizer.ggml.model"), Errc::kMissingKey, "tokenizer.ggml.model");
    check_error(with(llama, "tokenizer.ggml.model", MetaValue::from_uint(1)), Errc::kTypeMismatch,
                "tokenizer.ggml.model");
    check_error(without(llama, kTokens), Errc::kMissingKey, kTokens);
    const std::vector<std::int32_t> numbers(size, 1);
    check_error(with(llama, kTokens, MetaValue::from_ints(numbers)), Errc::kTypeMismatch, kTokens);
    check_error(with(llama, kTokens, MetaValue::from_string("x")), Errc::kTypeMismatch, kTokens);
    check_error(with(llama, kTokens, MetaValue::from_strings({})), Errc::kVocabInvalid, kTokens);
    check_error(without(gpt2, kMerges), Errc::kMissingKey, kMerges);
    check_error(with(gpt2, kMerges, MetaValue::from_ints(numbers)), Errc::kTypeMismatch, kMerges);
    check_error(with(llama, "tokenizer.ggml.add_bos_token", MetaValue::from_string("yes")), Errc::kTypeMismatch,
                "add_bos_token");
  }
  SECTION("G099, GG-09: scores") {
    const std::vector<std::byte> bytes(size);
    check_error(without(llama, kScores), Errc::kMissingKey, kScores);
    check_error(with(llama, kScores, MetaValue::from_bytes(corbel::MetaType::kU8, bytes)), Errc::kTypeMismatch,
                kScores);
    std::vector<float> scores(size - 1);
    check_error(with(llama, kScores, MetaValue::from_floats(scores)), Errc::kShapeMismatch, kScores);
    scores.resize(size);
    scores[7] = std::numeric_limits<float>::quiet_NaN();
    check_error(with(llama, kScores, MetaValue::from_floats(scores)), Errc::kBadValue, "scores[7]");
  }
  SECTION("G100: types") {
    std::vector<std::int32_t> types(size - 1, kNormal);
    check_error(with(llama, kTypes, MetaValue::from_ints(types)), Errc::kShapeMismatch, kTypes);
    types = spec.types;
    for (const std::int32_t bad : {99, 7, -1}) {
      types[3] = bad;
      check_error(with(llama, kTypes, MetaValue::from_ints(types)), Errc::kVocabInvalid, "token_type[3]");
    }
    check_error(with(llama, kTypes, MetaValue::from_floats(spec.scores)), Errc::kTypeMismatch, kTypes);
    CHECK(Tokenizer::from_metadata(without(gpt2, kTypes)).ok());  // all normal then
  }
  SECTION("G101: special ids") {
    for (const char* key : {"bos", "eos", "unknown", "padding", "eot", "eom"}) {
      const std::string name = std::string("tokenizer.ggml.") + key + "_token_id";
      for (const std::uint64_t bad : {std::uint64_t{size}, std::uint64_t{0xFFFFFFFF}}) {
        check_error(with(llama, name.c_str(), MetaValue::from_uint(bad)), Errc::kVocabInvalid, name);
      }
      check_error(with(llama, name.c_str(), MetaValue::from_int(-1)), Errc::kVocabInvalid, name);
      check_error(with(llama, name.c_str(), MetaValue::from_string("1")), Errc::kTypeMismatch, name);
      CHECK(Tokenizer::from_metadata(with(llama, name.c_str(), MetaValue::from_uint(size - 1))).ok());
    }
  }
  SECTION("G102: merges") {
    for (const char* bad : {"ab", "a ", " b", "a b c", "", " ", "a  b"}) {
      const std::vector<std::string> merges = {"a a", bad};
      check_error(with(gpt2, kMerges, MetaValue::from_strings(merges)), Errc::kVocabInvalid, "merges[1]");
    }
    const std::vector<std::string> unknown_half = {"a nosuch"};
    check_error(with(gpt2, kMerges, MetaValue::from_strings(unknown_half)), Errc::kVocabInvalid, "'nosuch'");
    // A result that is no piece: real files have it; the merge is never made, nor those that build on it.
    const std::vector<std::string> no_result = {"a b", "ab b", "a a"};
    const Tokenizer tokenizer =
        Tokenizer::from_metadata(with(gpt2, kMerges, MetaValue::from_strings(no_result))).value();
    CHECK(encode(tokenizer, "abb").size() == 3);
    CHECK(encode(tokenizer, "aab").size() == 2);
    const std::vector<std::string> many(corbel::text::kMaxMerges + 1, "a a");
    check_error(with(gpt2, kMerges, MetaValue::from_strings(many)), Errc::kLimitExceeded, kMerges);
  }
  SECTION("G103, GG-11: byte pieces") {
    for (const char* bad : {"<0x-1>", "<0xZZ>", "<0x1>", "<0x 1>", "<0X41>", "<0x4a>", "<0x041>", ""}) {
      Spec changed = spec;
      changed.tokens[3 + 0x41] = bad;
      check_error(changed.metadata(), Errc::kVocabInvalid, "tokens[68]");
    }
    // A piece of another type is only text, whatever it looks like.
    for (const char* text : {"<0x-1>", "<0xZZ>", "<0x100>"}) {
      Spec plain = spec;
      const TokenId id = plain.add(text, kUserDefined);
      CHECK(encode(make(plain), text).back() == id);
      CHECK(decode(make(plain), {id}) == text);
    }
    Spec missing = spec;
    missing.types[3 + 0x41] = kNormal;
    check_error(missing.metadata(), Errc::kVocabInvalid, "<0x41>");
    Spec nothing;
    nothing.model = "llama";
    nothing.add("a");
    check_error(nothing.metadata(), Errc::kVocabInvalid, "neither");
  }
  SECTION("G106: kinds that are not known") {
    for (const char* kind : {"rwkv", "plamo2", ""}) {
      check_error(with(llama, "tokenizer.ggml.model", MetaValue::from_string(kind)), Errc::kUnsupported,
                  "'" + std::string(kind) + "'");
    }
    for (const char* kind : {"none", "no_vocab"}) {
      check_error(with(llama, "tokenizer.ggml.model", MetaValue::from_string(kind)), Errc::kUnsupported,
                  "the file has no tokenizer");
    }
    check_error(with(gpt2, "tokenizer.ggml.pre", MetaValue::from_string("lama-bpe")), Errc::kUnsupported, "llama-bpe");
    check_error(with(gpt2, "tokenizer.ggml.pre", MetaValue::from_string("qwen3")), Errc::kUnsupported, "qwen2");
    check_error(with(gpt2, "tokenizer.ggml.pre", MetaValue::from_string("no-such-pre")), Errc::kUnsupported,
                "'no-such-pre'");
    CHECK(Tokenizer::from_metadata(without(gpt2, "tokenizer.ggml.pre")).ok());  // GPT-2's then
  }
  SECTION("G099, G104: unigram and WordPiece") {
    Spec changed = spec;
    changed.model = "t5";
    const Metadata t5 = with(changed.metadata(), kScores, MetaValue::from_floats(spec.scores));
    REQUIRE(Tokenizer::from_metadata(t5).ok());
    check_error(without(t5, kScores), Errc::kMissingKey, kScores);
    check_error(with(t5, kScores, MetaValue::from_ints(spec.types)), Errc::kTypeMismatch, kScores);
    std::vector<float> scores = spec.scores;
    scores[7] = std::numeric_limits<float>::quiet_NaN();
    check_error(with(t5, kScores, MetaValue::from_floats(scores)), Errc::kBadValue, "scores[7]");
    scores.pop_back();
    check_error(with(t5, kScores, MetaValue::from_floats(scores)), Errc::kShapeMismatch, kScores);
    static constexpr const char* kMap = "tokenizer.ggml.precompiled_charsmap";
    for (const std::size_t bytes : {1u, 2u, 3u, 4u, 5u, 8u}) {
      const std::vector<std::byte> map(bytes, std::byte{0xFF});
      check_error(with(t5, kMap, MetaValue::from_bytes(corbel::MetaType::kU8, map)), Errc::kVocabInvalid, "t5");
    }
    // A trie of one unit that points at a text behind the end of the texts.
    std::vector<std::byte> outside(4 + 4 * 256 + 2);
    outside[1] = std::byte{4};
    for (std::size_t at = 4; at + 4 <= outside.size(); at += 4) {
      outside[at] = std::byte{0xFF};  // every unit: a leaf, offset far away
      outside[at + 1] = std::byte{0xFF};
      outside[at + 2] = std::byte{0xFF};
      outside[at + 3] = std::byte{0x7F};
    }
    const corbel::Result<Tokenizer> mapped =
        Tokenizer::from_metadata(with(t5, kMap, MetaValue::from_bytes(corbel::MetaType::kU8, outside)));
    if (mapped.ok()) {
      CHECK(decode(*mapped, encode(*mapped, "aa")).size() <= 8);
    } else {
      CHECK(mapped.status().code() == Errc::kVocabInvalid);
    }
    check_error(with(t5, kMap, MetaValue::from_string("x")), Errc::kTypeMismatch, kMap);
    changed.model = "bert";
    const Metadata bert = changed.metadata();
    REQUIRE(Tokenizer::from_metadata(bert).ok());
    for (const char* key : {"cls", "seperator"}) {
      const std::string name = std::string("tokenizer.ggml.") + key + "_token_id";
      check_error(with(bert, name.c_str(), MetaValue::from_uint(size)), Errc::kVocabInvalid, name);
      check_error(with(bert, name.c_str(), MetaValue::from_string("1")), Errc::kTypeMismatch, name);
    }
  }
  SECTION("G105: sizes") {
    for (const std::size_t bytes : {std::size_t{65535}, std::size_t{65536}, std::size_t{65537}}) {
      Spec changed = byte_level();
      changed.add(std::string(bytes, 'q'), kControl);
      if (bytes <= 65536) {
        CHECK(encode(make(changed), std::string(bytes, 'q'), true).size() == 1);
      } else {
        check_error(changed.metadata(), Errc::kLimitExceeded, "65537 bytes");
      }
    }
  }
  SECTION("G105: the same text twice, and no text") {
    Spec changed = byte_level();
    const TokenId again = changed.add("hello");
    const TokenId none = changed.add("");
    const Tokenizer tokenizer = make(changed);
    CHECK(encode(tokenizer, "hello") == Ids{again});  // the last one counts
    CHECK(decode(tokenizer, {none}).empty());
    CHECK(tokenizer.find("") == corbel::kNoToken);
  }
}
