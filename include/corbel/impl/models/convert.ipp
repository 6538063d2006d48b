// Definitions of convert.hpp.
#pragma once

#include <corbel/checkpoint/gguf_writer.hpp>
#include <corbel/checkpoint/safetensors_writer.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/impl/models/layout_common.ipp>
#include <corbel/models/convert.hpp>
#include <corbel/models/folder_layout.hpp>
#include <corbel/models/gguf_layout.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

using corbel::detail::printable;

inline constexpr std::uint64_t kPieceBytes = 4u << 20;

// A metadata value as JSON.
inline json::Value meta_to_json(const MetaValue& value) {
  const auto element = [&](std::size_t i) {
    switch (value.element_type()) {
      case MetaType::kString:
        return json::Value::string(std::string(value.is_array() ? value.string_at(i) : *value.as_string()));
      case MetaType::kBool:
        return json::Value::boolean(value.int_at(i) != 0);
      case MetaType::kF32:
      case MetaType::kF64:
        return json::Value::number(value.float_at(i));
      case MetaType::kU64:
        if (!value.is_array()) return json::Value::unsigned_integer(*value.as_uint());
        [[fallthrough]];
      default:
        return json::Value::integer(value.int_at(i));
    }
  };
  if (!value.is_array()) return element(0);
  json::Value list = json::Value::array();
  for (std::size_t i = 0; i < value.size(); ++i) list.items().push_back(element(i));
  return list;
}

// Weights, as opposed to indices, masks and packed words.
inline bool is_float_type(const TensorInfo& tensor) noexcept {
  const std::string_view name = tensor.type_name;
  const bool integer = name.size() > 1 && (name[0] == 'I' || name[0] == 'U') && name[1] >= '0' && name[1] <= '9';
  return !integer && name != "BOOL" && name != "C64";
}

