// Quantized Hugging Face checkpoints: what their configuration means, their weights bit for bit, and refusals.
#include <corbel/models/quantized_linear.hpp>

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "support/malformed.hpp"
#include "support/memory_folder.hpp"
#include "support/support.hpp"

using namespace corbel;
using namespace corbel_test;
using models::QuantizationConfig;
using models::QuantScheme;
using models::QuantSharing;

namespace {

Result<QuantizationConfig> parse(const std::string& text) {
  const json::Value value = json::parse(text).value();
  return QuantizationConfig::parse(value, "config");
}
QuantScheme scheme_of(const std::string& text, const char* module) {
  const QuantizationConfig config = parse(text).value();
  const QuantScheme* scheme = config.find(module);
  REQUIRE(scheme != nullptr);
  return *scheme;
}
bool is_plain(const std::string& text, const char* module) { return parse(text).value().find(module) == nullptr; }

/// The tensors of a checkpoint in the making.
struct Tensor {
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Tensor>;

template <class T>
Tensor tensor_of(const char* dtype, std::vector<std::uint64_t> shape, T value) {
  std::size_t count = 1;
  for (const std::uint64_t extent : shape) count *= static_cast<std::size_t>(extent);
  std::string bytes(count * sizeof(T), 0);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  return {dtype, std::move(shape), std::move(bytes)};
}
template <class T>
void set(Tensor& tensor, std::size_t index, T value) {
  std::memcpy(tensor.bytes.data() + index * sizeof(T), &value, sizeof(T));
}
constexpr std::uint16_t kHalf = 0x3800, kHalfNaN = 0x7E00;  // float16

Checkpoint make_checkpoint(const Tensors& tensors, const std::string& quantization) {
  nlohmann::json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  std::string head = header.dump();
  head.resize((head.size() + 7) / 8 * 8, ' ');
  const std::uint64_t size = head.size();
  std::string file(8, 0);
  std::memcpy(file.data(), &size, 8);
  Files files;
  files["model.safetensors"] = file + head + data;
  files["config.json"] = R"({"model_type": "llama", "quantization_config": )" + quantization + "}";
  return Checkpoint::from_folder(std::make_shared<MemoryFolder>(files), Context()).value();
}

/// Opens linear "m" [rows, cols] of the checkpoint and reads all of it.
Status read_linear(const Tensors& tensors, const std::string& quantization, std::uint64_t rows = 64,
                   std::uint64_t cols = 64) {
  const Checkpoint checkpoint = make_checkpoint(tensors, quantization);
  const auto quantized = models::QuantizedCheckpoint::open(checkpoint);
  if (!quantized.ok()) return quantized.status();
  if (!(*quantized)->has("m")) return Status(Errc::kMissingTensor, "m is not quantized");
  const auto linear = (*quantized)->linear("m", rows, cols);
  if (!linear.ok()) return linear.status();
  const hal::WeightPart& part = linear->part;
  std::vector<std::byte> bytes(static_cast<std::size_t>(part.rows * part.row_bytes()));
  CORBEL_RETURN_IF_ERROR(part.source->read(0, bytes));
  const std::size_t blocks = static_cast<std::size_t>(part.rows * part.cols) / traits(part.dtype).block_elements;
  if (const std::size_t bad = traits(part.dtype).first_non_finite(bytes.data(), blocks); bad != blocks)
    return Status(Errc::kBadValue, part.name + ": block " + std::to_string(bad));
  return {};
}

const char* const kGptq = R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": false, "desc_act": true})";
Tensors gptq_tensors() {
  Tensors t;
  t["m.qweight"] = tensor_of<std::uint32_t>("I32", {8, 64}, 0x76543210u);
  t["m.qzeros"] = tensor_of<std::uint32_t>("I32", {2, 8}, 0x66666666u);
  t["m.scales"] = tensor_of<std::uint16_t>("F16", {2, 64}, kHalf);
  t["m.g_idx"] = tensor_of<std::int32_t>("I32", {64}, 0);
  for (std::size_t i = 32; i < 64; ++i) set<std::int32_t>(t["m.g_idx"], i, 1);
  return t;
}
const char* const kPacked =
    R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"], "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group",
                    "group_size": 32, "symmetric": false}}}})";
