// What the tests of convert share: a folder for their files, and a Llama of one layer.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/safetensors_writer.hpp>
#include <corbel/dtype.hpp>

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace corbel_test {

// A folder for one test, removed at the end.
class Work {
 public:
  Work() : path_(std::filesystem::temp_directory_path() / ("corbel-convert-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Work() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

inline constexpr std::uint64_t kHidden = 32, kHeads = 2, kKvHeads = 1, kDim = 16, kFeedForward = 64, kVocab = 8;

inline std::vector<float> numbers(const std::string& name, std::uint64_t count) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(static_cast<int>((i * 37 + name.size() * 11) % 101) - 50) / 64.0f);
  }
  return values;
}

// A Llama of one layer as the Hub has it.
inline void write_folder(const std::string& path, const std::string& more_config) {
  std::filesystem::create_directories(path);
  const std::vector<std::pair<std::string, std::vector<std::uint64_t>>> tensors = {
      {"model.embed_tokens.weight", {kVocab, kHidden}},
      {"model.norm.weight", {kHidden}},
      {"lm_head.weight", {kVocab, kHidden}},
      {"model.layers.0.input_layernorm.weight", {kHidden}},
      {"model.layers.0.post_attention_layernorm.weight", {kHidden}},
      {"model.layers.0.self_attn.q_proj.weight", {kHeads * kDim, kHidden}},
      {"model.layers.0.self_attn.k_proj.weight", {kKvHeads * kDim, kHidden}},
      {"model.layers.0.self_attn.v_proj.weight", {kKvHeads * kDim, kHidden}},
      {"model.layers.0.self_attn.o_proj.weight", {kHidden, kHeads * kDim}},
      {"model.layers.0.mlp.gate_proj.weight", {kFeedForward, kHidden}},
      {"model.layers.0.mlp.up_proj.weight", {kFeedForward, kHidden}},
      {"model.layers.0.mlp.down_proj.weight", {kHidden, kFeedForward}},
  };
  corbel::SafetensorsWriter writer;
  REQUIRE(writer.set_metadata("format", "pt").ok());
  for (const auto& [name, shape] : tensors) {
    std::uint64_t count = 1;
    for (const std::uint64_t extent : shape) count *= extent;
    const std::vector<float> values = numbers(name, count);
    std::vector<std::byte> bytes(4 * values.size());
    corbel::traits(corbel::DType::kF32).encode(values.data(), bytes.data(), values.size());
    REQUIRE(writer.add_tensor(name, shape, "F32", std::move(bytes)).ok());
  }
  REQUIRE(writer.write_file(path + "/model.safetensors").ok());
  std::ofstream(path + "/config.json")
      << R"({"model_type":"llama","hidden_size":32,"num_attention_heads":2,"num_key_value_heads":1,)"
         R"("num_hidden_layers":1,"intermediate_size":64,"vocab_size":8,"max_position_embeddings":64,)"
         R"("rms_norm_eps":1e-5,"tie_word_embeddings":false,"torch_dtype":"float32")"
      << more_config << "}";
}

inline std::vector<float> values_of(const corbel::Checkpoint& checkpoint, const std::string& name) {
  const corbel::TensorInfo* tensor = checkpoint.find_tensor(name);
  INFO(name);
  REQUIRE(tensor != nullptr);
  return checkpoint.read_f32(*tensor).value();
}

}  // namespace corbel_test
