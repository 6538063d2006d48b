// convert: what becomes of a Hugging Face folder, its documents and its numbers, and what comes back of them.
#include "support/convert_folder.hpp"

#include <corbel/chat.hpp>
#include <corbel/checkpoint/generation_defaults.hpp>
#include <corbel/checkpoint/gguf_writer.hpp>
#include <corbel/models/convert.hpp>
#include <corbel/models/model_spec.hpp>
#include <corbel/tokenizer.hpp>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/support.hpp"

namespace fs = std::filesystem;
using corbel::Checkpoint;
using corbel::Context;
using corbel::DType;
using corbel::Errc;
using corbel::TensorInfo;
using corbel::models::convert;
using corbel_test::values_of;
using corbel_test::Work;
using corbel_test::write_folder;

using corbel_test::kDim;
using corbel_test::kHeads;
using corbel_test::kHidden;
using corbel_test::kVocab;

TEST_CASE("convert: a Hugging Face folder becomes a GGUF file of the same model") {
  const Context context;
  const Work work;
  write_folder(work / "hf", "");
  const Checkpoint source = Checkpoint::open(work / "hf", context).value();
  REQUIRE(convert(source, work / "m.gguf").ok());
  const Checkpoint written = Checkpoint::open(work / "m.gguf", context).value();
  CHECK(written.tensors().size() == source.tensors().size());
  CHECK(*written.metadata().get_string("general.architecture") == "llama");
  CHECK(*written.metadata().get_string("general.name") == "hf");
  CHECK(*written.metadata().get_uint("llama.attention.head_count_kv") == 1);
  CHECK(values_of(written, "blk.0.ffn_down.weight") == values_of(source, "model.layers.0.mlp.down_proj.weight"));
  // Row j and row j + 8 of each head of queries and keys come together.
  const std::vector<float> q = values_of(source, "model.layers.0.self_attn.q_proj.weight");
  const std::vector<float> turned = values_of(written, "blk.0.attn_q.weight");
  for (std::uint64_t head = 0; head < kHeads; ++head) {
    for (std::uint64_t j = 0; j < kDim; ++j) {
      const std::uint64_t from = head * kDim + j / 2 + (j % 2) * (kDim / 2), to = head * kDim + j;
      for (std::uint64_t c = 0; c < kHidden; ++c) REQUIRE(turned[to * kHidden + c] == q[from * kHidden + c]);
    }
  }
  const auto a = corbel::models::read_model_spec(source);
  const auto b = corbel::models::read_model_spec(written);
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK(a->ropes[0].inverse_frequencies == b->ropes[0].inverse_frequencies);
  CHECK(a->attention_scale == b->attention_scale);
}

