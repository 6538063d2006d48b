// convert: what becomes of a GGUF file, and that folders come back from one as the same model.
#include <corbel/checkpoint/gguf_writer.hpp>
#include <corbel/checkpoint/safetensors_writer.hpp>
#include <corbel/model.hpp>
#include <corbel/models/convert.hpp>
#include <corbel/models/folder_layout.hpp>
#include <corbel/models/model_spec.hpp>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/convert_folder.hpp"
#include "support/golden.hpp"
#include "support/support.hpp"
#include "support/tiny_model.hpp"
#include "support/tiny_vocabulary.hpp"

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

namespace {

std::vector<float> logits_of(const std::string& path, const Context& context) {
  using Backend = corbel::RefBackend;
  const auto running =
      corbel_test::Running<Backend>::load(path, context, {.max_tokens = 64, .type = corbel::KvType::kF32});
  auto batch = corbel::Batch<Backend>::create(running.cache, {.max_rows = 32, .max_wanted = 32}).value();
  corbel::Sequence<Backend> sequence(running.cache);
  std::vector<corbel::TokenId> ids(24);
  std::iota(ids.begin(), ids.end(), 3);
  return corbel_test::all_logits(batch, sequence, ids, 24);
}

void check_folder(const std::string& gguf, const Work& work) {
  const Context context({.threads = 1});
  const Checkpoint source = Checkpoint::open(gguf, context).value();
  const std::string family(source.metadata().get_string("general.architecture").value());
  const std::string folder = work / "folder";
  fs::remove_all(folder);
  std::string said;
  corbel::models::ConvertOptions options;
  options.say = [&](std::string_view line) { said += line; };
  const corbel::Status status = convert(source, folder, options);
  CAPTURE(gguf, std::string(status.message()), said);
  REQUIRE(status.ok());
  // Types that folders do not have are said, and nothing else.
  CHECK((said.empty() || said.find(" became F32, since the new container does not have it") != std::string::npos));
  CHECK(said.find("left out") == std::string::npos);
  // The same logits (rope factors are quotients), the same ids, and the way back.
  const std::vector<float> a = logits_of(gguf, context), b = logits_of(folder, context);
  REQUIRE(a.size() == b.size());
  CHECK(corbel_test::max_difference(a, b) <= (source.find_tensor("rope_freqs.weight") != nullptr ? 1e-4 : 0.0));
  const auto tokenizer = corbel::Tokenizer::from_checkpoint(source);
  const Checkpoint written = Checkpoint::open(folder, context).value();
  CHECK(*written.metadata().get_string("general.architecture") == family);
  if (tokenizer.ok()) {
    const auto own = corbel::Tokenizer::from_checkpoint(written).value();
    for (const char* text : {"Hello world, it is 3.14!", "<s>a</s> \n\n  b", "\xE4\xBD\xA0"}) {
      const corbel::EncodeOptions how{.parse_special = true, .add_special = true};
      CHECK(tokenizer->encode(text, how).value() == own.encode(text, how).value());
    }
    CHECK(tokenizer->eos() == own.eos());
  }
  said.clear();
  REQUIRE(convert(written, work / "back.gguf", options).ok());
  CHECK(said.empty());
  const Checkpoint back = Checkpoint::open(work / "back.gguf", context).value();
  for (const TensorInfo& tensor : source.tensors()) {
    if (tensor.name.rfind("rope_", 0) == 0) continue;
    CAPTURE(tensor.name);
    CHECK(values_of(back, tensor.name) == values_of(source, tensor.name));
  }
}

}  // namespace

TEST_CASE("convert: a GGUF file becomes a folder of the same model") {
  const Work work;
  std::vector<std::string> roots = {corbel_test::test_data("golden")};
  for (const char* more : {"golden/given", "golden/gguf"}) {
    const std::string root = corbel_test::shared_data(more, "convert: GGUF goldens to folders");
    if (!root.empty()) roots.push_back(root);
  }
  std::size_t files = 0;
  for (const std::string& root : roots) {
    for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
      if (!fs::exists(entry.path() / "model.gguf")) continue;
      check_folder((entry.path() / "model.gguf").string(), work);
      ++files;
    }
  }
  CHECK(files >= 5);
  const Context context;
  const std::string tiny = corbel_test::test_data("golden/llama-q4_k_m/model.gguf");
  corbel::models::ConvertOptions options;
  options.type = DType::kBF16;
  fs::remove_all(work / "folder");
  REQUIRE(convert(Checkpoint::open(tiny, context).value(), work / "folder", options).ok());
  const Checkpoint written = Checkpoint::open(work / "folder", context).value();
  CHECK(written.config()->find("torch_dtype")->as_string() == "bfloat16");
  CHECK(written.find_tensor("model.layers.0.mlp.up_proj.weight")->dtype == DType::kBF16);
  CHECK(written.find_tensor("model.norm.weight")->dtype == DType::kF32);
}