Tensors packed_tensors() {
  Tensors t;
  t["m.weight_packed"] = tensor_of<std::uint32_t>("I32", {64, 8}, 0x76543210u);
  t["m.weight_scale"] = tensor_of<std::uint16_t>("F16", {64, 2}, kHalf);
  t["m.weight_zero_point"] = tensor_of<std::uint32_t>("I32", {8, 2}, 0x88888888u);
  t["m.weight_shape"] = tensor_of<std::int64_t>("I64", {2}, 64);
  return t;
}
const char* const kNf4 = R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"})";
Tensors nf4_tensors(const std::string& state) {
  Tensors t;
  t["m.weight"] = tensor_of<std::uint8_t>("U8", {2048, 1}, 0x37);
  t["m.weight.absmax"] = tensor_of<float>("F32", {64}, 0.5f);
  t["m.weight.quant_map"] = tensor_of<float>("F32", {16}, 0.25f);
  t["m.weight.quant_state.bitsandbytes__nf4"] = {"U8", {state.size()}, state};
  return t;
}
const char* const kNf4State = R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [64, 64]})";

/// The tensors named "dequant.<name>" of a golden file.
struct Expected {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::vector<float> values;
};
std::vector<Expected> expected_weights(const std::string& path) {
  const std::string file = read_file(path);
  std::uint64_t header_bytes = 0;
  REQUIRE(file.size() > 8);
  std::memcpy(&header_bytes, file.data(), 8);
  const nlohmann::json header = nlohmann::json::parse(file.substr(8, header_bytes));
  std::vector<Expected> result;
  for (const auto& [name, tensor] : header.items()) {
    if (name.rfind("dequant.", 0) != 0) continue;
    Expected expected;
    expected.name = name.substr(8);
    for (const auto& extent : tensor["shape"]) expected.shape.push_back(extent);
    const std::size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    expected.values.resize((end - begin) / 4);
    std::memcpy(expected.values.data(), file.data() + 8 + header_bytes + begin, end - begin);
    result.push_back(std::move(expected));
  }
  return result;
}

/// All values of a part, columns back in the order of the inputs.
std::vector<float> dequantize(const models::StoredTensor& linear, std::size_t piece) {
  const hal::WeightPart& part = linear.part;
  std::vector<std::byte> bytes(static_cast<std::size_t>(part.rows * part.row_bytes()));
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const std::size_t count = std::min(piece, bytes.size() - at);
    const Status read = part.source->read(at, {bytes.data() + at, count});
    if (!read.ok()) throw Exception(read);
  }
  std::vector<float> values(static_cast<std::size_t>(part.rows * part.cols));
  const DTypeTraits& type = traits(part.dtype);
  type.dequantize(bytes.data(), values.data(), values.size() / type.block_elements);
  if (linear.permutation.empty()) return values;
  std::vector<float> ordered(values.size());
  for (std::size_t o = 0; o < part.rows; ++o)
    for (std::size_t c = 0; c < part.cols; ++c)
      ordered[o * part.cols + linear.permutation[c]] = values[o * part.cols + c];
  return ordered;
}

