// corbel inspect: what is in a model file or folder, what it would take in memory, and the program it becomes. Loads no
// weights.
#include <corbel/models/build.hpp>
#include <corbel/models/weight_source.hpp>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <map>
#include <optional>
#include <tuple>

#include "common.hpp"

namespace tool {
namespace {

using corbel::MetaType;
using corbel::MetaValue;
using corbel::json::Value;

struct Options {
  RunOptions run;
  std::string model;
  std::string tensor;
  std::string out;
  std::uint32_t plan_tokens = 0;
  bool program = false;
  bool json = false;
};

Value scalar_to_json(const MetaValue& value, std::size_t index) {
  switch (value.element_type()) {
    case MetaType::kString:
      return Value::string(std::string(value.is_array() ? value.string_at(index) : value.as_string().value()));
    case MetaType::kBool:
      return Value::boolean(value.int_at(index) != 0);
    case MetaType::kF32:
    case MetaType::kF64:
      return Value::number(value.float_at(index));
    case MetaType::kU64:
      // Scalars keep all 64 bits; elements of arrays are read as signed.
      if (!value.is_array()) return Value::unsigned_integer(value.as_uint().value());
      [[fallthrough]];
    default:
      break;
  }
  const std::int64_t integer = value.int_at(index);
  return integer < 0 ? Value::integer(integer) : Value::unsigned_integer(static_cast<std::uint64_t>(integer));
}

/// The value with at most `max_elements` elements of an array.
Value to_json(const MetaValue& value, std::size_t max_elements) {
  if (!value.is_array()) return scalar_to_json(value, 0);
  Value list = Value::array();
  for (std::size_t i = 0; i < std::min(value.size(), max_elements); ++i)
    list.items().push_back(scalar_to_json(value, i));
  return list;
}

Value shape_to_json(const corbel::TensorInfo& tensor) {
  Value shape = Value::array();
  for (const std::uint64_t extent : tensor.shape) shape.items().push_back(Value::unsigned_integer(extent));
  return shape;
}

const char* type_name(const corbel::TensorInfo& tensor) {
  return *tensor.type_name != '\0' ? tensor.type_name : "unknown";
}

struct PlanLine {
  const char* kind;
  std::uint64_t bytes;
};

/// The plan for what `corbel chat` makes: a model, a cache for the tokens, one batch.
std::vector<PlanLine> plan(const corbel::Checkpoint& checkpoint, const corbel::Context& context, const Options& options,
                           std::uint32_t tokens) {
  const std::string backend = options.run.backend.empty() ? corbel::kBackendNames[0] : options.run.backend;
  const corbel::PlanOptions plan_options = {
      .cache = {.max_tokens = tokens, .type = kv_type(options.run)}, .batch = {}, .passes = {}};
  const corbel::MemoryPlan plan = corbel::visit_backend(backend, [&]<class B>() {
                                    return corbel::plan_memory<B>(checkpoint, context, plan_options);
                                  }).value();
  return {{"weights", plan.weights}, {"vocabulary", plan.vocabulary}, {"kv_cache", plan.kv_cache},
          {"arena", plan.arena},     {"workspace", plan.workspace},   {"staging", plan.staging},
          {"total", plan.total()}};
}

/// What would compute, in a line.
std::string describe_backend(const corbel::Context& context, const Options& options) {
  const std::string name = options.run.backend.empty() ? corbel::kBackendNames[0] : options.run.backend;
  return corbel::visit_backend(name,
                               [&]<class B>() -> corbel::Result<std::string> {
                                 const corbel::Result<B> backend = B::create(context);
                                 if (!backend.ok()) return backend.status();
                                 return backend->describe();
                               })
      .value();
}

struct ProgramTexts {
  std::string before;
  std::string after;
  std::string tuning;
};

/// A count line that shows what the passes save, then the ops.
std::string describe(const corbel::hal::Program& program, bool reuse) {
  const corbel::BatchOptions batch;
  const std::uint64_t arena = corbel::graph::plan_arena(program, batch.max_rows, batch.max_wanted, reuse).bytes;
  return std::to_string(program.ops.size()) + " ops, " + std::to_string(program.weights.size()) +
         " weights, arena of " + std::to_string(arena) + " bytes for " + std::to_string(batch.max_rows) + " rows\n" +
         corbel::graph::dump(program);
}

/// What a load would find to be fast, measured on the largest weight alone; empty for backends that measure nothing.
std::string tuning_text(const corbel::Context& context, const Options& options, const corbel::hal::Program& program) {
  const std::string name = options.run.backend.empty() ? corbel::kBackendNames[0] : options.run.backend;
  return corbel::visit_backend(name,
                               [&]<class B>() -> corbel::Result<std::string> {
                                 corbel::Result<B> backend = B::create(context);
                                 if (!backend.ok()) return backend.status();
                                 if constexpr (requires { backend->describe_tuning(); }) {
                                   const corbel::hal::WeightSpec* largest = nullptr;
                                   for (const corbel::hal::WeightSpec& spec : program.weights)
                                     if (largest == nullptr || spec.elements() > largest->elements()) largest = &spec;
                                   if (largest != nullptr && options.run.tuning == "measure") {
                                     std::vector<typename B::Weight> weights;
                                     weights.push_back(backend->prepare(*largest).value());
                                     backend->tune(weights);
                                   }
                                   return backend->describe_tuning();
                                 }
                                 return std::string();
                               })
      .value();
}

ProgramTexts program_texts(const corbel::Checkpoint& checkpoint, const corbel::Context& context,
                           const Options& options) {
  const corbel::models::ModelSpec spec = corbel::models::read_model_spec(checkpoint).value();
  corbel::hal::Program program = corbel::models::build_program(checkpoint, spec).value();
  ProgramTexts texts;
  texts.before = describe(program, false);
  const corbel::graph::PassOptions passes;
  corbel::graph::run_passes(program, passes);
  texts.after = describe(program, passes.reuse_memory);
  texts.tuning = tuning_text(context, options, program);
  return texts;
}

/// 134515008 -> "135M".
std::string short_count(std::uint64_t count) {
  static constexpr const char* kUnits[] = {"", "K", "M", "B", "T"};
  double value = static_cast<double>(count);
  std::size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && value >= 999.5) value /= 1000, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, value < 9.95 && unit >= 3 ? "%.1f%s" : "%.0f%s", value, kUnits[unit]);
  return text;
}