TEST_CASE("convert: types change for matrices, and vectors stay exact") {
  const Context context;
  const Work work;
  write_folder(work / "hf", "");
  const Checkpoint source = Checkpoint::open(work / "hf", context).value();
  std::string said;
  corbel::models::ConvertOptions options;
  options.type = DType::kQ8_0;
  options.say = [&](std::string_view line) { said.append(line).append("\n"); };
  std::uint64_t done = 0, total = 0;
  options.progress = [&](std::uint64_t d, std::uint64_t t) { return done = d, total = t, true; };
  REQUIRE(convert(source, work / "q8.gguf", options).ok());
  CHECK(done == total);
  CHECK(said.empty());  // vectors had the type already
  const Checkpoint written = Checkpoint::open(work / "q8.gguf", context).value();
  CHECK(*written.metadata().get_uint("general.file_type") == 7);
  CHECK(written.find_tensor("blk.0.ffn_up.weight")->dtype == DType::kQ8_0);
  CHECK(written.find_tensor("output_norm.weight")->dtype == DType::kF32);
  CHECK(values_of(written, "output_norm.weight") == values_of(source, "model.norm.weight"));
  const std::vector<float> before = values_of(source, "model.layers.0.mlp.up_proj.weight");
  const std::vector<float> after = values_of(written, "blk.0.ffn_up.weight");
  for (std::size_t i = 0; i < before.size(); ++i) REQUIRE(std::abs(before[i] - after[i]) < 0.01f);
  // Rows of 32 values fit no block of 256: they stay.
  options.type = DType::kQ4_K;
  REQUIRE(convert(source, work / "q4k.gguf", options).ok());
  CHECK(Checkpoint::open(work / "q4k.gguf", context)->find_tensor("blk.0.ffn_up.weight")->dtype == DType::kF32);
  // One line for all of them (QN-03).
  CHECK(said ==
        "9 tensors cannot become Q4_K, whose blocks take 256 values of a row, and keep the type: F32, such as "
        "\"token_embd.weight\" with rows of 32\n");
  said.clear();
  options.type = DType::kQ8_0;
  CHECK(convert(source, work / "x.safetensors", options).code() == Errc::kUnsupported);
  // Two types, and vectors of another one.
  options.type = DType::kBF16;
  REQUIRE(convert(source, work / "bf16", options).ok());
  const Checkpoint halves = Checkpoint::open(work / "bf16", context).value();
  corbel::SafetensorsWriter mixed;
  for (const TensorInfo& tensor : halves.tensors()) {
    const std::vector<float> values = values_of(halves, tensor.name);
    const bool half = tensor.name.find("norm") != std::string::npos || tensor.name.find("mlp") == std::string::npos;
    const corbel::DTypeTraits& type = corbel::traits(half ? DType::kBF16 : DType::kF32);
    std::vector<std::byte> bytes(values.size() * type.block_bytes);
    type.encode(values.data(), bytes.data(), values.size());
    REQUIRE(mixed.add_tensor(tensor.name, tensor.shape, type.name, std::move(bytes)).ok());
  }
  REQUIRE(mixed.write_file(work / "bf16/model.safetensors").ok());
  said.clear();
  options.type = DType::kQ4_K;
  REQUIRE(convert(Checkpoint::open(work / "bf16", context).value(), work / "mixed.gguf", options).ok());
  CHECK(said.find("9 tensors cannot become Q4_K") == 0);
  CHECK(said.find("keep the type: BF16 (6) and F32 (3), such as") != std::string::npos);
  CHECK(said.find("\n3 vector or router weights of type BF16 became F32, such as \"") != std::string::npos);
  CHECK(std::count(said.begin(), said.end(), '\n') == 2);
  said.clear();
  options.type = DType::kF16;
  REQUIRE(convert(Checkpoint::open(work / "bf16", context).value(), work / "f16", options).ok());
  CHECK(said.find("3 vector or router weights of type BF16 became F32, such as \"") == 0);
  CHECK(std::count(said.begin(), said.end(), '\n') == 1);
  // From GGUF and back to a container that lacks the type.
  said.clear();
  options.type = std::nullopt;
  REQUIRE(convert(written, work / "back.safetensors", options).ok());
  CHECK(said.find("9 tensors of type Q8_0 became F32, since the new container does not have it, such as \"") !=
        std::string::npos);
  const Checkpoint back = Checkpoint::open(work / "back.safetensors", context).value();
  CHECK(values_of(back, "blk.0.ffn_up.weight") == after);
  CHECK(*back.metadata().get_string("llama.block_count") == "1");
  REQUIRE(convert(written, work / "again.gguf").ok());
  CHECK(corbel_test::read_file(work / "again.gguf") == corbel_test::read_file(work / "q8.gguf"));
}

TEST_CASE("convert: a folder becomes a folder") {
  const Context context;
  const Work work;
  write_folder(work / "hf", R"(,"eos_token_id":2)");
  const Checkpoint source = Checkpoint::open(work / "hf", context).value();
  corbel::models::ConvertOptions options;
  options.type = DType::kBF16;
  REQUIRE(convert(source, work / "bf16/", options).ok());
  const Checkpoint written = Checkpoint::open(work / "bf16", context).value();
  CHECK(written.find_tensor("lm_head.weight")->dtype == DType::kBF16);
  CHECK(written.find_tensor("model.norm.weight")->dtype == DType::kF32);
  CHECK(written.config()->find("torch_dtype")->as_string() == "bfloat16");
  CHECK(written.config()->find("eos_token_id")->as_uint() == 2);
  // A name with a dot is a folder too, and a file of weights alone says what it does not have.
  REQUIRE(convert(source, work / "Model-1.5").ok());
  CHECK(fs::is_directory(work / "Model-1.5"));
  std::string said;
  options.say = [&](std::string_view line) { said += line; };
  std::ofstream(work / "alone.safetensors") << "old";
  REQUIRE(convert(source, work / "alone.safetensors", options).ok());
  CHECK(said.find("has no config.json") != std::string::npos);
  CHECK(Checkpoint::open(work / "alone.safetensors", context)->tensors().size() == source.tensors().size());
}

