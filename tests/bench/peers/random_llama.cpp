// Writes a Llama of 1.1 billion random weights, the shape of a real one, as a GGUF file for speed tests:
//
//   random_llama TOKENIZER.gguf OUT.gguf TYPE      TYPE: Q4_0, Q8_0, BF16, ... or the usual mixture Q4_K_M
//
// 16 layers, hidden 2048, feed forward 8192, 32 heads of 64 with 8 of keys and values, tied embeddings; the vocabulary
// (49,152 words) and its tokenizer are those of the first file. Rows are cut from a small pool of encoded normal
// values, so that writing costs little more than the disk. The bytes are the same everywhere.
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/gguf_writer.hpp>
#include <corbel/context.hpp>
#include <corbel/dtype.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t kLayers = 16, kHidden = 2048, kFeedForward = 8192, kHeads = 32, kKvHeads = 8, kHeadDim = 64;
constexpr std::uint64_t kPoolValues = 1u << 19, kPieceRows = 512;

void check(const corbel::Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(status.message()));
}

/// Blocks of one type, encoded once.
struct Pool {
  const corbel::DTypeTraits* type;
  std::vector<std::byte> bytes;

  explicit Pool(const corbel::DTypeTraits& of) : type(&of) {
    std::mt19937_64 random(of.ggml_id);
    std::vector<float> values(kPoolValues);
    for (float& value : values) {
      double sum = 0;  // twelve uniform values are nearly a normal one, and the same everywhere
      for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
      value = static_cast<float>((sum - 6.0) * 0.02);
    }
    const std::size_t blocks = kPoolValues / of.block_elements;
    bytes.resize(blocks * of.block_bytes);
    of.encode(values.data(), bytes.data(), blocks);
  }
};

class Writer {
 public:
  Writer(const corbel::Checkpoint& tokenizer, std::string type) : type_(std::move(type)) {
    corbel::Metadata& keys = writer_.metadata();
    const auto number = [&](const std::string& name, std::uint64_t value) {
      keys.set("llama." + name, corbel::MetaValue::from_uint(value));
    };
    keys.set("general.architecture", corbel::MetaValue::from_string("llama"));
    keys.set("general.name", corbel::MetaValue::from_string("random 1.1B"));
    number("block_count", kLayers);
    number("context_length", 8192);
    number("embedding_length", kHidden);
    number("feed_forward_length", kFeedForward);
    number("attention.head_count", kHeads);
    number("attention.head_count_kv", kKvHeads);
    number("rope.dimension_count", kHeadDim);
    keys.set("llama.rope.freq_base", corbel::MetaValue::from_float(1e5));
    keys.set("llama.attention.layer_norm_rms_epsilon", corbel::MetaValue::from_float(1e-5));
    const corbel::MetaValue* const words = tokenizer.metadata().find("tokenizer.ggml.tokens");
    if (words == nullptr) throw std::runtime_error("the first file has no tokenizer");
    vocab_ = words->size();
    number("vocab_size", vocab_);
    keys.set("general.file_type", corbel::MetaValue::from_uint(file_type()));
    for (const corbel::Metadata::Entry& entry : tokenizer.metadata().entries())
      if (entry.key.starts_with("tokenizer.")) keys.set(entry.key, entry.value);
  }

  void write(const std::string& path) {
    // llama.cpp's Q4_K_M: Q6_K for the head, and for values and the last feed-forward matrix in half of the layers.
    matrix("token_embd.weight", vocab_, kHidden, true);
    vector("output_norm.weight");
    for (std::uint64_t i = 0; i < kLayers; ++i) {
      const std::string layer = "blk." + std::to_string(i) + ".";
      const bool more_bits = i < kLayers / 8 || i >= 7 * kLayers / 8 || (i - kLayers / 8) % 3 == 2;
      vector(layer + "attn_norm.weight");
      matrix(layer + "attn_q.weight", kHeads * kHeadDim, kHidden, false);
      matrix(layer + "attn_k.weight", kKvHeads * kHeadDim, kHidden, false);
      matrix(layer + "attn_v.weight", kKvHeads * kHeadDim, kHidden, more_bits);
      matrix(layer + "attn_output.weight", kHidden, kHeads * kHeadDim, false);
      vector(layer + "ffn_norm.weight");
      matrix(layer + "ffn_gate.weight", kFeedForward, kHidden, false);
      matrix(layer + "ffn_up.weight", kFeedForward, kHidden, false);
      matrix(layer + "ffn_down.weight", kHidden, kFeedForward, more_bits);
    }
    check(writer_.write_file(path));
  }

 private:
  std::uint64_t file_type() const {
    for (const auto& [name, number] :
         {std::pair<const char*, unsigned>{"Q4_0", 2}, {"Q4_1", 3}, {"Q8_0", 7}, {"Q4_K_M", 15}, {"BF16", 32}})
      if (type_ == name) return number;
    return 0;
  }

  const Pool& pool(const std::string& name) {
    const auto found = pools_.find(name);
    if (found != pools_.end()) return found->second;
    const corbel::DTypeTraits* const type = corbel::find_dtype_by_name(name);
    if (type == nullptr || type->encode == nullptr) throw std::runtime_error("no type " + name);
    return pools_.emplace(name, *type).first->second;
  }

  void matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols, bool more_bits) {
    const Pool& from = pool(type_ != "Q4_K_M" ? type_ : more_bits ? "Q6_K" : "Q4_K");
    const std::uint64_t seed = ++num_matrices_;
    const std::uint64_t shape[] = {rows, cols};
    check(writer_.add_tensor(name, shape, from.type->ggml_id, [&from, rows, cols, seed](const corbel::WriteSink& sink) {
      std::mt19937_64 random(seed);
      const std::size_t block = from.type->block_bytes, row_bytes = cols / from.type->block_elements * block;
      const std::size_t starts = (from.bytes.size() - row_bytes) / block;
      std::vector<std::byte> piece(kPieceRows * row_bytes);
      for (std::uint64_t row = 0; row < rows; row += kPieceRows) {
        for (std::size_t i = 0; i < kPieceRows; ++i)
          std::copy_n(from.bytes.data() + random() % starts * block, row_bytes, piece.data() + i * row_bytes);
        const corbel::Status status = sink(piece);
        if (!status.ok()) return status;
      }
      return corbel::Status();
    }));
  }

  void vector(const std::string& name) {
    const std::uint64_t shape[] = {kHidden};
    check(writer_.add_f32(name, shape, std::vector<float>(kHidden, 1.0f)));
  }

  std::string type_;
  std::uint64_t vocab_ = 0;
  std::uint64_t num_matrices_ = 0;
  std::map<std::string, Pool> pools_;
  corbel::GgufWriter writer_;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) {
    std::fprintf(stderr, "random_llama TOKENIZER.gguf OUT.gguf TYPE\n");
    return 2;
  }
  const corbel::Context context;
  Writer(corbel::Checkpoint::open(argv[1], context).value(), argv[3]).write(argv[2]);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "random_llama: %s\n", error.what());
  return 1;
}