std::string short_bytes(std::uint64_t bytes) {
  char text[32];
  if (bytes < (1u << 20)) {
    std::snprintf(text, sizeof text, "%.1f KiB", static_cast<double>(bytes) / 1024);
  } else {
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  }
  return text;
}

/// How the values are stored: the scheme of a quantized folder, else the types of the matrices by their share.
std::string quantization(const corbel::Checkpoint& checkpoint) {
  std::map<std::string, std::uint64_t> elements;
  std::uint64_t all = 0;
  for (const corbel::TensorInfo& tensor : checkpoint.tensors()) {
    if (tensor.shape.size() < 2) continue;
    elements[type_name(tensor)] += tensor.num_elements();
    all += tensor.num_elements();
  }
  std::vector<std::pair<std::uint64_t, std::string>> order;
  for (const auto& [name, count] : elements) order.emplace_back(count, name);
  std::sort(order.rbegin(), order.rend());
  std::string types;
  for (const auto& [count, name] : order) {
    char text[64];
    std::snprintf(text, sizeof text, "%s%s %.3g%%", types.empty() ? "" : ", ", name.c_str(),
                  100.0 * static_cast<double>(count) / static_cast<double>(all));
    types += text;
  }
  const Value* config = checkpoint.config();
  const Value* scheme = config != nullptr ? config->find("quantization_config") : nullptr;
  const Value* method = scheme != nullptr ? scheme->find("quant_method") : nullptr;
  if (method == nullptr || !method->is_string()) return order.size() == 1 ? order[0].second : types;
  std::string text(method->as_string());
  for (const char* key : {"bits", "w_bit", "group_size", "q_group_size", "format", "fmt", "bnb_4bit_quant_type"}) {
    const Value* value = scheme->find(key);
    if (value != nullptr && !value->is_null())
      text += std::string(" ") + key + "=" +
              (value->is_string() ? std::string(value->as_string()) : corbel::json::write(*value));
  }
  return text + " (stored: " + types + ")";
}

