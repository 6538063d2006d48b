// Checkpoints whose container is sound and whose meaning is not: cases G080 to G098 and C04 to C14 of the
// malformed-file list (docs/reference/errors.md).
#include <corbel/checkpoint/safetensors_writer.hpp>
#include <corbel/impl/models/config_types.ipp>
#include <corbel/plan.hpp>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "support/alloc_counter.hpp"
#include "support/golden.hpp"
#include "support/malformed.hpp"
#include "support/memory_folder.hpp"
#include "support/tiny_model.hpp"

using namespace corbel;
using namespace corbel_test;

namespace {

Status load(const GgufWriter& writer) {
  const std::vector<std::byte> bytes = writer.to_bytes().value();
  const Context context({.threads = 1});
  const Result<Checkpoint> checkpoint = Checkpoint::from_memory(bytes, context);
  if (!checkpoint.ok()) return checkpoint.status();
  const auto model = Model<RefBackend>::load(*checkpoint, context);
  return model.status();
}

// What looks at a file without its weights must not call it sound where loading refuses it.
Status plan(const GgufWriter& writer) {
  const std::vector<std::byte> bytes = writer.to_bytes().value();
  const Context context({.threads = 1});
  const Result<Checkpoint> checkpoint = Checkpoint::from_memory(bytes, context);
  return checkpoint.ok() ? plan_memory<RefBackend>(*checkpoint, context).status() : checkpoint.status();
}

struct Change {
  const char* what;
  std::function<void(Metadata&)> apply;
  Errc expected;
  const char* place;  // must be in the message
};

MetaValue uint_value(std::uint64_t value) { return MetaValue::from_uint(value); }

}  // namespace

TEST_CASE("a sound tiny model loads", "[malformed]") { CHECK(load(TinyModel().writer()).ok()); }

