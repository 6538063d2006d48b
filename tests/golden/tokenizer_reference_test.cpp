// Ids against the references: published vocabularies with their inputs and outputs, and the two real models.
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/json.hpp>
#include <corbel/tokenizer.hpp>

#include <catch2/catch.hpp>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "support/support.hpp"

using corbel::TokenId;

namespace {

corbel::Tokenizer open_tokenizer(const std::string& path) {
  corbel::Context context;
  corbel::OpenOptions options;
  options.map = true;
  return corbel::Tokenizer::from_checkpoint(corbel::Checkpoint::open(path, context, options).value()).value();
}

std::string from_hex(std::string_view hex) {
  std::string out;
  for (std::size_t at = 0; at + 1 < hex.size(); at += 2) {
    out += static_cast<char>(std::stoi(std::string(hex.substr(at, 2)), nullptr, 16));
  }
  return out;
}

std::vector<TokenId> ids_of(const corbel::json::Value& list) {
  std::vector<TokenId> ids;
  for (const corbel::json::Value& id : list.items()) ids.push_back(static_cast<TokenId>(id.as_int()));
  return ids;
}

std::vector<corbel::json::Value> read_lines(const std::string& path) {
  std::vector<corbel::json::Value> lines;
  std::istringstream in(corbel_test::read_file(path));
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) lines.push_back(corbel::json::parse(line).value());
  }
  return lines;
}

bool flag(const corbel::json::Value& line, std::string_view key, bool fallback) {
  const corbel::json::Value* value = line.find(key);
  return value == nullptr ? fallback : value->as_bool();
}

// Inputs are separated by a marker line, outputs are one line of ids each.
void check_vocabulary(const std::string& name) {
  const std::string path =
      corbel_test::shared_data("vocab/ggml-vocab-" + name + ".gguf", "tokenizer vocabulary " + name);
  if (path.empty()) return;
  const corbel::Tokenizer tokenizer = open_tokenizer(path);
  static const std::string kMarker = "\n__ggml_vocab_test__\n";
  const std::string inputs = corbel_test::read_file(path + ".inp");
  std::istringstream outputs(corbel_test::read_file(path + ".out"));
  std::size_t count = 0;
  for (std::size_t begin = 0; begin < inputs.size(); ++count) {
    const std::size_t end = inputs.find(kMarker, begin);
    if (end == std::string::npos) break;
    const std::string text = inputs.substr(begin, end - begin);
    begin = end + kMarker.size();
    std::string line;
    REQUIRE(std::getline(outputs, line));
    std::istringstream numbers(line);
    std::vector<TokenId> expected;
    for (TokenId id = 0; numbers >> id;) expected.push_back(id);
    CAPTURE(name, text);
    const std::vector<TokenId> ids = tokenizer.encode(text).value();
    CHECK(ids == expected);
    CHECK(tokenizer.decode(ids).value() == text);
  }
  std::printf("tokenizer %s: %zu strings\n", name.c_str(), count);
  CHECK(count == 46);
}

struct Counts {
  std::size_t exact = 0;
  std::size_t round_trips = 0;
  std::size_t invalid_exact = 0;
  std::size_t invalid_other = 0;
};