// The router of a mixture of experts: small, and what it decides is not smooth.
inline bool is_router(std::string_view name) noexcept {
  for (const std::string_view part : {"ffn_gate_inp", "mlp.gate.weight", "block_sparse_moe.gate", "router"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

// One tensor of the output.
struct Item {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::string type_name;  // as the new container calls it
  std::uint32_t ggml_type = 0;
  std::uint64_t bytes = 0;
  WriteSource source;
};

// What `path` names: a container by its ending, else a folder. An ending of another kind of file is a mistake.
enum class OutputKind : std::uint8_t { kGguf, kSafetensors, kFolder };

inline Result<OutputKind> output_kind(std::string_view path) {
  std::string name(path.substr(path.rfind('/') + 1));
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (name.ends_with(".gguf")) return OutputKind::kGguf;
  if (name.ends_with(".safetensors")) return OutputKind::kSafetensors;
  for (const std::string_view other :
       {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".json", ".jinja", ".txt", ".md", ".ggml", ".onnx", ".model",
        ".zip", ".tar", ".gz", ".tmp", ".out", ".index"}) {
    if (!name.ends_with(other)) continue;
    return Status(Errc::kInvalidArgument,
                  printable(path, 200) + ": " + std::string(other) +
                      " files are not written; name a .gguf or .safetensors file, or a folder (ending with \"/\")");
  }
  return OutputKind::kFolder;
}

class Converter {
 public:
  Converter(const Checkpoint& checkpoint, const std::string& path, const ConvertOptions& options)
      : checkpoint_(checkpoint), path_(path), options_(options) {}

  Status run() {
    if (options_.type && traits(*options_.type).encode == nullptr) {
      return {Errc::kUnsupported, std::string("values cannot be encoded as ") + traits(*options_.type).name};
    }
    CORBEL_RETURN_IF_ERROR(refuse_input());
    CORBEL_ASSIGN_OR_RETURN(const OutputKind kind, output_kind(path_));
    const bool from_gguf = checkpoint_.format() == CheckpointFormat::kGguf;
    if (kind == OutputKind::kGguf) return from_gguf ? gguf_to_gguf() : folder_to_gguf();
    if (kind == OutputKind::kSafetensors) {
      say_left_behind(from_gguf);
      return to_safetensors(path_);
    }
    return from_gguf ? gguf_to_folder() : to_folder();
  }

 private:
  void say(const std::string& line) const {
    if (options_.say) options_.say(line);
  }

  // The output must be none of the files that are read.
  Status refuse_input() const {
    const std::string& name = checkpoint_.name();
    const std::size_t slash = name.rfind('/');
    const std::string beside = slash == std::string::npos ? std::string() : name.substr(0, slash + 1);
    std::vector<std::string> inputs = {name};
    for (const CheckpointFile& file : checkpoint_.files()) {
      inputs.push_back(name + "/" + file.name);
      inputs.push_back(beside + file.name);
    }
    for (const std::string& input : inputs) {
      if (corbel::detail::same_file(input, path_)) {
        return {Errc::kInvalidArgument, printable(path_, 200) + ": the output is the input"};
      }
    }
    return {};
  }

  // Type of a tensor in the new file; say_types() tells where it is not the asked one.
  Result<DType> choose(const TensorInfo& tensor, bool gguf) {
    const auto has = [&](DType type) { return gguf ? traits(type).ggml_id != kNoGgmlId : traits(type).in_safetensors; };
    if (!tensor.supported) {
      return Status(Errc::kUnsupported,
                    "tensor \"" + printable(tensor.name, 100) + "\": type " + tensor.type_name + " is not supported");
    }
    const DType keep = has(tensor.dtype) ? tensor.dtype : DType::kF32;
    if (!options_.type || !is_float_type(tensor)) {
      if (!has(tensor.dtype)) unblocked_.add(tensor);
      return keep;
    }
    if (!has(*options_.type)) {
      return Status(Errc::kUnsupported, std::string("safetensors files have no type ") + traits(*options_.type).name);
    }
    std::size_t wide = 0;
    for (const std::uint64_t extent : tensor.shape) wide += extent > 1 ? 1u : 0u;
    if (wide < 2 || is_router(tensor.name)) {
      if (tensor.dtype != DType::kF32) widened_.add(tensor);
      return DType::kF32;
    }
    if (tensor.shape.back() % traits(*options_.type).block_elements != 0) {
      misfits_.add(tensor);
      return keep;
    }
    return *options_.type;
  }

  // Tensors that one line speaks of.
  struct Group {
    std::map<std::string, std::size_t> types;  // how many of each
    std::string first;
    std::uint64_t cols = 0;

    void add(const TensorInfo& tensor) {
      if (types.empty()) {
        first = printable(tensor.name, 100);
        cols = tensor.shape.empty() ? 1 : tensor.shape.back();
      }
      ++types[tensor.type_name];
    }
    // "1 tensor", "3 tensors".
    std::string count(const std::string& what) const {
      std::size_t all = 0;
      for (const auto& [type, number] : types) all += number;
      return std::to_string(all) + " " + what + (all == 1 ? "" : "s");
    }
    // "Q4_1", "Q4_1 (180) and Q8_0 (1)".
    std::string list() const {
      std::string text;
      std::size_t left = types.size();
      for (const auto& [type, number] : types) {
        text += (text.empty() ? "" : --left > 1 ? ", " : " and ") + type;
        if (types.size() > 1) text += " (" + std::to_string(number) + ")";
      }
      return text;
    }
  };

  // A line for each reason why tensors have another type than was asked for.
  void say_types() const {
    if (!misfits_.types.empty()) {
      const DTypeTraits& asked = traits(*options_.type);
      say(misfits_.count("tensor") + " cannot become " + asked.name + ", whose blocks take " +
          std::to_string(asked.block_elements) + " values of a row, and keep the type: " + misfits_.list() +
          ", such as \"" + misfits_.first + "\" with rows of " + std::to_string(misfits_.cols));
    }
    if (!widened_.types.empty()) {
      say(widened_.count("vector or router weight") + " of type " + widened_.list() + " became F32, such as \"" +
          widened_.first + "\"");
    }
    if (!unblocked_.types.empty()) {
      say(unblocked_.count("tensor") + " of type " + unblocked_.list() +
          " became F32, since the new container does not have it, such as \"" + unblocked_.first + "\"");
    }
  }

  // What a file of weights alone does not have.
  void say_left_behind(bool from_gguf) const {
    if (from_gguf) {
      return say("names and keys stay those of GGUF: the file holds the weights and cannot be loaded as a model");
    }
    std::string names;
    for (const std::string& document : checkpoint_.documents()) names += (names.empty() ? "" : ", ") + document;
    if (!names.empty()) {
      say("a file of weights alone has no " + printable(names, 300) + "; name a folder or a .gguf file to keep them");
    }
  }

  Status progress(std::uint64_t bytes) {
    done_ += bytes;
    if (options_.progress && !options_.progress(done_, total_)) return {Errc::kCancelled, "stopped by the caller"};
    return {};
  }

  // The stored bytes as they are.
  WriteSource copy_of(const TensorInfo& tensor) {
    return [this, &tensor](const WriteSink& sink) -> Status {
      std::vector<std::byte> piece(static_cast<std::size_t>(std::min(tensor.bytes, kPieceBytes)));
      for (std::uint64_t at = 0; at < tensor.bytes; at += piece.size()) {
        const auto here =
            std::span(piece).first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), tensor.bytes - at)));
        CORBEL_RETURN_IF_ERROR(checkpoint_.read(tensor, at, here));
        CORBEL_RETURN_IF_ERROR(sink(here));
        CORBEL_RETURN_IF_ERROR(progress(here.size()));
      }
      return {};
    };
  }

  // Values from `rows` in another type. `cols` is a multiple of its block.
  WriteSource encoded(RowReader rows, std::uint64_t num_rows, std::uint64_t cols, DType type) {
    return [this, rows = std::move(rows), num_rows, cols, type](const WriteSink& sink) -> Status {
      const DTypeTraits& out = traits(type);
      const std::uint64_t step = std::clamp<std::uint64_t>(kPieceBytes / (4 * std::max<std::uint64_t>(cols, 1)), 1,
                                                           std::max<std::uint64_t>(num_rows, 1));
      std::vector<float> values(static_cast<std::size_t>(step * cols));
      std::vector<std::byte> bytes(static_cast<std::size_t>(step * cols / out.block_elements * out.block_bytes));
      for (std::uint64_t row = 0; row < num_rows; row += step) {
        const std::uint64_t count = std::min(step, num_rows - row);
        CORBEL_RETURN_IF_ERROR(rows(row, count, values.data()));
        const auto blocks = static_cast<std::size_t>(count * cols / out.block_elements);
        out.encode(values.data(), bytes.data(), blocks);
        const auto here = std::span(bytes).first(blocks * out.block_bytes);
        CORBEL_RETURN_IF_ERROR(sink(here));
        CORBEL_RETURN_IF_ERROR(progress(here.size()));
      }
      return {};
    };
  }

  Result<Item> item(const TensorInfo& tensor, bool gguf) {
    CORBEL_ASSIGN_OR_RETURN(const DType type, choose(tensor, gguf));
    Item result;
    result.name = tensor.name;
    result.shape = tensor.shape;
    result.type_name = traits(type).name;
    result.ggml_type = traits(type).ggml_id;
    result.bytes = tensor.num_elements() / traits(type).block_elements * traits(type).block_bytes;
    if (type == tensor.dtype) {
      result.source = copy_of(tensor);
    } else {
      const std::uint64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
      const std::uint64_t rows = cols == 0 ? 0 : tensor.num_elements() / cols;
      result.source = encoded(rows_of(stored_tensor(checkpoint_, tensor, rows, cols)), rows, cols, type);
    }
    total_ += result.bytes;
    return result;
  }

  Status gguf_to_gguf() {
    GgufWriter writer(3);
    for (const Metadata::Entry& entry : checkpoint_.metadata().entries()) {
      if (entry.key.starts_with("split.")) continue;  // the parts become one file
      writer.metadata().set(entry.key, entry.value);
    }
    if (checkpoint_.files().size() > 1) say("the parts become one file: the keys split.* are left out");
    set_file_type(writer.metadata());
    for (const TensorInfo& tensor : checkpoint_.tensors()) {
      CORBEL_ASSIGN_OR_RETURN(Item one, item(tensor, true));
      CORBEL_RETURN_IF_ERROR(writer.add_tensor(std::move(one.name), one.shape, one.ggml_type, std::move(one.source)));
    }
    say_types();
    return writer.write_file(path_);
  }

  Status folder_to_gguf() {
    CORBEL_ASSIGN_OR_RETURN(GgufLayout layout, plan_gguf_layout(checkpoint_));
    GgufWriter writer(3);
    writer.metadata() = std::move(layout.metadata);
    set_file_type(writer.metadata());
    for (GgufTensorPlan& plan : layout.tensors) {
      TensorInfo tensor;
      tensor.name = plan.name;
      tensor.shape = plan.shape;
      tensor.dtype = plan.stored;
      tensor.type_name = traits(plan.stored).name;
      CORBEL_ASSIGN_OR_RETURN(DType type, choose(tensor, true));
      if (!options_.type && tensor.shape.size() < 2) type = DType::kF32;  // as GGUF files have their vectors
      const std::uint64_t cols = plan.shape.back();
      const std::uint64_t rows = tensor.num_elements() / cols;
      total_ += rows * cols / traits(type).block_elements * traits(type).block_bytes;
      CORBEL_RETURN_IF_ERROR(writer.add_tensor(plan.name, plan.shape, traits(type).ggml_id,
                                               encoded(std::move(plan.rows), rows, cols, type)));
    }
    for (const std::string& note : layout.notes) say(note);
    say_types();
    return writer.write_file(path_);
  }

  // general.file_type says what most tensors are, by the numbers that GGUF files use.
  void set_file_type(Metadata& metadata) const {
    if (!options_.type) return;
    static const std::map<DType, std::uint32_t> kNumbers = {
        {DType::kF32, 0},   {DType::kF16, 1},   {DType::kQ4_0, 2},  {DType::kQ4_1, 3},  {DType::kQ8_0, 7},
        {DType::kQ5_0, 8},  {DType::kQ5_1, 9},  {DType::kQ2_K, 10}, {DType::kQ3_K, 12}, {DType::kQ4_K, 14},
        {DType::kQ5_K, 16}, {DType::kQ6_K, 18}, {DType::kBF16, 32}};
    const auto found = kNumbers.find(*options_.type);
    if (found != kNumbers.end()) metadata.set("general.file_type", MetaValue::from_uint(found->second));
    if (traits(*options_.type).block_elements > 1) {
      metadata.set("general.quantization_version", MetaValue::from_uint(2));
    }
  }

  Status to_safetensors(const std::string& path) {
    SafetensorsWriter writer;
    for (const Metadata::Entry& entry : checkpoint_.metadata().entries()) {
      const Result<std::string_view> text = entry.value.as_string();
      CORBEL_RETURN_IF_ERROR(
          writer.set_metadata(entry.key, text.ok() ? std::string(*text) : json::write(meta_to_json(entry.value))));
    }
    if (checkpoint_.metadata().find("format") == nullptr) CORBEL_RETURN_IF_ERROR(writer.set_metadata("format", "pt"));
    for (const TensorInfo& tensor : checkpoint_.tensors()) {
      CORBEL_ASSIGN_OR_RETURN(Item one, item(tensor, false));
      CORBEL_RETURN_IF_ERROR(writer.add_tensor(std::move(one.name), one.shape, one.type_name, std::move(one.source)));
    }
    say_types();
    return writer.write_file(path);
  }

  // A new folder: the documents, and all weights in one file.
  Status to_folder() {
    const json::Value* config = checkpoint_.config();
    if (config == nullptr) {
      return {Errc::kUnsupported,
              "there is no config.json beside the weights to write a folder from; name a .safetensors file"};
    }
    if (options_.type && config->find("quantization_config") != nullptr) {
      return {Errc::kUnsupported, "the checkpoint is quantized already; its types cannot be changed"};
    }
    CORBEL_ASSIGN_OR_RETURN(corbel::detail::OutputFolder folder, corbel::detail::OutputFolder::create(path_));
    for (const std::string& name : checkpoint_.documents()) {
      CORBEL_ASSIGN_OR_RETURN(std::string text, checkpoint_.document(name));
      if (name == "config.json" && options_.type) text = json::write(with_type(*config, *options_.type)) + "\n";
      CORBEL_RETURN_IF_ERROR(folder.add(name, std::as_bytes(std::span<const char>(text))));
    }
    CORBEL_RETURN_IF_ERROR(to_safetensors(folder.path_of("model.safetensors")));
    return folder.commit();
  }

  // A folder from a GGUF file: names, orders and documents become those of the family's folders.
  Status gguf_to_folder() {
    CORBEL_ASSIGN_OR_RETURN(FolderLayout layout, plan_folder_layout(checkpoint_));
    CORBEL_ASSIGN_OR_RETURN(corbel::detail::OutputFolder folder, corbel::detail::OutputFolder::create(path_));
    SafetensorsWriter writer;
    for (const Metadata::Entry& entry : checkpoint_.metadata().entries()) {
      if (entry.key.starts_with("tokenizer.") || entry.key.starts_with("corbel.") || entry.key.starts_with("split."))
        continue;  // the documents say it
      const Result<std::string_view> text = entry.value.as_string();
      CORBEL_RETURN_IF_ERROR(
          writer.set_metadata(entry.key, text.ok() ? std::string(*text) : json::write(meta_to_json(entry.value))));
    }
    CORBEL_RETURN_IF_ERROR(writer.set_metadata("format", "pt"));
    std::map<DType, std::uint64_t> elements;
    for (GgufTensorPlan& plan : layout.tensors) {
      TensorInfo tensor;
      tensor.name = plan.name;
      tensor.shape = plan.shape;
      tensor.dtype = plan.stored;
      tensor.type_name = traits(plan.stored).name;
      CORBEL_ASSIGN_OR_RETURN(const DType type, choose(tensor, false));
      const std::uint64_t cols = plan.shape.back();
      const std::uint64_t rows = tensor.num_elements() / cols;
      total_ += rows * cols / traits(type).block_elements * traits(type).block_bytes;
      elements[type] += tensor.num_elements();
      CORBEL_RETURN_IF_ERROR(
          writer.add_tensor(plan.name, plan.shape, traits(type).name, encoded(std::move(plan.rows), rows, cols, type)));
    }
    for (const std::string& note : layout.notes) say(note);
    say_types();
    DType most = DType::kF32;
    for (const auto& [type, count] : elements)
      if (count > elements[most]) most = type;
    for (auto& [name, text] : layout.documents) {
      if (name == "config.json") {
        CORBEL_ASSIGN_OR_RETURN(const json::Value config, json::parse(text));
        text = json::write(with_type(config, most)) + "\n";
      }
      CORBEL_RETURN_IF_ERROR(folder.add(name, std::as_bytes(std::span<const char>(text))));
    }
    CORBEL_RETURN_IF_ERROR(writer.write_file(folder.path_of("model.safetensors")));
    return folder.commit();
  }

  // config.json with the new type where it names one.
  static json::Value with_type(const json::Value& config, DType dtype) {
    json::Value changed = config;
    const std::string_view type = dtype == DType::kF16 ? "float16" : dtype == DType::kBF16 ? "bfloat16" : "float32";
    for (auto& [key, value] : changed.members()) {
      if (key == "torch_dtype" || key == "dtype") value = json::Value::string(std::string(type));
    }
    return changed;
  }

  const Checkpoint& checkpoint_;
  const std::string& path_;
  const ConvertOptions& options_;
  Group misfits_, widened_, unblocked_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace detail

CORBEL_INLINE Status convert(const Checkpoint& checkpoint, const std::string& path, const ConvertOptions& options) {
  return corbel::detail::guard([&]() {
    const Status status = detail::Converter(checkpoint, path, options).run();
    // What was written is named already.
    if (status.ok() || status.message().starts_with(corbel::detail::printable(path, 200))) return status;
    return status.with_place(corbel::detail::printable(checkpoint.name(), 200));
  });
}

}  // namespace models
CORBEL_NAMESPACE_END
