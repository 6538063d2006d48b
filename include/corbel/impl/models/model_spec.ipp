// Definitions of models/model_spec.hpp.
#pragma once

#include <corbel/detail/compiler.hpp>
#include <corbel/detail/exact_math.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/impl/models/config_types.ipp>
#include <corbel/models/key_reader.hpp>
#include <corbel/models/model_spec.hpp>
#include <corbel/models/weight_reader.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <optional>

CORBEL_EXACT_FP_BEGIN

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

inline std::optional<hal::ActivationKind> find_activation(std::string_view name) {
  using hal::ActivationKind;
  struct Name {
    const char* name;
    ActivationKind kind;
  };
  constexpr Name kNames[] = {
      {"silu", ActivationKind::kSilu},
      {"swish", ActivationKind::kSilu},
      {"gelu", ActivationKind::kGelu},
      {"gelu_python", ActivationKind::kGelu},
      {"gelu_new", ActivationKind::kGeluTanh},
      {"gelu_fast", ActivationKind::kGeluTanh},
      {"gelu_pytorch_tanh", ActivationKind::kGeluTanh},
      {"gelu_python_tanh", ActivationKind::kGeluTanh},
      {"quick_gelu", ActivationKind::kGeluQuick},
      {"relu", ActivationKind::kRelu},
      {"relu2", ActivationKind::kReluSquared},
  };
  for (const Name& entry : kNames)
    if (name == entry.name) return entry.kind;
  return std::nullopt;
}

/// The slopes of ALiBi (arXiv 2108.12409) for any number of heads: those of the next lower power of two, then every
/// second one of the next higher.
inline std::vector<float> alibi_slopes(std::uint32_t heads, double max_bias, double scale) {
  std::uint32_t lower = 1;
  while (2 * lower <= heads) lower *= 2;
  std::vector<float> slopes;
  for (std::uint32_t h = 0; h < heads; ++h) {
    const double step = h < lower ? max_bias / lower : max_bias / (2.0 * lower);
    const double index = h < lower ? h + 1.0 : 2.0 * (h - lower) + 1.0;
    slopes.push_back(static_cast<float>(scale * exact_pow(2, -step * index)));
  }
  return slopes;
}

/// Reads one spec; each member function reads one topic.
class SpecReader {
 public:
  SpecReader(const Checkpoint& checkpoint, const Architecture& family, std::string_view architecture)
      : checkpoint_(checkpoint), family_(family), read_(checkpoint, architecture), tensors_(checkpoint, family) {
    spec_.architecture = &family;
  }

  Result<ModelSpec> run() {
    // Each step relies on what those before it have checked.
    using Step = void (SpecReader::*)();
    constexpr Step kSteps[] = {&SpecReader::read_sizes,     &SpecReader::read_heads,   &SpecReader::read_latent,
                               &SpecReader::read_switches,  &SpecReader::read_experts, &SpecReader::read_layers,
                               &SpecReader::read_ropes,     &SpecReader::read_scales,  &SpecReader::read_positions,
                               &SpecReader::read_vocabulary};
    for (const Step step : kSteps) {
      (this->*step)();
      if (!read_.ok()) return read_.status();
    }
    return std::move(spec_);
  }

 private:
  bool hf() const noexcept { return read_.is_hf(); }
  std::uint32_t num_layers() const noexcept { return static_cast<std::uint32_t>(spec_.layers.size()); }