TEST_CASE("convert: what a file does not get of a folder is said") {
  const Context context;
  const Work work;
  // Ids that are no token, a layer behind the last, and a tokenizer that is not read.
  write_folder(work / "hf", R"(,"eos_token_id":[2,99])");
  std::ofstream(work / "hf/tokenizer.model") << "x";
  const Checkpoint before = Checkpoint::open(work / "hf", context).value();
  corbel::SafetensorsWriter writer;
  for (const TensorInfo& tensor : before.tensors()) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
    REQUIRE(before.read(tensor, 0, bytes).ok());
    REQUIRE(writer.add_tensor(tensor.name, tensor.shape, "F32", std::move(bytes)).ok());
  }
  REQUIRE(writer.add_tensor("model.layers.1.self_attn.q_proj.weight", {{1}}, "F32", std::vector<std::byte>(4)).ok());
  REQUIRE(writer.write_file(work / "hf/model.safetensors").ok());
  std::vector<std::string> said;
  corbel::models::ConvertOptions options;
  options.say = [&](std::string_view line) { said.emplace_back(line); };
  REQUIRE(convert(Checkpoint::open(work / "hf", context).value(), work / "m.gguf", options).ok());
  CHECK(said ==
        std::vector<std::string>{"the tokenizer is left out: tokenizer.model is not read without tokenizer.json",
                                 "config.json: eos_token_id: 99 is no token of a vocabulary of 8 and is left out",
                                 "1 tensors that the model does not use are left out, the first is "
                                 "model.layers.1.self_attn.q_proj.weight"});
  CHECK(Checkpoint::open(work / "m.gguf", context)->metadata().get_uint("tokenizer.ggml.eos_token_id").value() == 2);
}

TEST_CASE("convert: what cannot be written is refused, and nothing is left") {
  const Context context;
  const Work work;
  write_folder(work / "hf", "");
  const Checkpoint source = Checkpoint::open(work / "hf", context).value();
  const std::size_t before = work.entries();
  corbel::models::ConvertOptions options;
  CHECK(convert(source, work / "hf").code() == Errc::kInvalidArgument);
  CHECK(convert(source, work / "hf/model.safetensors").code() == Errc::kInvalidArgument);
  fs::create_symlink("hf", work / "link");
  fs::create_hard_link(work / "hf/model.safetensors", work / "second.safetensors");
  CHECK(convert(source, work / "link").code() == Errc::kInvalidArgument);
  CHECK(convert(source, work / "second.safetensors").code() == Errc::kInvalidArgument);
  CHECK(convert(source, work / "second.safetensors").message().find("output is the input") != std::string_view::npos);
  fs::remove(work / "link");
  fs::remove(work / "second.safetensors");
  for (const char* name : {"m.txt", "m.bin", "m.PT", "config.json"}) {
    const corbel::Status other = convert(source, work / name);
    CHECK(other.code() == Errc::kInvalidArgument);
    CHECK(other.message().find("are not written") != std::string_view::npos);
  }
  CHECK(convert(source, work / "none/m.gguf").code() == Errc::kIoOpen);
  options.type = DType::kIQ1_S;
  CHECK(convert(source, work / "m.gguf", options).code() == Errc::kUnsupported);
  options.type = std::nullopt;
  options.progress = [](std::uint64_t, std::uint64_t) { return false; };
  CHECK(convert(source, work / "m.gguf", options).code() == Errc::kCancelled);
  CHECK(convert(source, work / "folder", options).code() == Errc::kCancelled);
  CHECK(work.entries() == before);
  // GGUF files of Llama have no windows: the message says what is lost.
  fs::remove_all(work / "hf");
  write_folder(work / "hf", R"(,"sliding_window":16)");
  std::string config = corbel_test::read_file(work / "hf/config.json");
  config.replace(config.find("llama"), 5, "mistral");
  std::ofstream(work / "hf/config.json", std::ios::trunc) << config;
  const corbel::Status status = convert(Checkpoint::open(work / "hf", context).value(), work / "m.gguf");
  CHECK(status.code() == Errc::kUnsupported);
  CHECK(status.message().find("layer 0: its window") != std::string_view::npos);
  CHECK(work.entries() == before);
}