void check_weights(const std::string& folder) {
  INFO(folder);
  const Context context;
  const Checkpoint checkpoint = Checkpoint::open(folder, context).value();
  const auto quantized = models::QuantizedCheckpoint::open(checkpoint).value();
  REQUIRE(quantized.has_value());
  const std::vector<Expected> weights = expected_weights(folder + "/golden.safetensors");
  REQUIRE_FALSE(weights.empty());
  for (const Expected& expected : weights) {
    INFO(expected.name);
    std::string module = expected.name;
    std::uint64_t rows = expected.shape[0], first = 0;
    const std::size_t experts = module.find(".experts.");
    if (experts != std::string::npos) {  // "...experts.<expert>.<tensor>", all experts one above the other
      const std::size_t number = experts + std::string_view(".experts.").size();
      first = std::stoull(module.substr(number)) * rows;
      module.erase(number, module.find('.', number) + 1 - number);
      rows *= checkpoint.find_tensor(module + "_blocks")->shape[0];
    } else {
      module.resize(module.size() - std::string_view(".weight").size());
    }
    REQUIRE(quantized->has(module));
    const models::StoredTensor linear = quantized->linear(module, rows, expected.shape[1]).value();
    for (const std::size_t piece : {std::size_t{1} << 20, std::size_t{999}}) {
      const std::vector<float> values = dequantize(linear, piece);
      CHECK(std::memcmp(values.data() + first * expected.shape[1], expected.values.data(),
                        expected.values.size() * sizeof(float)) == 0);
    }
  }
}

}  // namespace

TEST_CASE("quantization: weights of the golden checkpoints, bit for bit") {
  for (const auto& entry : std::filesystem::directory_iterator(test_data("golden_quantized")))
    check_weights(entry.path().string());
  const std::string root =
      shared_data("golden_quantized", "quantization: weights of the golden checkpoints, bit for bit");
  if (root.empty()) return;
  for (const auto& entry : std::filesystem::directory_iterator(root))
    if (entry.is_directory()) check_weights(entry.path().string());
}

TEST_CASE("quantization: what configurations mean") {
  const QuantScheme old = scheme_of(R"({"bits": 3, "group_size": -1, "sym": true, "desc_act": false})", "a");
  CHECK(old.method == models::QuantMethod::kGptq);
  CHECK(old.bits == 3);
  CHECK(old.group_size == 0);
  CHECK(old.zero_plus_one);
  CHECK_FALSE(scheme_of(R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"})", "a").zero_plus_one);

  const char* dynamic = R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {
      "-:.*\\.down_proj": {}, "+:.*\\.(?:up|gate)_proj": {"bits": 8, "group_size": 32}, "lm_head": {"bits": 2}}})";
  CHECK(is_plain(dynamic, "model.layers.0.mlp.down_proj"));
  CHECK(scheme_of(dynamic, "model.layers.0.mlp.up_proj").bits == 8);
  CHECK(scheme_of(dynamic, "model.layers.0.mlp.up_proj").group_size == 32);
  CHECK(scheme_of(dynamic, "lm_head").bits == 2);
  CHECK(scheme_of(dynamic, "model.layers.0.self_attn.q_proj").bits == 4);

  const char* plain = R"({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "GEMM",
      "modules_to_not_convert": ["model.layers.1", "vision", "lm_head", "model.layers.*.mlp.gate"]})";
  CHECK(is_plain(plain, "lm_head"));
  CHECK(is_plain(plain, "model.layers.1.mlp.up_proj"));
  CHECK_FALSE(is_plain(plain, "model.layers.10.mlp.up_proj"));  // a whole part of the name
  CHECK(is_plain(plain, "model.layers.7.mlp.gate"));
  CHECK_FALSE(is_plain(plain, "model.layers.7.mlp.gate_proj"));

  const char* mixed = R"({"quant_method": "compressed-tensors", "format": "mixed-precision",
      "ignore": ["lm_head", "re:.*\\.1\\.self_attn\\..*"], "config_groups": {
      "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "group", "group_size": 128}},
      "group_1": {"targets": ["re:.*down_proj$"], "weights": {"num_bits": 8, "strategy": "channel"},
                  "input_activations": {"num_bits": 8, "dynamic": true, "strategy": "token", "type": "int"}},
      "group_2": {"targets": ["l.0.down_proj"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"},
                  "input_activations": {"num_bits": 4, "dynamic": "local", "strategy": "tensor_group",
                                        "group_size": 16, "type": "float"}}}})";
  CHECK(is_plain(mixed, "lm_head"));
  CHECK(is_plain(mixed, "l.1.self_attn.q_proj"));
  CHECK(scheme_of(mixed, "l.1.mlp.up_proj").group_size == 128);
  CHECK(scheme_of(mixed, "l.1.down_proj").sharing == QuantSharing::kChannel);
  CHECK(scheme_of(mixed, "l.1.down_proj").activations.type == models::ActivationScheme::Type::kInt8);
  CHECK(scheme_of(mixed, "l.1.down_proj.x").bits == 4);
  CHECK(scheme_of(mixed, "l.0.down_proj").is_float);  // a name goes before an expression, and that before a class
  CHECK(scheme_of(mixed, "l.0.down_proj").activations.type == models::ActivationScheme::Type::kOther);

  const char* block = R"({"quant_method": "fp8", "weight_block_size": [128, 64], "activation_scheme": "dynamic"})";
  CHECK(scheme_of(block, "a").block_rows == 128);
  CHECK(scheme_of(block, "a").block_columns == 64);
  CHECK(scheme_of(block, "a").activations.group_size == 64);
  CHECK_FALSE(scheme_of(R"({"quant_method": "fp8", "activation_scheme": "static"})", "a").activations.dynamic);
  CHECK(scheme_of(R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": 100.0})", "a").activations.upper_bound ==
        100);
  CHECK(parse(kGptq).value().describe() == "gptq int4 groups of 32 with zero points act-order");
}