  void read_sizes() {
    spec_.layers.resize(read_.count("block_count", 1, 4096));
    // Folders of families without a table of positions may leave the context out.
    constexpr std::uint64_t kMaxContext = 1u << 26;
    spec_.context_length =
        hf() ? read_.count_or("context_length", 2048, 1, kMaxContext) : read_.count("context_length", 1, kMaxContext);
    spec_.hidden = read_.count("embedding_length", 1, 1u << 20);
    constexpr std::uint64_t kMaxFeedForward = 1u << 22;
    if (hf() && !read_.has("feed_forward_length")) {
      spec_.feed_forward = read_expansion(kMaxFeedForward);
      // A stored matrix says it best: readers differ in what they make of the ratio.
      const TensorInfo* up = tensors_.find("blk.0.ffn_up.weight");
      const std::size_t rows = family_.transposed ? 1 : 0;
      if (up != nullptr && up->shape.size() == 2 && up->shape[1 - rows] == spec_.hidden && !family_.fused_gate_up)
        spec_.feed_forward = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(up->shape[rows], 1, kMaxFeedForward));
    } else {
      spec_.feed_forward = read_.uniform_count("feed_forward_length", num_layers(), 1, kMaxFeedForward);
    }
    const char* epsilon =
        family_.norm == hal::NormKind::kRms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
    spec_.norm_epsilon = static_cast<float>(hf() ? read_.number_or(epsilon, 1e-5, 0, 1) : read_.number(epsilon, 0, 1));
  }

  /// Of the width of the feed-forward as a multiple of the hidden size; 4 where it is not stated.
  std::uint32_t read_expansion(std::uint64_t limit) {
    const double ratio = read_.number_or("expansion_ratio", 4, 0, 1024);
    const double width = ratio * static_cast<double>(spec_.hidden);
    return width >= 1 && width <= static_cast<double>(limit) ? static_cast<std::uint32_t>(width) : 1;
  }

  void read_heads() {
    constexpr std::uint64_t kMaxHeads = 1u << 14;
    spec_.heads = read_.uniform_count("attention.head_count", num_layers(), 1, kMaxHeads);
    spec_.kv_heads = spec_.heads;
    const bool grouped = read_.flag_or("new_decoder_architecture", hf() && read_.has("n_head_kv"));
    const bool falcon_like = hf() && family_.multi_query && !grouped;
    if (falcon_like) {
      if (read_.flag_or("multi_query", true)) spec_.kv_heads = 1;
    } else if (read_.has("attention.head_count_kv")) {
      spec_.kv_heads = read_.uniform_count("attention.head_count_kv", num_layers(), 1, kMaxHeads);
    }
    if (!read_.ok()) return;
    const std::string name = read_.name_of("attention.head_count_kv");
    if (spec_.kv_heads > spec_.heads || spec_.heads % spec_.kv_heads != 0)
      return read_.fail(Errc::kBadValue,
                        fmt::format("{}: {} does not divide head_count {}", name, spec_.kv_heads, spec_.heads));
    spec_.fused_qkv_groups = hf() && family_.grouped_qkv;
    if (family_.mixer == MixerKind::kLatentAttention) return;

    if (!read_.has("attention.key_length") && spec_.hidden % spec_.heads != 0)
      return read_.fail(Errc::kBadValue, fmt::format("{}: {} is not divisible by head_count {} and there is no {}",
                                                     read_.name_of("embedding_length"), spec_.hidden, spec_.heads,
                                                     read_.name_of("attention.key_length")));
    spec_.head_dim = read_.count_or("attention.key_length", spec_.hidden / spec_.heads, 1, 1u << 12);
    if (hf()) return;
    const std::uint32_t value_dim = read_.count_or("attention.value_length", spec_.head_dim, 1, 1u << 12);
    if (read_.ok() && value_dim != spec_.head_dim)
      read_.fail(Errc::kUnsupported, fmt::format("{}: {} differs from key_length {}",
                                                 read_.name_of("attention.value_length"), value_dim, spec_.head_dim));
  }

  void read_latent() {
    if (family_.mixer != MixerKind::kLatentAttention) return;
    constexpr std::uint64_t kMaxRank = 1u << 16, kMaxDim = 1u << 12;
    LatentSpec& latent = spec_.latent;
    latent.q_rank = read_.count_or("attention.q_lora_rank", 0, 0, kMaxRank);
    latent.kv_rank = read_.count("attention.kv_lora_rank", 1, kMaxRank);
    latent.rope_dim = read_.count(hf() ? "qk_rope_head_dim" : "rope.dimension_count", 2, kMaxDim);
    if (hf()) {
      latent.nope_dim = read_.count("qk_nope_head_dim", 1, kMaxDim);
      latent.value_dim = read_.count("v_head_dim", 1, kMaxDim);
    } else {
      // Newer files state the sizes of the cache as key_length and value_length, and those of a head beside them.
      const char* key = read_.has("attention.key_length_mla") ? "attention.key_length_mla" : "attention.key_length";
      const char* value =
          read_.has("attention.value_length_mla") ? "attention.value_length_mla" : "attention.value_length";
      const std::uint32_t key_dim = read_.count(key, 1, kMaxDim);
      latent.value_dim = read_.count(value, 1, kMaxDim);
      if (read_.ok() && key_dim <= latent.rope_dim)
        return read_.fail(Errc::kBadValue, fmt::format("{}: {} is not above rope.dimension_count {}",
                                                       read_.name_of(key), key_dim, latent.rope_dim));
      latent.nope_dim = key_dim - latent.rope_dim;
    }
    // The family's reference implementation gives the norms of compressed values an epsilon of their own.
    latent.norm_epsilon = hf() ? 1e-6f : spec_.norm_epsilon;
    spec_.kv_heads = 1;
    spec_.head_dim = latent.kv_rank + latent.rope_dim;
  }

  void read_switches() {
    spec_.parallel = read_.flag_or("use_parallel_residual", family_.parallel);
    if (read_.flag_or("new_decoder_architecture", hf() && read_.has("n_head_kv"))) spec_.parallel = true;
    spec_.rope_interleaved = family_.rope == RopePairs::kInterleaved || (family_.rope == RopePairs::kPermuted && !hf());
    if (hf() && spec_.rope_interleaved) spec_.rope_interleaved = read_.flag_or("rope_interleave", true);
    spec_.activation = family_.activation;
    if (hf()) {
      read_activation();
      if (read_.flag_or("use_bidirectional_attention", false))
        return read_.fail(Errc::kUnsupported,
                          fmt::format("{}: true is not supported", read_.name_of("use_bidirectional_attention")));
      if (!read_.flag_or("is_causal", true))
        return read_.fail(Errc::kUnsupported, fmt::format("{}: false is not supported", read_.name_of("is_causal")));
      spec_.scale_by_layer = read_.flag_or("scale_attn_by_inverse_layer_idx", false);
      spec_.residual_after_norm = read_.flag_or("apply_residual_connection_post_layernorm", false);
    }
    if (family_.clamped_gate) spec_.gate_limit = static_cast<float>(read_.number_or("swiglu_limit", 7, 0, 1e30));
    spec_.qkv_clamp = static_cast<float>(read_.number_or("attention.clamp_kqv", 0, -1, 1e30));
    if (spec_.qkv_clamp < 0)
      read_.fail(Errc::kBadValue, fmt::format("{}: negative", read_.name_of("attention.clamp_kqv")));
  }

  void read_activation() {
    for (std::string_view keys = family_.activation_keys; !keys.empty();) {
      const std::size_t end = std::min(keys.find(' '), keys.size());
      const std::string_view key = keys.substr(0, end);
      keys.remove_prefix(std::min(end + 1, keys.size()));
      const std::string name = read_.text_or(key, "");
      if (name.empty()) continue;
      const std::optional<hal::ActivationKind> kind = find_activation(name);
      if (!kind)
        return read_.fail(Errc::kUnsupported, fmt::format("{}: \"{}\" is not supported", read_.name_of(key), name));
      spec_.activation =
          family_.gelu_is_tanh && *kind == hal::ActivationKind::kGelu ? hal::ActivationKind::kGeluTanh : *kind;
      return;
    }
  }

  void read_experts() {
    const std::uint32_t count = read_.count_or("expert_count", 0, 0, 1u << 16);
    // One expert is what configs of dense models state.
    if (!read_.ok() || count == 0 || (hf() && count == 1)) return;
    ExpertSpec& experts = spec_.experts;
    hal::RouteSpec& route = experts.route;
    route.experts = count;
    route.top_k = read_.count("expert_used_count", 1, count);
    experts.feed_forward = read_.count_or("expert_feed_forward_length", spec_.feed_forward, 1, 1u << 22);
    constexpr std::uint64_t kMaxWidth = 1u << 22;
    const std::uint64_t shared =
        std::uint64_t{read_.count_or("expert_shared_count", 0, 0, 1024)} * experts.feed_forward;
    experts.shared_feed_forward = read_.count_or("expert_shared_feed_forward_length",
                                                 static_cast<std::uint32_t>(std::min(shared, kMaxWidth)), 0, kMaxWidth);
    if (!read_.ok()) return;
    const std::uint64_t slots = std::uint64_t{route.top_k} * std::max(experts.feed_forward, spec_.hidden);
    if (slots > 1u << 30)
      return read_.fail(Errc::kLimitExceeded,
                        fmt::format("{}: {} experts of {} columns are too wide", read_.name_of("expert_used_count"),
                                    route.top_k, std::max(experts.feed_forward, spec_.hidden)));
    route.normalize = read_.flag_or("expert_weights_norm", family_.normalize_experts);
    route.scale = static_cast<float>(read_.number_or("expert_weights_scale", 1, -1e6, 1e6));
    if (!hf() && route.scale == 0) route.scale = 1;  // files leave it at 0 where there is none
    route.score = family_.expert_score;
    const std::string score = hf() ? read_.text_or("scoring_func", "") : std::string();
    const std::uint32_t gating = hf() ? 0 : read_.count_or("expert_gating_func", 0, 0, 16);
    if (score == "sigmoid" || gating == 2) {
      route.score = hal::ScoreKind::kSigmoid;
    } else if (score == "softmax" || gating == 1) {
      route.score = hal::ScoreKind::kSoftmax;
    } else if (!score.empty() || gating > 3) {
      return read_.fail(Errc::kUnsupported, fmt::format("{}: not supported; supported are softmax, sigmoid",
                                                        read_.name_of(hf() ? "scoring_func" : "expert_gating_func")));
    }
    read_expert_groups(route);
  }

  void read_expert_groups(hal::RouteSpec& route) {
    const std::string method = read_.text_or("topk_method", "group");
    const std::uint32_t groups = read_.count_or("expert_group_count", 1, 0, 1u << 12);
    if (!read_.ok() || groups <= 1 || method == "greedy") return;
    route.groups = groups;
    route.top_groups = read_.count_or("expert_group_used_count", groups, 1, groups);
    route.group_top = route.score == hal::ScoreKind::kSigmoid ? 2 : 1;
    if (!read_.ok()) return;
    if (route.experts % groups != 0 || route.experts / groups * route.top_groups < route.top_k)
      read_.fail(Errc::kBadValue, fmt::format("{}: {} groups, {} of them used, do not fit {} experts, {} of them used",
                                              read_.name_of("expert_group_count"), groups, route.top_groups,
                                              route.experts, route.top_k));
  }

  void read_layers() {
    for (LayerSpec& layer : spec_.layers) layer.mixer = family_.mixer;
    read_windows();
    if (!read_.ok() || spec_.experts.route.experts == 0) return;
    const std::uint32_t dense = read_.count_or("leading_dense_block_count", 0, 0, hf() ? 4096 : num_layers());
    const std::uint32_t step = hf() ? read_.count_or("decoder_sparse_step", 1, 1, 4096) : 1;
    const std::uint32_t frequency = hf() ? read_.count_or("moe_layer_freq", 1, 1, 4096) : 1;
    const std::vector<double> mlp_only = hf() ? read_.numbers("mlp_only_layers") : std::vector<double>();
    for (const double index : mlp_only)
      if (index < 0 || index > 65536)
        return read_.fail(Errc::kBadValue,
                          fmt::format("{}: {} is no number of a layer", read_.name_of("mlp_only_layers"), index));
    for (std::uint32_t i = 0; i < num_layers(); ++i) {
      bool sparse = i >= dense && (i + 1) % step == 0 && i % frequency == 0;
      for (const double index : mlp_only) sparse = sparse && index != static_cast<double>(i);
      spec_.layers[i].sparse = sparse;
    }
  }

  void read_windows() {
    // A list of what each layer is goes before everything else; it is also where recurrent layers show.
    const std::vector<std::string> types = hf() ? read_.texts("layer_types") : std::vector<std::string>();
    const std::string types_name = read_.name_of("layer_types");
    if (!types.empty() && types.size() != num_layers())
      return read_.fail(Errc::kShapeMismatch,
                        fmt::format("{}: {} entries for {} layers", types_name, types.size(), num_layers()));
    for (const std::string& type : types) {
      if (type == "linear_attention" || type == "mamba" || type == "mamba2" || type == "conv" || type == "recurrent")
        return read_.fail(Errc::kUnsupported,
                          fmt::format("{}: recurrent mixer \"{}\" is not supported", types_name, type));
      if (type != "full_attention" && type != "sliding_attention" && type != "attention")
        return read_.fail(Errc::kUnsupported,
                          fmt::format("{}: layer type \"{}\" is not supported", types_name, type.substr(0, 64)));
    }
    if (family_.windows == Windows::kNone) return;
    const std::uint32_t window = read_.count_or("attention.sliding_window", 0, 0, 1u << 30);
    if (!read_.ok() || window == 0) return;
    const bool switched = family_.windows != Windows::kAll && family_.windows != Windows::kPattern;
    if (switched && !read_.flag_or("use_sliding_window", false)) return;
    const std::uint32_t limit = switched ? read_.count_or("max_window_layers", 0, 0, 1u << 16) : 0;
    const std::vector<bool> ropes = family_.windows == Windows::kNoRope ? read_rope_layers() : std::vector<bool>();
    if (!read_.ok()) return;
    // Newer GGUF files say it of each layer.
    const char* const pattern_key = "attention.sliding_window_pattern";
    const std::vector<double> listed = read_.has_list(pattern_key) ? read_.numbers(pattern_key) : std::vector<double>();
    if (!listed.empty() && listed.size() != num_layers())
      return read_.fail(Errc::kShapeMismatch, fmt::format("{}: {} entries for {} layers", read_.name_of(pattern_key),
                                                          listed.size(), num_layers()));
    const std::uint32_t pattern = family_.windows == Windows::kPattern && listed.empty() ? read_pattern() : 0;
    const auto by_family = [&](std::uint32_t i) {
      switch (family_.windows) {
        case Windows::kNone:
          return false;
        case Windows::kAll:
        case Windows::kSwitched:
          return true;
        case Windows::kPattern:
          return (i + 1) % pattern != 0;
        case Windows::kFrom:
          return i >= limit;
        case Windows::kEven:
          return i % 2 == 0 && i < limit;
        case Windows::kNoRope:
          return !ropes[i];
      }
      return false;
    };
    for (std::uint32_t i = 0; i < num_layers(); ++i) {
      const bool windowed = !listed.empty()  ? listed[i] != 0
                            : !types.empty() ? types[i] == "sliding_attention"
                                             : by_family(i);
      if (windowed) spec_.layers[i].window = window;
    }
  }

  /// Which layers a list or the family's pattern leaves with a rope.
  std::vector<bool> read_rope_layers() {
    std::vector<bool> ropes(num_layers(), true);
    if (family_.no_rope_every == 0) return ropes;
    const std::vector<double> listed = hf() ? read_.numbers("no_rope_layers") : std::vector<double>();
    if (!listed.empty() && listed.size() != num_layers()) {
      read_.fail(Errc::kShapeMismatch, fmt::format("{}: {} entries for {} layers", read_.name_of("no_rope_layers"),
                                                   listed.size(), num_layers()));
      return ropes;
    }
    for (const double with : listed)
      if (with != 0 && with != 1)
        read_.fail(Errc::kBadValue, fmt::format("{}: {} is neither 0 nor 1", read_.name_of("no_rope_layers"), with));
    const std::uint32_t every =
        hf() ? read_.count_or("no_rope_layer_interval", family_.no_rope_every, 1, 4096) : family_.no_rope_every;
    for (std::uint32_t i = 0; i < num_layers(); ++i) ropes[i] = listed.empty() ? (i + 1) % every != 0 : listed[i] != 0;
    return ropes;
  }

  /// Of every `pattern` layers the last sees everything. EXAONE also writes it as letters: "LLLG".
  std::uint32_t read_pattern() {
    const char* key = "attention.sliding_window_pattern";
    if (hf() && checkpoint_.config()->find("sliding_window_pattern") != nullptr &&
        checkpoint_.config()->find("sliding_window_pattern")->is_string()) {
      const std::string letters = read_.text_or(key, "");
      if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos ||
          letters.find('G') != letters.size() - 1) {
        read_.fail(Errc::kUnsupported, fmt::format("{}: \"{}\" is not supported", read_.name_of(key), letters));
        return 1;
      }
      return static_cast<std::uint32_t>(letters.size());
    }
    return read_.count_or(key, family_.window_pattern, 1, 4096);
  }

  void read_ropes() {
    const bool alibi = family_.alibi || read_.flag_or("alibi", false);
    if (alibi || family_.rope == RopePairs::kNone) {
      for (LayerSpec& layer : spec_.layers) layer.rope = kNoRope;
      return;
    }
    bool windowed = false, full = false;
    for (const LayerSpec& layer : spec_.layers) (layer.window != 0 ? windowed : full) = true;
    const RopeScaling scaling = read_rope_scaling(read_, family_.rope_base, "full_attention");
    if (!read_.ok()) return;
    read_rotary_dim(scaling);
    std::vector<float> divisors = read_divisors();
    if (!read_.ok()) return;
    spec_.ropes.push_back(
        make_rope_table(read_, with_gguf_factors(scaling), spec_.rotary_dim, spec_.context_length, divisors));
    if (spec_.ropes[0].dynamic_base != 0) {
      // Such a model goes on beyond the length that it was trained on; nothing says how far.
      constexpr double kStretch = 4;
      const double longer = static_cast<double>(spec_.context_length) * std::max(kStretch, scaling.factor);
      spec_.context_length = static_cast<std::uint32_t>(std::min(longer, static_cast<double>(1u << 26)));
    }
    if (scaling.temperature > 0) {
      spec_.temperature = static_cast<float>(scaling.temperature);
      spec_.temperature_period = static_cast<float>(scaling.original != 0 ? scaling.original : spec_.context_length);
    }
    if (family_.mixer == MixerKind::kLatentAttention) latent_scaling_ = scaling;
    if (windowed && family_.window_rope_base != 0) add_window_rope();
    skip_ropes();
  }

  void read_rotary_dim(const RopeScaling& scaling) {
    const double part = scaling.partial != 0 ? scaling.partial : double{family_.rotary_part};
    const bool latent = family_.mixer == MixerKind::kLatentAttention;
    const std::uint32_t limit = latent ? spec_.latent.rope_dim : spec_.head_dim;
    const auto of_head = static_cast<std::uint32_t>(part * static_cast<double>(spec_.head_dim) + 1e-6);
    const std::uint32_t fallback = latent ? limit : of_head;
    spec_.rotary_dim = read_.count_or("rope.dimension_count", fallback, 1, 1u << 12);
    if (read_.ok() && (spec_.rotary_dim % 2 != 0 || spec_.rotary_dim > limit || spec_.rotary_dim == 0))
      read_.fail(Errc::kBadValue, fmt::format("{}: {} is not an even number up to the head size {}",
                                              read_.name_of("rope.dimension_count"), spec_.rotary_dim, limit));
  }

  /// The positive numbers of a GGUF tensor with one entry per pair.
  std::vector<float> read_pairs(const char* name) {
    const TensorInfo* tensor = hf() ? nullptr : checkpoint_.find_tensor(name);
    if (tensor == nullptr) return {};
    if (tensor->num_elements() != spec_.rotary_dim / 2) {
      read_.fail(Errc::kShapeMismatch, fmt::format("tensor {}: {} elements, expected {}", name, tensor->num_elements(),
                                                   spec_.rotary_dim / 2));
      return {};
    }
    Result<std::vector<float>> values = checkpoint_.read_f32(*tensor);
    if (!values.ok()) {
      read_.fail(values.status().code(), values.status().message());
      return {};
    }
    for (const float value : *values)
      if (!(value > 0 && value <= std::numeric_limits<float>::max())) {
        read_.fail(Errc::kBadValue, fmt::format("tensor {}: {} is not a positive number", name, value));
        return {};
      }
    return std::move(*values);
  }
  std::vector<float> read_divisors() { return read_pairs("rope_freqs.weight"); }

  /// GGUF files keep longrope's factors as tensors.
  RopeScaling with_gguf_factors(RopeScaling scaling) {
    const std::vector<float> shorter = read_pairs("rope_factors_short.weight"),
                             longer = read_pairs("rope_factors_long.weight");
    if (shorter.empty() && longer.empty()) return scaling;
    scaling.type = "longrope";
    scaling.short_factors.assign(shorter.begin(), shorter.end());
    scaling.long_factors.assign(longer.begin(), longer.end());
    return scaling;
  }

  /// Layers with a window have a rope of their own.
  void add_window_rope() {
    RopeScaling scaling;
    const char* local = hf() ? "rope_local_base_freq" : "rope.freq_base_swa";
    scaling.base = read_.number_or(local, family_.window_rope_base, 0, 1e12);
    if (hf() && read_.enter("rope_parameters.sliding_attention")) {
      read_.enter("");
      scaling = read_rope_scaling(read_, family_.window_rope_base, "sliding_attention");
    }
    spec_.ropes.push_back(make_rope_table(read_, scaling, spec_.rotary_dim, spec_.context_length, {}));
    for (LayerSpec& layer : spec_.layers)
      if (layer.window != 0) layer.rope = 1;
  }

  void skip_ropes() {
    if (family_.no_rope_on_full && read_.count_or("attention.sliding_window", 0, 0, 1u << 30) != 0)
      for (LayerSpec& layer : spec_.layers)
        if (layer.window == 0) layer.rope = kNoRope;
    const std::vector<bool> ropes = read_rope_layers();
    for (std::uint32_t i = 0; i < num_layers(); ++i)
      if (!ropes[i]) spec_.layers[i].rope = kNoRope;
  }

  void read_scales() {
    const double head = family_.mixer == MixerKind::kLatentAttention
                            ? static_cast<double>(spec_.latent.nope_dim + spec_.latent.rope_dim)
                            : static_cast<double>(spec_.head_dim);
    double scale = 1.0 / std::sqrt(head);
    if (hf()) {
      if (read_.has("query_pre_attn_scalar")) scale = 1.0 / std::sqrt(read_.number("query_pre_attn_scalar", 0, 1e9));
      if (!read_.flag_or("scale_attn_weights", true)) scale = 1;
    } else if (is_largest_gemma()) {
      scale = 1.0 / std::sqrt(static_cast<double>(spec_.hidden) / static_cast<double>(spec_.heads));
    }
    if (family_.mixer == MixerKind::kLatentAttention && latent_scaling_.type == "yarn" &&
        latent_scaling_.mscale_all_dim > 0) {
      const double mscale = yarn_mscale(latent_scaling_.factor, latent_scaling_.mscale_all_dim);
      scale *= mscale * mscale;
    }
    const double stated = read_.number_or("attention.scale", 0, -1, 1e6);
    spec_.attention_scale = static_cast<float>(stated != 0 ? stated : scale);
    if (family_.scaled_embedding)
      spec_.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec_.hidden)));
    spec_.embedding_scale *= static_cast<float>(read_.number_or("embedding_scale", 1, 0, 1e9));
    spec_.residual_scale = static_cast<float>(read_.number_or("residual_scale", 1, 0, 1e9));
    const double logit_scale = read_.number_or("logit_scale", 1, 0, 1e9);
    spec_.logit_scale = static_cast<float>(family_.divides_logits ? 1.0 / logit_scale : logit_scale);
    if (read_.has("attn_logit_softcapping"))
      spec_.attention_softcap = static_cast<float>(read_.number("attn_logit_softcapping", 0, 1e6));
    if (read_.has("final_logit_softcapping"))
      spec_.logit_softcap = static_cast<float>(read_.number("final_logit_softcapping", 0, 1e6));
  }

  /// The largest Gemma 2 and 3 scale by hidden / heads, which a GGUF file does not say.
  bool is_largest_gemma() const {
    return (family_.gguf == std::string_view("gemma2") && num_layers() == 46) ||
           (family_.gguf == std::string_view("gemma3") && num_layers() == 62);
  }

  void read_positions() {
    bool alibi = family_.alibi;
    double max_bias = 8, scale = 1;
    if (hf() && read_.has("alibi")) {
      alibi = read_.flag_or("alibi", false);
      scale = spec_.attention_scale;  // Falcon adds the bias before it scales
    } else if (hf()) {
      alibi = read_.flag_or("attn_config.alibi", alibi);
      max_bias = read_.number_or("attention.max_alibi_bias", 8, 0, 1e4);
    } else if (alibi) {
      max_bias = read_.number_or("attention.max_alibi_bias", 8, 0, 1e4);
    }
    if (alibi) spec_.slopes = alibi_slopes(spec_.heads, max_bias, scale);
    const TensorInfo* positions = tensors_.find("position_embd.weight");
    if (positions == nullptr) {
      // Slopes hold at any distance; some GGUF files state another number as their context.
      constexpr std::uint32_t kSlopedContext = 2048;
      if (alibi) spec_.context_length = std::max(spec_.context_length, kSlopedContext);
      return;
    }
    if (positions->shape.size() != 2 || positions->shape[1] != spec_.hidden)
      return read_.fail(Errc::kShapeMismatch,
                        fmt::format("tensor {}: expected [positions, {}]", positions->name, spec_.hidden));
    if (positions->shape[0] < spec_.context_length)
      return read_.fail(Errc::kShapeMismatch,
                        fmt::format("{}: {} but tensor {} has {} rows", read_.name_of("context_length"),
                                    spec_.context_length, positions->name, positions->shape[0]));
  }

  void read_vocabulary() {
    const std::string name = tensors_.name_of("token_embd.weight");
    const TensorInfo* embedding = tensors_.find("token_embd.weight");
    if (embedding == nullptr) return read_.fail(Errc::kMissingTensor, fmt::format("tensor {} is missing", name));
    if (embedding->shape.size() != 2 || embedding->shape[1] != spec_.hidden)
      return read_.fail(Errc::kShapeMismatch, fmt::format("tensor {}: expected [vocabulary, {}]", name, spec_.hidden));
    if (embedding->shape[0] > 1u << 20)
      return read_.fail(Errc::kLimitExceeded,
                        fmt::format("tensor {}: {} rows, the limit is {}", name, embedding->shape[0], 1u << 20));
    spec_.vocab = static_cast<std::uint32_t>(embedding->shape[0]);
    const std::uint32_t stated = read_.count_or("vocab_size", spec_.vocab, 1, 1u << 20);
    if (!read_.ok()) return;
    if (stated != spec_.vocab)
      return read_.fail(Errc::kShapeMismatch, fmt::format("{}: {} but {} has {} rows", read_.name_of("vocab_size"),
                                                          stated, name, spec_.vocab));
    const bool has_head = tensors_.find("output.weight") != nullptr;
    // Models that also see or hear say it in one place or the other, and not always the same.
    const bool nested = hf() && checkpoint_.config()->find("text_config") != nullptr;
    spec_.tied_head = hf() && !nested ? read_.flag_or("tie_word_embeddings", !has_head) : !has_head;
    if (hf()) return;
    const MetaValue* tokens = checkpoint_.metadata().find("tokenizer.ggml.tokens");
    if (tokens == nullptr) return;
    if (!tokens->is_array() || tokens->element_type() != MetaType::kString)
      return read_.fail(Errc::kTypeMismatch, "tokenizer.ggml.tokens: expected an array of strings");
    if (tokens->size() != spec_.vocab)
      read_.fail(Errc::kShapeMismatch, fmt::format("tokenizer.ggml.tokens: {} entries but {} has {} rows",
                                                   tokens->size(), name, spec_.vocab));
  }

  const Checkpoint& checkpoint_;
  const Architecture& family_;
  KeyReader read_;
  TensorFinder tensors_;
  RopeScaling latent_scaling_;
  ModelSpec spec_;
};

