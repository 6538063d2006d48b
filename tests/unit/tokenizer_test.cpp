// Tokenizers from small vocabularies made here: merges against a plain oracle, special pieces, segments, decoding,
// malformed files.
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/gguf_writer.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/text/tokenizer_model.hpp>
#include <corbel/text/word_cutter.hpp>
#include <corbel/tokenizer.hpp>

#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <pthread.h>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/tiny_vocabulary.hpp"

using corbel::Errc;
using namespace corbel_test;

// The linearity test takes shorter texts where a sanitizer makes everything ten times slower; the ratio is the same.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CORBEL_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CORBEL_TEST_SANITIZED 1
#endif
#endif

namespace {

#if defined(CORBEL_TEST_SANITIZED)
constexpr std::size_t kTextUnit = std::size_t{1} << 16;
#else
constexpr std::size_t kTextUnit = std::size_t{1} << 20;
#endif

std::string random_text(std::mt19937& random, std::size_t length) {
  static constexpr std::uint32_t kEnds[] = {0x80, 0x80, 0x800, 0xD800, 0x110000};
  std::string out;
  for (std::size_t at = 0; at < length; ++at) {
    const auto kind = random() % 8;
    if (kind < 4) {
      out += "ahelos <|>\n\t'1"[random() % 14];
    } else {
      auto value = static_cast<std::uint32_t>(random() % kEnds[kind - 3]);
      if (value >= 0xD800 && value <= 0xDFFF) value = 0x1F642;
      if (value == 0x2581) value = 'x';  // SentencePiece's space, by design
      corbel::detail::append_utf8(out, value);
    }
  }
  return out;
}

// Repairs a byte string as the Unicode Standard recommends: U+FFFD for each longest part that begins a character.
std::string repaired(const Tokenizer& tokenizer, const Ids& ids) {
  corbel::StreamDecoder whole(tokenizer);
  std::string out;
  for (const TokenId id : ids) out += whole.push(id).value();
  return out + whole.finish();
}

// Runs `body` on a thread with a stack of 128 KiB.
template <class Body>
void on_small_stack(Body&& body) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, 128 * 1024) == 0);
  pthread_t thread;
  REQUIRE(pthread_create(
              &thread, &attributes, [](void* argument) -> void* { return (*static_cast<Body*>(argument))(), nullptr; },
              &body) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&attributes);
}

}  // namespace