/// What a person wants to know first.
struct Summary {
  std::string family;
  std::uint64_t parameters = 0;
  std::string quantization;
  std::uint32_t context = 0;      // 0: not known
  std::uint32_t plan_tokens = 0;  // 0: no plan
  std::vector<PlanLine> plan;
  std::string backend;
  std::string problem;  // why the rest is not known
};

Summary summarize(const corbel::Checkpoint& checkpoint, const corbel::Context& context, const Options& options) {
  Summary summary;
  summary.quantization = quantization(checkpoint);
  const bool packed = checkpoint.config() != nullptr && checkpoint.config()->find("quantization_config") != nullptr;
  const corbel::Result<corbel::models::ModelSpec> spec = corbel::models::read_model_spec(checkpoint);
  if (!packed || !spec.ok()) {
    for (const corbel::TensorInfo& tensor : checkpoint.tensors()) summary.parameters += tensor.num_elements();
  }
  if (!spec.ok()) {
    summary.problem = spec.status().message();
    return summary;
  }
  // What loading would warn of.
  if (const auto generation = corbel::read_generation_defaults(checkpoint); generation.ok()) {
    for (const std::string& line : corbel::detail::load_notes(checkpoint, *spec, *generation)) note(line);
  }
  summary.family = spec->architecture->name;
  summary.context = spec->context_length;
  if (packed) {  // several values in a word: count those that the weights have
    const corbel::Result<corbel::hal::Program> program = corbel::models::build_program(checkpoint, *spec);
    if (program.ok()) {
      for (const corbel::hal::WeightSpec& weight : program->weights) summary.parameters += weight.elements();
    }
  }
  try {
    const std::uint32_t tokens = std::min(spec->context_length, options.plan_tokens != 0 ? options.plan_tokens : 4096u);
    summary.plan = plan(checkpoint, context, options, tokens);
    summary.plan_tokens = tokens;
    summary.backend = describe_backend(context, options);
  } catch (const corbel::Exception& error) {
    summary.problem = error.what();
  }
  return summary;
}

void print_summary(const Summary& summary) {
  const auto line = [](const char* name, const std::string& value) {
    std::string text = name;
    text.resize(14, ' ');
    print(text + value + "\n");
  };
  line("family", summary.family.empty() ? "not known" : summary.family);
  line("parameters", short_count(summary.parameters) + " (" + std::to_string(summary.parameters) + ")");
  line("quantization", summary.quantization.empty() ? "none" : summary.quantization);
  line("context", summary.context == 0 ? "not known" : std::to_string(summary.context) + " tokens");
  std::string memory = "not known";
  if (summary.plan_tokens != 0) {
    memory = short_bytes(summary.plan.back().bytes) + " for " + std::to_string(summary.plan_tokens) + " tokens: ";
    for (std::size_t i = 0; i + 1 < summary.plan.size(); ++i)
      memory += (i == 0 ? "" : ", ") + (summary.plan[i].kind + (" " + short_bytes(summary.plan[i].bytes)));
  }
  line("memory", memory);
  if (!summary.backend.empty()) line("backend", summary.backend);
  if (!summary.problem.empty()) line("problem", summary.problem);
}