TEST_CASE("quantization: configurations that are not read are refused by name") {
  struct Case {
    const char* text;
    Errc code;
    const char* named;
  };
  for (const Case& c : std::vector<Case>{
           {R"({"quant_method": "hqq"})", Errc::kUnsupported, "\"hqq\""},
           {R"({"quant_method": "quanto"})", Errc::kUnsupported, "\"quanto\""},
           {R"({"quant_method": "torchao"})", Errc::kUnsupported, "\"torchao\""},
           {R"({"quant_method": "modelopt"})", Errc::kUnsupported, "\"modelopt\""},
           {R"({"quant_method": "aqlm", "bits": 4})", Errc::kUnsupported, "\"aqlm\""},
           {R"({})", Errc::kMissingKey, "quant_method"},
           {R"([])", Errc::kTypeMismatch, "config"},
           {R"({"quant_method": 4})", Errc::kTypeMismatch, "config.quant_method"},
           {R"({"quant_method": "gptq", "bits": 5})", Errc::kUnsupported, "config.bits: 5"},
           {R"({"quant_method": "gptq"})", Errc::kMissingKey, "config.bits"},
           {R"({"quant_method": "gptq", "bits": "4"})", Errc::kTypeMismatch, "config.bits"},
           {R"({"quant_method": "gptq", "bits": 4, "group_size": 0})", Errc::kBadValue, "config.group_size"},
           {R"({"quant_method": "gptq", "bits": 4, "group_size": -2})", Errc::kBadValue, "config.group_size"},
           {R"({"quant_method": "gptq", "bits": 4, "group_size": 18446744073709551615})", Errc::kBadValue,
            "config.group_size"},
           {R"({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"})", Errc::kUnsupported, "marlin"},
           {R"({"quant_method": "gptq", "bits": 4, "pack_dtype": "int16"})", Errc::kUnsupported, "pack_dtype"},
           {R"({"quant_method": "gptq", "bits": 4, "dynamic": {"+:(": {}}})", Errc::kBadValue, "config.dynamic"},
           {R"({"quant_method": "gptq", "bits": 4, "dynamic": {"a": {"bits": 7}}})", Errc::kUnsupported, "bits: 7"},
           {R"({"quant_method": "awq", "bits": 8})", Errc::kUnsupported, "config.bits"},
           {R"({"quant_method": "awq", "bits": 4, "version": "gemv_fast"})", Errc::kUnsupported, "gemv_fast"},
           {R"({"quant_method": "awq", "bits": 4, "modules_to_not_convert": "a"})", Errc::kTypeMismatch,
            "modules_to_not_convert"},
           {R"({"quant_method": "compressed-tensors"})", Errc::kMissingKey, "config_groups"},
           {R"({"quant_method": "compressed-tensors", "format": "marlin-24", "config_groups": {}})", Errc::kUnsupported,
            "marlin-24"},
           {R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["re:["], "weights": null}}})",
            Errc::kBadValue, "config.config_groups.g.targets"},
           {R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"],
               "weights": {"num_bits": 16}}}})",
            Errc::kUnsupported, "config.config_groups.g.weights.num_bits: 16"},
           {R"({"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24-bitmask"},
               "config_groups": {}})",
            Errc::kUnsupported, "sparse"},
           {R"({"quant_method": "fp8", "activation_scheme": "odd"})", Errc::kUnsupported, "odd"},
           {R"({"quant_method": "fp8", "weight_block_size": [0, 128]})", Errc::kBadValue, "weight_block_size"},
           {R"({"quant_method": "fp8", "weight_block_size": 128})", Errc::kTypeMismatch, "weight_block_size"},
           {R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": -1})", Errc::kBadValue, "activation_scale_ub"},
           {R"({"quant_method": "bitsandbytes"})", Errc::kBadValue, "load_in_4bit"},
       }) {
    INFO(c.text);
    const Result<QuantizationConfig> config = parse(c.text);
    REQUIRE_FALSE(config.ok());
    CHECK(std::string(errc_name(config.status().code())) == errc_name(c.code));
    CHECK(config.status().message().find(c.named) != std::string_view::npos);
  }
}

