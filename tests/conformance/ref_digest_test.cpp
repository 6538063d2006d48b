// One digest of the reference backend over every op: the same from every compiler, optimisation level and instruction
// set. It changes only when the reference arithmetic changes, which is a change of the numerics contract.
#include <corbel/backends/ref/ref_backend.hpp>

#include <support/op_harness.hpp>

namespace corbel_test {
namespace {

/// Values in (-2, 2) that no compiler can round differently.
Matrix exact_values(std::size_t rows, std::size_t cols, Rng& rng) {
  Matrix out(rows, cols);
  for (float& value : out.data)
    value = static_cast<float>(static_cast<std::int32_t>(rng() >> 8) - (1 << 23)) / 4194304.0f;
  return out;
}

hal::WeightPart q8_part(std::uint64_t rows, std::uint64_t cols, Rng& rng) {
  std::vector<std::byte> bytes(rows * cols / 32 * 34);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng() & 0xff);
  for (std::size_t at = 0; at < bytes.size(); at += 34) {
    bytes[at] = static_cast<std::byte>(rng() & 0xff);
    bytes[at + 1] = std::byte{0x14};  // scales around 2^-10
  }
  return make_part("q8", corbel::DType::kQ8_0, rows, cols, std::move(bytes));
}

TEST_CASE("ref: one digest for every build") {
  Rng rng(81);
  OpProgram p;
  p.program.kv_layers.push_back({2, 32});
  const hal::ValueId x = p.value("x", 64), table = p.value("table", 32), norm = p.value("norm", 64),
                     qkv = p.value("qkv", 256), q = p.view(qkv, 0, 128), k = p.view(qkv, 128, 64),
                     v = p.view(qkv, 192, 64), rotated_q = p.value("rotated_q", 128),
                     rotated_k = p.value("rotated_k", 64), attention = p.value("attention", 128),
                     out = p.value("out", 64), sum = p.value("sum", 64), gate = p.value("gate", 96),
                     act = p.value("act", 96), down = p.value("down", 64),
                     picked = p.value("picked", 64, hal::Rows::kWanted),
                     logits = p.value("logits", 50, hal::Rows::kWanted);
  const hal::WeightId embedding = p.weight({q8_part(50, 64, rng)}, hal::kUseEmbedding | hal::kUseLinear);
  std::vector<float> frequencies;
  for (std::size_t i = 0; i < 16; ++i) frequencies.push_back(1.0f / static_cast<float>(1 + 37 * i));
  const hal::WeightId inverse = p.vector(frequencies);
  const hal::WeightId scale = p.vector(exact_values(1, 64, rng).data), bias = p.vector(exact_values(1, 64, rng).data);
  const hal::WeightId project =
      p.weight({f32_part(exact_values(128, 64, rng)), q8_part(128, 64, rng)}, hal::kUseLinear);
  const hal::WeightId mix = p.weight({q8_part(64, 128, rng)}, hal::kUseLinear);
  const hal::WeightId up = p.weight({q8_part(96, 64, rng)}, hal::kUseLinear),
                      back = p.weight({q8_part(64, 96, rng)}, hal::kUseLinear);

  hal::Op& embed = p.add(hal::OpKind::kEmbed, {hal::kNone, hal::kNone}, x);
  embed.weight = embedding;
  embed.scale = 3.3f;
  p.add(hal::OpKind::kRopeTable, {hal::kNone, hal::kNone}, table).weight = inverse;
  hal::Op& layer_norm = p.add(hal::OpKind::kNorm, {x, hal::kNone}, norm);
  layer_norm.weight = scale;
  layer_norm.bias = bias;
  layer_norm.norm = {hal::NormKind::kLayer, 64, 1e-5f};
  p.add(hal::OpKind::kLinear, {norm, hal::kNone}, qkv).weight = project;
  p.add(hal::OpKind::kRope, {q, table}, rotated_q).rope = {32, 32, false};
  p.add(hal::OpKind::kRope, {k, table}, rotated_k).rope = {32, 32, true};
  p.add(hal::OpKind::kKvAppend, {rotated_k, v}, hal::kNone).layer = 0;
  hal::Op& attend = p.add(hal::OpKind::kAttention, {rotated_q, hal::kNone}, attention);
  attend.layer = 0;
  attend.attention = {4, 2, 32, 0.177f, 9, 5.0f};
  p.add(hal::OpKind::kLinear, {attention, hal::kNone}, out).weight = mix;
  p.add(hal::OpKind::kAdd, {x, out}, sum);
  hal::Op& rms = p.add(hal::OpKind::kNorm, {sum, hal::kNone}, sum);
  rms.weight = p.vector(exact_values(1, 16, rng).data);
  rms.norm = {hal::NormKind::kRms, 16, 1e-6f};
  p.add(hal::OpKind::kLinear, {sum, hal::kNone}, gate).weight = up;
  p.add(hal::OpKind::kActivation, {gate, gate}, act).activation = hal::ActivationKind::kSilu;
  p.add(hal::OpKind::kActivation, {act, gate}, act).activation = hal::ActivationKind::kGeluTanh;
  p.add(hal::OpKind::kLinear, {act, hal::kNone}, down).weight = back;
  p.add(hal::OpKind::kScale, {down, hal::kNone}, down).scale = 0.7f;
  p.add(hal::OpKind::kSelectRows, {down, hal::kNone}, picked);
  p.add(hal::OpKind::kLinear, {picked, hal::kNone}, logits).weight = embedding;
  p.add(hal::OpKind::kSoftcap, {logits, hal::kNone}, logits).scale = 2.0f;

  BatchRows rows;
  for (std::int32_t i = 0; i < 29; ++i) rows.add(i * 13 % 50, i, 1);
  rows.wanted = {0, 5, 6, 20, 28};
  for (const hal::KvType type : {hal::KvType::kF32, hal::KvType::kBF16, hal::KvType::kF16}) {
    RunnerOptions options;
    options.kv_type = type;
    options.block_tokens = 16;
    OpRunner<corbel::RefBackend> runner(corbel::Context({.threads = 2}), p.program, options);
    const Matrix result = runner.run(rows, {}, {logits})[0];
    std::uint64_t digest = 0xcbf29ce484222325u;
    for (const float value : result.data) {
      REQUIRE(std::isfinite(value));
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, 4);
      digest = (digest ^ bits) * 0x100000001b3u;
    }
    INFO(hal::kv_type_name(type) << ": first value " << result.data[0]);
    const std::uint64_t expected[] = {0x0378a78429b397edu, 0x286b137aa1aeb7aau, 0x16f7a4ef03a21ee9u};
    CHECK(digest == expected[static_cast<std::size_t>(type)]);
  }
}

}  // namespace
}  // namespace corbel_test