TEST_CASE("convert: what a folder cannot hold is refused, and what is not used is left out") {
  const Context context;
  const Work work;
  const auto attempt = [&](const char* tensor, std::string* said) {
    corbel::GgufWriter writer = corbel_test::TinyModel().writer();
    REQUIRE(writer.add_f32(tensor, {{2}}, std::vector<float>{1, 2}).ok());
    const std::vector<std::byte> bytes = writer.to_bytes().value();
    corbel::models::ConvertOptions options;
    options.say = [&](std::string_view line) { *said += line; };
    fs::remove_all(work / "folder");
    return convert(Checkpoint::from_memory(bytes, context, {}, "m.gguf").value(), work / "folder", options);
  };
  std::string said;
  for (const char* name :
       {"blk.0.mystery.weight", "blk.0", "blk.0.mystery", "mystery", "blk.0.ffn_norm", "blk.x.y", "a."}) {
    CAPTURE(name);
    const corbel::Status status = attempt(name, &said);
    CHECK(status.code() == Errc::kUnsupported);
    CHECK(status.message().find(name) != std::string_view::npos);
    CHECK_FALSE(fs::exists(work / "folder"));
  }
  CHECK(attempt("blk.2.attn_q.weight", &said).ok());
  CHECK(said.find("1 tensors behind the last layer are left out, the first is blk.2.attn_q.weight") !=
        std::string::npos);
  CHECK(Checkpoint::open(work / "folder", context)->find_tensor("model.layers.1.self_attn.q_proj.weight") != nullptr);
}

TEST_CASE("convert: tokenizer documents and templates that nobody can read are left out of a folder, with a note") {
  const Context context;
  const Work work;
  const std::string tokenizer = R"({"model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"}})";
  const std::string whole = "{}", not_utf8 = "\xff\xfe";
  struct Case {
    std::string tokenizer, config, special, chat_template, said;
  };
  const std::vector<Case> cases = {
      {tokenizer, whole, whole, "plain", ""},
      {"{", whole, whole, "plain", "the tokenizer is left out"},
      {"null", whole, whole, "plain", "the tokenizer is left out"},
      {tokenizer, "{", whole, "plain", "the tokenizer is left out"},
      {tokenizer, "[]", whole, "plain", "the tokenizer is left out"},
      {tokenizer, R"({"bos_token":5})", whole, "plain", "the tokenizer is left out"},
      {tokenizer, whole, "[]", "plain", "the tokenizer is left out"},
      {tokenizer, whole, whole, not_utf8, "is left out: it is no UTF-8"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.tokenizer, each.config, each.special);
    corbel::GgufWriter writer = corbel_test::TinyModel().writer();
    corbel::Metadata& metadata = writer.metadata();
    metadata.set("tokenizer.huggingface.json", corbel::MetaValue::from_string(each.tokenizer));
    metadata.set("corbel.tokenizer.config", corbel::MetaValue::from_string(each.config));
    metadata.set("corbel.tokenizer.special_tokens_map", corbel::MetaValue::from_string(each.special));
    metadata.set("tokenizer.chat_template", corbel::MetaValue::from_string(each.chat_template));
    const std::vector<std::byte> bytes = writer.to_bytes().value();
    std::string said;
    corbel::models::ConvertOptions options;
    options.say = [&](std::string_view line) { said += line; };
    fs::remove_all(work / "folder");
    REQUIRE(convert(Checkpoint::from_memory(bytes, context, {}, "m.gguf").value(), work / "folder", options).ok());
    if (each.said.empty()) {
      CHECK(said.find("left out") == std::string::npos);
    } else {
      CHECK(said.find(each.said) != std::string::npos);
    }
    const bool readable = each.said.find("tokenizer") == std::string::npos;
    CHECK(fs::exists(work / "folder/tokenizer.json") == readable);
    CHECK(fs::exists(work / "folder/tokenizer_config.json") == readable);
    CHECK(fs::exists(work / "folder/chat_template.jinja") == (each.chat_template == "plain"));
  }
}