TEST_CASE("hyper-parameters outside their domain are refused with their key", "[malformed]") {
  const auto set = [](const char* key, MetaValue value) { return [=](Metadata& meta) { meta.set(key, value); }; };
  const auto number = [&](const char* key, double value) { return set(key, MetaValue::from_float(value)); };
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const char* const layers = "llama.block_count";
  const char* const heads = "llama.attention.head_count";
  const char* const kv_heads = "llama.attention.head_count_kv";
  const char* const hidden = "llama.embedding_length";
  const char* const rope_dim = "llama.rope.dimension_count";
  const char* const base = "llama.rope.freq_base";
  const char* const epsilon = "llama.attention.layer_norm_rms_epsilon";
  const char* const context = "llama.context_length";
  const Change changes[] = {
      {"G016 no keys for the family", [](Metadata& meta) { meta.erase("llama.block_count"); }, Errc::kMissingKey,
       layers},
      {"G080 no architecture", [](Metadata& meta) { meta.erase("general.architecture"); }, Errc::kMissingKey,
       "general.architecture"},
      {"G080 a number", set("general.architecture", uint_value(3)), Errc::kTypeMismatch, "general.architecture"},
      {"G080 unknown", set("general.architecture", MetaValue::from_string("nonsense")), Errc::kUnsupported, "nonsense"},
      {"G080 1 MB", set("general.architecture", MetaValue::from_string(std::string(1 << 20, 'x'))),
       Errc::kLimitExceeded, "general.architecture"},
      {"G081 0", set(layers, uint_value(0)), Errc::kBadValue, layers},
      {"G081 4097", set(layers, uint_value(4097)), Errc::kLimitExceeded, layers},
      {"G081 2^31", set(layers, uint_value(1u << 31)), Errc::kLimitExceeded, layers},
      {"G081 2^32-1", set(layers, uint_value(UINT32_MAX)), Errc::kLimitExceeded, layers},
      {"G038 negative", set(layers, MetaValue::from_int(-1)), Errc::kBadValue, layers},
      {"G037 a float", number(layers, 2), Errc::kTypeMismatch, layers},
      {"G082 more layers than in the file", set(layers, uint_value(3)), Errc::kMissingTensor, "blk.2.attn_norm.weight"},
      {"G083", set(heads, uint_value(0)), Errc::kBadValue, heads},
      {"G084 0", set(kv_heads, uint_value(0)), Errc::kBadValue, kv_heads},
      {"G084 more than heads", set(kv_heads, uint_value(8)), Errc::kBadValue, kv_heads},
      {"G084 not dividing", set(kv_heads, uint_value(3)), Errc::kBadValue, kv_heads},
      {"G085", set(hidden, uint_value(33)), Errc::kBadValue, hidden},
      {"G086", set(hidden, uint_value(1u << 31)), Errc::kLimitExceeded, hidden},
      {"G087 odd", set(rope_dim, uint_value(7)), Errc::kBadValue, rope_dim},
      {"G087 0", set(rope_dim, uint_value(0)), Errc::kBadValue, rope_dim},
      {"G087 above the head size", set(rope_dim, uint_value(10)), Errc::kBadValue, rope_dim},
      {"G088 0", number(base, 0), Errc::kBadValue, base},
      {"G088 negative", number(base, -10000), Errc::kBadValue, base},
      {"G088 NaN", number(base, nan), Errc::kBadValue, base},
      {"G088 infinite", number(base, infinity), Errc::kBadValue, base},
      {"G089 0", number(epsilon, 0), Errc::kBadValue, epsilon},
      {"G089 negative", number(epsilon, -1e-5), Errc::kBadValue, epsilon},
      {"G089 NaN", number(epsilon, nan), Errc::kBadValue, epsilon},
      {"G089 1e30", number(epsilon, 1e30), Errc::kBadValue, epsilon},
      {"G090 0", set(context, uint_value(0)), Errc::kBadValue, context},
      {"G090 2^32-1", set(context, uint_value(UINT32_MAX)), Errc::kLimitExceeded, context},
      {"G091 how many are used", set("llama.expert_count", uint_value(8)), Errc::kMissingKey, "expert_used_count"},
      {"G091 no tensors of experts",
       [&](Metadata& meta) {
         meta.set("llama.expert_count", uint_value(8));
         meta.set("llama.expert_used_count", uint_value(2));
       },
       Errc::kMissingTensor, "blk.0.ffn_gate_inp.weight"},
      {"G091 more used than there are",
       [&](Metadata& meta) {
         meta.set("llama.expert_count", uint_value(8));
         meta.set("llama.expert_used_count", uint_value(9));
       },
       Errc::kLimitExceeded, "expert_used_count"},
      {"G091 2^20 experts", set("llama.expert_count", uint_value(1u << 20)), Errc::kLimitExceeded, "expert_count"},
      {"G092 wrong length", set(heads, MetaValue::from_ints(std::vector<std::int32_t>{4, 4, 4})), Errc::kShapeMismatch,
       heads},
      {"G092 zeros", set(heads, MetaValue::from_ints(std::vector<std::int32_t>{0, 0})), Errc::kBadValue, heads},
      {"G093 vocab_size", set("llama.vocab_size", uint_value(63)), Errc::kShapeMismatch, "llama.vocab_size"},
      {"G093 tokens", set("tokenizer.ggml.tokens", MetaValue::from_strings(std::vector<std::string>{"a", "b"})),
       Errc::kShapeMismatch, "tokenizer.ggml.tokens"},
      {"G098 tokens of ints", set("tokenizer.ggml.tokens", MetaValue::from_ints(std::vector<std::int32_t>(64))),
       Errc::kTypeMismatch, "tokenizer.ggml.tokens"},
      {"G101 bos", set("tokenizer.ggml.bos_token_id", uint_value(std::uint64_t{1} << 31)), Errc::kVocabInvalid,
       "bos_token_id"},
      {"G101 eos", set("tokenizer.ggml.eos_token_id", uint_value(UINT32_MAX)), Errc::kVocabInvalid, "eos_token_id"},
      {"G101 pad", set("tokenizer.ggml.padding_token_id", uint_value(0x90000000u)), Errc::kVocabInvalid,
       "pad_token_id"},
      {"a penalty that is none", set("general.sampling.penalty_repeat", MetaValue::from_bool(true)),
       Errc::kTypeMismatch, "general.sampling.penalty_repeat"},
      {"rope scaling", set("llama.rope.scaling.type", MetaValue::from_string("spiral")), Errc::kUnsupported,
       "rope.scaling.type"},
      {"a recurrent family", set("general.architecture", MetaValue::from_string("mamba2")), Errc::kUnsupported,
       "recurrent mixer Mamba2"},
      {"G109 an adapter, which is no model", set("general.type", MetaValue::from_string("adapter")), Errc::kUnsupported,
       "changes to another"},
      {"figures", set("general.type", MetaValue::from_string("imatrix")), Errc::kUnsupported, "figures for quantizing"},
      {"a projector", set("general.type", MetaValue::from_string("mmproj")), Errc::kUnsupported, "images or sounds"},
      {"a projector", set("general.architecture", MetaValue::from_string("clip")), Errc::kUnsupported, "images or"},
      {"a kind of another type", set("general.type", uint_value(1)), Errc::kTypeMismatch, "general.type"},
      {"a near miss", set("general.architecture", MetaValue::from_string("lama")), Errc::kUnsupported,
       "nearest known family is \"llama\""},
  };
  for (const Change& change : changes) {
    INFO(change.what);
    GgufWriter writer = TinyModel().writer();
    change.apply(writer.metadata());
    const Status status = load(writer);
    INFO(status.message());
    CHECK(errc_name(status.code()) == std::string(errc_name(change.expected)));
    CHECK(status.message().find(change.place) != std::string_view::npos);
    CHECK(status.message().size() <= 512);
    CHECK(errc_name(plan(writer).code()) == std::string(errc_name(change.expected)));
  }
}

TEST_CASE("a vocabulary alone is no model", "[malformed]") {
  GgufWriter writer;
  writer.metadata().set("general.architecture", MetaValue::from_string("llama"));
  const Status status = load(writer);
  CHECK(status.code() == Errc::kMissingTensor);
  CHECK(status.message().find("a vocabulary alone") != std::string_view::npos);
}

TEST_CASE("per-layer arrays that agree are read", "[malformed]") {
  GgufWriter writer = TinyModel().writer();
  writer.metadata().set("llama.attention.head_count", MetaValue::from_ints(std::vector<std::int32_t>{4, 4}));
  CHECK(load(writer).ok());
}

