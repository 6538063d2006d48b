// Definitions of folder_layout.hpp: the reverse of gguf_layout.ipp and of the reading of config.json.
#pragma once

#include <corbel/checkpoint/chat_templates.hpp>
#include <corbel/checkpoint/generation_defaults.hpp>
#include <corbel/context.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/impl/models/folder_tokenizer.ipp>
#include <corbel/impl/models/layout_common.ipp>
#include <corbel/impl/models/tensor_rules.ipp>
#include <corbel/models/build.hpp>
#include <corbel/models/folder_layout.hpp>
#include <corbel/models/key_reader.hpp>
#include <corbel/models/model_spec.hpp>
#include <corbel/models/rope_table.hpp>
#include <corbel/models/weight_reader.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

/// A folder that is not there: its config.json, and weights that are all zero.
class PlannedFolder final : public FolderReader {
 public:
  explicit PlannedFolder(const FolderLayout& layout) : config_(layout.documents.front().second) {
    std::string header = "{";
    std::uint64_t offset = 0;
    for (const GgufTensorPlan& plan : layout.tensors) {
      std::uint64_t bytes = 4;
      for (const std::uint64_t extent : plan.shape) bytes *= extent;
      if (header.size() > 1) header += ',';
      json::append_quoted(header, plan.name);
      header += fmt::format(":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                            fmt::join(plan.shape, ","), offset, offset + bytes);
      offset += bytes;
    }
    header += '}';
    for (std::size_t i = 0; i < 8; ++i) weights_ += static_cast<char>(header.size() >> (8 * i) & 0xFFu);
    weights_ += header;
    data_bytes_ = offset;
  }

  Result<std::vector<std::string>> list() const override {
    return std::vector<std::string>{"config.json", "model.safetensors"};
  }
  Result<std::shared_ptr<const FileReader>> open(const std::string& name) const override {
    const bool config = name == "config.json";
    return std::shared_ptr<const FileReader>(
        std::make_shared<File>(config ? config_ : weights_, config ? 0 : data_bytes_));
  }

 private:
  class File final : public FileReader {
   public:
    File(std::string start, std::uint64_t zeros) : start_(std::move(start)), size_(start_.size() + zeros) {}
    std::uint64_t size() const noexcept override { return size_; }
    Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) const override {
      const std::size_t known =
          offset < start_.size() ? std::min(out.size(), start_.size() - static_cast<std::size_t>(offset)) : 0;
      if (known != 0) std::memcpy(out.data(), start_.data() + offset, known);
      std::fill(out.begin() + static_cast<std::ptrdiff_t>(known), out.end(), std::byte{0});
      return out.size();
    }

   private:
    std::string start_;
    std::uint64_t size_;
  };

  std::string config_;
  std::string weights_;
  std::uint64_t data_bytes_ = 0;
};

/// The rows, of `cols` values each, of matrices that are made as a whole, each when its first row is asked for and kept
/// until its last row is read. For one reader at a time.
inline RowReader made_rows(std::uint64_t elements, std::uint64_t cols,
                           std::function<Status(std::uint64_t index, float* out)> make) {
  struct Kept {
    std::uint64_t index = 0;
    std::vector<float> values;
  };
  return [elements, cols, make = std::move(make), kept = std::make_shared<Kept>()](
             std::uint64_t first, std::uint64_t count, float* out) -> Status {
    for (std::uint64_t at = first * cols, end = (first + count) * cols; at < end;) {
      const std::uint64_t index = at / elements, within = at % elements, here = std::min(elements - within, end - at);
      if (kept->values.empty() || kept->index != index) {
        kept->values.resize(static_cast<std::size_t>(elements));
        kept->index = index;
        if (Status made = make(index, kept->values.data()); !made.ok()) {
          kept->values.clear();
          return made;
        }
      }
      out = std::copy_n(kept->values.begin() + static_cast<std::ptrdiff_t>(within), here, out);
      at += here;
      if (within + here == elements) kept->values = {};
    }
    return {};
  };
}

class FolderPlanner {
 public:
  FolderPlanner(const Checkpoint& checkpoint, const ModelSpec& spec)
      : checkpoint_(checkpoint),
        spec_(spec),
        family_(*family_of(spec)),
        read_(checkpoint, *spec.architecture),
        keys_(checkpoint, spec.architecture->gguf) {}

  Result<FolderLayout> plan() {
    if (family_.rope == RopePairs::kPermuted && !spec_.ropes.empty() && spec_.rotary_dim != spec_.head_dim) {
      return Status(Errc::kUnsupported, "this rotary embedding cannot be written to a Hugging Face folder");
    }
    add_config();
    for (const TensorInfo& tensor : checkpoint_.tensors()) add_tensor(tensor);
    if (!keys_.ok()) return keys_.status();
    if (!read_.ok()) return read_.status();
    if (!status_.ok()) return status_;
    if (behind_ != 0) {
      layout_.notes.push_back(fmt::format("{} tensors behind the last layer are left out, the first is {}", behind_,
                                          corbel::detail::printable(first_behind_, 100)));
    }
    layout_.documents.emplace_back("config.json", json::write(config_) + "\n");
    CORBEL_RETURN_IF_ERROR(add_generation());
    add_tokenizer();
    CORBEL_RETURN_IF_ERROR(add_chat_templates());
    return std::move(layout_);
  }