TEST_CASE("convert: a folder comes back from GGUF with its own names and values") {
  const Context context;
  const Work work;
  std::vector<std::string> roots = {corbel_test::test_data("golden")};
  const std::string more = corbel_test::shared_data("golden/given", "convert: golden folders to GGUF and back");
  if (!more.empty()) roots.push_back(more);
  // What GGUF files, or folders that are written, cannot say is refused by name.
  const auto check_refusal = [](const corbel::Status& status) {
    CHECK(status.code() == Errc::kUnsupported);
    bool named = false;
    for (const char* part : {"GGUF files of this family cannot say ", "cannot be written to GGUF"})
      named = named || status.message().find(part) != std::string_view::npos;
    CHECK(named);
  };
  std::size_t same = 0;
  for (const std::string& root : roots) {
    for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
      if (!fs::exists(entry.path() / "config.json")) continue;
      const std::string name = entry.path().filename().string();
      CAPTURE(name);
      const Checkpoint source = Checkpoint::open(entry.path().string(), context).value();
      const corbel::Status there = convert(source, work / "m.gguf");
      CAPTURE(std::string(there.message()));
      if (!there.ok()) {
        check_refusal(there);
        continue;
      }
      fs::remove_all(work / "folder");
      const corbel::Status back = convert(Checkpoint::open(work / "m.gguf", context).value(), work / "folder");
      CAPTURE(std::string(back.message()));
      if (!back.ok()) {
        check_refusal(back);
        continue;
      }
      const Checkpoint written = Checkpoint::open(work / "folder", context).value();
      CHECK(written.config()->find("model_type")->is_string());
      for (const TensorInfo& tensor : written.tensors()) {
        CAPTURE(tensor.name);
        // Some folders have the names without those of the modules around them.
        const bool bare = source.find_tensor(tensor.name) == nullptr;
        const std::string own = bare ? tensor.name.substr(tensor.name.find('.') + 1) : tensor.name;
        REQUIRE(source.find_tensor(own) != nullptr);
        CHECK(tensor.shape == source.find_tensor(own)->shape);
        // One is added to some families' norms, and taken away again.
        const double rounding = tensor.name.find("norm") != std::string::npos ? 2.5e-7 : 0.0;
        CHECK(corbel_test::max_difference(values_of(written, tensor.name), values_of(source, own)) <= rounding);
      }
      CHECK(corbel_test::max_difference(logits_of(entry.path().string(), context),
                                        logits_of(work / "folder", context)) <= 1e-4);
      ++same;
    }
  }
  CHECK(same >= (more.empty() ? 15u : 35u));
}

