// Definitions of models/build.hpp.
#pragma once

#include <corbel/detail/guard.hpp>
#include <corbel/graph/builder.hpp>
#include <corbel/models/build.hpp>

#include <cstring>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

/// The bytes of one tensor of a checkpoint.
class TensorSource final : public hal::ByteSource {
 public:
  TensorSource(Checkpoint checkpoint, const TensorInfo& tensor, std::shared_ptr<const ReadObserver> observer)
      : checkpoint_(std::move(checkpoint)), tensor_(tensor), observer_(std::move(observer)) {}

  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    CORBEL_RETURN_IF_ERROR(checkpoint_.read(tensor_, offset, out));
    if (observer_ && !(*observer_)(out.size()))
      return Status(Errc::kCancelled, "loading was stopped by the progress callback");
    return {};
  }
  std::span<const std::byte> bytes() const noexcept override {
    // With an observer everything goes through read(), so that progress is seen and a load can be stopped.
    return observer_ ? std::span<const std::byte>() : checkpoint_.bytes(tensor_);
  }

 private:
  Checkpoint checkpoint_;
  const TensorInfo& tensor_;  // lives in the checkpoint's shared state
  std::shared_ptr<const ReadObserver> observer_;
};

/// Constants that the library computed.
class VectorSource final : public hal::ByteSource {
 public:
  explicit VectorSource(std::vector<float> values) : values_(std::move(values)) {}
  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    const std::span<const std::byte> all = bytes();
    if (offset > all.size() || out.size() > all.size() - offset)
      return Status(Errc::kInternal, "constant read out of range");
    if (!out.empty()) std::memcpy(out.data(), all.data() + offset, out.size());
    return {};
  }
  std::span<const std::byte> bytes() const noexcept override { return std::as_bytes(std::span<const float>(values_)); }

 private:
  std::vector<float> values_;
};

class ProgramBuilder {
 public:
  ProgramBuilder(const Checkpoint& checkpoint, const ModelSpec& spec, std::shared_ptr<const ReadObserver> observer)
      : checkpoint_(checkpoint), spec_(spec), observer_(std::move(observer)) {}

  Result<hal::Program> build() {
    const auto num_layers = static_cast<std::int32_t>(spec_.layers.size());
    const hal::WeightId embedding = matrix("token_embd.weight", spec_.vocab, spec_.hidden, hal::kUseEmbedding);
    if (!status_.ok()) return status_;
    std::vector<hal::ValueId> rope_tables;
    for (std::size_t i = 0; i < spec_.ropes.size(); ++i) {
      const RopeTable& rope = spec_.ropes[i];
      rope_tables.push_back(builder_.rope_table(constant(fmt::format("rope.{}", i), rope.inverse_frequencies),
                                                rope.attention_factor, "rope"));
    }
    hal::ValueId x = builder_.embed(embedding, "embedding");
    if (spec_.embedding_scale != 1) x = builder_.scale(x, spec_.embedding_scale, "scaled_embedding");
    for (std::int32_t layer = 0; layer < num_layers && status_.ok(); ++layer)
      x = add_layer(layer, x, rope_tables[spec_.layers[static_cast<std::size_t>(layer)].rope]);
    if (!status_.ok()) return status_;
    builder_.set_layer(hal::kNone);

    x = builder_.norm(x, vector("output_norm.weight", spec_.hidden), whole_norm(), "output_norm");
    hal::WeightId head = embedding;
    if (spec_.tied_head) {
      builder_.add_use(embedding, hal::kUseLinear);
    } else {
      head = matrix("output.weight", spec_.vocab, spec_.hidden, hal::kUseLinear);
    }
    if (!status_.ok()) return status_;
    hal::ValueId logits = builder_.linear(x, head, hal::kNone, "head");
    if (spec_.logit_softcap != 0) logits = builder_.softcap(logits, spec_.logit_softcap, "capped_logits");
    return builder_.finish(builder_.select_rows(logits, "logits"));
  }

