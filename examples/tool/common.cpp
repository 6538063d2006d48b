// Options, loading, files and JSON for the verbs: see common.hpp.
#include "common.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <mutex>
#include <unistd.h>

namespace tool {

CLI::App* add_verb(CLI::App& app, Action& action, const char* name, const char* description, RunOptions& options,
                   Action run) {
  CLI::App* verb = app.add_subcommand(name, description);
  std::vector<std::string> backends(std::begin(corbel::kBackendNames), std::end(corbel::kBackendNames));
  verb->add_option("--backend", options.backend, "What computes (default: the best that this machine has)")
      ->check(CLI::IsMember(backends));
  verb->add_option("--isa", options.isa, "Use exactly this level of CPU instructions (default: the highest)")
      ->check(CLI::IsMember({"base", "avx2", "avx512", "amx"}));
  verb->add_option("--amx", options.amx,
                   "Tiles of AMX for prompts: where the CPU has them, never, or by software (slow)")
      ->capture_default_str()
      ->check(CLI::IsMember({"allow", "never", "emulate"}));
  verb->add_option("--threads", options.threads, "Threads (default: physical cores)")->check(number_in(1, 1024));
  verb->add_option("--kv", options.kv, "Element type of cached keys and values")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  verb->add_option("--tuning", options.tuning,
                   "What changes speed only: measured in some ms while loading, or the fixed values")
      ->capture_default_str()
      ->check(CLI::IsMember({"measure", "fixed"}));
  verb->add_option("--packed-cache", options.packed_cache,
                   "A folder where packed weights are kept, so that the next load need not pack them")
      ->type_name("DIR");
  verb->callback([&action, run = std::move(run)] { action = run; });
  return verb;
}

void add_activations(CLI::App& verb, RunOptions& options) {
  verb.add_option("--activations", options.activations,
                  "Inputs of linears whose quantization scheme rounds them: kept as floats, or rounded as it says")
      ->capture_default_str()
      ->check(CLI::IsMember({"float", "scheme"}));
}

namespace {

struct Notes {
  std::mutex mutex;
  std::vector<std::string> lines;
};
Notes& notes() {
  static Notes all;
  return all;
}

}  // namespace

void note(std::string_view line) {
  const std::lock_guard<std::mutex> lock(notes().mutex);
  notes().lines.push_back(one_line(line));
}

void print_notes() {
  const std::lock_guard<std::mutex> lock(notes().mutex);
  for (const std::string& line : notes().lines) std::fprintf(stderr, "corbel: %s\n", line.c_str());
  notes().lines.clear();
}

std::string one_line(std::string_view text) { return corbel::detail::printable(text, 4096); }

corbel::Context make_context(const RunOptions& options) {
  corbel::ContextOptions context;
  context.threads = options.threads;
  context.tuning.measure = options.tuning == "measure";
  context.log.write = [](void*, corbel::LogLevel level, std::string_view line) noexcept {
    try {
      if (level >= corbel::LogLevel::kWarning) note(line);
    } catch (const std::exception&) {  // no memory for it: the work goes on without
    }
  };
  if (options.amx != "allow") context.amx = options.amx == "never" ? corbel::AmxUse::kNever : corbel::AmxUse::kEmulate;
  if (!options.isa.empty()) {
    context.isa = corbel::isa_from_name(options.isa).value();
    context.force_isa = true;
  }
  return corbel::Context(context);
}

corbel::KvType kv_type(const RunOptions& options) {
  if (options.kv == "f32") return corbel::KvType::kF32;
  return options.kv == "bf16" ? corbel::KvType::kBF16 : corbel::KvType::kF16;
}

void add_role(CLI::App& verb, std::string& role) {
  verb.add_option("--role", role, "Compute the rows as those of a prompt or as generated tokens")
      ->capture_default_str()
      ->check(CLI::IsMember({"prompt", "generated"}));
}

corbel::Role role_from_name(std::string_view name) {
  return name == "generated" ? corbel::Role::kGenerated : corbel::Role::kPrompt;
}

corbel::AnyModel load_model(const std::string& path, const RunOptions& options, const corbel::Context& context) {
  ProgressBar bar("loading");
  corbel::LoadOptions load;
  if (options.activations == "scheme") load.activations = corbel::models::ActivationRounding::kAsStored;
  load.packed_cache = options.packed_cache;
  load.progress = [&bar](corbel::LoadPhase, std::uint64_t done, std::uint64_t total) {
    bar.update(done, total);
    return true;
  };
  return corbel::AnyModel::load(path, options.backend, context, load).value();
}

void check(const corbel::Status& status) {
  if (!status.ok()) throw corbel::Exception(status);
}

ProgressBar::ProgressBar(const char* label) : label_(label), terminal_(isatty(STDERR_FILENO) == 1) {}

void ProgressBar::update(std::uint64_t done, std::uint64_t total) {
  if (!terminal_ || total == 0) return;
  const int percent = static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total));
  if (percent == drawn_percent_) return;
  drawn_percent_ = percent;
  constexpr int kWidth = 40;
  const std::string filled(static_cast<std::size_t>(std::clamp(percent, 0, 100) * kWidth / 100), '#');
  std::fprintf(stderr, "\r%s [%-*s] %3d%%", label_, kWidth, filled.c_str(), percent);
  std::fflush(stderr);
}

