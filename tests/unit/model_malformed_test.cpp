// Checkpoints whose container is sound and whose meaning is not: cases G080 to G097 of the malformed-file list
// (docs/reference/errors.md).
#include <catch2/catch.hpp>
#include <functional>
#include <limits>

#include "support/golden.hpp"
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
      {"G091", set("llama.expert_count", uint_value(8)), Errc::kUnsupported, "expert_count"},
      {"G091 2^20 experts", set("llama.expert_count", uint_value(1u << 20)), Errc::kLimitExceeded, "expert_count"},
      {"G092 wrong length", set(heads, MetaValue::from_ints(std::vector<std::int32_t>{4, 4, 4})), Errc::kShapeMismatch,
       heads},
      {"G092 zeros", set(heads, MetaValue::from_ints(std::vector<std::int32_t>{0, 0})), Errc::kBadValue, heads},
      {"G093 vocab_size", set("llama.vocab_size", uint_value(63)), Errc::kShapeMismatch, "llama.vocab_size"},
      {"G093 tokens", set("tokenizer.ggml.tokens", MetaValue::from_strings(std::vector<std::string>{"a", "b"})),
       Errc::kShapeMismatch, "tokenizer.ggml.tokens"},
      {"G098 tokens of ints", set("tokenizer.ggml.tokens", MetaValue::from_ints(std::vector<std::int32_t>(64))),
       Errc::kTypeMismatch, "tokenizer.ggml.tokens"},
      {"rope scaling", set("llama.rope.scaling.type", MetaValue::from_string("yarn")), Errc::kUnsupported,
       "rope.scaling.type"},
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
  }
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
  SECTION("a type of the format that is not read") {
    const Status status =
        rebuilt("blk.0.ffn_up.weight", [](GgufWriter& out, const TensorInfo& tensor, std::vector<float>) {
          const std::uint64_t blocks = tensor.num_elements() / 256;
          REQUIRE(out.add_tensor(tensor.name, tensor.shape, std::uint32_t{23}, std::vector<std::byte>(blocks * 136))
                      .ok());  // IQ4_XS
        });
    CHECK(status.code() == Errc::kUnsupported);
    CHECK(status.message().find("blk.0.ffn_up.weight: type IQ4_XS") != std::string_view::npos);
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