namespace {

struct StoredFamily {
  const char* name;
  const char* config;
  // A name and a shape each. " +N": its bias, of N values; "=NAME": the whole name; "{4}": one for each number below 4.
  const char* tensors;
};

// Families whose folders store projections turned, mixed or stacked, or that share a name in GGUF files.
constexpr StoredFamily kStoredFamilies[] = {
    {"gpt2", R"("n_embd":16,"n_head":2,"n_layer":1,"n_positions":32,"layer_norm_epsilon":1e-4)",
     "transformer.wte 32x16 transformer.wpe 32x16 transformer.ln_f 16 +16 transformer.h.0.ln_1 16 +16 "
     "transformer.h.0.ln_2 16 +16 transformer.h.0.attn.c_attn 16x48 +48 transformer.h.0.attn.c_proj 16x16 +16 "
     "transformer.h.0.mlp.c_fc 16x40 +40 transformer.h.0.mlp.c_proj 40x16 +16"},
    {"gpt_bigcode", R"("n_embd":16,"n_head":2,"n_layer":1,"n_positions":32,"multi_query":false)",
     "transformer.wte 32x16 transformer.wpe 32x16 transformer.ln_f 16 +16 transformer.h.0.ln_1 16 +16 "
     "transformer.h.0.ln_2 16 +16 transformer.h.0.attn.c_attn 48x16 +48 transformer.h.0.attn.c_proj 16x16 +16 "
     "transformer.h.0.mlp.c_fc 40x16 +40 transformer.h.0.mlp.c_proj 16x40 +16"},
    {"gptj", R"("n_embd":16,"n_head":2,"n_layer":1,"n_positions":32,"rotary_dim":4)",
     "transformer.wte 32x16 transformer.ln_f 16 +16 lm_head 32x16 +32 transformer.h.0.ln_1 16 +16 "
     "transformer.h.0.attn.q_proj 16x16 transformer.h.0.attn.k_proj 16x16 transformer.h.0.attn.v_proj 16x16 "
     "transformer.h.0.attn.out_proj 16x16 transformer.h.0.mlp.fc_in 40x16 +40 transformer.h.0.mlp.fc_out 16x40 +16"},
    {"falcon", R"("hidden_size":32,"num_attention_heads":4,"num_hidden_layers":1,"bias":false)",
     "transformer.word_embeddings 32x32 transformer.ln_f 32 +32 transformer.h.0.input_layernorm 32 +32 "
     "transformer.h.0.self_attention.query_key_value 48x32 transformer.h.0.self_attention.dense 32x32 "
     "transformer.h.0.mlp.dense_h_to_4h 128x32 transformer.h.0.mlp.dense_4h_to_h 32x128"},
    {"falcon",
     R"("hidden_size":32,"num_attention_heads":4,"num_hidden_layers":1,"new_decoder_architecture":true,)"
     R"("num_kv_heads":2,"bias":true)",
     "transformer.word_embeddings 32x32 transformer.ln_f 32 +32 transformer.h.0.ln_attn 32 +32 "
     "transformer.h.0.ln_mlp 32 +32 transformer.h.0.self_attention.query_key_value 64x32 +64 "
     "transformer.h.0.self_attention.dense 32x32 +32 transformer.h.0.mlp.dense_h_to_4h 48x32 +48 "
     "transformer.h.0.mlp.dense_4h_to_h 32x48 +32"},
    {"bloom", R"("hidden_size":16,"n_head":2,"n_layer":1,"layer_norm_epsilon":1e-5)",
     "transformer.word_embeddings 32x16 transformer.word_embeddings_layernorm 16 +16 transformer.ln_f 16 +16 "
     "transformer.h.0.input_layernorm 16 +16 transformer.h.0.post_attention_layernorm 16 +16 "
     "transformer.h.0.self_attention.query_key_value 48x16 +48 transformer.h.0.self_attention.dense 16x16 +16 "
     "transformer.h.0.mlp.dense_h_to_4h 64x16 +64 transformer.h.0.mlp.dense_4h_to_h 16x64 +16"},
    {"mpt", R"("d_model":16,"n_heads":2,"n_layers":1,"max_seq_len":32,"attn_config":{"clip_qkv":0.5,"alibi":true})",
     "transformer.wte 32x16 transformer.norm_f 16 transformer.blocks.0.norm_1 16 transformer.blocks.0.norm_2 16 "
     "transformer.blocks.0.attn.Wqkv 48x16 transformer.blocks.0.attn.out_proj 16x16 "
     "transformer.blocks.0.ffn.up_proj 64x16 transformer.blocks.0.ffn.down_proj 16x64"},
    {"mixtral",
     R"("hidden_size":16,"num_attention_heads":2,"num_key_value_heads":1,"num_hidden_layers":1,"head_dim":8,)"
     R"("intermediate_size":24,"num_local_experts":3,"sliding_window":null)",
     "model.embed_tokens 32x16 model.norm 16 lm_head 32x16 model.layers.0.input_layernorm 16 "
     "model.layers.0.post_attention_layernorm 16 model.layers.0.self_attn.q_proj 16x16 "
     "model.layers.0.self_attn.k_proj 8x16 model.layers.0.self_attn.v_proj 8x16 "
     "model.layers.0.self_attn.o_proj 16x16 model.layers.0.block_sparse_moe.gate 3x16 "
     "model.layers.0.block_sparse_moe.experts.{3}.w1 24x16 model.layers.0.block_sparse_moe.experts.{3}.w3 24x16 "
     "model.layers.0.block_sparse_moe.experts.{3}.w2 16x24"},
    {"granitemoe",
     R"("hidden_size":16,"num_attention_heads":2,"num_key_value_heads":1,"num_hidden_layers":1,)"
     R"("intermediate_size":24,"num_local_experts":3,"logits_scaling":3.0,"residual_multiplier":0.5,)"
     R"("tie_word_embeddings":true)",
     "model.embed_tokens 32x16 model.norm 16 model.layers.0.input_layernorm 16 "
     "model.layers.0.post_attention_layernorm 16 model.layers.0.self_attn.q_proj 16x16 "
     "model.layers.0.self_attn.k_proj 8x16 model.layers.0.self_attn.v_proj 8x16 "
     "model.layers.0.self_attn.o_proj 16x16 model.layers.0.block_sparse_moe.router.layer 3x16 "
     "model.layers.0.block_sparse_moe.input_linear 3x48x16 model.layers.0.block_sparse_moe.output_linear 3x16x24"},
    {"gpt_oss",
     R"("hidden_size":32,"num_attention_heads":2,"num_key_value_heads":1,"num_hidden_layers":1,"head_dim":16,)"
     R"("intermediate_size":24,"num_local_experts":3,"num_experts_per_tok":2,"sliding_window":8)",
     "model.embed_tokens 32x32 model.norm 32 lm_head 32x32 model.layers.0.input_layernorm 32 "
     "model.layers.0.post_attention_layernorm 32 model.layers.0.self_attn.q_proj 32x32 +32 "
     "model.layers.0.self_attn.k_proj 16x32 +16 model.layers.0.self_attn.v_proj 16x32 +16 "
     "model.layers.0.self_attn.o_proj 32x32 +32 =model.layers.0.self_attn.sinks 2 model.layers.0.mlp.router 3x32 +3 "
     "=model.layers.0.mlp.experts.gate_up_proj 3x32x48 =model.layers.0.mlp.experts.gate_up_proj_bias 3x48 "
     "=model.layers.0.mlp.experts.down_proj 3x24x32 =model.layers.0.mlp.experts.down_proj_bias 3x32"},
    {"deepseek_v3",
     R"("hidden_size":16,"num_attention_heads":2,"num_hidden_layers":1,"q_lora_rank":null,"kv_lora_rank":8,)"
     R"("qk_nope_head_dim":6,"qk_rope_head_dim":4,"v_head_dim":4,"intermediate_size":24,"moe_intermediate_size":12,)"
     R"("n_routed_experts":4,"n_shared_experts":2,"n_group":2,"topk_group":1,"num_experts_per_tok":2,)"
     R"("first_k_dense_replace":0,"routed_scaling_factor":1.5,"norm_topk_prob":true)",
     "model.embed_tokens 32x16 model.norm 16 lm_head 32x16 model.layers.0.input_layernorm 16 "
     "model.layers.0.post_attention_layernorm 16 model.layers.0.self_attn.q_proj 20x16 "
     "model.layers.0.self_attn.kv_a_proj_with_mqa 12x16 model.layers.0.self_attn.kv_a_layernorm 8 "
     "model.layers.0.self_attn.kv_b_proj 20x8 model.layers.0.self_attn.o_proj 16x8 model.layers.0.mlp.gate 4x16 "
     "=model.layers.0.mlp.gate.e_score_correction_bias 4 model.layers.0.mlp.experts.{4}.gate_proj 12x16 "
     "model.layers.0.mlp.experts.{4}.up_proj 12x16 model.layers.0.mlp.experts.{4}.down_proj 16x12 "
     "model.layers.0.mlp.shared_experts.gate_proj 24x16 model.layers.0.mlp.shared_experts.up_proj 24x16 "
     "model.layers.0.mlp.shared_experts.down_proj 16x24"},
};

void write_family(const StoredFamily& family, const std::string& path) {
  fs::create_directories(path);
  corbel::SafetensorsWriter writer;
  std::uint32_t seed = 1;
  const auto add = [&](const std::string& name, const std::string& extents) {
    std::vector<std::uint64_t> shape;
    std::uint64_t count = 1;
    std::istringstream in(extents);
    for (std::string extent; std::getline(in, extent, 'x');) count *= shape.emplace_back(std::stoull(extent));
    const std::vector<float> values = corbel_test::TinyModel::random(count, seed++, 0.5f);
    std::vector<std::byte> bytes(4 * values.size());
    corbel::traits(DType::kF32).encode(values.data(), bytes.data(), values.size());
    REQUIRE(writer.add_tensor(name, shape, "F32", std::move(bytes)).ok());
  };
  std::istringstream in(family.tensors);
  std::string last;
  for (std::string name, shape; in >> name;) {
    if (name[0] == '+') {
      add(last + ".bias", name.substr(1));
      continue;
    }
    REQUIRE(in >> shape);
    last = name;
    const std::size_t brace = name.find('{');
    if (name[0] == '=') {
      add(name.substr(1), shape);
    } else if (brace == std::string::npos) {
      add(name + ".weight", shape);
    } else {
      for (int i = 0; i < name[brace + 1] - '0'; ++i)
        add(name.substr(0, brace) + std::to_string(i) + name.substr(brace + 3) + ".weight", shape);
    }
  }
  REQUIRE(writer.write_file(path + "/model.safetensors").ok());
  std::ofstream(path + "/config.json", std::ios::trunc)
      << R"({"model_type":")" << family.name << R"(","vocab_size":32,"rms_norm_eps":1e-6,)" << family.config << "}";
}

// The folder that `gguf` becomes has the tensors of `source` and its logits.
void check_way_back(const Work& work, const Checkpoint& source, const std::vector<float>& expected,
                    const std::string& gguf, const Context& context) {
  fs::remove_all(work / "folder");
  const corbel::Status status = convert(Checkpoint::open(gguf, context).value(), work / "folder");
  CAPTURE(gguf, std::string(status.message()));
  REQUIRE(status.ok());
  const Checkpoint written = Checkpoint::open(work / "folder", context).value();
  CHECK(written.tensors().size() == source.tensors().size());
  for (const TensorInfo& tensor : source.tensors()) {
    CAPTURE(tensor.name);
    REQUIRE(written.find_tensor(tensor.name) != nullptr);
    CHECK(written.find_tensor(tensor.name)->shape == tensor.shape);
    CHECK(values_of(written, tensor.name) == values_of(source, tensor.name));
  }
  CHECK(corbel_test::max_difference(logits_of(work / "folder", context), expected) == 0.0);
  CHECK(written.config()->find("model_type")->as_string() == source.config()->find("model_type")->as_string());
  CHECK(written.config()->find("architectures")->items()[0].as_string().find("LM") != std::string_view::npos);
}

// The same file with tensors as other converters, or older ones, have them.
void write_older(const Checkpoint& source, const std::string& path) {
  corbel::GgufWriter writer(3);
  writer.metadata() = source.metadata();
  const auto add = [&](const std::string& name, const std::vector<std::uint64_t>& shape,
                       const std::vector<float>& values) { REQUIRE(writer.add_f32(name, shape, values).ok()); };
  for (const TensorInfo& tensor : source.tensors()) {
    const std::vector<float> values = values_of(source, tensor.name);
    const std::size_t experts = tensor.name.find("_exps.weight");
    if (experts != std::string::npos) {
      const std::uint64_t rows = tensor.shape[1], cols = tensor.shape[2];
      for (std::uint64_t i = 0; i < tensor.shape[0]; ++i) {
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * rows * cols);
        add(tensor.name.substr(0, experts) + "." + std::to_string(i) + ".weight", {rows, cols},
            {begin, begin + static_cast<std::ptrdiff_t>(rows * cols)});
      }
    } else if (tensor.name == "blk.0.attn_kv_b.weight") {
      constexpr std::uint64_t kAllHeads = 2, kNope = 6, kValue = 4, kRank = 8;
      std::vector<float> k, v;
      for (std::uint64_t head = 0; head < kAllHeads; ++head) {
        const float* const of_head = values.data() + head * (kNope + kValue) * kRank;
        for (std::uint64_t r = 0; r < kRank; ++r)
          for (std::uint64_t c = 0; c < kNope; ++c) k.push_back(of_head[c * kRank + r]);
        v.insert(v.end(), of_head + kNope * kRank, of_head + (kNope + kValue) * kRank);
      }
      add("blk.0.attn_k_b.weight", {kAllHeads, kRank, kNope}, k);
      add("blk.0.attn_v_b.weight", {kAllHeads, kValue, kRank}, v);
    } else {
      add(tensor.name, tensor.shape, values);
    }
  }
  REQUIRE(writer.write_file(path).ok());
}

}  // namespace