TEST_CASE("convert: golden folders become the files of the converter that is in use") {
  const Context context;
  const Work work;
  const std::string root = corbel_test::shared_data("golden/given", "convert: golden folders");
  if (root.empty()) return;
  std::size_t compared = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (!fs::exists(entry.path() / "model.gguf")) continue;
    CAPTURE(name);
    const Checkpoint source = Checkpoint::open(entry.path().string(), context).value();
    const corbel::Status status = convert(source, work / (name + ".gguf"));
    if (name == "gpt2-hubnames" || status.code() == Errc::kUnsupported) {
      corbel_test::skip("convert: " + name, status.message());
      continue;
    }
    INFO(std::string(status.message()));
    REQUIRE(status.ok());
    const Checkpoint ours = Checkpoint::open(work / (name + ".gguf"), context).value();
    const Checkpoint theirs = Checkpoint::open((entry.path() / "model.gguf").string(), context).value();
    for (const TensorInfo& tensor : theirs.tensors()) {
      if (tensor.name.find("attn_k_b") != std::string::npos || tensor.name.find("attn_v_b") != std::string::npos)
        continue;
      CAPTURE(tensor.name);
      const TensorInfo* own = ours.find_tensor(tensor.name);
      REQUIRE(own != nullptr);
      CHECK(own->shape == tensor.shape);
      CHECK(own->dtype == tensor.dtype);
      const std::vector<float> a = ours.read_f32(*own).value(), b = theirs.read_f32(tensor).value();
      REQUIRE(a.size() == b.size());
      // Rope factors are quotients that may differ in the last bit; everything else is moved, not computed.
      const float tolerance = tensor.name.rfind("rope_", 0) == 0 ? 1e-5f : 0.0f;
      for (std::size_t i = 0; i < a.size(); ++i) REQUIRE(std::abs(a[i] - b[i]) <= tolerance * std::abs(b[i]));
    }
    ++compared;
  }
  CHECK(compared >= 12);
}

TEST_CASE("convert: keys and names are those of each family's own files") {
  const Context context;
  const Work work;
  struct Family {
    const char* folder;
    const char* key;     // that the file has
    const char* tensor;  // that the file has
    const char* absent;  // a tensor that it does not have
  };
  constexpr Family kFamilies[] = {
      {"ministral3", "mistral3.attention.temperature_scale", "blk.0.ffn_norm.weight", "output.bias"},
      {"olmo3", "olmo2.attention.sliding_window_pattern", "blk.0.post_ffw_norm.weight", "blk.0.attn_norm.weight"},
      {"seed-oss", "seed_oss.rope.freq_base", "blk.0.post_attention_norm.weight", "blk.0.ffn_norm.weight"},
      {"granite", "granite.residual_scale", "blk.0.ffn_norm.weight", "output.bias"},
      {"phi-tied", "phi2.rope.dimension_count", "output.bias", "output.weight"},
  };
  for (const Family& family : kFamilies) {
    CAPTURE(family.folder);
    const Checkpoint source = Checkpoint::open(corbel_test::test_data("golden/") + family.folder, context).value();
    const std::string path = work / (std::string(family.folder) + ".gguf");
    const corbel::Status status = convert(source, path);
    INFO(std::string(status.message()));
    REQUIRE(status.ok());
    const Checkpoint written = Checkpoint::open(path, context).value();
    CHECK(written.metadata().find(family.key) != nullptr);
    CHECK(written.find_tensor(family.tensor) != nullptr);
    CHECK(written.find_tensor(family.absent) == nullptr);
  }
}