Counts check_model(const std::string& model) {
  Counts counts;
  const std::string test = "tokenizer reference " + model;
  const std::string path = corbel_test::real_model(model, test);
  const std::string lines = corbel_test::shared_data("tokenizer/" + model + ".jsonl", test);
  if (path.empty() || lines.empty()) return counts;
  const corbel::Tokenizer tokenizer = open_tokenizer(path);
  for (const corbel::json::Value& line : read_lines(lines)) {
    corbel::EncodeOptions options;
    options.parse_special = flag(line, "parse_special", false);
    options.add_special = flag(line, "add_special", false);
    const corbel::json::Value* hex = line.find("hex");
    const std::string text = hex != nullptr ? from_hex(hex->as_string()) : std::string(line.find("text")->as_string());
    CAPTURE(corbel::json::write(line));
    const std::vector<TokenId> ids = tokenizer.encode(text, options).value();
    for (const TokenId id : ids) CHECK((id >= 0 && static_cast<std::size_t>(id) < tokenizer.size()));
    if (hex != nullptr && flag(line, "informative_only", false)) {
      ++counts.invalid_other;
      continue;
    }
    CHECK(ids == ids_of(*line.find("ids")));
    ++(hex != nullptr ? counts.invalid_exact : counts.exact);
    const bool bos = options.add_special && tokenizer.adds_bos();
    const std::span<const TokenId> body = std::span(ids).subspan(bos ? 1 : 0);
    corbel::DecodeOptions decode;
    decode.special = true;
    const std::string back = tokenizer.decode(body, decode).value();
    if (hex != nullptr) {
      CHECK(back == from_hex(line.find("detok_hex")->as_string()));
    } else if (flag(line, "roundtrip", true)) {
      CHECK(back == text);
      ++counts.round_trips;
    }
  }
  std::printf("tokenizer %s: %zu strings exact, %zu round trips, %zu invalid texts exact, %zu in range\n",
              model.c_str(), counts.exact, counts.round_trips, counts.invalid_exact, counts.invalid_other);

  const std::string disagreements = corbel_test::shared_data("tokenizer/" + model + "_disagreements.jsonl", test);
  std::size_t settled = 0;
  for (const corbel::json::Value& line : read_lines(disagreements)) {
    corbel::EncodeOptions options;
    options.parse_special = flag(line, "parse_special", false);
    options.add_special = flag(line, "add_special", false);
    CAPTURE(corbel::json::write(line));
    const std::vector<TokenId> ids = tokenizer.encode(line.find("text")->as_string(), options).value();
    CHECK(ids == ids_of(*line.find(line.find("right")->as_string())));
    ++settled;
  }
  std::printf("tokenizer %s: %zu disagreements settled\n", model.c_str(), settled);
  CHECK(settled == (model == "smollm2" ? 28 : 5));
  return counts;
}

}  // namespace

TEST_CASE("published vocabularies: every string has the reference's ids and comes back", "[tokenizer][golden]") {
  for (const char* name : {"gpt-2", "starcoder", "deepseek-coder", "llama-spm", "phi-3"}) check_vocabulary(name);
}

TEST_CASE("SmolLM2: every string of the reference", "[tokenizer][golden]") {
  const Counts counts = check_model("smollm2");
  if (counts.exact == 0) return;
  CHECK(counts.exact == 560);
  CHECK(counts.round_trips == 559);
  CHECK(counts.invalid_exact == 17);
  CHECK(counts.invalid_other == 5);
}

TEST_CASE("Gemma 3: every string of the reference", "[tokenizer][golden]") {
  const Counts counts = check_model("gemma3");
  if (counts.exact == 0) return;
  CHECK(counts.exact == 568);
  CHECK(counts.round_trips == 567);
  CHECK(counts.invalid_exact == 20);
  CHECK(counts.invalid_other == 2);
}

TEST_CASE("Llama 2: spaces and special pieces", "[tokenizer][golden]") {
  const std::string path = corbel_test::shared_data("vocab/ggml-vocab-llama-spm.gguf", "tokenizer spaces");
  if (path.empty()) return;
  const corbel::Tokenizer tokenizer = open_tokenizer(path);
  const auto encode = [&](std::string_view text, bool special = false) {
    corbel::EncodeOptions options;
    options.parse_special = special;
    return tokenizer.encode(text, options).value();
  };
  using Ids = std::vector<TokenId>;
  CHECK(encode("Hello") == Ids{15043});
  CHECK(encode(" Hello") == Ids{29871, 15043});
  CHECK(encode("    Hello") == Ids{268, 15043});
  CHECK(encode("Hello world") == Ids{15043, 3186});
  corbel::EncodeOptions with_bos;
  with_bos.add_special = true;
  CHECK(tokenizer.encode("This is \xF0\x9F\xA6\x99.cpp", with_bos).value() ==
        Ids{1, 910, 338, 29871, 243, 162, 169, 156, 29889, 8223});
  // After a special piece a word starts as at the beginning; a space of its own is one more.
  CHECK(encode("Hello</s>Hello", true) == Ids{15043, 2, 15043});
  CHECK(encode("Hello</s> Hello", true) == Ids{15043, 2, 29871, 15043});
  corbel::DecodeOptions special;
  special.special = true;
  for (const char* text : {"Hello</s>Hello", "Hello</s> Hello", " </s>  x", "<s></s>", "a<s>b"}) {
    CHECK(tokenizer.decode(encode(text, true), special).value() == text);
  }
  const Ids plain = encode("<s>Hello</s>");
  for (const TokenId id : plain) CHECK_FALSE(tokenizer.is_control(id));
  CHECK(tokenizer.decode(plain).value() == "<s>Hello</s>");
}