TEST_CASE("byte-level BPE: ids by hand", "[tokenizer]") {
  const Tokenizer tokenizer = make(byte_level());
  const auto id = [&](std::string_view bytes) { return tokenizer.find(stand_ins(bytes)); };
  CHECK(encode(tokenizer, "").empty());
  CHECK(encode(tokenizer, "hello hello") == Ids{id("hello"), id(" hello")});
  CHECK(encode(tokenizer, "aaaaaaa") == Ids{id("aaaaaa"), id("a")});
  CHECK(encode(tokenizer, "help") == Ids{id("he"), id("l"), id("p")});
  CHECK(encode(tokenizer, "x's") == Ids{id("x"), id("'s")});
  CHECK(tokenizer.size() == 256 + 15 + 4);
  CHECK(tokenizer.bos() == corbel::kNoToken);
  CHECK(tokenizer.find("no such piece") == corbel::kNoToken);
  CHECK(tokenizer.piece(-1).empty());
  CHECK(tokenizer.piece(static_cast<TokenId>(tokenizer.size())).empty());
  CHECK(tokenizer.memory_bytes() > 1000);
  // Invalid bytes, one U+FFFD each.
  CHECK(decode(tokenizer, encode(tokenizer,
                                 "a\xFF"
                                 "b\xE4\xB8")) ==
        "a\xEF\xBF\xBD"
        "b\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST_CASE("byte-level BPE equals the plain algorithm on random merges", "[tokenizer]") {
  std::mt19937 random(7);
  Spec spec;
  for (unsigned byte = 0; byte < 256; ++byte) spec.add(stand_in(byte));
  std::vector<std::string> parts = {"a", "b", "c", "d"};
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  while (spec.merges.size() < 150) {
    const std::string left = parts[random() % parts.size()];
    const std::string right = parts[random() % parts.size()];
    if (left.size() + right.size() > 9 || !ranks.emplace(std::make_pair(left, right), spec.merges.size()).second)
      continue;
    spec.merge(left, right);
    parts.push_back(left + right);
  }
  const Tokenizer tokenizer = make(spec);
  for (int round = 0; round < 400; ++round) {
    std::string word;
    for (std::size_t left = 1 + random() % 60; left > 0; --left) word += "abcd"[random() % 4];
    std::vector<std::string> symbols;
    for (const char c : word) symbols.emplace_back(1, c);
    for (;;) {
      std::size_t best = ranks.size();
      std::size_t where = 0;
      for (std::size_t at = 0; at + 1 < symbols.size(); ++at) {
        const auto found = ranks.find({symbols[at], symbols[at + 1]});
        if (found != ranks.end() && found->second < best) {
          best = found->second;
          where = at;
        }
      }
      if (best == ranks.size()) break;
      symbols[where] += symbols[where + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
    }
    Ids expected;
    for (const std::string& symbol : symbols) expected.push_back(tokenizer.find(symbol));
    CAPTURE(word);
    CHECK(encode(tokenizer, word) == expected);
  }
}

TEST_CASE("SentencePiece BPE equals the plain algorithm on random scores", "[tokenizer]") {
  std::mt19937 random(8);
  Spec spec = sentence_piece();
  std::map<std::string, float> scores;
  for (std::size_t at = 0; at < spec.tokens.size(); ++at) {
    if (spec.types[at] == kNormal) scores[spec.tokens[at]] = spec.scores[at];
  }
  const char* letters[] = {"a", "h", "e", "l", "\xE2\x96\x81", "\xC3\xA9"};  // the last one is in no single piece
  while (scores.size() < 200) {
    std::string piece;
    for (std::size_t left = 2 + random() % 3; left > 0; --left) piece += letters[random() % 6];
    const float score = -static_cast<float>(random() % 40);  // with ties
    if (scores.emplace(piece, score).second) spec.add(piece, kNormal, score);
  }
  for (const bool prefix : {false, true}) {
    Metadata metadata = spec.metadata();
    metadata.set("tokenizer.ggml.add_space_prefix", MetaValue::from_bool(prefix));
    const Tokenizer tokenizer = Tokenizer::from_metadata(metadata).value();
    for (int round = 0; round < 300; ++round) {
      std::vector<std::string> symbols;
      std::string text;
      for (std::size_t left = 1 + random() % 50; left > 0; --left) {
        symbols.emplace_back(letters[random() % 6]);
        text += symbols.back() == letters[4] ? " " : symbols.back();
      }
      if (prefix) symbols.insert(symbols.begin(), letters[4]);
      for (;;) {
        float best = -1e30f;
        std::size_t where = symbols.size();
        for (std::size_t at = 0; at + 1 < symbols.size(); ++at) {
          const auto found = scores.find(symbols[at] + symbols[at + 1]);
          if (found != scores.end() && found->second > best) {
            best = found->second;
            where = at;
          }
        }
        if (where == symbols.size()) break;
        symbols[where] += symbols[where + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(where) + 1);
      }
      Ids expected;
      for (const std::string& symbol : symbols) {
        if (const TokenId id = tokenizer.find(symbol); id >= 0) {
          expected.push_back(id);
        } else {
          for (const char c : symbol) expected.push_back(3 + static_cast<unsigned char>(c));
        }
      }
      CAPTURE(text, prefix);
      const Ids ids = encode(tokenizer, text);
      CHECK(ids == expected);
      CHECK(decode(tokenizer, ids) == text);
    }
  }
}

TEST_CASE("every valid text comes back from its ids", "[tokenizer]") {
  std::mt19937 random(9);
  std::vector<Tokenizer> tokenizers = {make(sentence_piece())};
  for (const char* pre : {"gpt-2", "smollm", "deepseek-coder", "llama-bpe", "qwen2", "tekken", "gpt-4o"}) {
    Spec spec = byte_level();
    spec.pre = pre;
    tokenizers.push_back(make(spec));
  }
  for (const Tokenizer& tokenizer : tokenizers) {
    for (int round = 0; round < 150; ++round) {
      const std::string text = random_text(random, random() % 40);
      const bool special = round % 2 == 1;
      const Ids ids = encode(tokenizer, text, special);
      CAPTURE(text);
      REQUIRE(decode(tokenizer, ids, true) == text);
      if (!special) {
        for (const TokenId id : ids) REQUIRE_FALSE(tokenizer.is_control(id));
      }
      REQUIRE(repaired(tokenizer, encode(tokenizer, text)) == text);
    }
  }
}

TEST_CASE("whole words win over merges where the pre-tokenizer says so", "[tokenizer]") {
  Spec spec = byte_level();
  const TokenId whole = spec.add("help");
  CHECK(encode(make(spec), "help").size() == 3);
  spec.pre = "llama-bpe";
  CHECK(encode(make(spec), "help") == Ids{whole});
  CHECK_FALSE(encode(make(spec), "<|end|>").size() == 1);  // a control piece is no word
}

TEST_CASE("TOK-11: special pieces: longest first, user-defined always, control when asked", "[tokenizer]") {
  for (const Spec& spec : {byte_level(), sentence_piece()}) {
    Metadata metadata = spec.metadata();
    metadata.set("tokenizer.ggml.add_space_prefix", MetaValue::from_bool(false));
    const Tokenizer tokenizer = Tokenizer::from_metadata(metadata).value();
    const TokenId start = tokenizer.find("<|start|>");
    const TokenId end = tokenizer.find("<|end|>");
    const TokenId user = tokenizer.find("[user]");
    const Ids a = encode(tokenizer, "a");
    CHECK(encode(tokenizer, "<|start|>[user]<|end|>", true) == Ids{start, user, end});
    CHECK(encode(tokenizer, "a[user]a") == Ids{a[0], user, a[0]});
    const Ids plain = encode(tokenizer, "<|start|>[user]");
    CHECK(plain.size() > 2);
    CHECK(plain.back() == user);
    CHECK(decode(tokenizer, plain) == "<|start|>[user]");
    CHECK(decode(tokenizer, {start, user, end}) == "[user]");
    CHECK(decode(tokenizer, {start, user, end}, true) == "<|start|>[user]<|end|>");
    CHECK(encode(tokenizer, "<|start|<|start|>", true).back() == start);
  }
  const Tokenizer tokenizer = make(byte_level());
  CHECK(encode(tokenizer, "<|end|>>", true) == Ids{tokenizer.find("<|end|>>")});
  CHECK(encode(tokenizer, "<|end|>x", true)[0] == tokenizer.find("<|end|>"));
}

TEST_CASE("TOK-03, TOK-05: spaces beside special pieces are those of the text", "[tokenizer]") {
  Spec spec = sentence_piece();
  const TokenId bare = spec.add("text", kNormal, 9);
  const TokenId marked = spec.add("\xE2\x96\x81text", kNormal, 8);
  for (const char* part : {"t", "te", "tex", "\xE2\x96\x81t", "\xE2\x96\x81te", "\xE2\x96\x81tex"}) {
    spec.add(part, kNormal, 7);
  }
  Metadata metadata = spec.metadata();
  const TokenId space = make(spec).find("\xE2\x96\x81");
  for (const bool prefix : {false, true}) {
    metadata.set("tokenizer.ggml.add_space_prefix", MetaValue::from_bool(prefix));
    const Tokenizer tokenizer = Tokenizer::from_metadata(metadata).value();
    const TokenId start = tokenizer.find("<|start|>");
    const TokenId end = tokenizer.find("<|end|>");
    CAPTURE(prefix);
    // Without a prefix, as Gemma has it, no space is invented; with one, as Llama has it, a word that follows a special
    // piece is marked, and a space before it is one more.
    CHECK(encode(tokenizer, "<|start|>text<|end|>", true) == Ids{start, prefix ? marked : bare, end});
    const Ids spaced = prefix ? Ids{start, space, marked} : Ids{start, marked};
    CHECK(encode(tokenizer, "<|start|> text", true) == spaced);
    for (const char* text : {"<|start|>text<|end|>", "<|start|> text", "text", " text", "<|start|>", " <|end|> text ",
                             "text<|end|>text", "[user] text[user]text"}) {
      CAPTURE(text);
      CHECK(decode(tokenizer, encode(tokenizer, text, true), true) == text);
    }
  }
}

TEST_CASE("K08: ten thousand special pieces that are prefixes of each other", "[tokenizer]") {
  Spec spec = byte_level();
  std::string piece;
  for (int at = 0; at < 10000; ++at) spec.add(piece += 'z', kControl);
  const Tokenizer tokenizer = make(spec);
  CHECK(encode(tokenizer, std::string(25001, 'z'), true) ==
        Ids{tokenizer.find(piece), tokenizer.find(piece), tokenizer.find(piece.substr(0, 5001))});
}

TEST_CASE("CH-07: message content never becomes a control token, and words run across segments", "[tokenizer]") {
  for (const Spec& spec : {byte_level(), sentence_piece()}) {
    const Tokenizer tokenizer = make(spec);
    const TokenId end = tokenizer.find("<|end|>");
    const auto segments = [&](const std::vector<corbel::PromptSegment>& list) {
      return tokenizer.encode(list).value();
    };
    const auto controls = [&](const Ids& ids) {
      std::size_t count = 0;
      for (const TokenId id : ids) count += tokenizer.is_control(id) ? 1u : 0u;
      return count;
    };
    CHECK(segments({}).empty());
    CHECK(segments({{"hel", false}, {"lo", true}, {" hel", true}, {"lo", false}}) == encode(tokenizer, "hello hello"));
    CHECK(segments({{"<|start|>", false}, {"a<|end|>a", true}, {"<|end|>", false}}) == [&] {
      Ids ids = {tokenizer.find("<|start|>")};
      const Ids content = encode(tokenizer, "a<|end|>a");
      ids.insert(ids.end(), content.begin(), content.end());
      ids.push_back(end);
      return ids;
    }());
    CHECK(segments({{"<|e", false}, {"nd|>", false}}) == Ids{end});
    CHECK(controls(segments({{"<|e", false}, {"nd|>", true}})) == 0);
    CHECK(controls(segments({{"<|e", true}, {"nd|>", false}})) == 0);
    CHECK(controls(segments({{"<|e", false}, {"", true}, {"nd|>", false}})) == 0);
    CHECK(controls(segments({{"<|e", false}, {"n", true}, {"d|><|end|>", false}})) == 1);
    CHECK(segments({{"[us", false}, {"er]", true}}) == Ids{tokenizer.find("[user]")});
    // Invalid bytes move the borders, not the rule.
    CHECK(controls(segments(
              {{"\xFF<|end|>", false}, {"\xFF\xE2\x96\x81<|end|>\xE2\x96", true}, {"\x81<|end|>", false}})) == 2);
  }
}

TEST_CASE("beginning and end as the file asks", "[tokenizer]") {
  Spec spec = sentence_piece();
  const Ids hello = {make(spec).find("\xE2\x96\x81hello")};
  CHECK(encode(make(spec), "hello", false, true) == Ids{1, hello[0]});  // the kind's own rule: <s> and no </s>
  CHECK(encode(make(spec), "", false, true) == Ids{1});
  Metadata metadata = spec.metadata();
  metadata.set("tokenizer.ggml.bos_token_id", MetaValue::from_uint(2));
  metadata.set("tokenizer.ggml.eos_token_id", MetaValue::from_uint(1));
  metadata.set("tokenizer.ggml.add_eos_token", MetaValue::from_bool(true));
  CHECK(encode(Tokenizer::from_metadata(metadata).value(), "hello", false, true) == Ids{2, hello[0], 1});
  CHECK(encode(Tokenizer::from_metadata(metadata).value(), "hello") == hello);
  metadata.set("tokenizer.ggml.add_bos_token", MetaValue::from_bool(false));
  CHECK(encode(Tokenizer::from_metadata(metadata).value(), "hello", false, true) == Ids{hello[0], 1});
  CHECK_FALSE(make(byte_level()).adds_bos());
}

TEST_CASE("tokens that end a reply", "[tokenizer]") {
  Spec spec = byte_level();
  const TokenId im_end = spec.add("<|im_end|>", kControl);
  const TokenId plain = spec.add("</s>", kUserDefined);
  const TokenId named = spec.add("<stop>", kControl);
  Metadata metadata = spec.metadata();
  metadata.set("tokenizer.ggml.eot_token_id", MetaValue::from_uint(static_cast<std::uint64_t>(named)));
  const Tokenizer tokenizer = Tokenizer::from_metadata(metadata).value();
  CHECK(tokenizer.is_end_of_generation(im_end));
  CHECK(tokenizer.is_end_of_generation(named));
  CHECK(tokenizer.is_end_of_generation(tokenizer.find("<|end|>")));
  CHECK_FALSE(tokenizer.is_end_of_generation(plain));
  CHECK_FALSE(tokenizer.is_end_of_generation(tokenizer.find("<|start|>")));
  CHECK_FALSE(tokenizer.is_end_of_generation(corbel::kNoToken));
  spec.add("<|return|>", kControl);
  CHECK_FALSE(make(spec).is_end_of_generation(tokenizer.find("<|end|>")));
}

TEST_CASE("unused pieces carry merges and come apart again; unknown characters without byte pieces", "[tokenizer]") {
  Spec spec;
  spec.model = "llama";
  spec.add("<unk>", kUnknown);
  spec.add("a", kNormal, -5);
  spec.add("b", kNormal, -6);
  spec.add("c", kNormal, -7);
  spec.add("ab", kUnused, -1);
  spec.add("abc", kNormal, -2);
  Metadata metadata = spec.metadata();
  metadata.set("tokenizer.ggml.add_space_prefix", MetaValue::from_bool(false));
  const Tokenizer tokenizer = Tokenizer::from_metadata(metadata).value();
  CHECK(encode(tokenizer, "abcab") == Ids{5, 1, 2});
  CHECK(encode(tokenizer, "a\xC3\xA9zb") == Ids{1, 0, 2});
}

TEST_CASE("K18: decode refuses ids outside the vocabulary", "[tokenizer]") {
  const Tokenizer tokenizer = make(byte_level());
  for (const TokenId bad : {-1, static_cast<TokenId>(tokenizer.size()), std::numeric_limits<TokenId>::max(),
                            std::numeric_limits<TokenId>::min()}) {
    const Ids ids = {1, bad};
    const corbel::Result<std::string> result = tokenizer.decode(ids);
    REQUIRE_FALSE(result.ok());
    CHECK(result.status().code() == Errc::kInvalidArgument);
    CHECK(result.status().message().find(std::to_string(bad)) != std::string_view::npos);
    corbel::StreamDecoder stream(tokenizer);
    CHECK(stream.push(tokenizer.find(stand_in(0xF0))).value().empty());
    CHECK(stream.push(bad).status().code() == Errc::kInvalidArgument);
    CHECK(stream.finish() == "\xEF\xBF\xBD");  // the state stayed
  }
  const Tokenizer empty{};
  CHECK(empty.encode("x").status().code() == Errc::kInvalidArgument);
  CHECK(empty.decode({}).status().code() == Errc::kInvalidArgument);
  CHECK(empty.size() == 0);
}

TEST_CASE("the stream decoder gives whole code points", "[tokenizer]") {
  for (const Spec& spec : {byte_level(), sentence_piece()}) {
    const Tokenizer tokenizer = make(spec);
    const bool byte_tokens = spec.model == "llama";
    const auto bytes = [&](std::string_view text) {
      Ids ids;
      for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        ids.push_back(byte_tokens ? 3 + byte : tokenizer.find(stand_in(byte)));
      }
      return ids;
    };
    corbel::StreamDecoder stream(tokenizer);
    std::vector<std::string> parts;
    for (const TokenId id : bytes("a\xF0\x9F\x99\x82\xE2\x82z")) parts.push_back(stream.push(id).value());
    CHECK(parts == std::vector<std::string>{"a", "", "", "", "\xF0\x9F\x99\x82", "", "", "\xEF\xBF\xBDz"});
    CHECK(stream.finish().empty());
    // One U+FFFD for each longest part that begins a character (Unicode Standard 16.0, table 3-8 and following).
    const std::pair<const char*, const char*> cases[] = {
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
         "A",
         "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
         "A",
         "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA"},
        {"\xF4\x91\x92\x93\xFF"
         "A\x80\xBF"
         "B",
         "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFDB"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
         "A",
         "\uFFFD\uFFFD\uFFFD\uFFFDA"},
    };
    for (const auto& [invalid, expected] : cases) CHECK(repaired(tokenizer, bytes(invalid)) == expected);

    std::mt19937 random(11);
    for (int round = 0; round < 200; ++round) {
      Ids ids;
      for (std::size_t left = random() % 30; left > 0; --left) {
        ids.push_back(static_cast<TokenId>(random() % tokenizer.size()));
      }
      for (const TokenId id : ids) REQUIRE(corbel::detail::is_utf8(stream.push(id).value()));
      REQUIRE(corbel::detail::is_utf8(stream.finish()));
      const std::string raw = tokenizer.decode(ids).value();
      if (corbel::detail::is_utf8(raw)) REQUIRE(repaired(tokenizer, ids) == raw);
    }
  }
}

