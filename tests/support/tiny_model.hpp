// A small random llama checkpoint as a GgufWriter, the base of malformed files and of tests that need no reference.
#pragma once

#include <corbel/checkpoint/gguf_writer.hpp>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace corbel_test {

struct TinyModel {
  std::uint32_t layers = 2, hidden = 32, feed_forward = 64, heads = 4, kv_heads = 2, vocab = 64, context = 128;

  std::uint32_t head_dim() const { return hidden / heads; }

  static std::vector<float> random(std::size_t count, std::uint32_t seed, float scale) {
    std::mt19937 engine(seed);
    std::vector<float> values(count);
    for (float& value : values) value = scale * (static_cast<float>(engine() % 2001) / 1000.0f - 1.0f);
    return values;
  }

  /// Metadata and tensors; callers change what they want before writing.
  corbel::GgufWriter writer() const {
    using corbel::MetaType;
    using corbel::MetaValue;
    corbel::GgufWriter out;
    corbel::Metadata& meta = out.metadata();
    meta.set("general.architecture", MetaValue::from_string("llama"));
    meta.set("llama.block_count", MetaValue::from_uint(layers));
    meta.set("llama.context_length", MetaValue::from_uint(context));
    meta.set("llama.embedding_length", MetaValue::from_uint(hidden));
    meta.set("llama.feed_forward_length", MetaValue::from_uint(feed_forward));
    meta.set("llama.attention.head_count", MetaValue::from_uint(heads));
    meta.set("llama.attention.head_count_kv", MetaValue::from_uint(kv_heads));
    meta.set("llama.attention.layer_norm_rms_epsilon", MetaValue::from_float(1e-5));
    meta.set("llama.rope.freq_base", MetaValue::from_float(10000));
    std::vector<std::string> tokens;
    std::vector<std::int32_t> types;
    for (std::uint32_t i = 0; i < vocab; ++i) {
      tokens.push_back(i == 0   ? "<unk>"
                       : i == 1 ? "<s>"
                       : i == 2 ? "</s>"
                                : std::string(1, static_cast<char>('!' + i)));
      types.push_back(i == 0 ? 2 : i < 3 ? 3 : 1);
    }
    meta.set("tokenizer.ggml.model", MetaValue::from_string("gpt2"));
    meta.set("tokenizer.ggml.pre", MetaValue::from_string("gpt-2"));
    meta.set("tokenizer.ggml.tokens", MetaValue::from_strings(tokens));
    meta.set("tokenizer.ggml.token_type", MetaValue::from_ints(types));
    meta.set("tokenizer.ggml.merges", MetaValue::from_strings({}));
    meta.set("tokenizer.ggml.bos_token_id", MetaValue::from_uint(1));
    meta.set("tokenizer.ggml.eos_token_id", MetaValue::from_uint(2));

    std::uint32_t seed = 1;
    const auto matrix = [&](const std::string& name, std::uint64_t rows, std::uint64_t cols) {
      const std::uint64_t shape[] = {rows, cols};
      (void)out.add_f32(name, shape, random(rows * cols, seed++, 0.3f)).ok();
    };
    const auto vector = [&](const std::string& name, std::uint64_t size) {
      const std::uint64_t shape[] = {size};
      (void)out.add_f32(name, shape, std::vector<float>(size, 1.0f)).ok();
    };
    matrix("token_embd.weight", vocab, hidden);
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      const std::string block = "blk." + std::to_string(layer) + ".";
      vector(block + "attn_norm.weight", hidden);
      matrix(block + "attn_q.weight", hidden, hidden);
      matrix(block + "attn_k.weight", kv_heads * head_dim(), hidden);
      matrix(block + "attn_v.weight", kv_heads * head_dim(), hidden);
      matrix(block + "attn_output.weight", hidden, hidden);
      vector(block + "ffn_norm.weight", hidden);
      matrix(block + "ffn_gate.weight", feed_forward, hidden);
      matrix(block + "ffn_up.weight", feed_forward, hidden);
      matrix(block + "ffn_down.weight", hidden, feed_forward);
    }
    vector("output_norm.weight", hidden);
    return out;
  }
};

}  // namespace corbel_test
