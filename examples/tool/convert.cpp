// corbel convert: writes a model in another container or with other types.
#include <corbel/models/convert.hpp>

#include <atomic>
#include <cctype>
#include <signal.h>

#include "common.hpp"

namespace tool {
namespace {

struct Options {
  RunOptions run;
  std::string model;
  std::string out;
  std::string type;
};

// "q4_k" as well as "Q4_K"; only types that values can be encoded as.
const corbel::DTypeTraits* find_type(std::string name) {
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const corbel::DTypeTraits* found = corbel::find_dtype_by_name(name);
  return found != nullptr && found->encode != nullptr ? found : nullptr;
}

std::string type_names() {
  std::string names;
  for (const corbel::DTypeTraits& row : corbel::all_dtypes())
    if (row.encode != nullptr) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

// A signal handler has no argument, so this is the program's only global: the work ends and leaves nothing behind.
std::atomic<bool> stopped{false};
static_assert(std::atomic<bool>::is_always_lock_free, "the handler may do nothing else");

extern "C" void on_stop(int) { stopped = true; }

void catch_stops() {
  struct sigaction action = {};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
}

void run(const Options& options) {
  catch_stops();
  const corbel::Context context = make_context(options.run);
  const corbel::Checkpoint checkpoint = corbel::Checkpoint::open(options.model, context).value();
  ProgressBar bar("convert");
  corbel::models::ConvertOptions how;
  if (!options.type.empty()) how.type = find_type(options.type)->dtype;
  how.say = [](std::string_view line) { note(line); };
  how.progress = [&bar](std::uint64_t done, std::uint64_t total) {
    bar.update(done, total);
    return !stopped;
  };
  const corbel::Status status = corbel::models::convert(checkpoint, options.out, how);
  bar.finish();
  if (stopped && status.code() == corbel::Errc::kCancelled) {
    check(
        {corbel::Errc::kCancelled,
         options.out + ": interrupted; what was written of it so far was removed, and what had its name before stays"});
  }
  check(status);
  const corbel::Checkpoint written = corbel::Checkpoint::open(options.out, context).value();
  print(one_line(options.out) + ": " + std::to_string(written.tensors().size()) + " tensors, " +
        std::to_string(written.file_bytes()) + " bytes\n");
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = add_verb(app, action, "convert", "Write a model in another container or with other types",
                            options->run, [options] { run(*options); });
  verb->add_option("MODEL", options->model, "A GGUF or safetensors file, or a Hugging Face folder")->required();
  verb->add_option("OUT", options->out,
                   "NAME.gguf (replaced if there), NAME.safetensors (weights alone; likewise), or a new folder "
                   "(endings of other files are refused)")
      ->required();
  verb->add_option("--type", options->type, "Of the matrices: " + type_names())->check([](const std::string& text) {
    return find_type(text) != nullptr ? std::string() : "must be one of " + type_names() + ", and is \"" + text + "\"";
  });
}

}  // namespace tool