 private:
  // Several families share a name in GGUF files.
  static const Architecture* family_of(const ModelSpec& spec) {
    const std::string_view name = spec.architecture->name;
    const hal::RouteSpec& route = spec.experts.route;
    const bool windows =
        std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) { return layer.window != 0; });
    if (name == "llama" && route.experts != 0) return find_hf_architecture("mixtral");
    if (name == "olmo3" && !windows) return find_hf_architecture("olmo2");
    if (name == "deepseek_v2" && route.score == hal::ScoreKind::kSigmoid) return find_hf_architecture("deepseek_v3");
    return spec.architecture;
  }
  bool has(const char* tensor) const noexcept { return checkpoint_.find_tensor(tensor) != nullptr; }

  // ---- config.json -----------------------------------------------

  // What the family calls a key of config.json: empty where it has none.
  struct OwnKey {
    bool listed = false;  // Architecture::config_keys speaks of it
    std::string_view name;
  };
  OwnKey own_key(std::string_view usual) const {
    for (std::string_view rest = family_.config_keys; !rest.empty();) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      const std::string_view entry = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const std::size_t equals = std::min(entry.find('='), entry.size());
      if (entry.substr(0, equals) != usual) continue;
      return {true, equals == entry.size() ? usual : entry.substr(equals + 1)};
    }
    return {false, usual};
  }
  /// Whether the family has a key that only some have.
  bool listed(std::string_view key) const { return own_key(key).listed; }
  void put(const char* key, json::Value value) {
    std::string_view path = own_key(key).name;
    if (path.empty()) return;
    json::Value* object = &config_;
    for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
      auto& members = object->members();
      auto inner = std::find_if(members.begin(), members.end(),
                                [&](const auto& member) { return member.first == path.substr(0, dot); });
      if (inner == members.end()) {
        members.emplace_back(std::string(path.substr(0, dot)), json::Value::object());
        inner = members.end() - 1;
      }
      object = &inner->second;
      path.remove_prefix(dot + 1);
    }
    object->members().emplace_back(std::string(path), std::move(value));
  }
  void count(const char* key, std::uint64_t value) { put(key, json::Value::unsigned_integer(value)); }
  void number(const char* key, double value) { put(key, json::Value::number(value)); }
  void flag(const char* key, bool value) { put(key, json::Value::boolean(value)); }
  void text(const char* key, const char* value) { put(key, json::Value::string(value)); }
  // A float32 as a person would have written it.
  static double plain(float value) {
    const std::string digits = fmt::format("{}", value);
    double written = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), written);
    return written;
  }

  void add_config() {
    config_ = json::Value::object();
    json::Value classes = json::Value::array();
    classes.items().push_back(json::Value::string(family_.causal_class));
    put("architectures", std::move(classes));
    text("model_type", family_.name);
    count("vocab_size", spec_.vocab);
    count("hidden_size", spec_.hidden);
    count("intermediate_size", spec_.feed_forward);
    if (listed("expansion_ratio")) count("expansion_ratio", spec_.feed_forward / spec_.hidden);
    count("num_hidden_layers", spec_.layers.size());
    count("num_attention_heads", spec_.heads);
    count("num_key_value_heads", family_.mixer == MixerKind::kLatentAttention ? spec_.heads : spec_.kv_heads);
    count("head_dim", spec_.head_dim);
    count("max_position_embeddings", spec_.context_length);
    number(family_.norm == hal::NormKind::kRms ? "rms_norm_eps" : "layer_norm_eps", plain(spec_.norm_epsilon));
    flag("tie_word_embeddings", spec_.tied_head);
    add_switches();
    add_rope();
    add_windows();
    add_scales();
    add_experts();
    if (family_.mixer == MixerKind::kLatentAttention) add_latent();
    text("torch_dtype", "float32");
    // Where they are left out, a family's defaults hold, which other vocabularies were made for.
    for (const auto& [key, name] : {std::pair("tokenizer.ggml.bos_token_id", "bos_token_id"),
                                    std::pair("tokenizer.ggml.eos_token_id", "eos_token_id"),
                                    std::pair("tokenizer.ggml.padding_token_id", "pad_token_id")}) {
      const Result<std::uint64_t> id = checkpoint_.metadata().get_uint(key);
      const bool there = id.ok() && *id < spec_.vocab;
      put(name, there ? json::Value::unsigned_integer(*id) : json::Value::null());
    }
  }

  void add_switches() {
    const char* activation = "silu";
    switch (spec_.activation) {
      case hal::ActivationKind::kGelu:
        activation = "gelu";
        break;
      case hal::ActivationKind::kGeluTanh:
        activation = "gelu_pytorch_tanh";
        break;
      case hal::ActivationKind::kGeluQuick:
        activation = "quick_gelu";
        break;
      case hal::ActivationKind::kRelu:
        activation = "relu";
        break;
      case hal::ActivationKind::kReluSquared:
        activation = "relu2";
        break;
      default:
        break;
    }
    text("hidden_act", activation);
    const bool biased = has("blk.0.attn_q.bias") || has("blk.0.attn_qkv.bias") || has("blk.0.attn_kv_a_mqa.bias");
    flag("attention_bias", biased);
    flag("mlp_bias", has("blk.0.ffn_up.bias"));
    const bool qk_norm = has("blk.0.attn_q_norm.weight"), two_norms = has("blk.0.attn_norm_2.weight");
    // Where one head of keys and values serves all queries, or all have their own, the older decoder says it too.
    const bool newer = two_norms || (spec_.kv_heads != 1 && spec_.kv_heads != spec_.heads);
    const std::pair<const char*, bool> flags[] = {
        {"no_bias", !biased && !has("blk.0.ffn_up.bias")},
        {"attention_out_bias", has("blk.0.attn_output.bias")},
        {"use_qk_norm", qk_norm},
        {"qk_layernorm", qk_norm},
        {"use_parallel_residual", spec_.parallel},
        {"multi_query", spec_.kv_heads == 1 && !newer},
        {"new_decoder_architecture", newer},
        {"alibi", !spec_.slopes.empty()},
    };
    for (const auto& [key, value] : flags)
      if (listed(key) && (family_.multi_query || key != std::string_view("multi_query"))) flag(key, value);
    if (newer && listed("num_ln_in_parallel_attn")) count("num_ln_in_parallel_attn", two_norms ? 2 : 1);
    if (listed("alibi_bias_max")) {
      const double bias = keys_.number_or("attention.max_alibi_bias", 8, 0, 1e4);
      // The family's configuration takes whole numbers only.
      count("alibi_bias_max", static_cast<std::uint64_t>(std::llround(bias)));
    }
    if (listed("swiglu_limit")) number("swiglu_limit", plain(spec_.gate_limit));
    if (spec_.qkv_clamp != 0) number("clip_qkv", plain(spec_.qkv_clamp));
  }

  void add_rope() {
    if (spec_.ropes.empty()) return;
    RopeScaling scaling = read_rope_scaling(keys_, family_.rope_base, "full_attention");
    number("rope_theta", scaling.base);
    if (spec_.rotary_dim != spec_.head_dim || family_.rotary_part != 1.0f) {
      const double part = static_cast<double>(spec_.rotary_dim) / static_cast<double>(spec_.head_dim);
      number("partial_rotary_factor", part);
    }
    if (listed("rotary_dim")) count("rotary_dim", spec_.rotary_dim);
    if (spec_.ropes.size() > 1) {
      const double base = keys_.number_or("rope.freq_base_swa", family_.window_rope_base, 0, 1e12);
      number("rope_local_base_freq", base);
    }
    if (family_.no_rope_every != 0) {
      json::Value list = json::Value::array();
      for (const LayerSpec& layer : spec_.layers)
        list.items().push_back(json::Value::unsigned_integer(layer.rope == kNoRope ? 0 : 1));
      put("no_rope_layers", std::move(list));
    }
    scaling.short_factors = factors("rope_factors_short.weight");
    scaling.long_factors = factors("rope_factors_long.weight");
    if (!scaling.short_factors.empty()) scaling.type = "longrope";
    if (has("rope_freqs.weight")) find_llama3(scaling);
    add_scaling(scaling);
  }

  std::vector<double> factors(const char* name) {
    const TensorInfo* tensor = checkpoint_.find_tensor(name);
    if (tensor == nullptr) return {};
    const Result<std::vector<float>> values = checkpoint_.read_f32(*tensor);
    if (!values.ok() && status_.ok()) status_ = values.status();
    std::vector<double> result;
    if (values.ok())
      for (const float value : *values) result.push_back(plain(value));
    return result;
  }

  // Llama 3 divides long wavelengths by a factor and blends up to it; the file has the quotients alone. Where the usual
  // ends of the blend do not give them, longrope says them one by one.
  void find_llama3(RopeScaling& scaling) {
    const std::vector<double> divisors = factors("rope_freqs.weight");
    if (divisors.empty()) return;
    scaling.type = "llama3";
    scaling.factor = *std::max_element(divisors.begin(), divisors.end());
    scaling.factor = std::round(scaling.factor * 1e4) / 1e4;
    scaling.low_factor = 1;
    scaling.high_factor = 4;
    double sum = 0;
    std::size_t blended = 0;
    constexpr double kTwoPi = 6.28318530717958647693;
    for (std::size_t i = 0; i < divisors.size(); ++i) {
      if (divisors[i] < 1.001 || divisors[i] > scaling.factor * 0.999) continue;
      const double wavelength =
          kTwoPi * std::pow(scaling.base, 2.0 * static_cast<double>(i) / static_cast<double>(spec_.rotary_dim));
      const double smooth = (1 / divisors[i] - 1 / scaling.factor) / (1 - 1 / scaling.factor);
      sum += wavelength * (smooth * (scaling.high_factor - scaling.low_factor) + scaling.low_factor);
      ++blended;
    }
    scaling.original = blended != 0 ? std::round(sum / static_cast<double>(blended)) : 8192;
    const RopeTable guess = make_rope_table(keys_, scaling, spec_.rotary_dim, spec_.context_length, {});
    const std::vector<float>& wanted = spec_.ropes[0].inverse_frequencies;
    if (std::equal(wanted.begin(), wanted.end(), guess.inverse_frequencies.begin(), guess.inverse_frequencies.end(),
                   close_enough))
      return;
    scaling.type = "longrope";
    scaling.short_factors = scaling.long_factors = divisors;
    scaling.attention_factor = 1;
    scaling.original = static_cast<double>(spec_.context_length);
  }

  void add_scaling(const RopeScaling& scaling) {
    json::Value object = json::Value::object();
    if (scaling.type == "none") {
      // Where a family's configuration scales unless it says otherwise.
      object.members().emplace_back("rope_type", json::Value::string("default"));
      if (listed("rope_scaling")) put("rope_scaling", std::move(object));
      return;
    }
    const auto put_number = [&](const char* key, double value) {
      object.members().emplace_back(key, json::Value::number(value));
    };
    const auto put_list = [&](const char* key, const std::vector<double>& values) {
      json::Value list = json::Value::array();
      for (const double value : values) list.items().push_back(json::Value::number(value));
      object.members().emplace_back(key, std::move(list));
    };
    object.members().emplace_back("rope_type", json::Value::string(scaling.type));
    if (scaling.type != "longrope") put_number("factor", scaling.factor);
    if (scaling.original != 0) {
      object.members().emplace_back("original_max_position_embeddings",
                                    json::Value::unsigned_integer(static_cast<std::uint64_t>(scaling.original)));
    }
    if (scaling.attention_factor != 0) put_number("attention_factor", scaling.attention_factor);
    if (scaling.type == "yarn") {
      put_number("beta_fast", scaling.beta_fast);
      put_number("beta_slow", scaling.beta_slow);
      if (scaling.mscale > 0) put_number("mscale", scaling.mscale);
      if (scaling.mscale_all_dim > 0) put_number("mscale_all_dim", scaling.mscale_all_dim);
    }
    if (scaling.type == "llama3") {
      put_number("low_freq_factor", scaling.low_factor);
      put_number("high_freq_factor", scaling.high_factor);
    }
    if (scaling.type == "longrope") {
      put_list("short_factor", scaling.short_factors);
      put_list("long_factor", scaling.long_factors);
      if (scaling.original != 0)
        count("original_max_position_embeddings", static_cast<std::uint64_t>(scaling.original));
    }
    if (scaling.temperature > 0) put_number("llama_4_scaling_beta", scaling.temperature);
    put("rope_scaling", std::move(object));
  }

  void add_windows() {
    std::uint32_t window = 0;
    for (const LayerSpec& layer : spec_.layers) window = std::max(window, layer.window);
    const bool by_flag =
        family_.windows != Windows::kNone && family_.windows != Windows::kAll && family_.windows != Windows::kPattern;
    if (by_flag) flag("use_sliding_window", window != 0);
    if (window == 0) {
      if (family_.windows != Windows::kNone) put("sliding_window", json::Value::null());
      return;
    }
    count("sliding_window", window);
    json::Value types = json::Value::array();
    for (const LayerSpec& layer : spec_.layers)
      types.items().push_back(json::Value::string(layer.window != 0 ? "sliding_attention" : "full_attention"));
    put("layer_types", std::move(types));
  }

  void add_scales() {
    // Where such a family's config.json has none, the family's own hold.
    for (const auto& [key, cap] : {std::pair("attn_logit_softcapping", spec_.attention_softcap),
                                   std::pair("final_logit_softcapping", spec_.logit_softcap)}) {
      if (cap != 0) {
        number(key, plain(cap));
      } else if (listed(key)) {
        put(key, json::Value::null());
      }
    }
    if (listed("query_pre_attn_scalar")) {
      const double scalar = 1.0 / (double{spec_.attention_scale} * double{spec_.attention_scale});
      // The family's configuration takes whole numbers only.
      count("query_pre_attn_scalar", static_cast<std::uint64_t>(std::llround(scalar)));
    }
    for (const auto& [canonical, key] :
         {std::pair("attention.scale", "attention_multiplier"), std::pair("embedding_scale", "embedding_multiplier"),
          std::pair("residual_scale", "residual_multiplier")}) {
      if (keys_.has(canonical)) number(key, plain(static_cast<float>(keys_.number(canonical, 0, 1e9))));
    }
    if (keys_.has("logit_scale")) {
      number("logit_scale", plain(static_cast<float>(keys_.number("logit_scale", 0, 1e9))));
    }
  }

  void add_experts() {
    const ExpertSpec& experts = spec_.experts;
    if (experts.route.experts == 0) return;
    count("num_experts", experts.route.experts);
    count("num_experts_per_tok", experts.route.top_k);
    count("moe_intermediate_size", experts.feed_forward);
    if (experts.shared_feed_forward != 0) count("shared_expert_intermediate_size", experts.shared_feed_forward);
    if (listed("n_shared_experts")) count("n_shared_experts", experts.shared_feed_forward / experts.feed_forward);
    flag("norm_topk_prob", experts.route.normalize);
    const bool sigmoid = experts.route.score == hal::ScoreKind::kSigmoid;
    if (listed("scoring_func")) text("scoring_func", sigmoid ? "sigmoid" : "softmax");
    if (listed("routed_scaling_factor")) number("routed_scaling_factor", plain(experts.route.scale));
    if (listed("n_group")) {
      const std::uint32_t groups = std::max(1u, experts.route.groups);
      count("n_group", groups);
      count("topk_group", groups == 1 ? 1 : experts.route.top_groups);
      if (listed("topk_method"))
        text("topk_method", sigmoid ? "noaux_tc" : groups > 1 ? "group_limited_greedy" : "greedy");
    }
    if (listed("first_k_dense_replace")) {
      const auto sparse =
          std::find_if(spec_.layers.begin(), spec_.layers.end(), [](const LayerSpec& l) { return l.sparse; });
      count("first_k_dense_replace", static_cast<std::uint64_t>(sparse - spec_.layers.begin()));
    }
    json::Value dense = json::Value::array();
    for (std::size_t i = 0; i < spec_.layers.size(); ++i)
      if (!spec_.layers[i].sparse) dense.items().push_back(json::Value::unsigned_integer(i));
    if (!dense.items().empty()) put("mlp_only_layers", std::move(dense));
  }

  void add_latent() {
    const LatentSpec& latent = spec_.latent;
    put("q_lora_rank", latent.q_rank != 0 ? json::Value::unsigned_integer(latent.q_rank) : json::Value::null());
    count("kv_lora_rank", latent.kv_rank);
    count("qk_nope_head_dim", latent.nope_dim);
    count("qk_rope_head_dim", latent.rope_dim);
    count("v_head_dim", latent.value_dim);
  }

  // ---- tensors ---------------------------------------------------

  std::string name_of(std::string_view canonical) {
    std::string prefix = family_.names->root;
    std::string_view part = canonical;
    if (part.starts_with("blk.")) {
      const std::size_t dot = part.find('.', 4);
      prefix += fmt::format("{}{}.", family_.names->layers, part.substr(4, dot - 4));
      part.remove_prefix(dot + 1);
    } else if (part.starts_with("output.")) {
      prefix.clear();
    }
    std::string own(part);
    const std::string expert = single_expert(own);
    if (const std::string_view norm = family_.gguf_ffn_norm;
        part.starts_with(norm) && part.substr(norm.size()).starts_with("."))
      own = "ffn_norm" + own.substr(norm.size());
    if (own.starts_with("attn_norm.") && find_rule(family_.names, "attn_norm_only.weight").rule != nullptr &&
        !has(fmt::format("{}attn_norm_2.weight", canonical.substr(0, canonical.size() - own.size())).c_str()))
      own.insert(9, "_only");
    const FoundRule found = find_rule(family_.names, own);
    if (found.rule == nullptr || own.find('.') == std::string::npos) {
      if (status_.ok()) {
        status_ = Status(Errc::kUnsupported, fmt::format("tensor {}: folders of the family {} have no such tensor",
                                                         corbel::detail::printable(canonical, 100), family_.name));
      }
      return {};
    }
    const std::string name =
        prefix + found.rule->name + (found.whole ? std::string() : std::string(part.substr(part.rfind('.'))));
    return expert.empty() ? name : numbered(name, std::stoull(expert));
  }

  // Old files have a tensor for each expert: "ffn_up.3.weight" becomes "ffn_up_exps.weight", and the answer is 3.
  std::string single_expert(std::string& name) const {
    constexpr std::size_t kDigits = 5;
    const std::size_t dot = std::min(name.find('.'), name.size());
    const std::size_t end = name.find_first_not_of("0123456789", dot + 1);
    if (spec_.experts.route.experts == 0 || end == std::string::npos || name[end] != '.' || end - dot < 2 ||
        end - dot > kDigits + 1)
      return {};
    std::string number = name.substr(dot + 1, end - dot - 1);
    name.replace(dot, end - dot, "_exps");
    return number;
  }

  void add(std::string name, StoredTensor stored, std::vector<std::uint64_t> shape) {
    if (!read_.ok() || !status_.ok() || stored.part.source == nullptr) return;
    const DType type = stored.part.dtype;
    add(std::move(name), type, std::move(shape), rows_of(std::move(stored)));
  }
  void add(std::string name, DType type, std::vector<std::uint64_t> shape, RowReader rows) {
    if (!read_.ok() || !status_.ok()) return;
    GgufTensorPlan plan;
    plan.name = std::move(name);
    plan.stored = traits(type).in_safetensors && traits(type).encode != nullptr ? type : DType::kF32;
    plan.shape = std::move(shape);
    plan.rows = std::move(rows);
    layout_.tensors.push_back(std::move(plan));
  }

  // `batch` matrices [rows, cols], each turned.
  void add_turned(std::string name, StoredTensor stored, std::uint64_t batch, std::vector<std::uint64_t> shape) {
    if (!read_.ok() || !status_.ok()) return;
    const std::uint64_t rows = stored.part.rows / batch, cols = stored.part.cols;
    const DType type = stored.part.dtype;
    add(std::move(name), type, std::move(shape),
        made_rows(rows * cols, rows, [=, stored = std::move(stored)](std::uint64_t index, float* out) -> Status {
          std::vector<float> values(static_cast<std::size_t>(rows * cols));
          CORBEL_RETURN_IF_ERROR(read_rows(stored, index * rows, rows, values.data()));
          turn(values.data(), rows, cols, out, 1);
          return {};
        }));
  }

  // From out[0] on, every `step`-th value of the turned matrix.
  static void turn(const float* values, std::uint64_t rows, std::uint64_t cols, float* out, std::uint64_t step) {
    for (std::uint64_t r = 0; r < rows; ++r)
      for (std::uint64_t c = 0; c < cols; ++c) out[(c * rows + r) * step] = values[r * cols + c];
  }

  // Of each head, the rows of pairs that stand together go apart again: first halves, then second ones.
  std::vector<RowRange> halves(std::uint64_t rows) const {
    const std::uint64_t dim = spec_.head_dim;
    std::vector<RowRange> order;
    for (std::uint64_t head = 0; head < rows / dim; ++head) {
      order.push_back({head * dim, dim / 2, 2});
      order.push_back({head * dim + 1, dim / 2, 2});
    }
    return order;
  }

  // Of each key/value head: its queries, its key, its value.
  std::vector<RowRange> groups() const {
    const std::uint64_t dim = spec_.head_dim, q = spec_.heads * dim, kv = spec_.kv_heads * dim;
    const std::uint64_t group = spec_.heads / spec_.kv_heads;
    std::vector<RowRange> order;
    for (std::uint64_t g = 0; g < spec_.kv_heads; ++g) {
      order.push_back({g * group * dim, group * dim});
      order.push_back({q + g * dim, dim});
      order.push_back({q + kv + g * dim, dim});
    }
    return order;
  }

  void add_tensor(const TensorInfo& tensor) {
    const std::string_view name = tensor.name;
    if (!read_.ok() || !status_.ok() || name.starts_with("rope_")) return;
    const std::string_view part = name.starts_with("blk.") ? name.substr(name.find('.', 4) + 1) : name;
    const std::string_view stem = part.substr(0, part.rfind('.'));
    if (name.starts_with("blk.") && layer_of(name) >= spec_.layers.size()) {
      if (++behind_ == 1) first_behind_ = name;
      return;
    }
    const std::string_view block = name.substr(0, name.size() - part.size());
    if (family_.mixer == MixerKind::kLatentAttention && (stem == "attn_k_b" || stem == "attn_v_b")) {
      if (stem == "attn_k_b" && !has((std::string(block) + "attn_kv_b.weight").c_str())) add_compressed(block);
      return;
    }
    if (family_.stacked_experts && stem.ends_with("_exps")) return add_stacked(tensor, block, stem);
    std::string target = name_of(name);
    if (!status_.ok()) return;
    if (tensor.shape.size() == 3 && target.find("{}") != std::string::npos) return add_each(tensor, target);
    const std::uint64_t cols = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
    const std::uint64_t rows = tensor.num_elements() / cols;
    StoredTensor stored = tensor.shape.size() == 2 && name.ends_with(".weight")
                              ? read_.matrix(std::string(name.substr(0, name.size() - 7)), rows, cols)
                              : read_.vector(std::string(name), tensor.num_elements());
    if (!read_.ok()) return;
    std::vector<RowRange> order;
    if (family_.rope == RopePairs::kPermuted && (stem == "attn_q" || stem == "attn_k")) order = halves(rows);
    if (family_.grouped_qkv && stem == "attn_qkv") order = groups();
    if (!order.empty()) {
      stored.part = tensor.shape.size() == 2 ? pick_rows(stored.part, order)
                                             : reshape(pick_rows(reshape(stored.part, rows, 1), order), 1, rows);
    }
    if (family_.norm_plus_one && stem.ends_with("norm") && part.ends_with(".weight"))
      stored.part = map_vector(stored.part, [](float value) { return value - 1.0f; });
    if (target.find("{}") != std::string::npos) {  // one norm for each head
      for (std::uint64_t head = 0; head < tensor.shape[0]; ++head) {
        StoredTensor one = stored;
        one.part = reshape(pick_rows(reshape(stored.part, tensor.shape[0], cols), {{head, 1}}), 1, cols);
        add(numbered(target, head), std::move(one), {cols});
      }
      return;
    }
    std::vector<std::uint64_t> shape = tensor.shape;
    if (family_.transposed && name.starts_with("blk.") && shape.size() == 2) {
      std::swap(shape[0], shape[1]);
      return add_turned(std::move(target), std::move(stored), 1, std::move(shape));
    }
    if (stem == "ffn_gate_inp_shexp") shape = {1, tensor.num_elements()};
    // The only head of several norms.
    const TensorInfo* const queries = checkpoint_.find_tensor(std::string(block) + "attn_q_norm.weight");
    if (stem == "attn_k_norm" && queries != nullptr && shape.size() == 1 && queries->shape.size() == 2)
      shape.insert(shape.begin(), 1);
    add(std::move(target), std::move(stored), std::move(shape));
  }

  static std::uint64_t layer_of(std::string_view name) {
    std::uint64_t layer = 0;
    for (std::size_t at = 4; at < name.size() && name[at] >= '0' && name[at] <= '9' && layer < (1u << 20); ++at)
      layer = 10 * layer + static_cast<std::uint64_t>(name[at] - '0');
    return layer;
  }

  // A matrix for each expert.
  void add_each(const TensorInfo& tensor, const std::string& target) {
    const std::uint64_t experts = tensor.shape[0], rows = tensor.shape[1], cols = tensor.shape[2];
    const StoredTensor all = read_.stacked(tensor.name.substr(0, tensor.name.size() - 7), experts, rows, cols);
    for (std::uint64_t expert = 0; expert < experts && read_.ok(); ++expert) {
      StoredTensor one = all;
      one.part = pick_rows(all.part, {{expert * rows, rows}});
      add(numbered(target, expert), std::move(one), {rows, cols});
    }
  }

  // Keys and values of all heads from compressed ones: GGUF files have them apart, that of the keys turned.
  void add_compressed(std::string_view block) {
    const std::string prefix(block);
    const std::string target = name_of(prefix + "attn_kv_b.weight");
    const std::uint64_t heads = spec_.heads, nope = spec_.latent.nope_dim, value = spec_.latent.value_dim;
    const std::uint64_t rank = spec_.latent.kv_rank;
    StoredTensor keys = read_.stacked(prefix + "attn_k_b", heads, rank, nope);
    StoredTensor values = read_.stacked(prefix + "attn_v_b", heads, value, rank);
    const DType type = keys.part.dtype == values.part.dtype ? keys.part.dtype : DType::kF32;
    add(target, type, {heads * (nope + value), rank},
        made_rows((nope + value) * rank, rank,
                  [=, keys = std::move(keys), values = std::move(values)](std::uint64_t head, float* out) -> Status {
                    std::vector<float> turned(static_cast<std::size_t>(nope * rank));
                    CORBEL_RETURN_IF_ERROR(read_rows(keys, head * rank, rank, turned.data()));
                    turn(turned.data(), rank, nope, out, 1);
                    return read_rows(values, head * value, value, out + nope * rank);
                  }));
  }

  // Experts whose gates and up projections folders store as one tensor.
  void add_stacked(const TensorInfo& tensor, std::string_view block, std::string_view stem) {
    const std::string prefix(block);
    const bool bias = tensor.name.ends_with(".bias"), turned = family_.interleaved_experts;
    const std::uint64_t experts = spec_.experts.route.experts, width = spec_.experts.feed_forward;
    const auto read = [&](const char* name, std::uint64_t rows, std::uint64_t cols) {  // of one expert
      if (!bias) return read_.stacked(prefix + name, experts, rows, cols);
      StoredTensor stored = read_.vector(prefix + name + ".bias", experts * rows);
      stored.part = reshape(stored.part, experts * rows / cols, cols);
      return stored;
    };
    const char* const suffix = bias ? ".bias" : ".weight";
    if (stem == "ffn_down_exps") {
      StoredTensor stored = read("ffn_down_exps", spec_.hidden, bias ? spec_.hidden : width);
      const std::string target = name_of(prefix + "ffn_down_stacked_exps" + suffix);
      if (bias) return add(target, std::move(stored), {experts, spec_.hidden});
      if (!turned) return add(target, std::move(stored), {experts, spec_.hidden, width});
      return add_turned(target, std::move(stored), experts, {experts, width, spec_.hidden});
    }
    if (stem != "ffn_gate_exps") return;  // the other half comes with it
    const std::uint64_t cols = bias ? 1 : spec_.hidden;
    StoredTensor gate = read("ffn_gate_exps", width, cols), up = read("ffn_up_exps", width, cols);
    std::vector<std::uint64_t> shape = {experts, 2 * width};
    if (!bias) shape.insert(shape.begin() + (turned ? 1 : 2), cols);
    const DType type = gate.part.dtype == up.part.dtype ? gate.part.dtype : DType::kF32;
    const std::uint64_t last = shape.back();
    add(name_of(prefix + "ffn_gate_up_exps" + suffix), type, std::move(shape),
        made_rows(2 * width * cols, last,
                  [=, gate = std::move(gate), up = std::move(up)](std::uint64_t expert, float* out) -> Status {
                    std::vector<float> half(static_cast<std::size_t>(width * cols));
                    for (const StoredTensor* stored : {&gate, &up}) {
                      const std::uint64_t which = stored == &up ? 1 : 0;
                      CORBEL_RETURN_IF_ERROR(read_rows(*stored, expert * width, width, half.data()));
                      if (turned) {
                        turn(half.data(), width, cols, out + which, 2);
                      } else {
                        std::copy(half.begin(), half.end(), out + which * width * cols);
                      }
                    }
                    return {};
                  }));
  }

  // ---- other documents -------------------------------------------

  Status add_generation() {
    CORBEL_ASSIGN_OR_RETURN(const GenerationDefaults defaults, read_generation_defaults(checkpoint_));
    json::Value all = json::Value::object();
    const auto token = [&](const char* key, const std::optional<std::uint32_t>& id) {
      if (id && *id < spec_.vocab) all.members().emplace_back(key, json::Value::unsigned_integer(*id));
    };
    const auto value = [&](const char* key, const std::optional<double>& number) {
      if (number) all.members().emplace_back(key, json::Value::number(plain(static_cast<float>(*number))));
    };
    token("bos_token_id", defaults.bos_id);
    json::Value ends = json::Value::array();
    for (const std::uint32_t id : defaults.eos_ids)
      if (id < spec_.vocab) ends.items().push_back(json::Value::unsigned_integer(id));
    if (!ends.items().empty())
      all.members().emplace_back("eos_token_id", ends.items().size() == 1 ? ends.items()[0] : ends);
    token("pad_token_id", defaults.pad_id);
    // Folders say do_sample where a temperature of 0 says that nothing is drawn.
    const bool greedy = defaults.do_sample == false || defaults.temperature == 0.0;
    if (greedy || defaults.do_sample) all.members().emplace_back("do_sample", json::Value::boolean(!greedy));
    if (defaults.temperature != 0.0) value("temperature", defaults.temperature);
    if (defaults.top_k) all.members().emplace_back("top_k", json::Value::unsigned_integer(*defaults.top_k));
    value("top_p", defaults.top_p);
    value("min_p", defaults.min_p);
    value("repetition_penalty", defaults.repetition_penalty);
    if (!all.members().empty()) layout_.documents.emplace_back("generation_config.json", json::write(all) + "\n");
    return {};
  }

  void add_tokenizer() {
    const Metadata& metadata = checkpoint_.metadata();
    const Result<std::string_view> kind = metadata.get_string_or("tokenizer.ggml.model", "none");
    const bool kept = metadata.find("tokenizer.huggingface.json") != nullptr;
    if (kept || (kind.ok() && *kind != "none" && *kind != "no_vocab")) {
      auto documents = tokenizer_documents(metadata);
      if (documents.ok()) {
        for (auto& document : *documents) layout_.documents.push_back(std::move(document));
      } else {
        layout_.notes.push_back("the tokenizer is left out: " + std::string(documents.status().message()));
      }
    }
  }

  Status add_chat_templates() {
    CORBEL_ASSIGN_OR_RETURN(const std::vector<NamedTemplate> templates, read_chat_templates(checkpoint_));
    for (const auto& [name, source] : templates) {
      constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
      if (name == corbel::detail::kDefaultTemplate) {
        layout_.documents.emplace_back("chat_template.jinja", source);
      } else if (!name.empty() && name.find_first_not_of(kLetters) == std::string::npos) {
        layout_.documents.emplace_back("additional_chat_templates/" + name + ".jinja", source);
      } else {
        layout_.notes.push_back("the chat template \"" + corbel::detail::printable(name, 64) + "\" is left out");
      }
    }
    return {};
  }

  const Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  const Architecture& family_;
  WeightReader read_;
  KeyReader keys_;
  Status status_;
  json::Value config_;
  std::size_t behind_ = 0;  // tensors of layers that the model does not have
  std::string_view first_behind_;
  FolderLayout layout_;
};

}  // namespace detail