/// Checkpoints of a family that end in something else than logits over the vocabulary.
inline Status check_purpose(const json::Value& config) {
  const json::Value* names = find_path(config, "architectures");
  if (names == nullptr || names->items().empty()) return {};
  const std::string_view name = names->items().front().as_string();
  for (const char* other : {"Classification", "QuestionAnswering", "MultipleChoice", "RewardModel"}) {
    if (name.find(other) == std::string_view::npos) continue;
    return {Errc::kUnsupported, fmt::format("config.json: architectures[0]: \"{}\" is not a model that continues text",
                                            corbel::detail::printable(name, 64))};
  }
  return {};
}

/// GGUF files that hold something else than a model.
inline Status check_kind(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata();
  CORBEL_ASSIGN_OR_RETURN(const std::string_view kind, metadata.get_string_or("general.type", "model"));
  CORBEL_ASSIGN_OR_RETURN(const std::string_view architecture, metadata.get_string_or("general.architecture", ""));
  const auto no_model = [](const char* what) { return Status(Errc::kUnsupported, what); };
  if (kind == "adapter")
    return no_model("general.type: \"adapter\": changes to another model, which are not supported");
  if (kind == "imatrix") return no_model("general.type: \"imatrix\": figures for quantizing, and no model");
  if (kind == "mmproj" || architecture == "clip")
    return no_model("the part of a model that reads images or sounds; name the file of its text model");
  if (checkpoint.tensors().empty() && !architecture.empty())
    return Status(Errc::kMissingTensor, "the file has no tensors: it is a vocabulary alone");
  return {};
}