Value summary_to_json(const Summary& summary) {
  const auto count = [](std::uint64_t value) { return value == 0 ? Value::null() : Value::unsigned_integer(value); };
  Value memory = Value::null();
  if (summary.plan_tokens != 0) {
    memory = Value::object({{"tokens", Value::unsigned_integer(summary.plan_tokens)}});
    for (const PlanLine& line : summary.plan)
      memory.members().emplace_back(line.kind, Value::unsigned_integer(line.bytes));
  }
  return Value::object({{"family", summary.family.empty() ? Value::null() : Value::string(summary.family)},
                        {"parameters", Value::unsigned_integer(summary.parameters)},
                        {"quantization", Value::string(summary.quantization)},
                        {"context", count(summary.context)},
                        {"memory", std::move(memory)},
                        {"backend", summary.backend.empty() ? Value::null() : Value::string(summary.backend)},
                        {"problem", summary.problem.empty() ? Value::null() : Value::string(summary.problem)}});
}

const char* format_name(const corbel::Checkpoint& checkpoint) {
  return checkpoint.format() == corbel::CheckpointFormat::kGguf ? "gguf" : "safetensors";
}

/// Why the model cannot be used; empty where it can.
std::string print_json(const corbel::Checkpoint& checkpoint, const corbel::Context& context, const Options& options) {
  const Summary summary = summarize(checkpoint, context, options);
  Value metadata = Value::object();
  for (const corbel::Metadata::Entry& entry : checkpoint.metadata().entries())
    metadata.members().emplace_back(entry.key, to_json(entry.value, entry.value.size()));
  Value tensors = Value::array();
  for (const corbel::TensorInfo& tensor : checkpoint.tensors())
    tensors.items().push_back(Value::object({{"name", Value::string(tensor.name)},
                                             {"type", Value::string(type_name(tensor))},
                                             {"shape", shape_to_json(tensor)},
                                             {"offset", Value::unsigned_integer(tensor.offset)},
                                             {"bytes", Value::unsigned_integer(tensor.bytes)}}));
  Value files = Value::array();
  for (const corbel::CheckpointFile& file : checkpoint.files())
    files.items().push_back(
        Value::object({{"name", Value::string(file.name)}, {"bytes", Value::unsigned_integer(file.bytes)}}));
  Value all = Value::object({{"file", Value::string(checkpoint.name())},
                             {"file_bytes", Value::unsigned_integer(checkpoint.file_bytes())},
                             {"format", Value::string(format_name(checkpoint))},
                             {"format_version", Value::unsigned_integer(checkpoint.format_version())},
                             {"summary", summary_to_json(summary)},
                             {"files", std::move(files)},
                             {"config", checkpoint.config() != nullptr ? *checkpoint.config() : Value::null()},
                             {"metadata", std::move(metadata)},
                             {"tensors", std::move(tensors)}});
  if (options.plan_tokens != 0 && summary.problem.empty()) {
    Value lines = Value::object({{"tokens", Value::unsigned_integer(options.plan_tokens)}});
    for (const PlanLine& line : plan(checkpoint, context, options, options.plan_tokens))
      lines.members().emplace_back(line.kind, Value::unsigned_integer(line.bytes));
    all.members().emplace_back("plan", std::move(lines));
  }
  if (options.program && summary.problem.empty()) {
    ProgramTexts texts = program_texts(checkpoint, context, options);
    all.members().emplace_back("program", Value::object({{"before", Value::string(std::move(texts.before))},
                                                         {"after", Value::string(std::move(texts.after))},
                                                         {"tuning", Value::string(std::move(texts.tuning))}}));
  }
  print(corbel::json::write(all) + "\n");
  return summary.problem;
}