CORBEL_INLINE Result<FolderLayout> plan_folder_layout(const Checkpoint& checkpoint) {
  return corbel::detail::guard([&]() -> Result<FolderLayout> {
    CORBEL_ASSIGN_OR_RETURN(const ModelSpec spec, read_model_spec(checkpoint));
    CORBEL_ASSIGN_OR_RETURN(FolderLayout layout, detail::FolderPlanner(checkpoint, spec).plan());
    // What a reader of the new folder would understand must be the same model, with all its tensors.
    const Context context;
    const Result<Checkpoint> planned =
        Checkpoint::from_folder(std::make_shared<detail::PlannedFolder>(layout), context, {}, "the planned folder");
    if (!planned.ok()) return planned.status();
    const Result<ModelSpec> written = read_model_spec(*planned);
    if (!written.ok()) return written.status().with_place("as a folder");
    const std::string difference = detail::spec_difference(spec, *written);
    if (!difference.empty()) {
      return Status(Errc::kUnsupported,
                    fmt::format("config.json of the family {} cannot say {}", written->architecture->name, difference));
    }
    if (const Result<hal::Program> program = build_program(*planned, *written); !program.ok())
      return program.status().with_place("as a folder");
    return layout;
  });
}

CORBEL_INLINE Result<std::vector<std::pair<std::string, std::string>>> tokenizer_documents(const Metadata& metadata) {
  return corbel::detail::guard([&] { return detail::TokenizerDocumentWriter(metadata).write(); });
}

}  // namespace models
CORBEL_NAMESPACE_END