inline Result<ModelSpec> read_spec(const Checkpoint& checkpoint) {
  const bool hf = checkpoint.format() == CheckpointFormat::kSafetensors;
  std::string architecture, place = "general.architecture";
  if (hf) {
    place = "config.json: model_type";
    if (checkpoint.config() == nullptr)
      return Status(Errc::kMissingKey, "config.json is missing: safetensors files say nothing of the model's shape");
    const json::Value* type = checkpoint.config()->find("model_type");
    if (type == nullptr) return Status(Errc::kMissingKey, place + " is missing");
    if (!type->is_string()) return Status(Errc::kTypeMismatch, place + ": expected a string");
    architecture = type->as_string();
    // Of models that also see or hear, the text model's own kind says more.
    const json::Value* text = checkpoint.config()->find("text_config");
    const json::Value* text_type = text != nullptr && text->is_object() ? text->find("model_type") : nullptr;
    if (text_type != nullptr && text_type->is_string() && find_hf_architecture(architecture) != nullptr &&
        find_hf_architecture(text_type->as_string()) != nullptr)
      architecture = text_type->as_string();
  } else {
    CORBEL_RETURN_IF_ERROR(check_kind(checkpoint));
    CORBEL_ASSIGN_OR_RETURN(const std::string_view name, checkpoint.metadata().get_string(place));
    architecture = name;
  }
  if (architecture.size() > 64)
    return Status(Errc::kLimitExceeded, fmt::format("{}: {} bytes, the limit is 64", place, architecture.size()));
  const Architecture* family = hf ? find_hf_architecture(architecture) : find_gguf_architecture(architecture);
  if (family == nullptr)
    return Status(Errc::kUnsupported, fmt::format("{}: \"{}\" is not supported; the nearest known family is \"{}\"",
                                                  place, architecture, nearest_architecture(architecture, !hf)));
  if (family->names == nullptr)
    return Status(Errc::kUnsupported, fmt::format("{}: \"{}\": unsupported: recurrent mixer {}", place, architecture,
                                                  mixer_name(family->mixer)));
  if (hf) {
    CORBEL_RETURN_IF_ERROR(check_config_types(*checkpoint.config()));
    CORBEL_RETURN_IF_ERROR(check_purpose(*checkpoint.config()));
  }
  CORBEL_ASSIGN_OR_RETURN(ModelSpec spec, SpecReader(checkpoint, *family, architecture).run());
  spec.name = architecture;
  if (const auto name = checkpoint.metadata().get_string_or("general.name", architecture); !hf && name.ok())
    spec.name = std::string(*name);
  return spec;
}

}  // namespace detail