TEST_CASE("convert: families whose folders store projections turned, mixed or stacked") {
  const Context context({.threads = 1});
  const Work work;
  for (const StoredFamily& family : kStoredFamilies) {
    CAPTURE(family.name, family.config);
    fs::remove_all(work / "hf");
    write_family(family, work / "hf");
    const Checkpoint source = Checkpoint::open(work / "hf", context).value();
    std::string said;
    corbel::models::ConvertOptions options;
    options.say = [&](std::string_view line) { said += line; };
    const corbel::Status status = convert(source, work / "m.gguf", options);
    CAPTURE(std::string(status.message()));
    REQUIRE(status.ok());
    CHECK(said.empty());  // every tensor is used
    const std::vector<float> expected = logits_of(work / "hf", context);
    check_way_back(work, source, expected, work / "m.gguf", context);
    const std::string_view name = family.name;
    if (name != "mixtral" && name != "deepseek_v3") continue;
    write_older(Checkpoint::open(work / "m.gguf", context).value(), work / "older.gguf");
    check_way_back(work, source, expected, work / "older.gguf", context);
  }
}

TEST_CASE("convert: keys about a GGUF file go to a folder and come back") {
  const Context context;
  const Work work;
  corbel::GgufWriter writer = corbel_test::TinyModel().writer();
  corbel::Metadata& metadata = writer.metadata();
  const std::vector<std::string> tags = {"chat", "12"};
  metadata.set("general.name", corbel::MetaValue::from_string("Tiny 1.5"));
  metadata.set("general.license", corbel::MetaValue::from_string("apache-2.0"));
  metadata.set("general.version", corbel::MetaValue::from_string("2"));  // a text that looks like a number
  metadata.set("general.size_label", corbel::MetaValue::from_string("1K"));
  metadata.set("general.tags", corbel::MetaValue::from_strings(tags));
  metadata.set("general.base_model.count", corbel::MetaValue::from_uint(1));
  const std::vector<std::byte> bytes = writer.to_bytes().value();
  REQUIRE(convert(Checkpoint::from_memory(bytes, context, {}, "m.gguf").value(), work / "folder").ok());
  REQUIRE(convert(Checkpoint::open(work / "folder", context).value(), work / "back.gguf").ok());
  const Checkpoint back = Checkpoint::open(work / "back.gguf", context).value();
  for (const char* key : {"general.name", "general.license", "general.version", "general.size_label"}) {
    CAPTURE(key);
    CHECK(back.metadata().get_string(key).value() == metadata.get_string(key).value());
  }
  CHECK(back.metadata().get_uint("general.base_model.count").value() == 1);
  const corbel::MetaValue* list = back.metadata().find("general.tags");
  REQUIRE(list != nullptr);
  REQUIRE(list->size() == 2);
  CHECK(list->string_at(0) == tags[0]);
  CHECK(list->string_at(1) == tags[1]);
}

