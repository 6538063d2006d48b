// Definitions of folder_layout.hpp: the reverse of gguf_layout.ipp and of the reading of config.json.
#pragma once

#include <corbel/checkpoint/chat_templates.hpp>
#include <corbel/checkpoint/generation_defaults.hpp>
#include <corbel/context.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/impl/models/folder_config.ipp>
#include <corbel/impl/models/folder_tokenizer.ipp>
#include <corbel/impl/models/layout_common.ipp>
#include <corbel/impl/models/tensor_rules.ipp>
#include <corbel/models/build.hpp>
#include <corbel/models/folder_layout.hpp>
#include <corbel/models/model_spec.hpp>
#include <corbel/models/weight_reader.hpp>

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
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
      : checkpoint_(checkpoint), spec_(spec), family_(*family_of(spec)), read_(checkpoint, *spec.architecture) {}

  Result<FolderLayout> plan() {
    if (family_.rope == RopePairs::kPermuted && !spec_.ropes.empty() && spec_.rotary_dim != spec_.head_dim) {
      return Status(Errc::kUnsupported, "this rotary embedding cannot be written to a Hugging Face folder");
    }
    CORBEL_ASSIGN_OR_RETURN(const GenerationDefaults generation, read_generation_defaults(checkpoint_));
    CORBEL_ASSIGN_OR_RETURN(const json::Value config, FolderConfig(checkpoint_, spec_, family_, generation).make());
    for (const TensorInfo& tensor : checkpoint_.tensors()) add_tensor(tensor);
    if (!read_.ok()) return read_.status();
    if (!status_.ok()) return status_;
    if (behind_ != 0) {
      layout_.notes.push_back(fmt::format("{} tensors behind the last layer are left out, the first is {}", behind_,
                                          corbel::detail::printable(first_behind_, 100)));
    }
    layout_.documents.emplace_back("config.json", json::write(config) + "\n");
    CORBEL_RETURN_IF_ERROR(add_generation(generation));
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

  // The document that the file was made from, with what the keys say by now, else one of what they say.
  Status add_generation(const GenerationDefaults& defaults) {
    json::Value said = json::Value::object();
    const auto value = [&](const char* key, const std::optional<double>& number) {
      if (number) set_member(said, key, json::Value::number(plain(static_cast<float>(*number))));
    };
    // Folders say do_sample where a temperature of 0 says that nothing is drawn.
    const bool greedy = defaults.do_sample == false || defaults.temperature == 0.0;
    if (greedy || defaults.do_sample) set_member(said, "do_sample", json::Value::boolean(!greedy));
    if (defaults.temperature != 0.0) value("temperature", defaults.temperature);
    if (defaults.top_k) set_member(said, "top_k", json::Value::unsigned_integer(*defaults.top_k));
    value("top_p", defaults.top_p);
    value("min_p", defaults.min_p);
    value("repetition_penalty", defaults.repetition_penalty);

    CORBEL_ASSIGN_OR_RETURN(const std::string_view text, checkpoint_.metadata().get_string_or(kGenerationKey, ""));
    if (!text.empty()) {
      layout_.documents.emplace_back("generation_config.json", text);
      CORBEL_ASSIGN_OR_RETURN(json::Value kept, json::parse(text));
      if (renew(kept, said, greedy)) layout_.documents.back().second = json::write(kept) + "\n";
      return {};
    }
    json::Value all = json::Value::object();
    if (defaults.bos_id) set_member(all, "bos_token_id", token_or_null(defaults.bos_id));
    if (!defaults.eos_ids.empty()) set_member(all, "eos_token_id", tokens_or_null(defaults.eos_ids));
    if (defaults.pad_id) set_member(all, "pad_token_id", token_or_null(defaults.pad_id));
    for (const auto& [key, member] : said.members()) set_member(all, key, member);
    if (!all.members().empty()) layout_.documents.emplace_back("generation_config.json", json::write(all) + "\n");
    return {};
  }

  // Whether `kept` had to be changed to say what `said` does. Ids are its own.
  static bool renew(json::Value& kept, const json::Value& said, bool greedy) {
    const auto of_kept = [&](std::string_view key) {
      const json::Value* value = kept.find(key);
      return value == nullptr || value->is_null() ? nullptr : value;
    };
    const json::Value *sampling = of_kept("do_sample"), *heat = of_kept("temperature");
    const bool off = sampling != nullptr && !sampling->as_bool();
    const bool was_greedy = off || (heat != nullptr && heat->as_double() == 0.0);
    bool changed = false;
    const auto set = [&](std::string_view key, const json::Value& value) {
      set_member(kept, key, value);
      changed = true;
    };
    for (const json::Value::Member& member : said.members()) {
      const bool choice = member.first == "do_sample" || member.first == "temperature";
      if (choice && was_greedy && greedy) continue;
      const json::Value* own = of_kept(member.first);
      const auto number = [&](const json::Value& from) {
        constexpr double kMost = std::numeric_limits<std::int32_t>::max();
        if (from.type() == json::Type::kBool) return from.as_bool() ? 1.0f : 0.0f;
        return static_cast<float>(member.first == "top_k" ? std::min(from.as_double(), kMost) : from.as_double());
      };
      if (own == nullptr || number(*own) != number(member.second)) set(member.first, member.second);
    }
    if (off && !greedy) set("do_sample", json::Value::boolean(true));
    return changed;
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
      constexpr std::size_t kLongestName = 200;
      if (!corbel::detail::is_utf8(source)) {
        layout_.notes.push_back("the chat template \"" + corbel::detail::printable(name, 64) +
                                "\" is left out: it is no UTF-8");
      } else if (name == corbel::detail::kDefaultTemplate) {
        layout_.documents.emplace_back("chat_template.jinja", source);
      } else if (!name.empty() && name.size() <= kLongestName &&
                 name.find_first_not_of(kLetters) == std::string::npos) {
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
  Status status_;
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