namespace {

// A tokenizer of the model that write_folder() makes.
std::string tokenizer_json(const std::string& cutter, const std::string& model) {
  return R"({"added_tokens":[{"id":0,"content":"<s>","special":true},{"id":1,"content":"</s>","special":true}],)"
         R"("pre_tokenizer":)" +
         cutter + R"(,"decoder":null,"model":)" + model + "}";
}
const std::string kWords = tokenizer_json(
    R"({"type":"Whitespace"})",
    R"({"type":"WordLevel","unk_token":"?","vocab":{"<s>":0,"</s>":1,"?":2,"a":3,"b":4,"c":5,"d":6,"e":7}})");

void write_text(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::trunc) << text;
}

// The folder, the GGUF file made from it, the folder made from that, and the file made from this one.
std::vector<Checkpoint> there_and_back(const Work& work, const Context& context) {
  fs::remove_all(work / "back");
  std::vector<Checkpoint> all = {Checkpoint::open(work / "hf", context).value()};
  for (const char* name : {"m.gguf", "back", "again.gguf"}) {
    std::string said;
    corbel::models::ConvertOptions options;
    options.say = [&](std::string_view line) { said += line; };
    const corbel::Status status = convert(all.back(), work / name, options);
    CAPTURE(name, std::string(status.message()));
    REQUIRE(status.ok());
    CHECK(said.find("left out") == std::string::npos);
    all.push_back(Checkpoint::open(work / name, context).value());
  }
  return all;
}

}  // namespace

TEST_CASE("convert: what config.json has besides goes along unread") {
  const Context context;
  const Work work;
  write_folder(work / "hf", R"(,"initializer_range":0.02,"use_cache":true,"transformers_version":"5.0","own":[1,"x"],)"
                            R"("temperature":0.5,"trust_remote_code":true,"auto_map":{"AutoModel":"code.Model"})");
  const Checkpoint written = there_and_back(work, context)[2];
  const corbel::json::Value* config = written.config();
  REQUIRE(config->find("initializer_range") != nullptr);
  CHECK(config->find("initializer_range")->as_double() == 0.02);
  REQUIRE(config->find("use_cache") != nullptr);
  CHECK(config->find("use_cache")->as_bool());
  REQUIRE(config->find("own") != nullptr);
  CHECK(corbel::json::write(*config->find("own")) == R"([1,"x"])");
  REQUIRE(config->find("transformers_version") != nullptr);
  for (const char* never : {"trust_remote_code", "auto_map", "temperature"}) CHECK(config->find(never) == nullptr);
  // A file may say anything.
  corbel::GgufWriter writer(3);
  const Checkpoint source = Checkpoint::open(work / "m.gguf", context).value();
  writer.metadata() = source.metadata();
  for (const TensorInfo& tensor : source.tensors())
    REQUIRE(writer.add_f32(tensor.name, tensor.shape, values_of(source, tensor.name)).ok());
  for (const auto& [text, code] : {std::pair("{", Errc::kBadJson), std::pair("[1]", Errc::kOk),
                                   std::pair(R"({"hidden_size":7,"auto_map":"x"})", Errc::kOk)}) {
    CAPTURE(text);
    writer.metadata().set("corbel.config", corbel::MetaValue::from_string(text));
    const std::vector<std::byte> bytes = writer.to_bytes().value();
    fs::remove_all(work / "any");
    CHECK(convert(Checkpoint::from_memory(bytes, context, {}, "m").value(), work / "any").code() == code);
    if (code != Errc::kOk) continue;
    const Checkpoint any = Checkpoint::open(work / "any", context).value();
    CHECK(any.config()->find("hidden_size")->as_uint() == 32);
    CHECK(any.config()->find("auto_map") == nullptr);
  }
}

