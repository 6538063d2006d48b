// corbel perplexity: how well a model predicts a text.
//
// The text is tokenized as one string (control pieces are plain text; BOS in front where the file asks for it) and cut
// into whole windows. Each window is evaluated alone from position 0, its first id replaced by BOS where the file asks
// for BOS. The negative log-likelihood of target j is -log softmax(logits at j - 1)[id at j]. Three means over all
// windows: targets from 1, from window / 2, and from window / 2 + 1. The perplexity is e to the last of these, as
// usual.
#include <array>
#include <cmath>

#include "common.hpp"

namespace tool {
namespace {

using corbel::json::Value;

struct Options {
  RunOptions run;
  std::string model;
  std::string text;
  std::string role = "prompt";
  std::uint32_t window = 512;
  std::uint64_t tokens = 0;
  bool json = false;
};

double negative_log_likelihood(std::span<const float> logits, corbel::TokenId target) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  return std::log(sum) + max - static_cast<double>(logits[static_cast<std::size_t>(target)]);
}

std::string range(const char* prefix, std::uint32_t first, std::uint32_t window) {
  return prefix + std::to_string(first) + "_" + std::to_string(window - 1);
}

template <class B>
int run_on(const corbel::Model<B>& model, const Options& options) {
  const std::uint32_t window = options.window;
  if (window > model.spec().context_length)
    throw WorkError("a window of " + std::to_string(window) + " does not fit in the model's context of " +
                    std::to_string(model.spec().context_length));
  const corbel::Tokenizer& tokenizer = model.tokenizer();
  std::vector<corbel::TokenId> ids = tokenizer.encode(read_file(options.text)).value();
  const bool bos = tokenizer.adds_bos();
  if (bos) ids.insert(ids.begin(), tokenizer.bos());
  if (options.tokens != 0 && ids.size() > options.tokens) ids.resize(options.tokens);
  const std::size_t windows = ids.size() / window;
  if (windows == 0)
    throw WorkError(options.text + ": " + std::to_string(ids.size()) + " tokens are less than a window of " +
                    std::to_string(window));

  const auto cache = corbel::KVCache<B>::create(model, {.max_tokens = window, .type = kv_type(options.run)}).value();
  const std::uint32_t chunk = std::min(window, rows_of_logits(model.spec().vocab));
  auto batch = corbel::Batch<B>::create(cache, {.max_rows = chunk, .max_wanted = chunk, .max_sequences = 1}).value();
  corbel::Sequence<B> sequence(cache);

  const std::array<std::uint32_t, 3> firsts = {1, window / 2, window / 2 + 1};
  std::array<double, 3> totals = {};
  Value per_window = Value::array();
  ProgressBar bar("perplexity");
  for (std::size_t w = 0; w < windows; ++w) {
    const std::span<corbel::TokenId> piece = std::span(ids).subspan(w * window, window);
    if (bos) piece[0] = tokenizer.bos();
    sequence.clear();
    std::array<double, 3> sums = {};
    forward_all(batch, sequence, std::span<const corbel::TokenId>(piece), chunk, role_from_name(options.role),
                [&](std::size_t index, std::span<const float> logits) {
                  bar.update(w * window + index + 1, windows * window);
                  const std::size_t target = index + 1;
                  if (target == window) return;
                  const double nll = negative_log_likelihood(logits, piece[target]);
                  for (std::size_t k = 0; k < firsts.size(); ++k)
                    if (target >= firsts[k]) sums[k] += nll;
                });
    Value entry = Value::object({{"window", Value::unsigned_integer(w)}});
    for (std::size_t k = 0; k < firsts.size(); ++k) {
      totals[k] += sums[k];
      entry.members().emplace_back(range("nll_sum_", firsts[k], window), Value::number(sums[k]));
    }
    per_window.items().push_back(std::move(entry));
  }
  bar.finish();

  Value result = Value::object({{"window", Value::unsigned_integer(window)},
                                {"windows", Value::unsigned_integer(windows)},
                                {"tokens", Value::unsigned_integer(windows * window)},
                                {"first_id_of_each_window_replaced_by_bos", Value::boolean(bos)}});
  std::array<double, 3> means = {};
  for (std::size_t k = 0; k < firsts.size(); ++k) {
    means[k] = totals[k] / (static_cast<double>(windows) * (window - firsts[k]));
    result.members().emplace_back(range("mean_nll_", firsts[k], window), Value::number(means[k]));
  }
  const double perplexity = std::exp(means[2]);
  if (options.json) {
    result.members().emplace_back("perplexity", Value::number(perplexity));
    result.members().emplace_back("per_window", std::move(per_window));
    print(corbel::json::write(result) + "\n");
    return 0;
  }
  char line[64];
  for (std::size_t k = 0; k < firsts.size(); ++k) {
    std::snprintf(line, sizeof line, ": %.6f\n", means[k]);
    print("mean negative log-likelihood of targets " +
          range("", firsts[k], window).replace(std::to_string(firsts[k]).size(), 1, "..") + line);
  }
  std::snprintf(line, sizeof line, "perplexity: %.4f (%zu windows of %u)\n", perplexity, windows, window);
  print(line);
  return 0;
}

void run(const Options& options) {
  const corbel::Context context = make_context(options.run);
  load_model(options.model, options.run, context).visit([&](const auto& model) { return run_on(model, options); });
}

}  // namespace

void add_perplexity(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = add_verb(app, action, "perplexity", "How well the model predicts a text", options->run,
                            [options] { run(*options); });
  verb->add_option("MODEL", options->model, "A GGUF or safetensors file, or a Hugging Face folder")->required();
  add_activations(*verb, options->run);
  verb->add_option("TEXT", options->text, "A text file")->required();
  verb->add_option("--window", options->window, "Tokens that are looked at together")
      ->capture_default_str()
      ->check(number_in(4, 1 << 20));
  verb->add_option("--tokens", options->tokens, "Stop after N tokens (default: the whole text)")
      ->check(number_in(std::uint64_t{4}, std::uint64_t{1} << 40));
  verb->add_flag("--json", options->json, "For machines");
  add_role(*verb, options->role);
}

}  // namespace tool
