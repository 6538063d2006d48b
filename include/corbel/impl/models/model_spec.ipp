// Definitions of models/model_spec.hpp.
#pragma once

#include <corbel/detail/compiler.hpp>
#include <corbel/detail/exact_math.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/models/model_spec.hpp>

#include <cmath>
#include <fmt/format.h>
#include <limits>

CORBEL_EXACT_FP_BEGIN

CORBEL_NAMESPACE_BEGIN
namespace models {

CORBEL_INLINE std::span<const Architecture> architectures() noexcept {
  using hal::ActivationKind;
  //   name      interleaved qk_norm post_norms scaled  activation                 pattern  window base
  static constexpr Architecture kRows[] = {
      {"llama", true, false, false, false, ActivationKind::kSilu, 0, 0},
      {"qwen2", false, false, false, false, ActivationKind::kSilu, 0, 0},
      {"qwen3", false, true, false, false, ActivationKind::kSilu, 0, 0},
      {"gemma3", false, true, true, true, ActivationKind::kGeluTanh, 6, 10000},
  };
  return kRows;
}

CORBEL_INLINE const Architecture* find_architecture(std::string_view name) noexcept {
  for (const Architecture& row : architectures())
    if (name == row.name) return &row;
  return nullptr;
}

namespace detail {

/// Reads the hyper-parameters of one checkpoint; the first failure is kept and later reads do nothing.
class SpecReader {
 public:
  SpecReader(const Checkpoint& checkpoint, std::string_view architecture)
      : checkpoint_(checkpoint), prefix_(std::string(architecture) + ".") {}

  const Status& status() const noexcept { return status_; }
  void fail(Errc code, std::string_view message) {
    if (status_.ok()) status_ = Status(code, message);
  }

  bool has(std::string_view key) const { return checkpoint_.metadata().find(prefix_ + std::string(key)) != nullptr; }

  /// An integer key in [low, high].
  std::uint32_t count(std::string_view key, std::uint64_t low, std::uint64_t high) {
    const std::string name = prefix_ + std::string(key);
    const Result<std::uint64_t> value = checkpoint_.metadata().get_uint(name);
    if (!value.ok()) return fail_with(value.status());
    return in_range(name, *value, low, high);
  }
  std::uint32_t count_or(std::string_view key, std::uint32_t fallback, std::uint64_t low, std::uint64_t high) {
    return has(key) ? count(key, low, high) : fallback;
  }
  /// A count that files may give per layer; all layers must agree.
  std::uint32_t uniform_count(std::string_view key, std::uint32_t layers, std::uint64_t low, std::uint64_t high) {
    const std::string name = prefix_ + std::string(key);
    const MetaValue* value = checkpoint_.metadata().find(name);
    if (value == nullptr || !value->is_array()) return count(key, low, high);
    if (value->element_type() == MetaType::kString || value->element_type() == MetaType::kBool ||
        value->element_type() == MetaType::kF32 || value->element_type() == MetaType::kF64)
      return fail_with(Status(Errc::kTypeMismatch, fmt::format("{}: expected an array of integers", name)));
    if (value->size() != layers)
      return fail_with(
          Status(Errc::kShapeMismatch, fmt::format("{}: {} entries for {} layers", name, value->size(), layers)));
    for (std::size_t i = 1; i < value->size(); ++i)
      if (value->int_at(i) != value->int_at(0))
        return fail_with(Status(Errc::kUnsupported, fmt::format("{}: layers with different counts", name)));
    const std::int64_t first = value->int_at(0);
    if (first < 0) return fail_with(Status(Errc::kBadValue, fmt::format("{}: {} is negative", name, first)));
    return in_range(name, static_cast<std::uint64_t>(first), low, high);
  }
  /// A finite number in (low, high].
  double number(std::string_view key, double low, double high) {
    const std::string name = prefix_ + std::string(key);
    const Result<double> value = checkpoint_.metadata().get_float(name);
    if (!value.ok()) {
      fail_with(value.status());
      return 1;
    }
    if (!(*value > low && *value <= high)) {
      fail(Errc::kBadValue, fmt::format("{}: {} is not above {} and at most {}", name, *value, low, high));
      return 1;
    }
    return *value;
  }
  double number_or(std::string_view key, double fallback, double low, double high) {
    return has(key) ? number(key, low, high) : fallback;
  }
  std::string_view string_or(std::string_view key, std::string_view fallback) {
    const Result<std::string_view> value = checkpoint_.metadata().get_string_or(prefix_ + std::string(key), fallback);
    if (value.ok()) return *value;
    fail_with(value.status());
    return fallback;
  }

 private:
  std::uint32_t fail_with(const Status& status) {
    if (status_.ok()) status_ = status;
    return 1;
  }
  std::uint32_t in_range(const std::string& name, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
    if (value < low) return fail_with(Status(Errc::kBadValue, fmt::format("{}: {} is below {}", name, value, low)));
    if (value > high)
      return fail_with(Status(Errc::kLimitExceeded, fmt::format("{}: {} is above the limit {}", name, value, high)));
    return static_cast<std::uint32_t>(value);
  }