/// The same.
std::string print_text(const corbel::Checkpoint& checkpoint, const corbel::Context& context, const Options& options) {
  const Summary summary = summarize(checkpoint, context, options);
  const bool gguf = checkpoint.format() == corbel::CheckpointFormat::kGguf;
  print(one_line(checkpoint.name()) + ": " +
        (gguf ? "GGUF version " + std::to_string(checkpoint.format_version()) : "safetensors") + ", " +
        std::to_string(checkpoint.files().size()) + (checkpoint.files().size() == 1 ? " file, " : " files, ") +
        std::to_string(checkpoint.file_bytes()) + " bytes\n");
  print_summary(summary);
  if (checkpoint.config() != nullptr) {
    print("\nconfig.json\n");
    for (const Value::Member& member : checkpoint.config()->members()) {
      std::string value = corbel::json::write(member.second);
      if (value.size() > 160) value = std::to_string(value.size()) + " bytes";
      print("  " + one_line(member.first) + ": " + value + "\n");
    }
  }
  print("\nmetadata\n");
  constexpr std::size_t kElements = 8;
  constexpr std::size_t kBytes = 160;
  for (const corbel::Metadata::Entry& entry : checkpoint.metadata().entries()) {
    std::string value = corbel::json::write(to_json(entry.value, kElements));
    if (value.size() > kBytes) {
      std::size_t end = kBytes;  // not in the middle of a code point
      while ((static_cast<unsigned char>(value[end]) & 0xC0u) == 0x80u) --end;
      value = value.substr(0, end) + " ...";
    }
    if (entry.value.is_array() && entry.value.size() > kElements)
      value += " ... (" + std::to_string(entry.value.size()) + ")";
    print("  " + entry.key + ": " + value + "\n");
  }
  print("\ntensors\n");
  for (const corbel::TensorInfo& tensor : checkpoint.tensors()) {
    char line[128];
    std::snprintf(line, sizeof line, "  %-8s %12" PRIu64 " bytes  %-16s ", type_name(tensor), tensor.bytes,
                  corbel::json::write(shape_to_json(tensor)).c_str());
    print(line + tensor.name + "\n");
  }
  if (options.plan_tokens != 0 && summary.problem.empty()) {
    print("\nmemory for " + std::to_string(options.plan_tokens) + " tokens, in bytes\n");
    for (const PlanLine& line : plan(checkpoint, context, options, options.plan_tokens)) {
      char text[64];
      std::snprintf(text, sizeof text, "  %-10s %14" PRIu64 "\n", line.kind, line.bytes);
      print(text);
    }
  }
  if (options.program && summary.problem.empty()) {
    const ProgramTexts texts = program_texts(checkpoint, context, options);
    print("\nprogram before the passes: " + texts.before + "\nprogram after the passes: " + texts.after);
    if (!texts.tuning.empty()) print("\nspeed: " + texts.tuning + "\n");
  }
  return summary.problem;
}

/// The rows and columns of a linear of the model: the parts of its program that read the module's tensors.
std::pair<std::uint64_t, std::uint64_t> size_of_linear(const corbel::hal::Program& program, const std::string& module) {
  std::uint64_t rows = 0, cols = 0;
  for (const corbel::hal::WeightSpec& weight : program.weights) {
    if ((weight.uses & corbel::hal::kUseVector) != 0) continue;
    for (const corbel::hal::WeightPart& part : weight.parts) {
      const std::string_view name = part.name;
      if (!name.starts_with(module) || name.size() == module.size()) continue;
      const std::string_view rest = name.substr(module.size());
      if ((rest[0] != '.' && rest[0] != '_') || rest.find('.', 1) != std::string_view::npos) continue;
      rows += part.rows;
      cols = part.cols;
    }
  }
  return {rows, cols};
}

