// corbel chat: talks with a model, streaming; one question with --prompt, else line by line from stdin.
#include <atomic>
#include <limits>
#include <optional>
#include <signal.h>
#include <unistd.h>

#include "common.hpp"

namespace tool {
namespace {

struct Options {
  RunOptions run;
  std::string model;
  std::optional<std::string> prompt;
  std::string system;
  std::optional<float> temperature, top_p, min_p;
  std::optional<std::int32_t> top_k;
  std::uint64_t seed = 0;
  std::uint32_t max_tokens = 512;
};

/// What was asked for; else what the model's authors say; else what suits most.
corbel::SamplerOptions sampler_options(const Options& options, const corbel::GenerationDefaults& authors) {
  corbel::SamplerOptions chosen = {.temperature = 0.7f, .top_p = 0.9f, .seed = options.seed};
  const bool stated = authors.temperature || authors.top_k || authors.top_p || authors.min_p;
  if (stated) {
    chosen.temperature = static_cast<float>(authors.temperature.value_or(1));
    chosen.top_k = static_cast<std::int32_t>(
        std::min<std::uint32_t>(authors.top_k.value_or(0), std::numeric_limits<std::int32_t>::max()));
    chosen.top_p = static_cast<float>(authors.top_p.value_or(1));
    chosen.min_p = static_cast<float>(authors.min_p.value_or(0));
  }
  if (authors.do_sample == false) chosen.temperature = 0;
  chosen.repetition_penalty = static_cast<float>(authors.repetition_penalty.value_or(1));
  chosen.penalize_prompt = chosen.repetition_penalty != 1;
  chosen.temperature = options.temperature.value_or(chosen.temperature);
  chosen.top_k = options.top_k.value_or(chosen.top_k);
  chosen.top_p = options.top_p.value_or(chosen.top_p);
  chosen.min_p = options.min_p.value_or(chosen.min_p);
  return chosen;
}

// Ctrl-C. A signal handler has no argument, so these are the program's only globals. Before the first token a reply is
// given up; afterwards its callback ends it and what was said stays part of the conversation.
std::atomic<bool> interrupted{false};
std::atomic<bool> streaming{false};
corbel::CancelToken give_up;
static_assert(std::atomic<bool>::is_always_lock_free, "the handler may do nothing else");

extern "C" void on_interrupt(int) {
  interrupted = true;
  if (!streaming) give_up.cancel();
}

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

void expect_reply() {
  interrupted = false;
  streaming = false;
  give_up.reset();
}

corbel::Next show(const corbel::TokenEvent& event) {
  streaming = true;
  print(event.text);
  flush_stdout();
  return interrupted ? corbel::Next::kStop : corbel::Next::kContinue;
}

void show_statistics(const corbel::GenerateResult& reply) {
  const corbel::GenerateStatistics& s = reply.statistics;
  const double decode_seconds = s.seconds - s.ttft_seconds;
  const double speed =
      s.decoded_tokens > 1 && decode_seconds > 0 ? static_cast<double>(s.decoded_tokens - 1) / decode_seconds : 0;
  std::fprintf(
      stderr,
      "[prompt %zu tokens, %zu reused; first token after %.2f s; reply %zu tokens in %.2f s, %.1f tokens/s; %s]\n",
      s.prompt_tokens, s.reused_tokens, s.ttft_seconds, s.decoded_tokens, s.seconds, speed,
      corbel::finish_reason_name(reply.finish));
}

/// The model's chat template turns lines into a conversation.
template <class B>
class Talker {
 public:
  Talker(const corbel::Model<B>& model, const corbel::KVCache<B>& cache, const Options& options)
      : options_(options),
        sampler_(corbel::Sampler<>::create(sampler_options(options, model.generation_defaults())).value()),
        talk_(model, cache, {.system = options.system}) {}

  corbel::Result<corbel::GenerateResult> reply(const std::string& text) {
    return talk_.say(text, sampler_, show, {.max_tokens = options_.max_tokens, .cancel = &give_up});
  }

 private:
  const Options& options_;
  corbel::Sampler<> sampler_;
  corbel::Conversation<B> talk_;
};

/// A model without a chat template: each line is a text to be continued.
template <class B>
class Completer {
 public:
  Completer(const corbel::Model<B>& model, const corbel::KVCache<B>& cache, const Options& options)
      : options_(options),
        sampler_(corbel::Sampler<>::create(sampler_options(options, model.generation_defaults())).value()),
        model_(model),
        cache_(cache) {}

  corbel::Result<corbel::GenerateResult> reply(const std::string& text) {
    const auto ids = model_.tokenizer().encode(text, {.add_special = true}).value();
    corbel::Sequence<B> sequence(cache_);
    return corbel::generate(model_, sequence, sampler_, ids, {.max_tokens = options_.max_tokens, .cancel = &give_up},
                            show);
  }