void ProgressBar::finish() {
  if (drawn_percent_ >= 0) std::fprintf(stderr, "\r\033[K");
  drawn_percent_ = -1;
}

OutFile::OutFile(const std::string& path) {
  const bool to_stdout = path.empty() || path == "-";
  path_ = to_stdout ? "stdout" : path;
  file_ = to_stdout ? stdout : std::fopen(path.c_str(), "wb");
  if (file_ == nullptr) throw WorkError(path_ + ": cannot be written: " + std::strerror(errno));
}

OutFile::~OutFile() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
}

void OutFile::write(std::span<const float> values) {
  if (std::fwrite(values.data(), sizeof(float), values.size(), file_) != values.size())
    throw WorkError(path_ + ": writing failed: " + std::strerror(errno));
}

void OutFile::close() {
  std::FILE* file = std::exchange(file_, nullptr);
  if ((file == stdout ? std::fflush(file) : std::fclose(file)) != 0)
    throw WorkError(path_ + ": writing failed: " + std::strerror(errno));
}

void refuse_input_as_output(const std::string& out, const std::string& model, const std::string& other) {
  namespace fs = std::filesystem;
  if (out.empty() || out == "-") return;
  std::vector<fs::path> inputs = {model, other};
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(model, error)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".json" || ending == ".safetensors" || ending == ".jinja") inputs.push_back(entry.path());
  }
  for (const fs::path& input : inputs) {
    std::error_code ignored;  // also where one of them is not there
    if (!input.empty() && fs::equivalent(input, out, ignored))
      throw WorkError(out + ": the output is a file that is read");
  }
}

void flush_stdout() {
  if (std::fflush(stdout) != 0) throw WorkError(std::string("writing to stdout failed: ") + std::strerror(errno));
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw WorkError(std::string("writing to stdout failed: ") + std::strerror(errno));
}

namespace {

std::string read_all(std::FILE* file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t count = std::fread(buffer, 1, sizeof buffer, file)) text.append(buffer, count);
  if (std::ferror(file) != 0) throw WorkError(name + ": reading failed: " + std::strerror(errno));
  return text;
}

}  // namespace

std::string read_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw WorkError((path.empty() ? "\"\"" : path) + ": cannot be opened: " + std::strerror(errno));
  return read_all(file.get(), path);
}

std::string read_stdin() { return read_all(stdin, "stdin"); }

std::string ids_to_json(std::span<const corbel::TokenId> ids) {
  std::string text = "[";
  for (std::size_t i = 0; i < ids.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(ids[i]);
  return text + "]";
}

std::vector<corbel::TokenId> ids_from_json(const corbel::json::Value& list, const std::string& what) {
  if (!list.is_array()) throw WorkError(what + ": expected a JSON list of token ids");
  std::vector<corbel::TokenId> ids;
  ids.reserve(list.items().size());
  for (const corbel::json::Value& item : list.items()) {
    constexpr std::int64_t kMax = std::numeric_limits<corbel::TokenId>::max();
    if (item.type() != corbel::json::Type::kUint || item.as_uint() > static_cast<std::uint64_t>(kMax))
      throw WorkError(what + ": item " + std::to_string(ids.size()) + " is no token id");
    ids.push_back(static_cast<corbel::TokenId>(item.as_uint()));
  }
  return ids;
}

corbel::json::Value parse_json(std::string_view text, const std::string& what) {
  corbel::Result<corbel::json::Value> value = corbel::json::parse(text);
  if (!value.ok()) throw corbel::Exception(value.status().with_place(what));
  return *std::move(value);
}

std::string json_line_string(std::string_view text) {
  std::string quoted;
  corbel::json::append_quoted(quoted, text);
  constexpr std::pair<const char*, const char*> kLineEnds[] = {
      {"\xC2\x85", "\\u0085"}, {"\xE2\x80\xA8", "\\u2028"}, {"\xE2\x80\xA9", "\\u2029"}};
  for (const auto& [bytes, escape] : kLineEnds) {
    std::string escaped;
    std::size_t begin = 0;
    for (std::size_t end = quoted.find(bytes); end != std::string::npos; end = quoted.find(bytes, begin)) {
      escaped.append(quoted, begin, end - begin).append(escape);
      begin = end + std::strlen(bytes);
    }
    if (begin != 0) quoted = escaped.append(quoted, begin, std::string::npos);
  }
  return quoted;
}

std::int32_t argmax(std::span<const float> logits) {
  // A maximum per lane needs no branches; the place is looked for afterwards. NaN is never larger.
  constexpr std::size_t kLanes = 16;
  float lanes[kLanes];
  std::fill(std::begin(lanes), std::end(lanes), -std::numeric_limits<float>::infinity());
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = logits[i + lane] > lanes[lane] ? logits[i + lane] : lanes[lane];
  float largest = *std::max_element(std::begin(lanes), std::end(lanes));
  for (; i < logits.size(); ++i) largest = logits[i] > largest ? logits[i] : largest;
  const auto at = std::find(logits.begin(), logits.end(), largest);
  return at == logits.end() ? 0 : static_cast<std::int32_t>(at - logits.begin());
}

}  // namespace tool