TEST_CASE("quantization: no value of any key is read over or does harm") {
  using nlohmann::json;
  const json values[] = {"x", true, {1, "x"}, {{"x", 1}}, nullptr, -1, 0, 1e308, 1.5, std::uint64_t{1} << 63};
  const auto kind = [](const json& value) {
    return value.is_number() ? 'n' : value.is_boolean() ? 'b' : value.is_string() ? 's' : value.is_array() ? 'a' : 'o';
  };
  const json bases[] = {
      {{"quant_method", "gptq"},
       {"bits", 4},
       {"group_size", 32},
       {"sym", true},
       {"desc_act", false},
       {"checkpoint_format", "gptq"},
       {"pack_dtype", "int32"},
       {"modules_to_not_convert", {"a"}},
       {"dynamic", {{"+:b", {{"bits", 8}, {"group_size", 64}, {"sym", true}}}}}},
      {{"quant_method", "awq"},
       {"bits", 4},
       {"group_size", 32},
       {"zero_point", true},
       {"version", "gemm"},
       {"modules_to_not_convert", {"a"}}},
      {{"quant_method", "fp8"},
       {"fmt", "e4m3"},
       {"activation_scheme", "dynamic"},
       {"weight_block_size", {32, 32}},
       {"modules_to_not_convert", {"a"}},
       {"ignored_layers", {"b"}}},
      {{"quant_method", "fbgemm_fp8"}, {"activation_scale_ub", 1200.0}, {"modules_to_not_convert", {"a"}}},
      {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"a"}}},
      {{"quant_method", "bitsandbytes"},
       {"load_in_4bit", true},
       {"load_in_8bit", false},
       {"llm_int8_skip_modules", {"a"}}},
      {{"quant_method", "compressed-tensors"},
       {"format", "pack-quantized"},
       {"ignore", {"lm_head"}},
       {"sparsity_config", {{"format", "dense"}}},
       {"transform_config", {{"config_groups", json::object()}}},
       {"config_groups",
        {{"group_0",
          {{"targets", {"Linear"}},
           {"format", "pack-quantized"},
           {"weights",
            {{"type", "int"},
             {"num_bits", 4},
             {"symmetric", true},
             {"group_size", 32},
             {"strategy", "group"},
             {"actorder", "group"},
             {"block_structure", {32, 32}}}},
           {"input_activations",
            {{"type", "int"},
             {"num_bits", 8},
             {"strategy", "token"},
             {"symmetric", true},
             {"group_size", 32},
             {"dynamic", true}}}}}}}},
  };
  for (const json& base : bases) {
    REQUIRE(parse(base.dump()).ok());
    const json leaves = base.flatten();
    for (const auto& [path, old] : leaves.items()) {
      for (json::json_pointer at(path); !at.empty(); at = at.parent_pointer()) {
        for (const json& value : values) {
          json changed = base;
          changed[at] = value;
          const Status status = parse(changed.dump()).status();
          CAPTURE(base["quant_method"].dump(), at.to_string(), value.dump(), std::string(status.message()));
          if (!status.ok()) {
            CHECK(corbel_test::message_fault(status.message()).empty());
            CHECK(status.code() != Errc::kInternal);
          } else if (!value.is_null() && kind(value) != kind(base[at]) &&
                     !(at.back() == "actorder" && value.is_boolean())) {
            FAIL("a value of another type");
          }
        }
      }
      (void)old;
    }
  }
}