TEST_CASE("convert: chat templates go with the model") {
  const Context context;
  const Work work;
  const std::string text = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}";
  using Files = std::vector<std::pair<std::string, std::string>>;
  struct Case {
    Files files;
    std::vector<std::pair<std::string, std::string>> templates;  // names and texts
  };
  const Case cases[] = {
      {{}, {}},
      {{{"chat_template.jinja", text}}, {{"default", text}}},
      {{{"chat_template.json", R"({"chat_template":"plain"})"}}, {{"default", "plain"}}},
      {{{"tokenizer_config.json", R"({"bos_token":"<s>","chat_template":"one"})"}}, {{"default", "one"}}},
      {{{"tokenizer_config.json",
         R"({"chat_template":[{"name":"tool_use","template":"t"},{"name":"default","template":"d"}]})"}},
       {{"default", "d"}, {"tool_use", "t"}}},
      {{{"chat_template.jinja", text},
        {"additional_chat_templates/rag.jinja", "r"},
        {"additional_chat_templates/tool-use.jinja", "t"}},
       {{"default", text}, {"rag", "r"}, {"tool-use", "t"}}},
  };
  for (const bool with_tokenizer : {true, false}) {
    for (const Case& one : cases) {
      fs::remove_all(work / "hf");
      write_folder(work / "hf", "");
      if (with_tokenizer) write_text(work / "hf/tokenizer.json", kWords);
      for (const auto& [name, content] : one.files) write_text(work / ("hf/" + name), content);
      const std::vector<Checkpoint> all = there_and_back(work, context);
      for (const Checkpoint& checkpoint : all) {
        CAPTURE(with_tokenizer, checkpoint.name());
        std::vector<std::pair<std::string, std::string>> found;
        for (const corbel::NamedTemplate& each : corbel::read_chat_templates(checkpoint).value())
          found.emplace_back(each.name, each.source);
        CHECK(found == one.templates);
      }
      const corbel::MetaValue* names = all[1].metadata().find("tokenizer.chat_templates");
      CHECK((names == nullptr ? 0 : names->size()) == (one.templates.size() < 2 ? 0 : one.templates.size() - 1));
    }
  }
  // The prompt, with the tokens of the tokenizer.
  write_text(work / "hf/tokenizer.json", kWords);
  write_text(work / "hf/tokenizer_config.json", R"({"bos_token":"<s>","eos_token":"</s>"})");
  const corbel::Message message = {"user", "a b"};
  for (const Checkpoint& checkpoint : there_and_back(work, context)) {
    CAPTURE(checkpoint.name());
    const corbel::Tokenizer tokenizer = corbel::Tokenizer::from_checkpoint(checkpoint).value();
    const auto chat = corbel::ChatTemplate::from_checkpoint(checkpoint, tokenizer).value();
    CHECK(corbel::join(chat.render({&message, 1}).value()) == "<s>[user] a b");
  }
}

TEST_CASE("convert: tokenizers without a form of their own in GGUF are kept") {
  const Context context({.threads = 1});
  const Work work;
  struct Case {
    std::string json;
    const char* model;  // tokenizer.ggml.model
    const char* pre;
    std::vector<corbel::TokenId> ids;  // of "ab 1"
  };
  const std::string pieces = R"({"type":"BPE","merges":["a b"],"ignore_merges":false,)"
                             R"("vocab":{"<s>":0,"</s>":1,"a":2,"b":3,"ab":4,"\u0120":5,"1":6,"2":7}})";
  const std::string spelled = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  const std::string number = R"({"type":"Split","pattern":{"Regex":"\\p{N}"},"behavior":"Isolated","invert":false})";
  const std::string gpt2 =
      R"({"type":"Split","pattern":{"Regex":"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+)"
      R"(|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false})";
  const auto sequence = [](const std::string& steps) {
    return R"({"type":"Sequence","pretokenizers":[)" + steps + "]}";
  };
  // Not every byte has a piece, as in published vocabularies.
  const Case cases[] = {
      {kWords, "none", "", {2, 2}},
      {tokenizer_json(sequence(number + "," + gpt2 + "," + spelled), pieces), "gpt2", "smollm", {4, 5, 6}},
      {tokenizer_json(sequence(gpt2 + "," + spelled), pieces), "gpt2", "gpt-2", {4, 5, 6}},
  };
  for (const Case& one : cases) {
    fs::remove_all(work / "hf");
    write_folder(work / "hf", "");
    write_text(work / "hf/tokenizer.json", one.json);
    write_text(work / "hf/tokenizer_config.json", R"({"bos_token":"<s>","eos_token":"</s>"})");
    const std::vector<Checkpoint> all = there_and_back(work, context);
    for (const std::size_t file : {1u, 3u}) {
      CHECK(all[file].metadata().get_string("tokenizer.ggml.model").value() == one.model);
      CHECK(all[file].metadata().get_string_or("tokenizer.ggml.pre", "").value() == one.pre);
    }
    CHECK(all[2].document("tokenizer.json").value() == one.json);
    for (const Checkpoint& checkpoint : all) {
      CAPTURE(checkpoint.name(), one.model);
      const corbel::Tokenizer tokenizer = corbel::Tokenizer::from_checkpoint(checkpoint).value();
      REQUIRE(tokenizer.size() == kVocab);
      CHECK(tokenizer.encode("ab 1").value() == one.ids);
      CHECK(tokenizer.eos() == 1);
    }
  }
}

