// Ids against the references: published vocabularies with their inputs and outputs, and the two real models.
#include <corbel/chat.hpp>
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/json.hpp>
#include <corbel/tokenizer.hpp>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/support.hpp"
#include "support/tiny_vocabulary.hpp"

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
    if (name != "bert-bge") CHECK(tokenizer.decode(ids).value() == text);  // which lowercases and splits
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
  for (const char* name : {"gpt-2", "starcoder", "deepseek-coder", "llama-spm", "phi-3", "bert-bge"}) {
    check_vocabulary(name);
  }
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

TEST_CASE("CH-07, CH-09: every published chat template: message content spells no control token, and BOS comes once",
          "[tokenizer][template][golden]") {
  const std::string folder = corbel_test::shared_data("templates", "control tokens in message content");
  if (folder.empty()) return;
  std::size_t count = 0;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  for (const std::filesystem::path& path : paths) {
    CAPTURE(path.stem().string());
    const std::string source = corbel_test::read_file(path.string());
    std::filesystem::path cases = path;
    const corbel::json::Value list =
        corbel::json::parse(corbel_test::read_file(cases.replace_extension(".json").string())).value();
    const auto text_of = [&](std::string_view key) {
      const corbel::json::Value* value = list.items()[0].find(key);
      return value == nullptr ? std::string() : std::string(value->as_string());
    };
    const std::string bos = text_of("bos_token");
    // A vocabulary in which everything in brackets is a control token.
    corbel_test::Spec spec = corbel_test::byte_level();
    std::set<std::string> controls = {"<|hostile|>", "[HOSTILE]"};
    if (!bos.empty()) controls.insert(bos);
    if (!text_of("eos_token").empty()) controls.insert(text_of("eos_token"));
    for (const auto& [open, close] : {std::pair('<', '>'), std::pair('[', ']')}) {
      for (std::size_t at = source.find(open); at != std::string::npos; at = source.find(open, at + 1)) {
        const std::size_t end = source.find(close, at);
        if (end == std::string::npos || end - at < 3 || end - at > 40) continue;
        const std::string piece = source.substr(at, end - at + 1);
        if (piece.find_first_of(" \n\t'\"+{}") == std::string::npos) controls.insert(piece);
      }
    }
    std::string hostile = "QQ";
    for (const std::string& piece : controls) {
      spec.add(piece, corbel_test::kControl);
      hostile += piece + "QQ";
    }
    corbel::Metadata metadata = spec.metadata();
    const corbel::Tokenizer plain = corbel::Tokenizer::from_metadata(metadata).value();
    if (!bos.empty()) {
      metadata.set("tokenizer.ggml.bos_token_id",
                   corbel::MetaValue::from_uint(static_cast<std::uint64_t>(plain.find(bos))));
      metadata.set("tokenizer.ggml.add_bos_token", corbel::MetaValue::from_bool(true));
    }
    const corbel::Tokenizer tokenizer = corbel::Tokenizer::from_metadata(metadata).value();
    const corbel::ChatTemplate chat = corbel::ChatTemplate::compile(source, bos, text_of("eos_token")).value();
    const std::vector<corbel::Message> messages = {
        {"user", hostile}, {"assistant", "a" + hostile}, {"user", "b" + hostile + " c"}};
    corbel::RenderOptions options;
    options.now = 1767312000;
    const auto rendered = chat.render(messages, options);
    CAPTURE(rendered.ok() ? std::string() : std::string(rendered.status().message()));
    REQUIRE(rendered.ok());
    std::vector<corbel::PromptSegment> quiet = *rendered;
    std::size_t contents = 0;
    for (corbel::PromptSegment& segment : quiet) {
      if (!segment.is_content) {
        CHECK(segment.text.find("QQ") == std::string::npos);
        continue;
      }
      contents += segment.text.find("QQ") != std::string::npos ? 1u : 0u;
      segment.text = "x";
    }
    CHECK(contents >= 2);
    const auto controls_in = [&](const std::vector<corbel::PromptSegment>& segments) {
      std::vector<TokenId> found;
      for (const TokenId id : tokenizer.encode(segments).value()) {
        if (tokenizer.is_control(id)) found.push_back(id);
      }
      return found;
    };
    const std::vector<TokenId> found = controls_in(*rendered);
    CHECK(found == controls_in(quiet));
    if (!bos.empty()) {
      const bool starts = corbel::join(*rendered).substr(0, bos.size()) == bos;
      CHECK(std::count(found.begin(), found.end(), tokenizer.bos()) >= (starts ? 1 : 0));
      const std::vector<TokenId> ids = tokenizer.encode(*rendered).value();
      CHECK((ids.size() < 2 || ids[0] != tokenizer.bos() || ids[1] != tokenizer.bos()));
      CHECK((ids[0] == tokenizer.bos()) == starts);
    }
    ++count;
  }
  std::printf("control tokens in message content: %zu templates\n", count);
  CHECK(count >= 25);
}

TEST_CASE("TOK-01, TOK-05: Llama 2: spaces and special pieces", "[tokenizer][golden]") {
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
  CHECK(encode("  Hello") == Ids{259, 15043});
  CHECK(encode("   Hello") == Ids{1678, 15043});
  CHECK(encode("    Hello") == Ids{268, 15043});
  CHECK(encode("Hello world") == Ids{15043, 3186});
  CHECK(encode(" Hello world") == Ids{29871, 15043, 3186});
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