TEST_CASE("quantization: tensors that contradict the configuration are refused by name") {
  REQUIRE(read_linear(gptq_tensors(), kGptq).ok());
  REQUIRE(read_linear(packed_tensors(), kPacked).ok());
  REQUIRE(read_linear(nf4_tensors(kNf4State), kNf4).ok());
  struct Case {
    const char* what;
    Tensors tensors;
    std::string config;
    Errc code;
    const char* named;
    std::uint64_t rows = 64, cols = 64;
  };
  const auto with = [](Tensors tensors, const char* name, Tensor tensor) {
    tensors[name] = std::move(tensor);
    return tensors;
  };
  const auto without = [](Tensors tensors, const char* name) {
    tensors.erase(name);
    return tensors;
  };
  std::vector<Case> cases;
  const auto gptq = [&](const char* what, Tensors tensors, Errc code, const char* named) {
    cases.push_back({what, std::move(tensors), kGptq, code, named});
  };
  gptq("no scales", without(gptq_tensors(), "m.scales"), Errc::kMissingTensor, "m.scales");
  gptq("no zeros", without(gptq_tensors(), "m.qzeros"), Errc::kMissingTensor, "m.qzeros");
  gptq("scales of integers", with(gptq_tensors(), "m.scales", tensor_of<std::int32_t>("I32", {2, 64}, 1)),
       Errc::kTypeMismatch, "m.scales");
  gptq("too few groups", with(gptq_tensors(), "m.scales", tensor_of<std::uint16_t>("F16", {1, 64}, kHalf)),
       Errc::kShapeMismatch, "m.scales");
  gptq("scales turned", with(gptq_tensors(), "m.scales", tensor_of<std::uint16_t>("F16", {64, 2}, kHalf)),
       Errc::kShapeMismatch, "m.scales");
  gptq("zeros of another width", with(gptq_tensors(), "m.qzeros", tensor_of<std::int32_t>("I32", {2, 16}, 1)),
       Errc::kShapeMismatch, "m.qzeros");
  gptq("8-bit words", with(gptq_tensors(), "m.qweight", tensor_of<std::int32_t>("I32", {16, 64}, 1)),
       Errc::kShapeMismatch, "m.qweight");
  gptq("short order", with(gptq_tensors(), "m.g_idx", tensor_of<std::int32_t>("I32", {63}, 0)), Errc::kShapeMismatch,
       "m.g_idx");
  gptq("order of floats", with(gptq_tensors(), "m.g_idx", tensor_of<float>("F32", {64}, 0)), Errc::kTypeMismatch,
       "m.g_idx");
  for (const std::int32_t bad :
       {2, -1, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()}) {
    Tensors tensors = gptq_tensors();
    set<std::int32_t>(tensors["m.g_idx"], 63, bad);
    gptq("group that is not there", std::move(tensors), Errc::kBadValue, "m.g_idx: element 63");
  }
  {
    Tensors tensors = gptq_tensors();
    set<std::uint16_t>(tensors["m.scales"], 100, kHalfNaN);
    gptq("NaN scale", std::move(tensors), Errc::kBadValue, "m.qweight");
  }
  cases.push_back({"features that fill no word", gptq_tensors(), kGptq, Errc::kShapeMismatch, "module m", 64, 60});
  cases.push_back({"no features", gptq_tensors(), kGptq, Errc::kShapeMismatch, "module m", 64, 0});
  cases.push_back(
      {"too many features", gptq_tensors(), kGptq, Errc::kShapeMismatch, "module m", 1ull << 40, 1ull << 40});

  const auto packed = [&](const char* what, Tensors tensors, Errc code, const char* named) {
    cases.push_back({what, std::move(tensors), kPacked, code, named});
  };
  packed("no shape", without(packed_tensors(), "m.weight_shape"), Errc::kMissingTensor, "m.weight_shape");
  packed("another shape", with(packed_tensors(), "m.weight_shape", tensor_of<std::int64_t>("I64", {2}, 65)),
         Errc::kShapeMismatch, "m.weight_shape");
  packed("no zero points", without(packed_tensors(), "m.weight_zero_point"), Errc::kMissingTensor,
         "m.weight_zero_point");
  packed("unpacked zero points",
         with(packed_tensors(), "m.weight_zero_point", tensor_of<std::int8_t>("I8", {64, 2}, 0)), Errc::kTypeMismatch,
         "m.weight_zero_point");
  packed("one scale", with(packed_tensors(), "m.weight_scale", tensor_of<std::uint16_t>("F16", {1}, kHalf)),
         Errc::kShapeMismatch, "m.weight_scale");
  std::string ignored = kPacked, odd_groups = kPacked;
  ignored.replace(ignored.find("lm_head"), 7, "m");
  odd_groups.replace(odd_groups.find("32"), 2, "24");
  cases.push_back({"ignored, and quantized", packed_tensors(), ignored, Errc::kBadValue, "module m"});
  cases.push_back({"groups that do not divide", packed_tensors(), odd_groups, Errc::kShapeMismatch, "module m"});

  const auto nf4 = [&](const char* what, Tensors tensors, Errc code, const char* named) {
    cases.push_back({what, std::move(tensors), kNf4, code, named});
  };
  nf4("a state that is no JSON", nf4_tensors("{\"blocksize\": "), Errc::kBadJson, "bitsandbytes__nf4");
  nf4("blocks of 0", nf4_tensors(R"({"blocksize": 0, "shape": [64, 64]})"), Errc::kBadValue, "blocksize");
  nf4("no blocks", nf4_tensors(R"({"shape": [64, 64]})"), Errc::kMissingKey, "blocksize");
  nf4("a shape of words", nf4_tensors(R"({"blocksize": 64, "shape": "64"})"), Errc::kShapeMismatch, "shape");
  nf4("another shape", nf4_tensors(R"({"blocksize": 64, "shape": [32, 128]})"), Errc::kShapeMismatch, "shape");
  nf4("too few scales", with(nf4_tensors(kNf4State), "m.weight.absmax", tensor_of<float>("F32", {63}, 1)),
      Errc::kShapeMismatch, "m.weight.absmax");
  nf4("too few codes", with(nf4_tensors(kNf4State), "m.weight", tensor_of<std::uint8_t>("U8", {2047, 1}, 0)),
      Errc::kShapeMismatch, "m.weight");
  nf4("no state", without(nf4_tensors(kNf4State), "m.weight.quant_state.bitsandbytes__nf4"), Errc::kMissingTensor,
      "quant_state");
  nf4("nested scales without their table",
      with(with(nf4_tensors(R"({"blocksize": 64, "shape": [64, 64], "nested_blocksize": 256, "nested_offset": 0.1})"),
                "m.weight.absmax", tensor_of<std::uint8_t>("U8", {64}, 1)),
           "m.weight.nested_absmax", tensor_of<float>("F32", {1}, 1)),
      Errc::kMissingTensor, "nested_quant_map");

  Tensors fp8;
  fp8["m.weight"] = tensor_of<std::uint8_t>("F8_E4M3", {64, 64}, 0x38);
  fp8["m.weight_scale_inv"] = tensor_of<float>("F32", {2, 1}, 0.5f);
  const char* kBlocks = R"({"quant_method": "fp8", "weight_block_size": [32, 64]})";
  REQUIRE(read_linear(fp8, kBlocks).ok());
  const char* kStatic = R"({"quant_method": "fp8", "activation_scheme": "static"})";
  cases.push_back({"turned blocks", with(fp8, "m.weight_scale_inv", tensor_of<float>("F32", {1, 2}, 1)), kBlocks,
                   Errc::kShapeMismatch, "m.weight_scale_inv"});
  cases.push_back({"no scale of the inputs", with(fp8, "m.weight_scale_inv", tensor_of<float>("F32", {}, 1)), kStatic,
                   Errc::kMissingTensor, "m.input_scale"});
  cases.push_back({"an input scale of 0",
                   with(with(fp8, "m.weight_scale_inv", tensor_of<float>("F32", {}, 1)), "m.input_scale",
                        tensor_of<float>("F32", {}, 0)),
                   kStatic, Errc::kBadValue, "m.input_scale"});
  cases.push_back({"an input scale that is NaN",
                   with(with(fp8, "m.weight_scale_inv", tensor_of<float>("F32", {}, 1)), "m.input_scale",
                        tensor_of<float>("F32", {1}, std::numeric_limits<float>::quiet_NaN())),
                   kStatic, Errc::kBadValue, "m.input_scale"});
  cases.push_back({"a code that is NaN", with(fp8, "m.weight", tensor_of<std::uint8_t>("F8_E4M3", {64, 64}, 0x7f)),
                   kBlocks, Errc::kBadValue, "m.weight"});

  for (const Case& c : cases) {
    INFO(c.what);
    const Status status = read_linear(c.tensors, c.config, c.rows, c.cols);
    CHECK(std::string(errc_name(status.code())) == errc_name(c.code));
    CHECK(status.message().find(c.named) != std::string_view::npos);
  }
}

