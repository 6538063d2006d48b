// Writes the seeds that are made by our own writers: make_seeds CORPUS_FOLDER. (Seeds that are plain text were written
// by hand.)
#include <corbel/checkpoint/gguf_writer.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/mutator.hpp"
#include "support/gguf_builder.hpp"
#include "support/tiny_model.hpp"
#include "support/tiny_vocabulary.hpp"

namespace {

using corbel::GgufWriter;
using corbel::MetaType;
using corbel::MetaValue;

std::filesystem::path root;

void write(const std::string& target, const std::string& name, std::string_view bytes) {
  std::filesystem::create_directories(root / target);
  std::ofstream(root / target / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void write(const std::string& target, const std::string& name, const GgufWriter& writer) {
  const std::vector<std::byte> bytes = writer.to_bytes().value();
  write(target, name, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

corbel_test::TinyModel tiniest() {
  corbel_test::TinyModel model;
  model.layers = 1;
  model.hidden = 8;
  model.feed_forward = 8;
  model.heads = 2;
  model.kv_heads = 1;
  model.vocab = 8;
  model.context = 16;
  return model;
}

void make_meta() {
  write("gguf_meta", "every-type", corbel_test::good_gguf().build());
  write("gguf_meta", "empty", corbel_test::GgufBuilder().build());
  corbel_test::GgufBuilder old;
  old.version = 2;
  old.keys = {corbel_test::gguf_key("general.alignment", 4, corbel_test::le32(8))};
  old.tensors = {{corbel_test::gguf_string("a"), {2}, 24, 0}, {corbel_test::gguf_string("b"), {1, 1, 1, 3}, 26, 8}};
  old.alignment = 8;
  old.data = std::string(24, 'x');
  write("gguf_meta", "version-2", old.build());
}

void make_models() {
  write("gguf_model", "tiny-llama", tiniest().writer());
  for (const char* family : {"qwen2", "qwen3", "gemma3"}) {
    GgufWriter writer;
    const GgufWriter llama = tiniest().writer();
    for (const corbel::Metadata::Entry& entry : llama.metadata().entries()) {
      std::string key = entry.key;
      if (key.rfind("llama.", 0) == 0) key = family + key.substr(5);
      writer.metadata().set(key, entry.value);
    }
    writer.metadata().set("general.architecture", MetaValue::from_string(family));
    const std::string name = std::string("head-of-") + family;
    write("gguf_model", name, writer);
  }
}

void make_vocabularies() {
  using namespace corbel_test;
  const auto file = [](const corbel::Metadata& metadata) {
    GgufWriter writer;
    for (const corbel::Metadata::Entry& entry : metadata.entries()) writer.metadata().set(entry.key, entry.value);
    return writer;
  };
  Spec bytes = byte_level();
  write("gguf_vocab", "byte-level", file(bytes.metadata()));
  Spec few;
  few.pre = "llama-bpe";
  for (const char* piece : {"a", "b", "c"}) few.add(piece);
  few.merge("a", "b");
  few.merge("ab", "c");
  few.add("<|end|>", kControl);
  few.add("[user]", kUserDefined);
  corbel::Metadata metadata = few.metadata();
  metadata.set("tokenizer.ggml.bos_token_id", MetaValue::from_uint(5));
  metadata.set("tokenizer.ggml.eos_token_id", MetaValue::from_uint(5));
  metadata.set("tokenizer.ggml.add_bos_token", MetaValue::from_bool(true));
  write("gguf_vocab", "few-merges", file(metadata));
  Spec pieces;
  pieces.model = "llama";
  pieces.add("<unk>", kUnknown);
  pieces.add("<s>", kControl);
  pieces.add("<0x41>", kByte);
  pieces.add("<0xFF>", kByte);
  pieces.add("\xE2\x96\x81", kNormal, -1);
  pieces.add("a", kNormal, -2);
  pieces.add("aa", kNormal, -3);
  pieces.add("\xE2\x96\x81"
             "a",
             kUnused, -4);
  metadata = pieces.metadata();
  metadata.set("tokenizer.ggml.unknown_token_id", MetaValue::from_uint(0));
  metadata.set("tokenizer.ggml.add_space_prefix", MetaValue::from_bool(false));
  write("gguf_vocab", "few-pieces", file(metadata));
  Spec sentence = sentence_piece();
  write("gguf_vocab", "sentence-piece", file(sentence.metadata()));
}

std::string text_of(const GgufWriter& writer) {
  const std::vector<std::byte> bytes = writer.to_bytes().value();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A model of three tensors in two files, and its metadata in the first.
void make_splits() {
  const auto part = [](std::uint64_t number, std::initializer_list<const char*> names) {
    GgufWriter writer;
    if (number == 0) writer.metadata().set("general.name", MetaValue::from_string("split"));
    writer.metadata().set("general.architecture", MetaValue::from_string("llama"));
    writer.metadata().set("split.no", MetaValue::from_uint(number, MetaType::kU16));
    writer.metadata().set("split.count", MetaValue::from_uint(2, MetaType::kU16));
    writer.metadata().set("split.tensors.count", MetaValue::from_int(3));
    for (const char* name : names) {
      const std::uint64_t shape[] = {2, 3};
      (void)writer.add_f32(name, shape, corbel_test::TinyModel::random(6, 1, 1)).ok();
    }
    return text_of(writer);
  };
  const std::string first = part(0, {"a", "b"}), second = part(1, {"c"});
  write("gguf_split", "two-parts",
        corbel_fuzz::write_archive({{"m-00001-of-00002.gguf", first}, {"m-00002-of-00002.gguf", second}}));
  write("gguf_split", "part-missing", corbel_fuzz::write_archive({{"m-00001-of-00002.gguf", first}}));
  write("gguf_split", "same-part-twice",
        corbel_fuzz::write_archive({{"m-00001-of-00002.gguf", first}, {"m-00002-of-00002.gguf", first}}));
  write("gguf_split", "not-split", corbel_fuzz::write_archive({{"m.gguf", corbel_test::good_gguf().build()}}));
}

std::string safetensors(const std::string& header, std::size_t data) {
  std::string out = corbel_test::le64(header.size()) + header;
  for (std::size_t i = 0; i < data; ++i) out += static_cast<char>(i * 7 % 100);
  return out;
}

// A tensor of float32 at the end of the data so far.
void add_tensor(std::string& header, std::size_t& data, const std::string& name, const std::vector<std::size_t>& shape) {
  std::size_t bytes = 4;
  std::string dims;
  for (const std::size_t extent : shape) {
    bytes *= extent;
    dims += (dims.empty() ? "" : ",") + std::to_string(extent);
  }
  header += std::string(header.empty() ? "{" : ",") + "\"" + name + R"(":{"dtype":"F32","shape":[)" + dims +
            R"(],"data_offsets":[)" + std::to_string(data) + "," + std::to_string(data + bytes) + "]}";
  data += bytes;
}

void make_safetensors() {
  write("safetensors_header", "types",
        safetensors(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                    R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},"c":{"dtype":"I8","shape":[],"data_offsets":[22,23]},)"
                    R"("d":{"dtype":"F16","shape":[0,5],"data_offsets":[23,23]},"e":{"dtype":"F4","shape":[2],"data_offsets":[23,24]}}  )",
                    24));
  write("safetensors_header", "empty", safetensors("{}", 0));
  write("safetensors_header", "overlap",
        safetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6));
  write("safetensors_header", "wraps",
        safetensors(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0));
}

void make_folders() {
  const std::string config =
      R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,)"
      R"("num_attention_heads":2,"num_key_value_heads":1,"vocab_size":8,"max_position_embeddings":16,"rms_norm_eps":1e-5,)"
      R"("rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":true,"torch_dtype":"float32","bos_token_id":1,"eos_token_id":2})";
  const std::string tokenizer =
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":1,"content":"<s>","single_word":false,)"
      R"("lstrip":false,"rstrip":false,"normalized":false,"special":true},{"id":2,"content":"</s>","single_word":false,)"
      R"("lstrip":false,"rstrip":false,"normalized":false,"special":true}],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel",)"
      R"("add_prefix_space":false,"trim_offsets":true,"use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel"},)"
      R"("model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,"end_of_word_suffix":null,)"
      R"("fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{"a":0,"<s>":1,"</s>":2,"b":3,"c":4,"ab":5,"abc":6,)"
      R"("d":7},"merges":[["a","b"],["ab","c"]]}})";
  const std::string tokenizer_config =
      R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"add_bos_token":true,"tokenizer_class":"PreTrainedTokenizerFast",)"
      R"("chat_template":"{% for m in messages %}<s>{{ m.content }}{% endfor %}"})";
  std::string head, rest;
  std::size_t head_bytes = 0, rest_bytes = 0;
  add_tensor(head, head_bytes, "model.embed_tokens.weight", {8, 8});
  add_tensor(head, head_bytes, "model.norm.weight", {8});
  const std::string layer = "model.layers.0.";
  add_tensor(rest, rest_bytes, layer + "input_layernorm.weight", {8});
  add_tensor(rest, rest_bytes, layer + "post_attention_layernorm.weight", {8});
  add_tensor(rest, rest_bytes, layer + "self_attn.q_proj.weight", {8, 8});
  add_tensor(rest, rest_bytes, layer + "self_attn.k_proj.weight", {4, 8});
  add_tensor(rest, rest_bytes, layer + "self_attn.v_proj.weight", {4, 8});
  add_tensor(rest, rest_bytes, layer + "self_attn.o_proj.weight", {8, 8});
  for (const char* name : {"gate_proj", "up_proj", "down_proj"})
    add_tensor(rest, rest_bytes, layer + "mlp." + name + ".weight", {8, 8});
  std::string index = R"({"metadata":{"total_size":)" + std::to_string(head_bytes + rest_bytes) + R"(},"weight_map":{)";
  for (const char* name : {"model.embed_tokens.weight", "model.norm.weight"})
    index += std::string("\"") + name + R"(":"model-00001-of-00002.safetensors",)";
  for (const char* name : {"input_layernorm", "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                           "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
    index += "\"" + layer + name + R"(.weight":"model-00002-of-00002.safetensors",)";
  index.back() = '}';
  index += "}";
  std::vector<corbel_fuzz::ArchiveFile> files = {
      {"config.json", config},
      {"tokenizer.json", tokenizer},
      {"tokenizer_config.json", tokenizer_config},
      {"model.safetensors.index.json", index},
      {"model-00001-of-00002.safetensors", safetensors(head + "}", head_bytes)},
      {"model-00002-of-00002.safetensors", safetensors(rest + "}", rest_bytes)},
  };
  write("hf_model", "two-shards", corbel_fuzz::write_archive(files));
  std::string whole;
  std::size_t whole_bytes = 0;
  add_tensor(whole, whole_bytes, "model.embed_tokens.weight", {8, 8});
  files = {{"config.json", config},
           {"generation_config.json", R"({"bos_token_id":1,"eos_token_id":[2,7]})"},
           {"special_tokens_map.json", R"({"bos_token":"<s>"})"},
           {"chat_template.jinja", "{{ messages[0].content }}"},
           {"model.safetensors", safetensors(whole + "}", whole_bytes)}};
  write("hf_model", "one-file-tensors-missing", corbel_fuzz::write_archive(files));
  files[4] = {"pytorch_model.bin", "x"};
  write("hf_model", "pickle", corbel_fuzz::write_archive(files));
}

}  // namespace

// The mutators' source is not used here.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t*, std::size_t size, std::size_t) { return size; }

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: make_seeds FOLDER\n");
    return 2;
  }
  root = arguments[1];
  make_meta();
  make_models();
  make_vocabularies();
  make_splits();
  make_safetensors();
  make_folders();
  return 0;
}