CORBEL_INLINE std::uint32_t num_length_frequencies(const ModelSpec& spec) noexcept {
  std::uint32_t count = 0;
  for (const RopeTable& rope : spec.ropes)
    if (rope.depends_on_length()) count += static_cast<std::uint32_t>(rope.inverse_frequencies.size());
  return count;
}

CORBEL_INLINE void fill_length_frequencies(const ModelSpec& spec, std::uint32_t length, float* out) {
  for (const RopeTable& rope : spec.ropes) {
    if (!rope.depends_on_length()) continue;
    const std::vector<float> frequencies = rope_frequencies(rope, length);
    out = std::copy(frequencies.begin(), frequencies.end(), out);
  }
}

CORBEL_INLINE std::string describe_unused_layers(const Checkpoint& checkpoint, const ModelSpec& spec) {
  const bool hf = checkpoint.format() == CheckpointFormat::kSafetensors;
  const TensorFinder finder(checkpoint, *spec.architecture);
  const std::string first = finder.name_of("blk.0.attn_output.weight");
  const std::string_view layers = hf ? spec.architecture->names->layers : "blk.";
  const std::size_t at = first.find(std::string(layers) + "0.");
  if (at == std::string::npos) return {};
  const std::string prefix = first.substr(0, at + layers.size());
  std::size_t count = 0;
  std::string_view example;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const std::string_view name = tensor.name;
    if (!name.starts_with(prefix)) continue;
    const std::string_view number = name.substr(prefix.size(), name.find('.', prefix.size()) - prefix.size());
    std::uint64_t layer = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), layer);
    if (error != std::errc() || end != number.data() + number.size() || layer < spec.layers.size()) continue;
    ++count;
    if (example.empty()) example = name;
  }
  if (count == 0) return {};
  return fmt::format("{} tensors behind the {} layers that {} states are not used, the first is {}", count,
                     spec.layers.size(), KeyReader(checkpoint, spec.architecture->gguf).name_of("block_count"),
                     corbel::detail::printable(example, 100));
}

CORBEL_INLINE Result<ModelSpec> read_model_spec(const Checkpoint& checkpoint) {
  return corbel::detail::guard([&]() -> Result<ModelSpec> { return detail::read_spec(checkpoint); });
}

}  // namespace models
CORBEL_NAMESPACE_END

CORBEL_EXACT_FP_END