 private:
  hal::ValueId add_layer(std::int32_t layer, hal::ValueId x, hal::ValueId rope_table) {
    const Architecture& family = *spec_.architecture;
    const LayerSpec& layer_spec = spec_.layers[static_cast<std::size_t>(layer)];
    const std::string block = fmt::format("blk.{}.", layer);
    const std::uint32_t q_width = spec_.heads * spec_.head_dim;
    const std::uint32_t kv_width = spec_.kv_heads * spec_.head_dim;
    const hal::NormSpec head_norm = {hal::NormKind::kRms, spec_.head_dim, spec_.norm_epsilon};
    builder_.set_layer(layer);

    const hal::ValueId normed =
        builder_.norm(x, vector(block + "attn_norm.weight", spec_.hidden), whole_norm(), "attn_norm");
    hal::ValueId q = linear(normed, block + "attn_q", q_width, spec_.hidden, "q");
    hal::ValueId k = linear(normed, block + "attn_k", kv_width, spec_.hidden, "k");
    const hal::ValueId v = linear(normed, block + "attn_v", kv_width, spec_.hidden, "v");
    if (!status_.ok()) return x;
    if (family.qk_norm) {
      q = builder_.norm(q, vector(block + "attn_q_norm.weight", spec_.head_dim), head_norm, "q_norm");
      k = builder_.norm(k, vector(block + "attn_k_norm.weight", spec_.head_dim), head_norm, "k_norm");
    }
    const hal::RopeSpec rope = {spec_.head_dim, spec_.rotary_dim, family.rope_interleaved};
    q = builder_.rope(q, rope_table, rope, "q_rope");
    k = builder_.rope(k, rope_table, rope, "k_rope");
    builder_.kv_layer({spec_.kv_heads, spec_.head_dim});
    builder_.kv_append(k, v);
    q = builder_.scale(q, spec_.attention_scale, "q_scaled");
    hal::ValueId mixed = builder_.attention(
        q, {spec_.heads, spec_.kv_heads, spec_.head_dim, 1.0f, layer_spec.window, spec_.attention_softcap},
        "attention");
    mixed = linear(mixed, block + "attn_output", spec_.hidden, q_width, "attn_output");
    if (family.post_norms)
      mixed = builder_.norm(mixed, vector(block + "post_attention_norm.weight", spec_.hidden), whole_norm(),
                            "post_attn_norm");
    if (!status_.ok()) return x;
    x = builder_.add(x, mixed, "attn_residual");

    const hal::ValueId ffn_in =
        builder_.norm(x, vector(block + "ffn_norm.weight", spec_.hidden), whole_norm(), "ffn_norm");
    const hal::ValueId gate = linear(ffn_in, block + "ffn_gate", spec_.feed_forward, spec_.hidden, "gate");
    const hal::ValueId up = linear(ffn_in, block + "ffn_up", spec_.feed_forward, spec_.hidden, "up");
    if (!status_.ok()) return x;
    const hal::ValueId gated = builder_.activation(family.activation, gate, up, "gated");
    hal::ValueId down = linear(gated, block + "ffn_down", spec_.hidden, spec_.feed_forward, "down");
    if (family.post_norms)
      down = builder_.norm(down, vector(block + "post_ffw_norm.weight", spec_.hidden), whole_norm(), "post_ffn_norm");
    if (!status_.ok()) return x;
    return builder_.add(x, down, "ffn_residual");
  }

  hal::NormSpec whole_norm() const { return {hal::NormKind::kRms, spec_.hidden, spec_.norm_epsilon}; }

  /// The linear of tensors `name`.weight and, where the file has it, `name`.bias.
  hal::ValueId linear(hal::ValueId x, const std::string& name, std::uint32_t out, std::uint32_t in, const char* label) {
    const hal::WeightId weight = matrix(name + ".weight", out, in, hal::kUseLinear);
    const hal::WeightId bias =
        checkpoint_.find_tensor(name + ".bias") != nullptr ? vector(name + ".bias", out) : hal::kNone;
    if (!status_.ok()) return x;
    return builder_.linear(x, weight, bias, label);
  }

  hal::WeightId matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols, hal::WeightUse use) {
    const std::uint64_t shape[] = {rows, cols};
    return weight(name, shape, rows, cols, use);
  }
  hal::WeightId vector(const std::string& name, std::uint64_t elements) {
    const std::uint64_t shape[] = {elements};
    return weight(name, shape, 1, elements, hal::kUseVector);
  }
  hal::WeightId constant(std::string name, const std::vector<float>& values) {
    hal::WeightPart part;
    part.name = std::move(name);
    part.rows = 1;
    part.cols = values.size();
    part.source = std::make_shared<VectorSource>(values);
    hal::WeightSpec spec;
    spec.uses = hal::kUseVector;
    spec.parts.push_back(std::move(part));
    return builder_.weight(std::move(spec));
  }

  hal::WeightId weight(const std::string& name, std::span<const std::uint64_t> shape, std::uint64_t rows,
                       std::uint64_t cols, hal::WeightUse use) {
    if (!status_.ok()) return 0;
    const TensorInfo* tensor = checkpoint_.find_tensor(name);
    if (tensor == nullptr) {
      status_ = Status(Errc::kMissingTensor, fmt::format("tensor {} is missing", name));
      return 0;
    }
    if (!std::equal(shape.begin(), shape.end(), tensor->shape.begin(), tensor->shape.end())) {
      status_ = Status(Errc::kShapeMismatch, fmt::format("tensor {}: shape [{}], expected [{}]", name,
                                                         fmt::join(tensor->shape, ", "), fmt::join(shape, ", ")));
      return 0;
    }
    if (!tensor->supported) {
      const GgmlType* type = find_ggml_type(tensor->ggml_type);
      status_ = Status(Errc::kUnsupported, fmt::format("tensor {}: type {} is not supported", name,
                                                       type != nullptr ? type->name : "unknown"));
      return 0;
    }
    if (use == hal::kUseVector && traits(tensor->dtype).block_elements != 1) {
      status_ =
          Status(Errc::kUnsupported, fmt::format("tensor {}: a vector of type {}", name, traits(tensor->dtype).name));
      return 0;
    }
    hal::WeightPart part;
    part.name = name;
    part.dtype = tensor->dtype;
    part.rows = rows;
    part.cols = cols;
    part.source = std::make_shared<TensorSource>(checkpoint_, *tensor, observer_);
    hal::WeightSpec spec;
    spec.uses = use;
    spec.parts.push_back(std::move(part));
    return builder_.weight(std::move(spec));
  }

  const Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  std::shared_ptr<const ReadObserver> observer_;
  graph::Builder builder_;
  Status status_;
};

}  // namespace detail

CORBEL_INLINE Result<hal::Program> build_program(const Checkpoint& checkpoint, const ModelSpec& spec,
                                                 std::shared_ptr<const ReadObserver> observer) {
  return corbel::detail::guard(
      [&]() -> Result<hal::Program> { return detail::ProgramBuilder(checkpoint, spec, std::move(observer)).build(); });
}

}  // namespace models
CORBEL_NAMESPACE_END
