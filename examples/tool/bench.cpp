// corbel bench: speed of prefill and decode, time to the first token, load time and memory.
//
// After a short untimed warm-up (512 tokens of the prompt, two steps), each repetition starts with empty sequences. Per sequence of the batch: `depth` tokens
// go in untimed, then `prompt` tokens are timed as prefill; then all sequences decode `gen` tokens together, greedily.
// TTFT is the time from the first prompt token to the first generated one, of the first sequence. Before the warm-up,
// one token shows what a program has paid until its first answer: the time since the load began, and the memory, also at
// its highest.
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "common.hpp"

namespace tool {
namespace {

using corbel::json::Value;
using Clock = std::chrono::steady_clock;

struct Options {
  RunOptions run;
  std::string model;
  std::uint32_t prompt = 512;
  std::uint32_t gen = 128;
  std::uint32_t depth = 0;
  std::uint32_t batch = 1;
  std::uint32_t chunk = 512;
  std::uint32_t repeat = 5;
  bool json = false;
};

struct Figures {
  double load_ms = 0;
  double first_token_ms = 0;               // since the load began
  std::uint64_t first_token_resident = 0;  // bytes
  std::uint64_t first_token_peak = 0;      // bytes
  std::vector<double> prefill;             // tokens/s
  std::vector<double> decode;              // tokens/s over the batch
  std::vector<double> ttft_ms;
};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// A figure of this process in bytes, by its name in /proc/self/status; 0 where the system does not say.
std::uint64_t process_bytes(const char* name) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/status", "r"), std::fclose);
  char line[256];
  while (file && std::fgets(line, sizeof line, file.get()) != nullptr) {
    if (std::strncmp(line, name, std::strlen(name)) == 0)
      return std::strtoull(line + std::strlen(name), nullptr, 10) * 1024;
  }
  return 0;
}

std::uint64_t resident_bytes() { return process_bytes("VmRSS:"); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Value spread(const std::vector<double>& values) {
  if (values.empty()) return Value::null();
  return Value::object({{"median", Value::number(median(values))},
                        {"min", Value::number(*std::min_element(values.begin(), values.end()))},
                        {"max", Value::number(*std::max_element(values.begin(), values.end()))}});
}

/// The level of CPU instructions that a backend with a choice runs on; "base" for others.
template <class B>
const char* level_name(const B& backend) {
  if constexpr (requires { backend.isa(); }) return corbel::isa_name(backend.isa());
  return corbel::isa_name(corbel::IsaLevel::kBase);
}

/// Ids that look like nothing, the same in every run.
std::vector<corbel::TokenId> made_up_ids(std::size_t count, std::uint32_t vocab) {
  std::vector<corbel::TokenId> ids(count);
  std::uint64_t state = 42;
  for (corbel::TokenId& id : ids) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    id = static_cast<corbel::TokenId>((state >> 33) % vocab);
  }
  return ids;
}

/// Feeds `next`, one token per sequence, and puts the likeliest of what follows in its place, `steps` times.
template <class B>
void decode(corbel::Batch<B>& batch, std::span<corbel::Sequence<B>> sequences, std::span<corbel::TokenId> next,
            std::uint32_t steps) {
  for (std::uint32_t step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < sequences.size(); ++i)
      check(batch.add(sequences[i], next.subspan(i, 1), corbel::Role::kGenerated));
    const corbel::Logits logits = batch.forward().value();
    for (std::size_t i = 0; i < sequences.size(); ++i) next[i] = argmax(logits.row(i));
  }
}

template <class B>
void run_once(corbel::Batch<B>& batch, std::span<corbel::Sequence<B>> sequences, std::span<const corbel::TokenId> depth,
              std::span<const corbel::TokenId> prompt, const Options& options, Figures& figures) {
  const std::size_t chunk = batch.options().max_rows;
  std::vector<corbel::TokenId> next(sequences.size(), prompt.empty() ? 0 : prompt.front());
  double prefill_seconds = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    sequences[i].clear();
    if (!depth.empty()) forward_last(batch, sequences[i], depth, chunk, corbel::Role::kPrompt);
    if (options.prompt == 0) continue;
    const Clock::time_point begin = Clock::now();
    next[i] = argmax(forward_last(batch, sequences[i], prompt, chunk, corbel::Role::kPrompt));
    const double seconds = seconds_since(begin);
    prefill_seconds += seconds;
    if (i == 0) figures.ttft_ms.push_back(seconds * 1e3);
  }
  if (options.prompt != 0)
    figures.prefill.push_back(static_cast<double>(prompt.size() * sequences.size()) / prefill_seconds);
  if (options.gen == 0) return;

  const Clock::time_point begin = Clock::now();
  decode(batch, sequences, next, options.gen);
  figures.decode.push_back(static_cast<double>(options.gen) * static_cast<double>(sequences.size()) /
                           seconds_since(begin));
}