  const Checkpoint& checkpoint_;
  std::string prefix_;
  Status status_;
};

/// The natural logarithm of a positive finite number, by Newton's method on exact_exp.
inline double exact_log(double x) {
  int exponent = 0;
  const double mantissa = std::frexp(x, &exponent);
  double y = mantissa - 1.0;
  for (int i = 0; i < 6; ++i) y = y - 1.0 + mantissa * corbel::detail::exact_exp(-y);
  return y + static_cast<double>(exponent) * 0.693147180559945309417;
}

/// base^(-2i/rotary_dim) for each pair, divided by `factor` and by the file's per-frequency divisors where there are
/// any.
inline RopeTable make_rope_table(double base, std::uint32_t rotary_dim, double factor,
                                 std::span<const float> divisors) {
  RopeTable table;
  const double log_base = exact_log(base);
  for (std::uint32_t i = 0; i < rotary_dim / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim);
    // Rounded to float32 before the reciprocal and before scaling, as the families' reference implementation has it.
    const float frequency = 1.0f / static_cast<float>(corbel::detail::exact_exp(exponent * log_base));
    float scaled = frequency / static_cast<float>(factor);
    if (!divisors.empty()) scaled = scaled / divisors[i];
    table.inverse_frequencies.push_back(scaled);
  }
  return table;
}

inline Result<std::vector<float>> read_rope_divisors(const Checkpoint& checkpoint, std::uint32_t rotary_dim) {
  const TensorInfo* tensor = checkpoint.find_tensor("rope_freqs.weight");
  if (tensor == nullptr) return std::vector<float>();
  if (tensor->num_elements() != rotary_dim / 2)
    return Status(Errc::kShapeMismatch, fmt::format("tensor rope_freqs.weight: {} elements, expected {}",
                                                    tensor->num_elements(), rotary_dim / 2));
  CORBEL_ASSIGN_OR_RETURN(std::vector<float> values, checkpoint.read_f32(*tensor));
  for (float value : values)
    if (!(value > 0 && value <= std::numeric_limits<float>::max()))
      return Status(Errc::kBadValue, fmt::format("tensor rope_freqs.weight: {} is not a positive number", value));
  return values;
}

inline Result<ModelSpec> read_spec(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata();
  CORBEL_ASSIGN_OR_RETURN(const std::string_view architecture, metadata.get_string("general.architecture"));
  if (architecture.size() > 64)
    return Status(Errc::kLimitExceeded,
                  fmt::format("general.architecture: {} bytes, the limit is 64", architecture.size()));
  ModelSpec spec;
  spec.architecture = find_architecture(architecture);
  if (spec.architecture == nullptr) {
    std::string known;
    for (const Architecture& row : architectures()) known += std::string(known.empty() ? "" : ", ") + row.name;
    return Status(Errc::kUnsupported,
                  fmt::format("general.architecture: \"{}\" is not supported; supported are {}", architecture, known));
  }
  const Architecture& family = *spec.architecture;
  if (const auto name = metadata.get_string_or("general.name", architecture); name.ok()) spec.name = std::string(*name);

  SpecReader read(checkpoint, architecture);
  const std::uint32_t num_layers = read.count("block_count", 1, 4096);
  spec.context_length = read.count("context_length", 1, 1u << 26);
  spec.hidden = read.count("embedding_length", 1, 1u << 20);
  spec.feed_forward = read.uniform_count("feed_forward_length", num_layers, 1, 1u << 22);
  spec.heads = read.uniform_count("attention.head_count", num_layers, 1, 1u << 14);
  spec.kv_heads = read.has("attention.head_count_kv")
                      ? read.uniform_count("attention.head_count_kv", num_layers, 1, 1u << 14)
                      : spec.heads;
  spec.norm_epsilon = static_cast<float>(read.number("attention.layer_norm_rms_epsilon", 0, 1));
  if (read.has("expert_count") && read.count("expert_count", 0, 1u << 16) != 0)
    read.fail(Errc::kUnsupported, fmt::format("{}.expert_count: mixtures of experts are not supported", architecture));
  if (!read.status().ok()) return read.status();

  if (spec.kv_heads > spec.heads || spec.heads % spec.kv_heads != 0)
    return Status(Errc::kBadValue, fmt::format("{}.attention.head_count_kv: {} does not divide head_count {}",
                                               architecture, spec.kv_heads, spec.heads));
  if (!read.has("attention.key_length") && spec.hidden % spec.heads != 0)
    return Status(Errc::kBadValue,
                  fmt::format("{0}.embedding_length: {1} is not divisible by head_count {2} and there is no "
                              "{0}.attention.key_length",
                              architecture, spec.hidden, spec.heads));
  spec.head_dim = read.count_or("attention.key_length", spec.hidden / spec.heads, 1, 1u << 12);
  const std::uint32_t value_dim = read.count_or("attention.value_length", spec.head_dim, 1, 1u << 12);
  if (read.status().ok() && value_dim != spec.head_dim)
    read.fail(Errc::kUnsupported, fmt::format("{}.attention.value_length: {} differs from key_length {}", architecture,
                                              value_dim, spec.head_dim));
  spec.rotary_dim = read.count_or("rope.dimension_count", spec.head_dim, 1, 1u << 12);
  if (read.status().ok() && (spec.rotary_dim % 2 != 0 || spec.rotary_dim > spec.head_dim))
    read.fail(Errc::kBadValue, fmt::format("{}.rope.dimension_count: {} is not an even number up to the head size {}",
                                           architecture, spec.rotary_dim, spec.head_dim));

  const double base = read.number_or("rope.freq_base", 10000, 0, 1e12);
  const std::string_view scaling = read.string_or("rope.scaling.type", "none");
  double factor = 1;
  if (scaling == "linear") {
    factor = read.number("rope.scaling.factor", 0, 1e6);
  } else if (scaling != "none") {
    read.fail(Errc::kUnsupported,
              fmt::format("{}.rope.scaling.type: \"{}\" is not supported; supported are none, linear", architecture,
                          scaling));
  }
  if (!read.status().ok()) return read.status();
  CORBEL_ASSIGN_OR_RETURN(const std::vector<float> divisors, read_rope_divisors(checkpoint, spec.rotary_dim));
  spec.ropes.push_back(make_rope_table(base, spec.rotary_dim, factor, divisors));

  spec.layers.resize(num_layers);
  const std::uint32_t window =
      family.window_pattern == 0 ? 0 : read.count_or("attention.sliding_window", 0, 1, 1u << 26);
  if (window != 0) {
    const std::uint32_t pattern = read.count_or("attention.sliding_window_pattern", family.window_pattern, 1, 4096);
    const double window_base =
        read.number_or("rope.freq_base_swa", family.window_rope_base != 0 ? family.window_rope_base : base, 0, 1e12);
    spec.ropes.push_back(make_rope_table(window_base, spec.rotary_dim, 1, {}));
    for (std::uint32_t i = 0; i < num_layers; ++i)
      if ((i + 1) % pattern != 0) spec.layers[i] = {MixerKind::kAttention, window, 1};
  }
  if (read.has("attn_logit_softcapping"))
    spec.attention_softcap = static_cast<float>(read.number("attn_logit_softcapping", 0, 1e6));
  if (read.has("final_logit_softcapping"))
    spec.logit_softcap = static_cast<float>(read.number("final_logit_softcapping", 0, 1e6));
  if (!read.status().ok()) return read.status();
  spec.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
  if (family.scaled_embedding) spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.hidden)));

  const TensorInfo* embedding = checkpoint.find_tensor("token_embd.weight");
  if (embedding == nullptr) return Status(Errc::kMissingTensor, "tensor token_embd.weight is missing");
  if (embedding->shape.size() != 2 || embedding->shape[1] != spec.hidden)
    return Status(Errc::kShapeMismatch,
                  fmt::format("tensor token_embd.weight: expected [vocabulary, {}]", spec.hidden));
  if (embedding->shape[0] > 1u << 20)
    return Status(Errc::kLimitExceeded,
                  fmt::format("tensor token_embd.weight: {} rows, the limit is {}", embedding->shape[0], 1u << 20));
  spec.vocab = static_cast<std::uint32_t>(embedding->shape[0]);
  const std::uint32_t stated = read.count_or("vocab_size", spec.vocab, 1, 1u << 20);
  if (!read.status().ok()) return read.status();
  if (stated != spec.vocab)
    return Status(Errc::kShapeMismatch,
                  fmt::format("{}.vocab_size: {} but token_embd.weight has {} rows", architecture, stated, spec.vocab));
  if (const MetaValue* tokens = metadata.find("tokenizer.ggml.tokens"); tokens != nullptr) {
    if (!tokens->is_array() || tokens->element_type() != MetaType::kString)
      return Status(Errc::kTypeMismatch, "tokenizer.ggml.tokens: expected an array of strings");
    if (tokens->size() != spec.vocab)
      return Status(Errc::kShapeMismatch,
                    fmt::format("tokenizer.ggml.tokens: {} entries but token_embd.weight has {} rows", tokens->size(),
                                spec.vocab));
  }
  spec.tied_head = checkpoint.find_tensor("output.weight") == nullptr;
  return spec;
}

}  // namespace detail

CORBEL_INLINE Result<ModelSpec> read_model_spec(const Checkpoint& checkpoint) {
  return corbel::detail::guard([&]() -> Result<ModelSpec> { return detail::read_spec(checkpoint); });
}

}  // namespace models
CORBEL_NAMESPACE_END

CORBEL_EXACT_FP_END