TEST_CASE("convert: how the authors sample goes with the model") {
  const Context context;
  const Work work;
  struct Case {
    const char* json;    // generation_config.json
    const char* config;  // more of config.json
    bool greedy;
  };
  const Case cases[] = {
      {R"({"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0.05,"repetition_penalty":1.1,)"
       R"("bos_token_id":0,"eos_token_id":[3,1],"pad_token_id":2})",
       "", false},
      {R"({"eos_token_id":[5,4,5],"bos_token_id":2})", R"(,"bos_token_id":1,"eos_token_id":1,"pad_token_id":3)", false},
      {R"({"bos_token_id":-1,"temperature":0.5})", R"(,"bos_token_id":4,"eos_token_id":[7,2],"pad_token_id":-1)",
       false},
      {"", R"(,"bos_token_id":4,"eos_token_id":[7,2],"pad_token_id":0)", false},
      {"", R"(,"bos_token_id":4,"eos_token_id":7)", false},
      {R"({"temperature":0.7,"top_k":4294967295})", "", false},
      {R"({"do_sample":false,"temperature":0.6,"eos_token_id":1})", "", true},
      {R"({"temperature":0.0})", "", true},
      {R"({"do_sample":false})", "", true},
      {"{}", R"(,"temperature":0.5,"do_sample":false,"eos_token_id":1)", true},
      {"{}", R"(,"temperature":0.5,"top_p":0.9,"eos_token_id":1)", false},
  };
  for (const bool with_tokenizer : {true, false}) {
    for (const Case& one : cases) {
      CAPTURE(one.json, one.config, with_tokenizer);
      fs::remove_all(work / "hf");
      write_folder(work / "hf", one.config);
      if (with_tokenizer) {
        write_text(work / "hf/tokenizer.json", kWords);
        write_text(work / "hf/tokenizer_config.json", R"({"bos_token":"<s>","eos_token":"</s>"})");
      }
      if (*one.json != '\0') write_text(work / "hf/generation_config.json", one.json);
      const std::vector<Checkpoint> all = there_and_back(work, context);
      const corbel::GenerationDefaults first = corbel::read_generation_defaults(all[0]).value();
      if (!with_tokenizer && !first.eos_ids.empty()) {  // as others read it
        CHECK(all[1].metadata().get_uint("tokenizer.ggml.eos_token_id").value() == first.eos_ids[0]);
        CHECK(all[2].config()->find("eos_token_id")->is_array() == (first.eos_ids.size() > 1));
      }
      const auto same = [](const std::optional<double>& a, const std::optional<double>& b) {
        return a.has_value() == b.has_value() && static_cast<float>(a.value_or(0)) == static_cast<float>(b.value_or(0));
      };
      for (const Checkpoint& checkpoint : all) {
        CAPTURE(checkpoint.name());
        const corbel::GenerationDefaults now = corbel::read_generation_defaults(checkpoint).value();
        CHECK((now.do_sample == false || now.temperature == 0.0) == one.greedy);
        if (!one.greedy) CHECK(same(now.temperature, first.temperature));
        CHECK(std::min(now.top_k.value_or(0), 0x7FFFFFFFu) == std::min(first.top_k.value_or(0), 0x7FFFFFFFu));
        CHECK(same(now.top_p, first.top_p));
        CHECK(same(now.min_p, first.min_p));
        CHECK(same(now.repetition_penalty, first.repetition_penalty));
        // What the folder does not name, its tokenizer may.
        if (!with_tokenizer || !first.eos_ids.empty()) CHECK(now.eos_ids == first.eos_ids);
        if (!with_tokenizer || first.bos_id) CHECK(now.bos_id == first.bos_id);
        CHECK(now.pad_id == first.pad_id);
        if (!one.greedy) CHECK(now.do_sample == first.do_sample);
      }
    }
  }
  // The document comes back as it was, with keys that are not ours.
  write_folder(work / "hf", "");
  const std::string whole =
      "{\"_from_model_config\": true, \"eos_token_id\": [5, 4], \"temperature\": 0.7, \"top_k\": 20,"
      " \"max_length\": 99, \"transformers_version\": \"5.0\"}\n";
  write_text(work / "hf/generation_config.json", whole);
  CHECK(there_and_back(work, context)[2].document("generation_config.json").value() == whole);
  // What others read, and what they may have changed.
  write_text(work / "hf/generation_config.json", cases[0].json);
  write_text(work / "hf/tokenizer.json", kWords);
  const Checkpoint written = there_and_back(work, context)[1];
  const auto number = [&](const char* key) { return static_cast<float>(written.metadata().get_float(key).value()); };
  CHECK(number("general.sampling.temp") == 0.6f);
  CHECK(number("general.sampling.top_p") == 0.95f);
  CHECK(number("general.sampling.min_p") == 0.05f);
  CHECK(number("general.sampling.penalty_repeat") == 1.1f);
  CHECK(written.metadata().get_uint("general.sampling.top_k").value() == 20);
  corbel::GgufWriter changed(3);
  changed.metadata() = written.metadata();
  changed.metadata().set("general.sampling.temp", corbel::MetaValue::from_float(0.25));
  const auto read = [&]() {
    const std::vector<std::byte> bytes = changed.to_bytes().value();
    return corbel::read_generation_defaults(Checkpoint::from_memory(bytes, context, {}, "m").value());
  };
  CHECK(read()->temperature == 0.25);
  CHECK(read()->top_k == 20u);
  changed.metadata().set("corbel.tokenizer.generation_config",
                         corbel::MetaValue::from_string(R"({"do_sample":false,"temperature":0.6,"top_k":20})"));
  const auto folder_of = [&]() {
    fs::remove_all(work / "changed");
    corbel::GgufWriter with_weights(3);
    const Checkpoint source = Checkpoint::open(work / "m.gguf", context).value();
    with_weights.metadata() = changed.metadata();
    for (const TensorInfo& tensor : source.tensors())
      REQUIRE(with_weights.add_f32(tensor.name, tensor.shape, values_of(source, tensor.name)).ok());
    REQUIRE(with_weights.write_file(work / "changed.gguf").ok());
    REQUIRE(convert(Checkpoint::open(work / "changed.gguf", context).value(), work / "changed").ok());
    return nlohmann::json::parse(corbel_test::read_file(work / "changed/generation_config.json"));
  };
  CHECK(folder_of()["do_sample"] == true);
  CHECK(folder_of()["temperature"] == 0.25);
  CHECK(folder_of()["top_k"] == 20);
  for (const auto& [text, code] : {std::pair("[]", Errc::kTypeMismatch), std::pair("{", Errc::kBadJson),
                                   std::pair(R"({"top_p":2})", Errc::kBadValue)}) {
    changed.metadata().set("corbel.tokenizer.generation_config", corbel::MetaValue::from_string(text));
    const corbel::Status status = read().status();
    CHECK(status.code() == code);
    CHECK(status.message().find("m: metadata key \"corbel.tokenizer.generation_config\": ") == 0);
  }
}