TEST_CASE("WordPiece vocabularies of GGUF files", "[tokenizer]") {
  Spec spec;
  spec.model = "bert";
  const TokenId unknown = spec.add("[UNK]", kControl);
  const TokenId first = spec.add("[CLS]", kControl);
  const TokenId last = spec.add("[SEP]", kControl);
  const TokenId hel = spec.add("\xE2\x96\x81hel");
  const TokenId lo = spec.add("lo");
  const TokenId world = spec.add("\xE2\x96\x81world");
  const TokenId comma = spec.add("\xE2\x96\x81,");
  Metadata metadata = spec.metadata();
  metadata.set("tokenizer.ggml.unknown_token_id", MetaValue::from_uint(0));
  metadata.set("tokenizer.ggml.cls_token_id", MetaValue::from_uint(1));
  metadata.set("tokenizer.ggml.seperator_token_id", MetaValue::from_uint(2));
  const Tokenizer tokenizer = Tokenizer::from_metadata(metadata).value();
  CHECK(encode(tokenizer, "H\u00E9llo, world") == Ids{hel, lo, comma, world});
  CHECK(encode(tokenizer, "hello xyz", false, true) == Ids{first, hel, lo, unknown, last});
  CHECK(encode(tokenizer, "hello[SEP]", true) == Ids{hel, lo, last});
  CHECK(decode(tokenizer, {first, hel, lo, comma, world, last}) == "hello , world");
  CHECK(decode(tokenizer, {first, hel, lo, last}, true) == "[CLS] hello[SEP]");
  metadata.set("tokenizer.ggml.normalizer.lowercase", MetaValue::from_bool(false));
  CHECK(encode(Tokenizer::from_metadata(metadata).value(), "Hello") == Ids{unknown});
}