/// NAME.weight of a quantized Hugging Face checkpoint, dequantized, [out, in]; nothing where NAME is not quantized.
/// Experts that are one tensor have their number before the last part of the name.
std::optional<std::vector<float>> quantized_weight(const corbel::Checkpoint& checkpoint, const std::string& name) {
  const auto quantized = corbel::models::QuantizedCheckpoint::open(checkpoint).value();
  if (!quantized) return std::nullopt;
  std::string module = name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
  const std::size_t number = module.find(".experts.") + 9;
  const std::size_t end = number < 9 ? std::string::npos : module.find('.', number);
  std::uint64_t expert = 0;
  std::string first = module;  // of its experts, whose parts stand for all
  if (end != std::string::npos) {
    const auto parsed = std::from_chars(module.data() + number, module.data() + end, expert);
    if (parsed.ec != std::errc() || parsed.ptr != module.data() + end) return std::nullopt;
    first.replace(number, end - number, "0");
    if (!quantized->has(module)) module.erase(number, end - number + 1);
  }
  if (!quantized->has(module)) return std::nullopt;
  const corbel::models::ModelSpec spec = corbel::models::read_model_spec(checkpoint).value();
  const corbel::hal::Program program = corbel::models::build_program(checkpoint, spec).value();
  auto [rows, cols] = size_of_linear(program, module);
  const bool stacked = end != std::string::npos && module.size() < first.size() - 1;
  const std::uint64_t experts = std::max<std::uint64_t>(spec.experts.route.experts, 1);
  if (rows == 0 && end != std::string::npos) {
    std::tie(rows, cols) = size_of_linear(program, first);
    rows /= experts;
  }
  if (rows == 0) throw WorkError(checkpoint.name() + ": \"" + name + "\" is no linear of the model");
  const corbel::models::StoredTensor linear = quantized->linear(module, rows, cols).value();
  const std::uint64_t wanted = stacked ? rows / experts : rows, begin = stacked ? expert * wanted : 0;
  if (begin + wanted > rows)
    throw WorkError(checkpoint.name() + ": \"" + name + "\": there are " + std::to_string(experts) + " experts");
  std::vector<float> values(static_cast<std::size_t>(wanted * cols));
  check(corbel::models::read_rows(linear, begin, wanted, values.data()));
  return values;
}

std::vector<float> read_weight(const corbel::Checkpoint& checkpoint, const std::string& name) {
  if (std::optional<std::vector<float>> values = quantized_weight(checkpoint, name)) return *std::move(values);
  const corbel::TensorInfo* tensor = checkpoint.find_tensor(name);
  if (tensor == nullptr) throw WorkError(checkpoint.name() + ": has no tensor \"" + name + "\"");
  return checkpoint.read_f32(*tensor).value();
}

void run(const Options& options) {
  const corbel::Context context = make_context(options.run);
  const corbel::Checkpoint checkpoint = corbel::Checkpoint::open(options.model, context).value();
  if (!options.tensor.empty()) {
    const std::vector<float> values = read_weight(checkpoint, options.tensor);
    refuse_input_as_output(options.out, options.model);
    OutFile out(options.out);
    out.write(values);
    out.close();
    return;
  }
  const std::string problem =
      options.json ? print_json(checkpoint, context, options) : print_text(checkpoint, context, options);
  if (!problem.empty())
    throw corbel::Exception(corbel::Status(corbel::Errc::kUnsupported, problem).with_place(options.model));
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      add_verb(app, action, "inspect",
               "Metadata, tensors, memory plan and program of a model; exit code 1 where it cannot be loaded",
               options->run, [options] { run(*options); });
  verb->add_option("MODEL", options->model, "A GGUF or safetensors file, or a Hugging Face folder")->required();
  verb->add_flag("--program", options->program, "The program before and after the passes");
  verb->add_option("--plan", options->plan_tokens, "Bytes that loading and a cache of N tokens would take")
      ->check(number_in(1, 1 << 26));
  verb->add_flag("--json", options->json, "For machines");
  CLI::Option* tensor =
      verb->add_option("--tensor", options->tensor,
                       "Write this tensor as little-endian float32; NAME.weight of a quantized linear dequantized");
  CLI::Option* out = verb->add_option("--out", options->out, "Where --tensor goes");
  tensor->needs(out);
  out->needs(tensor);
}

}  // namespace tool