TEST_CASE("tensors that are missing, turned, or of a type that cannot be used", "[malformed]") {
  TinyModel tiny;
  tiny.hidden = 256;  // whole blocks of every type in a row
  tiny.layers = 1;
  // The same file with one tensor changed: written anew, since a writer only adds.
  const auto rebuilt = [&](const std::string& name,
                           const std::function<void(GgufWriter&, const TensorInfo&, std::vector<float>)>& change) {
    const std::vector<std::byte> bytes = tiny.writer().to_bytes().value();
    const Context context;
    const Checkpoint base = Checkpoint::from_memory(bytes, context).value();
    GgufWriter out;
    for (const Metadata::Entry& entry : base.metadata().entries()) out.metadata().set(entry.key, entry.value);
    for (const TensorInfo& tensor : base.tensors()) {
      if (tensor.name == name) {
        change(out, tensor, base.read_f32(tensor).value());
      } else {
        REQUIRE(out.add_f32(tensor.name, tensor.shape, base.read_f32(tensor).value()).ok());
      }
    }
    return load(out);
  };
  SECTION("G094") {
    for (const char* name :
         {"output_norm.weight", "blk.0.attn_k.weight", "blk.0.ffn_down.weight", "token_embd.weight"}) {
      const Status status = rebuilt(name, [](GgufWriter&, const TensorInfo&, std::vector<float>) {});
      CHECK(status.code() == Errc::kMissingTensor);
      CHECK(status.message().find(name) != std::string_view::npos);
    }
  }
  SECTION("G095") {
    const Status status =
        rebuilt("blk.0.ffn_up.weight", [](GgufWriter& out, const TensorInfo& tensor, std::vector<float> values) {
          const std::uint64_t turned[] = {tensor.shape[1], tensor.shape[0]};
          REQUIRE(out.add_f32(tensor.name, turned, values).ok());
        });
    CHECK(status.code() == Errc::kShapeMismatch);
    CHECK(status.message().find("blk.0.ffn_up.weight") != std::string_view::npos);
  }
  SECTION("G096") {
    const Status status =
        rebuilt("blk.0.attn_norm.weight", [](GgufWriter& out, const TensorInfo& tensor, std::vector<float>) {
          REQUIRE(out.add_tensor(tensor.name, tensor.shape, DType::kQ4_K, std::vector<std::byte>(144)).ok());
        });
    CHECK(status.code() == Errc::kUnsupported);
    CHECK(status.message().find("blk.0.attn_norm.weight") != std::string_view::npos);
  }
  SECTION("a type of newer files is read") {
    const Status status =
        rebuilt("blk.0.ffn_up.weight", [](GgufWriter& out, const TensorInfo& tensor, std::vector<float>) {
          const std::uint64_t blocks = tensor.num_elements() / 256;
          REQUIRE(out.add_tensor(tensor.name, tensor.shape, std::uint32_t{23}, std::vector<std::byte>(blocks * 136))
                      .ok());  // IQ4_XS
        });
    INFO(status.message());
    CHECK(status.ok());
  }
  SECTION("G097") {
    const std::uint64_t blocks = 256 * 64 / 32;  // ffn_down is [256, 64]
    for (std::uint64_t bad : {std::uint64_t{0}, blocks / 2, blocks - 1})
      for (std::uint16_t scale : {std::uint16_t{0x7e00}, std::uint16_t{0x7c00}}) {
        const Status status =
            rebuilt("blk.0.ffn_down.weight", [&](GgufWriter& out, const TensorInfo& tensor, std::vector<float>) {
              std::vector<std::byte> bytes(blocks * 34);
              std::memcpy(bytes.data() + bad * 34, &scale, 2);
              REQUIRE(out.add_tensor(tensor.name, tensor.shape, DType::kQ8_0, std::move(bytes)).ok());
            });
        INFO(status.message());
        CHECK(status.code() == Errc::kBadValue);
        CHECK(status.message().find("blk.0.ffn_down.weight") != std::string_view::npos);
        CHECK(status.message().find("block " + std::to_string(bad)) != std::string_view::npos);
      }
  }
}

namespace {

/// A folder with a tiny model: config.json and random tensors under a family's names.
struct TinyFolder {
  nlohmann::json config = {
      {"model_type", "llama"},    {"hidden_size", 32},        {"intermediate_size", 48},       {"num_hidden_layers", 2},
      {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"max_position_embeddings", 64}, {"rms_norm_eps", 1e-5},
      {"rope_theta", 10000.0},    {"vocab_size", 40},         {"tie_word_embeddings", true}};
  std::string without;  // the tensor that is left out
  std::string retyped;  // the tensor that has `type`, and bytes of zero
  const char* type = "F32";

  Files files() const {
    SafetensorsWriter writer;
    std::uint32_t seed = 1;
    const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape) {
      std::uint64_t count = 1;
      for (const std::uint64_t extent : shape) count *= extent;
      const std::vector<float> values = TinyModel::random(count, seed++, 0.3f);
      std::vector<std::byte> bytes(values.size() * 4);
      std::memcpy(bytes.data(), values.data(), bytes.size());
      if (name == retyped) {
        const std::size_t width = std::string_view(type) == "I64" ? 8 : std::string_view(type) == "BF16" ? 2 : 1;
        REQUIRE(writer.add_tensor(name, shape, type, std::vector<std::byte>(count * width)).ok());
      } else if (name != without) {
        REQUIRE(writer.add_tensor(name, shape, "F32", std::move(bytes)).ok());
      }
    };
    add("model.embed_tokens.weight", {40, 32});
    add("model.norm.weight", {32});
    for (int layer = 0; layer < 2; ++layer) {
      const std::string block = "model.layers." + std::to_string(layer) + ".";
      for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add(block + norm + ".weight", {32});
      add(block + "self_attn.q_proj.weight", {32, 32});
      for (const char* name : {"k_proj", "v_proj"}) add(block + "self_attn." + name + ".weight", {16, 32});
      add(block + "self_attn.o_proj.weight", {32, 32});
      for (const char* name : {"gate_proj", "up_proj"}) add(block + "mlp." + name + ".weight", {48, 32});
      add(block + "mlp.down_proj.weight", {32, 48});
    }
    const std::vector<std::byte> bytes = writer.to_bytes().value();
    Files all = more;
    all["config.json"] = config.dump();
    all["model.safetensors"] = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return all;
  }
  Files more;  // further documents
  Status load(const LogSink& log = {}) const {
    ContextOptions options{.threads = 1};
    options.log = log;
    const Context context(options);
    const auto checkpoint = Checkpoint::from_folder(std::make_shared<MemoryFolder>(files()), context);
    if (!checkpoint.ok()) return checkpoint.status();
    const Status status = Model<RefBackend>::load(*checkpoint, context).status();
    CHECK(errc_name(plan_memory<RefBackend>(*checkpoint, context).status().code()) ==
          std::string(errc_name(status.code())));
    return status;
  }
};

}  // namespace