 private:
  const Options& options_;
  corbel::Sampler<> sampler_;
  corbel::Model<B> model_;
  corbel::KVCache<B> cache_;
};

/// One reply, streamed to stdout with a newline at its end, and its statistics.
template <class Partner>
void answer(Partner& partner, const std::string& text) {
  expect_reply();
  const corbel::Result<corbel::GenerateResult> reply = partner.reply(text);
  if (streaming) print("\n");
  flush_stdout();
  if (!reply.ok() && interrupted && reply.status().code() == corbel::Errc::kCancelled)
    throw WorkError("stopped before the first token");
  check(reply.status());
  show_statistics(*reply);
}

/// False at the end of stdin.
bool read_line(std::string& line) {
  line.clear();
  for (int c = std::getc(stdin); c != EOF; c = std::getc(stdin)) {
    if (c == '\n') return true;
    line.push_back(static_cast<char>(c));
  }
  return !line.empty();
}

template <class Partner>
void talk(Partner partner, const Options& options) {
  catch_interrupts();
  if (options.prompt) {
    answer(partner, *options.prompt);
    return;
  }
  const bool person = isatty(STDIN_FILENO) == 1;
  print_notes();
  if (person) std::fprintf(stderr, "Ctrl-C stops a reply, Ctrl-D ends.\n");
  std::string line;
  for (;;) {
    if (person) std::fprintf(stderr, "> ");
    if (!read_line(line)) break;
    if (line.empty()) continue;
    try {
      answer(partner, line);
    } catch (const std::exception& error) {
      if (!person) throw;  // who reads from a script wants to know
      std::fprintf(stderr, "corbel: %s\n", one_line(error.what()).c_str());
    }
  }
  if (person) std::fprintf(stderr, "\n");
}

template <class B>
int run_on(const corbel::Model<B>& model, const Options& options) {
  if (model.tokenizer().size() == 0)
    throw WorkError(options.model + ": there is no tokenizer to chat with (a folder needs tokenizer.json)");
  const std::uint32_t max_tokens = std::min(model.spec().context_length, 8192u);
  const auto cache =
      corbel::KVCache<B>::create(model, {.max_tokens = max_tokens, .type = kv_type(options.run)}).value();
  const corbel::Status chat = model.chat_template().status();
  if (chat.code() != corbel::Errc::kMissingKey) {
    check(chat);
    talk(Talker<B>(model, cache, options), options);
    return 0;
  }
  if (!options.system.empty()) throw WorkError("--system: " + options.model + " has no chat template");
  note(options.model + " has no chat template: text is continued as it is");
  talk(Completer<B>(model, cache, options), options);
  return 0;
}

void run(const Options& options) {
  if (const auto sampler = corbel::Sampler<>::create(sampler_options(options, {})); !sampler.ok())
    throw UsageError("chat: " + std::string(sampler.status().message()));
  const corbel::Context context = make_context(options.run);
  load_model(options.model, options.run, context).visit([&](const auto& model) { return run_on(model, options); });
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = add_verb(app, action, "chat", "Talk with a model", options->run, [options] { run(*options); });
  verb->add_option("MODEL", options->model, "A GGUF or safetensors file, or a Hugging Face folder")->required();
  add_activations(*verb, options->run);
  verb->add_option("--prompt", options->prompt, "Answer this and end (default: lines from stdin)");
  verb->add_option("--system", options->system, "The system message");
  constexpr float kMax = std::numeric_limits<float>::max();
  const auto number = number_in(-kMax, kMax);  // the sampler knows the ranges
  const std::string otherwise = " (default: what the model's authors say, else ";
  verb->add_option("--temp", options->temperature, "Temperature; 0: always the likeliest token" + otherwise + "0.7)")
      ->check(number);
  verb->add_option("--top-k", options->top_k, "Keep the k likeliest tokens; 0: all" + otherwise + "0)")
      ->check(number_in(0, std::numeric_limits<int>::max()));
  verb->add_option("--top-p", options->top_p, "Keep the likeliest tokens up to this mass; 1: all" + otherwise + "0.9)")
      ->check(number);
  verb->add_option("--min-p", options->min_p,
                   "Keep tokens at least so likely relative to the likeliest; 0: all" + otherwise + "0)")
      ->check(number);
  verb->add_option("--seed", options->seed, "The same seed gives the same reply")
      ->check(number_in(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
  verb->add_option("--max-tokens", options->max_tokens, "Longest reply; 0: as long as fits")
      ->capture_default_str()
      ->check(number_in(0, 1 << 26));
}

}  // namespace tool