template <class B>
int run_on(const corbel::Model<B>& model, const Options& options, Clock::time_point begin, const char* backend) {
  Figures figures;
  figures.load_ms = seconds_since(begin) * 1e3;
  const std::uint64_t positions = std::uint64_t{options.depth} + options.prompt + options.gen;
  if (positions > model.spec().context_length)
    throw WorkError(std::to_string(positions) + " tokens do not fit in the model's context of " +
                    std::to_string(model.spec().context_length));
  const std::uint64_t rounded = (positions + 31) / 32 * 32 * options.batch;
  if (rounded > (1u << 26)) throw WorkError(std::to_string(rounded) + " tokens are too many for one cache");
  const auto cache = corbel::KVCache<B>::create(
                         model, {.max_tokens = static_cast<std::uint32_t>(rounded), .type = kv_type(options.run)})
                         .value();
  auto batch = corbel::Batch<B>::create(cache, {.max_rows = std::max(options.chunk, options.batch),
                                                .max_wanted = options.batch,
                                                .max_sequences = options.batch})
                   .value();
  std::vector<corbel::Sequence<B>> sequences;
  for (std::uint32_t i = 0; i < options.batch; ++i) sequences.emplace_back(cache);
  const std::size_t num_ids = std::size_t{options.depth} + options.prompt;
  const std::vector<corbel::TokenId> ids = made_up_ids(std::max<std::size_t>(num_ids, 1), model.spec().vocab);
  const std::span<const corbel::TokenId> all = std::span(ids).first(num_ids);

  forward_last<B>(batch, sequences[0], std::span(ids).first(1), options.chunk, corbel::Role::kPrompt);
  figures.first_token_ms = seconds_since(begin) * 1e3;
  figures.first_token_resident = resident_bytes();
  figures.first_token_peak = process_bytes("VmHWM:");
  sequences[0].clear();
  {
    // One untimed pass, with two steps of all sequences.
    const std::span<const corbel::TokenId> warm_up = all.first(std::min<std::size_t>(all.size(), 512));
    if (!warm_up.empty()) forward_last<B>(batch, sequences[0], warm_up, options.chunk, corbel::Role::kPrompt);
    std::vector<corbel::TokenId> next(sequences.size(), ids.front());
    decode<B>(batch, sequences, next, std::min(options.gen, 2u));
    ProgressBar bar("bench");
    for (std::uint32_t i = 0; i < options.repeat; ++i) {
      bar.update(i, options.repeat);
      run_once<B>(batch, sequences, all.first(options.depth), all.subspan(options.depth), options, figures);
    }
  }
  const std::string isa = level_name(model.backend());
  const std::size_t threads = model.context().concurrency();
  if (options.json) {
    print(corbel::json::write(
              Value::object({{"prefill_tokens_per_s", spread(figures.prefill)},
                             {"decode_tokens_per_s", spread(figures.decode)},
                             {"ttft_ms", spread(figures.ttft_ms)},
                             {"load_ms", Value::number(figures.load_ms)},
                             {"first_token_ms", Value::number(figures.first_token_ms)},
                             {"first_token_resident_bytes", Value::unsigned_integer(figures.first_token_resident)},
                             {"first_token_peak_bytes", Value::unsigned_integer(figures.first_token_peak)},
                             {"resident_bytes", Value::unsigned_integer(resident_bytes())},
                             {"isa", Value::string(isa)},
                             {"threads", Value::unsigned_integer(threads)}})) +
          "\n");
    return 0;
  }
  char line[160];
  const auto show = [&](const char* name, const char* unit, const std::vector<double>& values) {
    if (values.empty()) return;
    std::snprintf(line, sizeof line, "%-8s %10.2f %s (%.2f to %.2f in %zu runs)\n", name, median(values), unit,
                  *std::min_element(values.begin(), values.end()), *std::max_element(values.begin(), values.end()),
                  values.size());
    print(line);
  };
  show("prefill", "tokens/s", figures.prefill);
  show("decode", "tokens/s", figures.decode);
  show("ttft", "ms", figures.ttft_ms);
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::snprintf(line, sizeof line, "load     %10.2f ms, with the first token %.2f ms\n", figures.load_ms,
                figures.first_token_ms);
  print(line);
  std::snprintf(line, sizeof line, "memory   %10.2f MiB, after the first token %.2f MiB\n%s, %s, %zu threads\n",
                mib(resident_bytes()), mib(figures.first_token_resident), backend, isa.c_str(), threads);
  print(line);
  return 0;
}

void run(const Options& options) {
  const std::uint32_t gen_or_prompt = options.prompt | options.gen;
  if (gen_or_prompt == 0) throw UsageError("bench: --prompt and --gen are both 0");
  const corbel::Context context = make_context(options.run);
  const Clock::time_point begin = Clock::now();
  const corbel::AnyModel model = load_model(options.model, options.run, context);
  model.visit([&](const auto& typed) { return run_on(typed, options, begin, model.backend_name()); });
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = add_verb(app, action, "bench", "Speed of prefill and decode, time to the first token, memory",
                            options->run, [options] { run(*options); });
  verb->add_option("MODEL", options->model, "A GGUF or safetensors file, or a Hugging Face folder")->required();
  add_activations(*verb, options->run);
  const auto number = [&](const char* name, std::uint32_t& value, const char* text, int least) {
    verb->add_option(name, value, text)->capture_default_str()->check(number_in(least, 1 << 20));
  };
  number("--prompt", options->prompt, "Tokens of the prompt", 0);
  number("--gen", options->gen, "Tokens to generate", 0);
  number("--depth", options->depth, "Tokens that are in the cache before the prompt", 0);
  number("--batch", options->batch, "Sequences that decode together", 1);
  number("--chunk", options->chunk, "Tokens of a prompt in one run, which need memory", 1);
  number("--repeat", options->repeat, "Repetitions; the median counts", 1);
  verb->add_flag("--json", options->json, "For machines");
}

}  // namespace tool