TEST_CASE("a sound tiny folder loads", "[malformed]") { CHECK(TinyFolder().load().message() == ""); }

TEST_CASE("config.json outside its domain is refused with its key", "[malformed]") {
  using nlohmann::json;
  struct ConfigChange {
    const char* id;  // in the list of malformed files; empty: a case of our own
    const char* key;
    json value;  // null: the key is taken away
    Errc expected;
    const char* place;
  };
  const ConfigChange changes[] = {
      {"C10", "model_type", nullptr, Errc::kMissingKey, "model_type"},
      {"C10", "model_type", 7, Errc::kTypeMismatch, "model_type"},
      {"C10", "model_type", "lamma", Errc::kUnsupported, "nearest known family is \"llama\""},
      {"C10", "model_type", "qwen3_next", Errc::kUnsupported, "recurrent mixer gated delta net"},
      {"", "layer_types", {"full_attention", "linear_attention"}, Errc::kUnsupported, "recurrent mixer"},
      {"", "layer_types", {"full_attention"}, Errc::kShapeMismatch, "layer_types"},
      {"", "layer_types", {"full_attention", "spiral"}, Errc::kUnsupported, "spiral"},
      {"", "layer_types", {1, 2}, Errc::kTypeMismatch, "layer_types"},
      {"C06", "num_hidden_layers", nullptr, Errc::kMissingKey, "num_hidden_layers"},
      {"C06", "num_hidden_layers", 0, Errc::kBadValue, "num_hidden_layers"},
      {"C06", "num_hidden_layers", -1, Errc::kBadValue, "num_hidden_layers"},
      {"C06", "num_hidden_layers", 3, Errc::kMissingTensor, "model.layers.2.input_layernorm.weight"},
      {"C06", "num_hidden_layers", 1u << 31, Errc::kLimitExceeded, "num_hidden_layers"},
      {"C06", "num_hidden_layers", "2", Errc::kTypeMismatch, "num_hidden_layers"},
      {"C05", "num_attention_heads", nullptr, Errc::kMissingKey, "num_attention_heads"},
      {"C05", "num_attention_heads", 0, Errc::kBadValue, "num_attention_heads"},
      {"C05", "num_key_value_heads", 3, Errc::kBadValue, "num_key_value_heads"},
      {"C04", "hidden_size", 33, Errc::kBadValue, "hidden_size"},
      {"C04", "hidden_size", 64, Errc::kShapeMismatch, "embed_tokens"},
      {"C05", "head_dim", 0, Errc::kBadValue, "head_dim"},
      {"C05", "head_dim", 7, Errc::kBadValue, "rotary_dim"},
      {"C14", "rms_norm_eps", 0, Errc::kBadValue, "rms_norm_eps"},
      {"C14", "rms_norm_eps", "small", Errc::kTypeMismatch, "rms_norm_eps"},
      {"C08", "rope_theta", -1, Errc::kBadValue, "rope_theta"},
      {"C08", "rope_theta", 1e-30, Errc::kBadValue, "base"},
      {"C08", "rope_scaling", {{"type", "spiral"}, {"factor", 2.0}}, Errc::kUnsupported, "spiral"},
      {"C08", "rope_scaling", {{"type", "linear"}, {"factor", 0}}, Errc::kBadValue, "factor"},
      {"C08",
       "rope_scaling",
       {{"type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {1.0}}},
       Errc::kBadValue,
       "longrope"},
      {"C08",
       "rope_scaling",
       {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 4.0}, {"high_freq_factor", 1.0}},
       Errc::kBadValue,
       "high_freq_factor"},
      {"C07", "vocab_size", 41, Errc::kShapeMismatch, "vocab_size"},
      {"C14", "tie_word_embeddings", false, Errc::kMissingTensor, "lm_head.weight"},
      {"C14", "tie_word_embeddings", 1, Errc::kTypeMismatch, "tie_word_embeddings"},
      {"", "hidden_act", "wave", Errc::kUnsupported, "wave"},
      {"", "is_causal", false, Errc::kUnsupported, "is_causal"},
      {"", "use_bidirectional_attention", true, Errc::kUnsupported, "use_bidirectional_attention"},
      {"", "num_local_experts", 4, Errc::kMissingKey, "num_experts_per_tok"},
      {"", "num_local_experts", 1u << 20, Errc::kLimitExceeded, "num_local_experts"},
      {"", "max_position_embeddings", 0, Errc::kBadValue, "max_position_embeddings"},
      {"C04", "hidden_size", 0, Errc::kBadValue, "hidden_size"},
      {"C04", "hidden_size", -1, Errc::kBadValue, "hidden_size"},
      {"C04", "hidden_size", std::uint64_t{1} << 63, Errc::kLimitExceeded, "hidden_size"},
      {"C04", "hidden_size", 1e308, Errc::kTypeMismatch, "hidden_size"},
      {"C04", "hidden_size", "4096", Errc::kTypeMismatch, "hidden_size"},
      {"C04", "hidden_size", 4096.5, Errc::kTypeMismatch, "hidden_size"},
      {"C06", "num_hidden_layers", 1000000000, Errc::kLimitExceeded, "num_hidden_layers"},
      {"C08",
       "rope_scaling",
       {{"type", "linear"}, {"factor", "2"}},
       Errc::kTypeMismatch,
       "config.json: rope_scaling.factor"},
      {"C08", "rope_scaling", {{"type", 7}}, Errc::kTypeMismatch, "config.json: rope_scaling.type"},
      {"C08", "rope_scaling", "linear", Errc::kTypeMismatch, "config.json: rope_scaling"},
      {"C08",
       "rope_parameters",
       {{"full_attention", 5}},
       Errc::kTypeMismatch,
       "config.json: rope_parameters.full_attention"},
      {"C09", "sliding_window", "4096", Errc::kTypeMismatch, "sliding_window"},
      {"", "attention_bias", "no", Errc::kTypeMismatch, "attention_bias"},
      {"", "text_config", {1}, Errc::kTypeMismatch, "config.json: text_config"},
      {"", "text_config", {{"rms_norm_eps", "x"}}, Errc::kTypeMismatch, "config.json: text_config.rms_norm_eps"},
      {"C10", "architectures", 7, Errc::kTypeMismatch, "architectures"},
      {"C10", "architectures", {"LlamaForSequenceClassification"}, Errc::kUnsupported, "architectures[0]"},
      {"C11", "quantization_config", 7, Errc::kTypeMismatch, "config.json: quantization_config"},
      {"C11", "quantization_config", {{"quant_method", "bitnet"}}, Errc::kUnsupported, "bitnet"},
      {"C14", "rms_norm_eps", "1e-5", Errc::kTypeMismatch, "rms_norm_eps"},
      {"C13", "bos_token_id", "1", Errc::kTypeMismatch, "config.json: bos_token_id"},
      {"C13", "eos_token_id", {1, "2"}, Errc::kTypeMismatch, "config.json: eos_token_id"},
      {"C05", "num_attention_heads", -1, Errc::kBadValue, "num_attention_heads"},
      {"C05", "num_key_value_heads", 0, Errc::kBadValue, "num_key_value_heads"},
      {"C05", "num_key_value_heads", 8, Errc::kBadValue, "num_key_value_heads"},
      {"C07", "vocab_size", 39, Errc::kShapeMismatch, "vocab_size"},
      {"C08", "rope_scaling", {{"type", "linear"}, {"factor", -2}}, Errc::kBadValue, "factor"},
      {"C08", "rope_scaling", {{"type", "yarn"}}, Errc::kMissingKey, "factor"},
      {"C10", "architectures", {7}, Errc::kTypeMismatch, "architectures"},
      {"C13", "pad_token_id", true, Errc::kTypeMismatch, "config.json: pad_token_id"},
  };
  for (const ConfigChange& change : changes) {
    INFO(change.id << " " << change.key << " = " << change.value.dump());
    TinyFolder folder;
    if (change.value.is_null()) {
      folder.config.erase(change.key);
    } else {
      folder.config[change.key] = change.value;
    }
    const Status status = folder.load();
    INFO(status.message());
    CHECK(errc_name(status.code()) == std::string(errc_name(change.expected)));
    CHECK(status.message().find(change.place) != std::string_view::npos);
    CHECK(status.message().size() <= 512);
  }
  for (const char* name : {"model.norm.weight", "model.layers.1.mlp.up_proj.weight", "model.embed_tokens.weight"}) {
    TinyFolder folder;
    folder.without = name;
    const Status status = folder.load();
    CHECK(status.code() == Errc::kMissingTensor);
    CHECK(status.message().find(name) != std::string_view::npos);
  }
}

TEST_CASE("S35: weights of types that are no weights are refused by name", "[malformed]") {
  for (const char* name : {"model.norm.weight", "model.layers.1.mlp.up_proj.weight", "model.embed_tokens.weight"}) {
    for (const char* type : {"BF16", "F8_E4M3", "I64", "I8", "BOOL"}) {
      CAPTURE(name, type);
      TinyFolder folder;
      folder.retyped = name;
      folder.type = type;
      const Status status = folder.load();
      CAPTURE(std::string(status.message()));
      if (std::string_view(type) == "BF16" || std::string_view(type) == "F8_E4M3") {
        CHECK(status.ok());  // are read
        continue;
      }
      CHECK(status.code() == Errc::kUnsupported);
      CHECK(status.message().find(name) != std::string_view::npos);
      CHECK(status.message().find(type) != std::string_view::npos);
    }
  }
}

TEST_CASE("documents beside config.json are checked when a model loads", "[malformed]") {
  struct Document {
    const char* name;
    const char* text;
    Errc expected;
    const char* place;
  };
  for (const Document& wrong : {
           Document{"generation_config.json", R"({"temperature":"warm"})", Errc::kTypeMismatch, "temperature"},
           Document{"generation_config.json", R"({"top_p":7})", Errc::kBadValue, "top_p"},
           Document{"generation_config.json", R"({"eos_token_id":[40]})", Errc::kVocabInvalid, "eos_token_id"},
           Document{"generation_config.json", R"({"do_sample":"yes"})", Errc::kTypeMismatch, "do_sample"},
           Document{"generation_config.json", "[]", Errc::kTypeMismatch, "object"},
           Document{"tokenizer.json", "", Errc::kBadJson, "the file is empty"},
           Document{"quantize_config.json", R"({"bits":"4"})", Errc::kTypeMismatch, "bits"},
       }) {
    CAPTURE(wrong.name, wrong.text);
    TinyFolder folder;
    folder.more[wrong.name] = wrong.text;
    const Status status = folder.load();
    INFO(status.message());
    CHECK(errc_name(status.code()) == std::string(errc_name(wrong.expected)));
    CHECK(status.message().find(wrong.place) != std::string_view::npos);
    const std::string start = std::string("folder: ") + wrong.name + ": ";
    CHECK(std::string(status.message()).substr(0, start.size()) == start);
  }
  TinyFolder fine;
  fine.more["generation_config.json"] = R"({"temperature":null,"eos_token_id":null,"pad_token_id":-1,"top_k":0})";
  CHECK(fine.load().message() == "");
}

TEST_CASE("ids that are no token: refused in generation_config.json, left out in config.json", "[malformed]") {
  struct Lines {
    std::vector<std::string> all;
  } lines;
  const LogSink log = {[](void* user, LogLevel level, std::string_view line) noexcept {
                         if (level == LogLevel::kWarning) static_cast<Lines*>(user)->all.emplace_back(line);
                       },
                       &lines};
  using nlohmann::json;
  // The model has 40 tokens.
  const std::vector<json> wrong = {40, -2, (std::uint64_t{1} << 31) - 1, std::uint64_t{1} << 31,
                                   std::uint64_t{1} << 63};
  const std::vector<json> mistyped = {"1", 1.5, true, {{"id", 1}}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    // Whatever generation_config.json says of it, or where there is none.
    for (const std::string& beside : {std::string(), std::string("{}"), "{\"" + std::string(key) + "\":1}"}) {
      for (const json& id : wrong) {
        CAPTURE(key, beside, id.dump());
        TinyFolder folder;
        if (!beside.empty()) folder.more["generation_config.json"] = beside;
        folder.config[key] = id;
        lines.all.clear();
        CHECK(folder.load(log).message() == "");
        REQUIRE(lines.all.size() == 1);
        CHECK(lines.all[0] == "folder: config.json: " + std::string(key) + ": " + id.dump() +
                                  " is no token of a vocabulary of 40 and is left out");
      }
      for (const json& id : mistyped) {
        CAPTURE(key, beside, id.dump());
        TinyFolder folder;
        if (!beside.empty()) folder.more["generation_config.json"] = beside;
        folder.config[key] = id;
        CHECK(folder.load().code() == Errc::kTypeMismatch);
      }
      TinyFolder none;
      if (!beside.empty()) none.more["generation_config.json"] = beside;
      none.config[key] = -1;
      lines.all.clear();
      CHECK(none.load(log).message() == "");
      CHECK(lines.all.empty());
    }
    for (const bool both : {false, true}) {  // whatever config.json says of it
      for (const std::vector<json>& ids : {wrong, mistyped}) {
        for (const json& id : ids) {
          CAPTURE(key, both, id.dump());
          TinyFolder folder;
          if (both) folder.config[key] = 1;
          folder.more["generation_config.json"] = json{{key, id}}.dump();
          CHECK(folder.load().code() == (ids == wrong ? Errc::kVocabInvalid : Errc::kTypeMismatch));
        }
      }
    }
  }
  TinyFolder other;  // what is overruled is checked too
  other.config["temperature"] = -1;
  other.more["generation_config.json"] = R"({"temperature":0.5})";
  CHECK(other.load().code() == Errc::kBadValue);
}

TEST_CASE("what is left unread on purpose is said once", "[malformed]") {
  struct Lines {
    std::vector<std::string> all;
  } lines;
  const LogSink log = {[](void* user, LogLevel level, std::string_view line) noexcept {
                         if (level == LogLevel::kWarning) static_cast<Lines*>(user)->all.emplace_back(line);
                       },
                       &lines};
  TinyFolder folder;
  CHECK(folder.load(log).ok());
  CHECK(lines.all.empty());
  folder.config["num_hidden_layers"] = 1;
  folder.config["bos_token_id"] = 50256;  // a token of the model that it was made from
  folder.config["eos_token_id"] = {1, 50256};
  REQUIRE(folder.load(log).message() == "");
  REQUIRE(lines.all.size() == 3);
  CHECK(lines.all[0].find("config.json: eos_token_id: 50256") != std::string::npos);
  CHECK(lines.all[1].find("config.json: bos_token_id: 50256") != std::string::npos);
  CHECK(lines.all[2].find("9 tensors behind the 1 layers that config.json: num_hidden_layers states") !=
        std::string::npos);
  CHECK(lines.all[2].find("the first is model.layers.1.") != std::string::npos);

  lines.all.clear();
  GgufWriter writer = TinyModel().writer();
  writer.metadata().set("llama.block_count", uint_value(1));
  const std::vector<std::byte> bytes = writer.to_bytes().value();
  ContextOptions options{.threads = 1};
  options.log = log;
  const Context context(options);
  const Checkpoint checkpoint = Checkpoint::from_memory(bytes, context).value();
  REQUIRE(Model<RefBackend>::load(checkpoint, context).ok());
  REQUIRE(lines.all.size() == 1);
  CHECK(lines.all[0].find("1 layers that llama.block_count states are not used, the first is blk.1.") !=
        std::string::npos);
}

namespace {

/// The paths of all keys that config.json may have.
std::vector<std::pair<models::detail::ConfigType, std::string>> config_keys() {
  std::vector<std::pair<models::detail::ConfigType, std::string>> keys;
  models::detail::each_config_key(
      [&](models::detail::ConfigType type, const std::string& path) { keys.emplace_back(type, path); });
  return keys;
}

nlohmann::json::json_pointer pointer_to(std::string path) {
  std::replace(path.begin(), path.end(), '.', '/');
  return nlohmann::json::json_pointer("/" + path);
}

}  // namespace

TEST_CASE("config.json: every key that is read has a type", "[malformed]") {
  std::set<std::string> typed;
  for (const auto& [type, path] : config_keys()) typed.insert(path);
  // What the readers ask for, from their sources: names of config.json, or canonical ones that stand for them.
  const std::regex call(
      R"re((?:read_?|keys)\.(?:count|count_or|uniform_count|number|number_or|flag_or|text_or|numbers|texts|has|has_list)\(\s*"([^"]+)")re");
  std::size_t seen = 0;
  for (const char* file : {"model_spec.ipp", "rope_table.ipp", "gguf_layout.ipp"}) {
    const std::string source = read_file(test_data("../../include/corbel/impl/models/") + file);
    REQUIRE_FALSE(source.empty());
    for (std::sregex_iterator at(source.begin(), source.end(), call), end; at != end; ++at) {
      std::stringstream names{std::string(models::detail::hf_names((*at)[1].str()))};
      for (std::string name; names >> name; ++seen) {
        const bool of_gguf =
            name.rfind("rope.", 0) == 0 || name.rfind("attention.", 0) == 0 || name == "expert_gating_func";
        CAPTURE(file, name);
        CHECK((of_gguf || typed.count(name) != 0 || typed.count("rope_parameters." + name) != 0));
      }
    }
  }
  CHECK(seen > 60);
}

TEST_CASE("config.json: no value of any key of any family is read over or does harm", "[malformed]") {
  using models::detail::ConfigType;
  using nlohmann::json;
  const std::pair<const char*, json> values[] = {{"a string", "x"},
                                                 {"a bool", true},
                                                 {"a list", {1, "x"}},
                                                 {"an object", {{"x", 1}}},
                                                 {"null", nullptr},
                                                 {"a negative", -1},
                                                 {"0", 0},
                                                 {"1e308", 1e308},
                                                 {"a fraction", 1.5},
                                                 {"2^63", std::uint64_t{1} << 63}};
  std::size_t folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test_data("golden"))) {
    const std::string path = entry.path().string();
    if (!std::filesystem::exists(path + "/config.json")) continue;
    ++folders;
    CAPTURE(path);
    const json config = json::parse(read_file(path + "/config.json"));
    Files files = {{"config.json", ""}, {"model.safetensors", read_file(path + "/model.safetensors")}};
    const std::size_t bytes = files["model.safetensors"].size();
    const bool nested = config.contains("text_config");
    for (const auto& [type, key] : config_keys()) {
      for (const auto& [what, value] : values) {
        const std::string at = (nested && key != "text_config" ? "text_config." : "") + key;
        json changed = config;
        try {
          changed[pointer_to(at)] = value;
        } catch (const json::exception&) {
          continue;  // inside a list or a null
        }
        files["config.json"] = changed.dump();
        const Context context({.threads = 1});
        const auto folder = std::make_shared<MemoryFolder>(files);
        const AllocationScope scope;
        const Result<Checkpoint> checkpoint = Checkpoint::from_folder(folder, context);
        REQUIRE(checkpoint.ok());
        Status status = models::read_model_spec(*checkpoint).status();
        if (status.ok()) status = read_generation_defaults(*checkpoint).status();
        const AllocationStats stats = scope.stats();
        CAPTURE(key, what, std::string(status.message()));
        if (stats.largest > (1u << 20) + bytes) FAIL("an allocation of " << stats.largest);
        if (status.ok() && value.is_null()) continue;
        if (!status.ok() && (!message_fault(status.message()).empty() || status.code() == Errc::kInternal))
          FAIL("the message");
        const Result<corbel::json::Value> parsed = corbel::json::parse(value.dump());
        if (value.is_null() || models::detail::wrong_type(type, *parsed) == nullptr) continue;
        if (status.code() != Errc::kTypeMismatch ||
            status.message().find("config.json: " + at + ": expected") == std::string_view::npos)
          FAIL("a value of another type");
      }
    }
  }
  CHECK(folders >= 13);
}

TEST_CASE("config.json: windows as transformers has them", "[windows]") {
  using nlohmann::json;
  struct WindowCase {
    const char* family;
    json keys;
    std::vector<std::uint32_t> windows;
  };
  const json used = {{"use_sliding_window", true}, {"sliding_window", 16}};
  const auto with = [](json base, const json& more) {
    base.update(more);
    return base;
  };
  const WindowCase cases[] = {
      {"llama", {{"sliding_window", 16}}, {0, 0}},  // a key that the family does not have
      {"arcee", {{"sliding_window", 16}}, {0, 0}},
      {"olmo2", {{"sliding_window", 16}}, {0, 0}},
      {"mistral", {{"sliding_window", 16}}, {16, 16}},
      {"mistral", {{"sliding_window", nullptr}}, {0, 0}},
      {"mistral", json::object(), {4096, 4096}},  // the default of the family
      {"mistral", {{"sliding_window", 0}}, {0, 0}},
      {"qwen2", {{"sliding_window", 16}}, {0, 0}},
      {"qwen2", used, {0, 0}},  // from layer 28 on
      {"qwen2", with(used, {{"max_window_layers", 1}}), {0, 16}},
      {"qwen2", with(used, {{"layer_types", {"sliding_attention", "full_attention"}}}), {16, 0}},
      {"smollm3", with(used, {{"no_rope_layers", {1, 0}}}), {0, 16}},
      {"smollm3", with(used, {{"no_rope_layers", {1, 1}}}), {0, 0}},
  };
  for (const WindowCase& one : cases) {
    CAPTURE(one.family, one.keys.dump());
    TinyFolder folder;
    folder.config["model_type"] = one.family;
    folder.config.update(one.keys);
    const Context context({.threads = 1});
    const Checkpoint checkpoint =
        Checkpoint::from_folder(std::make_shared<MemoryFolder>(folder.files()), context).value();
    const Result<models::ModelSpec> spec = models::read_model_spec(checkpoint);
    INFO(spec.status().message());
    REQUIRE(spec.ok());
    std::vector<std::uint32_t> windows;
    for (const models::LayerSpec& layer : spec->layers) windows.push_back(layer.window);
    CHECK(windows == one.windows);
  }
  for (const auto& [value, expected] :
       {std::pair(json(-1), Errc::kBadValue), std::pair(json(std::uint64_t{1} << 40), Errc::kLimitExceeded)}) {
    TinyFolder folder;  // C09
    folder.config["model_type"] = "mistral";
    folder.config["sliding_window"] = value;
    const Status status = folder.load();
    CAPTURE(value.dump(), std::string(status.message()));
    CHECK(errc_name(status.code()) == std::string(errc_name(expected)));
    CHECK(status.message().find("sliding_window") != std::string_view::npos);
  }
}

TEST_CASE("config.json states the text model in other ways too", "[model]") {
  const auto loads = [](const nlohmann::json& config) {
    TinyFolder folder;
    folder.config = config;
    const Status status = folder.load();
    INFO(config.dump() << " " << status.message());
    CHECK(status.ok());
  };
  const nlohmann::json plain = TinyFolder().config;
  nlohmann::json text = plain;
  text["model_type"] = "mistral";
  text["tie_word_embeddings"] = false;  // what the whole model says beside it goes before, and the tensors before both
  loads({{"model_type", "mistral3"}, {"text_config", text}, {"tie_word_embeddings", true}});
  nlohmann::json other = plain;
  other["num_experts"] = 1;  // of a dense model
  other["qk_rope_head_dim"] = 64;
  loads(other);
  other = plain;
  other["n_embed"] = other["hidden_size"];
  other.erase("hidden_size");
  loads(other);
  other = plain;
  other.erase("intermediate_size");  // the matrices show it
  loads(other);
}

TEST_CASE("models: a key set to null has no default", "[model]") {
  const Context context({.threads = 1});
  const auto window = [&](const nlohmann::json& stated, bool there) {
    TinyFolder folder;
    folder.config["model_type"] = "mistral";
    if (there) folder.config["sliding_window"] = stated;
    const Checkpoint checkpoint =
        Checkpoint::from_folder(std::make_shared<MemoryFolder>(folder.files()), context).value();
    return models::read_model_spec(checkpoint).value().layers[0].window;
  };
  CHECK(window(nullptr, false) == 4096);
  CHECK(window(nullptr, true) == 0);
  CHECK(window(12, true) == 12);
}

TEST_CASE("models: yarn's whole attention factor is read from GGUF files", "[model]") {
  const Context context({.threads = 1});
  const auto factor = [&](const char* key) {
    GgufWriter writer = TinyModel().writer();
    writer.metadata().set("llama.rope.scaling.type", MetaValue::from_string("yarn"));
    writer.metadata().set("llama.rope.scaling.factor", MetaValue::from_float(4));
    writer.metadata().set("llama.rope.scaling.original_context_length", MetaValue::from_uint(32));
    if (key != nullptr) writer.metadata().set(key, MetaValue::from_float(0.5));
    const std::vector<std::byte> bytes = writer.to_bytes().value();
    const Checkpoint checkpoint = Checkpoint::from_memory(bytes, context).value();
    return models::read_model_spec(checkpoint).value().ropes[0].attention_factor;
  };
  const float usual = factor(nullptr);
  CHECK(usual > 1.1f);
  CHECK(factor("llama.rope.scaling.yarn_attn_factor") == 0.5f);
  CHECK(factor("llama.rope.scaling.attn_factor") == Approx(0.5f * usual));
}

TEST_CASE("models: old GGUF files have a tensor for each expert", "[model]") {
  const TinyModel tiny;
  GgufWriter writer = tiny.writer();
  writer.metadata().set("llama.expert_count", MetaValue::from_uint(3));
  writer.metadata().set("llama.expert_used_count", MetaValue::from_uint(2));
  const auto add = [&](const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    const std::uint64_t shape[] = {rows, cols};
    REQUIRE(writer.add_f32(name, shape, TinyModel::random(rows * cols, 7, 0.3f)).ok());
  };
  for (std::uint32_t layer = 0; layer < tiny.layers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    add(block + "ffn_gate_inp.weight", 3, tiny.hidden);
    for (int expert = 0; expert < 3; ++expert) {
      const std::string end = "." + std::to_string(expert) + ".weight";
      add(block + "ffn_gate" + end, tiny.feed_forward, tiny.hidden);
      add(block + "ffn_up" + end, tiny.feed_forward, tiny.hidden);
      if (layer != 1 || expert != 2) add(block + "ffn_down" + end, tiny.hidden, tiny.feed_forward);
    }
  }
  const Status incomplete = load(writer);
  CHECK(incomplete.code() == Errc::kMissingTensor);
  CHECK(incomplete.message().find("blk.1.ffn_down.2.weight") != std::string_view::npos);
  add("blk.1.ffn_down.2.weight", tiny.hidden, tiny.feed_forward);
  const Status whole = load(writer);
  INFO(whole.message());
  CHECK(whole.ok());
}

TEST_CASE("models: the list of families is up to date") {
  const std::string path = test_data("../../docs/reference/models.md");
  const std::string text = models::describe_architectures();
  if (std::getenv("CORBEL_WRITE_MODELS") != nullptr) std::ofstream(path) << text;
  CHECK(read_file(path) == text);
}

TEST_CASE("models: each row's defaults are an object of numbers and flags") {
  for (const models::Architecture& row : models::architectures()) {
    INFO(row.name << ": " << row.defaults);
    const Result<json::Value> defaults = json::parse(row.defaults);
    REQUIRE(defaults.ok());
    REQUIRE(defaults->is_object());
    for (const json::Value::Member& member : defaults->members())
      CHECK((member.second.is_number() || member.second.type() == json::Type::kBool));
  }
}

TEST_CASE("models: each row can be found by all its names") {
  for (const models::Architecture& row : models::architectures()) {
    INFO(row.name);
    CHECK(models::find_hf_architecture(row.name) == &row);
    REQUIRE(models::find_gguf_architecture(row.gguf) != nullptr);
  }
  CHECK(models::find_hf_architecture("gemma3") == models::find_hf_architecture("gemma3_text"));
  CHECK(models::nearest_architecture("quen2", false) == "qwen2");
}