TEST_CASE("convert: rotary embeddings that folders say in another way") {
  const Context context({.threads = 1});
  const Work work;
  const std::string llama3 = R"("rope_type":"llama3","factor":8.0,"original_max_position_embeddings":16)";
  const std::pair<std::string, std::string> cases[] = {
      {llama3 + R"(,"low_freq_factor":1.0,"high_freq_factor":4.0)", "llama3"},
      {llama3 + R"(,"low_freq_factor":0.5,"high_freq_factor":8.0)", "longrope"},
  };
  for (const auto& [scaling, type] : cases) {
    CAPTURE(scaling);
    write_folder(work / "hf", R"(,"rope_scaling":{)" + scaling + "}");
    REQUIRE(convert(Checkpoint::open(work / "hf", context).value(), work / "m.gguf").ok());
    fs::remove_all(work / "folder");
    REQUIRE(convert(Checkpoint::open(work / "m.gguf", context).value(), work / "folder").ok());
    const Checkpoint written = Checkpoint::open(work / "folder", context).value();
    CHECK(written.config()->find("rope_scaling")->find("rope_type")->as_string() == type);
    const auto table = [&](const char* name) {
      return corbel::models::read_model_spec(Checkpoint::open(work / name, context).value())->ropes[0];
    };
    CHECK_FALSE(table("folder").depends_on_length());
    CHECK(corbel_test::max_difference(table("folder").inverse_frequencies, table("hf").inverse_frequencies) < 1e-6);
  }
}