// The longest sum of scores; of equal sums the way that was found first, as the reference's fast tokenizer does.
TEST_CASE("TOK-13: unigram vocabularies of GGUF files", "[tokenizer]") {
  Spec spec;
  spec.model = "t5";
  const TokenId pad = spec.add("<pad>", kControl);
  const TokenId end = spec.add("</s>", kControl);
  const TokenId unknown = spec.add("<unk>", kUnknown);
  const TokenId space = spec.add("\xE2\x96\x81", kNormal, -2);
  const TokenId one = spec.add("!", kNormal, -4);
  const TokenId two = spec.add("!!", kNormal, -6);
  const TokenId four = spec.add("!!!!", kNormal, -12);
  const TokenId word = spec.add(
      "\xE2\x96\x81"
      "ab",
      kNormal, -3);
  Metadata metadata = spec.metadata();
  metadata.set("tokenizer.ggml.scores", MetaValue::from_floats(spec.scores));
  const Tokenizer tokenizer = Tokenizer::from_metadata(metadata).value();
  CHECK(encode(tokenizer, "ab  ab") == Ids{word, word});
  CHECK(encode(tokenizer, " ").empty());  // extra spaces go, and nothing is left
  CHECK(encode(tokenizer, "").empty());
  CHECK(encode(tokenizer, "!!!") == Ids{space, one, two});
  CHECK(encode(tokenizer, "!!!!!!") == Ids{space, two, four});  // -12 = 2 * -6: the way found first
  CHECK(encode(tokenizer, "xyz!") == Ids{space, unknown, one});
  CHECK(encode(tokenizer, "ab<pad>", true, true) == Ids{word, pad, end});
  CHECK(decode(tokenizer, {word, word, space, one}) == "ab ab !");
  metadata.set("tokenizer.ggml.remove_extra_whitespaces", MetaValue::from_bool(false));
  metadata.set("tokenizer.ggml.add_eos_token", MetaValue::from_bool(false));
  CHECK(encode(Tokenizer::from_metadata(metadata).value(), "ab  ab", false, true) == Ids{word, space, word});
}