TEST_CASE("quantization: orders, and groups that blocks cannot hold") {
  Tensors tensors = gptq_tensors();
  for (std::size_t i = 0; i < 64; ++i) set<std::int32_t>(tensors["m.g_idx"], i, i % 2 == 0 ? 1 : 0);
  const auto open = [](const Tensors& from, const std::string& config) {
    const auto quantized = models::QuantizedCheckpoint::open(make_checkpoint(from, config)).value();
    return quantized->linear("m", 64, 64).value();
  };
  const models::StoredTensor ordered = open(tensors, kGptq);
  CHECK(ordered.part.dtype == DType::kGroupU4);
  REQUIRE(ordered.permutation.size() == 64);
  CHECK(ordered.permutation[0] == 1);
  CHECK(ordered.permutation[31] == 63);
  CHECK(ordered.permutation[32] == 0);
  CHECK(open(gptq_tensors(), kGptq).permutation.empty());
  set<std::int32_t>(tensors["m.g_idx"], 0, 0);  // groups of 33 and 31
  const models::StoredTensor uneven = open(tensors, kGptq);
  CHECK(uneven.part.dtype == DType::kF32);
  CHECK(uneven.permutation.empty());
  std::string symmetric = kGptq;
  symmetric.replace(symmetric.find("false"), 5, "true");
  CHECK(open(gptq_tensors(), symmetric).part.dtype == DType::kGroupU4);  // zeros are 7, not 8
  Tensors eights = gptq_tensors();
  eights["m.qzeros"] = tensor_of<std::uint32_t>("I32", {2, 8}, 0x77777777u);
  CHECK(open(eights, symmetric).part.dtype == DType::kGroupI4);
}