TEST_CASE("convert: vocabularies of GGUF files as tokenizer.json") {
  using corbel::Tokenizer;
  const auto written = [](const corbel::Metadata& metadata) -> corbel::Result<Tokenizer> {
    auto documents = corbel::models::tokenizer_documents(metadata);
    if (!documents.ok()) return documents.status();
    corbel::TokenizerDocuments texts;
    texts.tokenizer_json = (*documents)[0].second;
    texts.tokenizer_config = (*documents)[1].second;
    return Tokenizer::from_documents(texts);
  };
  const std::string root = corbel_test::shared_data("vocab", "convert: published vocabularies");
  std::vector<std::string> files;
  if (!root.empty()) {
    for (const char* name : {"bert-bge", "deepseek-coder", "gpt-2", "llama-spm", "phi-3", "starcoder"})
      files.push_back(root + "/ggml-vocab-" + name + ".gguf");
  }
  for (const std::string& file : files) {
    CAPTURE(file);
    const Context context;
    const Checkpoint checkpoint = Checkpoint::open(file, context).value();
    const Tokenizer from = Tokenizer::from_checkpoint(checkpoint).value();
    const auto to = written(checkpoint.metadata());
    INFO(std::string(to.status().message()));
    REQUIRE(to.ok());
    const std::string texts = corbel_test::read_file(file + ".inp");
    const std::string between = "\n__ggml_vocab_test__\n";
    std::size_t count = 0;
    for (std::size_t begin = 0; begin < texts.size(); ++count) {
      const std::size_t end = std::min(texts.find(between, begin), texts.size());
      const std::string text = texts.substr(begin, end - begin);
      CAPTURE(text);
      CHECK(from.encode(text, {.add_special = true}).value() == to->encode(text, {.add_special = true}).value());
      begin = end + between.size();
    }
    CHECK(count > 20);
  }
  // Pieces of characters that are no pieces themselves come together by their scores, and by no merge.
  corbel_test::Spec spoken = corbel_test::sentence_piece();
  CHECK(written(spoken.metadata()).status().code() == Errc::kUnsupported);
  for (std::string& piece : spoken.tokens) {
    if (piece == "\n\n") piece = "xx";
    if (piece == "\xCC\x81\xCC\x81") piece = "xa";
  }
  corbel_test::Spec spelled = corbel_test::byte_level();  // pieces in text, merges by rank
  spelled.pre = "gemma4";
  spelled.tokens = {"<0xC3>", "<0xA9>", "a", "b", "\xE2\x96\x81", "\n", "<|end|>"};
  spelled.types = {6, 6, 1, 1, 1, 1, 3};
  spelled.scores = std::vector<float>(7);
  spelled.merges.clear();
  spelled.merge("a", "b");
  spelled.merge("\xE2\x96\x81", "ab");
  for (const corbel_test::Spec& spec : {corbel_test::byte_level(), spoken, spelled}) {
    const auto to = written(spec.metadata());
    INFO(std::string(to.status().message()));
    REQUIRE(to.ok());
    const Tokenizer from = corbel_test::make(spec);
    for (const char* text : {"hello hello", "aaaa aa x", "<|end|>hello[user] hell", "\n\n a", "ab ab\xC3\xA9 a\nab"})
      CHECK(corbel_test::encode(from, text, true, true) == corbel_test::encode(*to, text, true, true));
  }
  corbel::Metadata plamo = corbel_test::sentence_piece().metadata();
  plamo.set("tokenizer.ggml.model", corbel::MetaValue::from_string("plamo2"));
  CHECK(written(plamo).status().code() == Errc::kUnsupported);
  // What GGUF keys alone say of tokenizers of every kind, without the document that they were made from.
  std::set<std::string> same;
  const nlohmann::json texts =
      nlohmann::json::parse(corbel_test::read_file(corbel_test::test_data("tokenizers/texts.json")));
  for (const fs::directory_entry& entry : fs::directory_iterator(corbel_test::test_data("tokenizers"))) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".json" || name == "texts") continue;
    CAPTURE(name);
    const std::string json = corbel_test::read_file(entry.path().string());
    corbel::TokenizerDocuments documents;
    documents.tokenizer_json = json;
    corbel::Metadata all, keys;
    REQUIRE(corbel::set_tokenizer_metadata(documents, all).ok());
    for (const corbel::Metadata::Entry& key : all.entries())
      if (key.key.starts_with("tokenizer.ggml.")) keys.set(key.key, key.value);
    const auto from = Tokenizer::from_metadata(keys);
    if (!from.ok()) continue;
    const auto to = written(keys);
    if (!to.ok()) {
      CHECK(to.status().code() == Errc::kUnsupported);
      continue;
    }
    for (const nlohmann::json& each : texts) {
      const auto text = each.get<std::string>();
      CAPTURE(text);
      CHECK(corbel_test::encode(*from, text, true, true) == corbel_test::encode(*to, text, true, true));
    }
    same.insert(name);
  }
  for (const char* name : {"albert", "bert", "bert_cased", "gpt2", "llama3", "t5"}) {
    CAPTURE(name);
    CHECK(same.count(name) == 1);
  }
}