TEST_CASE("byte-pair vocabularies of GGUF files that are spelled in text", "[tokenizer]") {
  Spec spec = byte_level();
  spec.tokens.clear();
  spec.types.clear();
  spec.scores.clear();
  spec.merges.clear();
  spec.pre = "gemma4";
  const TokenId byte = spec.add("<0xC3>", kByte);
  const TokenId other = spec.add("<0xA9>", kByte);
  for (const char* piece : {"a", "b", "\xE2\x96\x81"}) spec.add(piece);
  spec.merge("a", "b");
  spec.merge("\xE2\x96\x81", "ab");
  const Tokenizer tokenizer = make(spec);
  CHECK(encode(tokenizer, "ab ab\u00E9") == Ids{tokenizer.find("ab"),
                                                tokenizer.find("\xE2\x96\x81"
                                                               "ab"),
                                                byte, other});
  CHECK(decode(tokenizer, encode(tokenizer, "ab ab\u00E9")) == "ab ab\u00E9");
  CHECK(decode(tokenizer, {byte, tokenizer.find("a")}) ==
        "\xC3"
        "a");
  Metadata named = spec.metadata();  // files of this kind name no pre-tokenizer
  named.set("tokenizer.ggml.model", MetaValue::from_string("gemma4"));
  named.set("tokenizer.ggml.pre", MetaValue::from_string("default"));
  CHECK(encode(Tokenizer::from_metadata(named).value(), "ab ab\u00E9") == encode(tokenizer, "ab ab\u00E9"));
}

TEST_CASE("K17, TOK-09: time is linear in the text, on a small stack", "[tokenizer][linear]") {
  const auto repeated = [](std::string_view unit) {
    return [unit = std::string(unit)](std::size_t bytes) {
      std::string text;
      while (text.size() + unit.size() <= bytes) text += unit;
      return text;
    };
  };
  const auto random_bytes = [](std::size_t bytes) {
    std::mt19937 random(3);
    std::string text(bytes, ' ');
    for (char& c : text) c = static_cast<char>(random());
    return text;
  };
  const auto letters = [](std::size_t bytes) {
    std::mt19937 random(4);
    std::string text(bytes, ' ');
    for (char& c : text) c = "aehlo"[random() % 5];
    return text;
  };
  const std::pair<const char*, std::function<std::string(std::size_t)>> texts[] = {
      {"one character", repeated("a")},
      {"spaces", repeated(" ")},
      {"newlines", repeated("\n")},
      {"combining marks", repeated("\xCC\x81")},
      {"4-byte code points", repeated("\xF0\x9F\x99\x82")},
      {"capital letters", repeated("Z")},
      {"words without an end", repeated("us")},
      {"random bytes", random_bytes},
      {"letters", letters}};
  Spec smollm = byte_level();
  smollm.pre = "smollm";
  const std::pair<const char*, Tokenizer> tokenizers[] = {{"smollm", make(smollm)},
                                                          {"sentencepiece", make(sentence_piece())}};
  // The scanners alone, which see every code point a bounded number of times.
  for (const char* pre : {"gpt-2", "smollm", "deepseek-coder", "llama-bpe", "qwen2", "tekken", "gpt-4o"}) {
    for (const auto& [name, text_of] : texts) {
      const std::string text = text_of(kTextUnit);
      const corbel::text::WordCutter cutter = corbel::text::WordCutter::from_name(pre).value();
      corbel::text::CutScratch scratch;
      bool ok = false;
      on_small_stack([&] { ok = cutter.cut(text, true, scratch).ok(); });
      CAPTURE(pre, name);
      REQUIRE(ok);
      CHECK(scratch.words.back().end == text.size());
      CHECK(scratch.steps <= 12 * kTextUnit);
    }
  }
  for (const auto& entry : tokenizers) {
    const std::string kind = entry.first;
    const Tokenizer& tokenizer = entry.second;
    for (const auto& [name, text_of] : texts) {
      std::uint64_t steps[2] = {};
      for (const std::size_t size : {std::size_t{1}, std::size_t{2}}) {
        const std::string text = text_of(size * kTextUnit);
        Ids ids;
        on_small_stack([&] {
          const corbel::text::TextSpan span = {text.size(), true};
          ids = tokenizer.model()->encode(text, {&span, 1}, false, steps[size - 1]).value();
        });
        if (corbel::detail::is_utf8(text)) CHECK(decode(tokenizer, ids) == text);
      }
      const double ratio = static_cast<double>(steps[1]) / static_cast<double>(steps[0]);
      CAPTURE(kind, name, steps[0], steps[1]);
      CHECK(steps[0] >= kTextUnit);
      CHECK(ratio >= 1.9);
      CHECK(ratio <= 2.3);
    }
  }
}

TEST_CASE("a vocabulary without weights, from a GGUF file in memory", "[tokenizer]") {
  corbel::GgufWriter writer;
  writer.metadata() = sentence_piece().metadata();
  writer.metadata().set("general.architecture", MetaValue::from_string("llama"));
  std::vector<std::byte> bytes = writer.to_bytes().value();
  corbel::Context context;
  const corbel::Checkpoint checkpoint = corbel::Checkpoint::from_memory(bytes, context, {}, "tiny.gguf").value();
  const Tokenizer tokenizer = Tokenizer::from_checkpoint(checkpoint).value();
  CHECK(encode(tokenizer, "hello") == Ids{tokenizer.find("\xE2\x96\x81hello")});

  writer.metadata().set("tokenizer.ggml.model", MetaValue::from_string("wordpiece"));
  bytes = writer.to_bytes().value();
  const corbel::Checkpoint other = corbel::Checkpoint::from_memory(bytes, context, {}, "tiny.gguf").value();
  const corbel::Status status = Tokenizer::from_checkpoint(other).status();
  CHECK(status.code() == Errc::kUnsupported);
  CHECK(status.message().substr(0, 10) == "tiny.gguf:");
}
