// Real checkpoints against figures from Hugging Face transformers in float32 on the dequantized weights
// (reference/*.json of the test data).
//
// Greedy tokens are checked by feeding prompt and expected continuation and taking the argmax at each step: by
// induction this equals free-running greedy decoding. By default a part that fits in CI's minutes runs;
// CORBEL_TEST_FULL=1 runs everything.
#include <catch2/catch.hpp>

#include "support/golden.hpp"

using namespace corbel;
using namespace corbel_test;

namespace {

bool full() {
  const char* value = std::getenv("CORBEL_TEST_FULL");
  return value != nullptr && std::string_view(value) == "1";
}

struct Reference {
  std::string model;
  nlohmann::json figures;
};

/// The model's file and figures, or nothing after a skip line.
std::vector<Reference> references(const std::string& name, const std::string& test_name) {
  const std::string model = real_model(name, test_name);
  if (model.empty()) return {};
  const std::string figures = shared_data("reference/" + name + ".json", test_name);
  if (figures.empty()) return {};
  return {{model, nlohmann::json::parse(read_file(figures))}};
}

/// Feeds `ids` and answers the logits of the last `wanted` of them.
template <class B>
std::vector<float> last_logits(Batch<B>& batch, Sequence<B>& sequence, std::span<const TokenId> ids, std::size_t wanted,
                               Role role, std::size_t chunk) {
  const std::size_t head = ids.size() - wanted;
  for (std::size_t at = 0; at < head; at += chunk) {
    const Status added = batch.add(sequence, ids.subspan(at, std::min(chunk, head - at)), role, Wanted::kNone);
    if (!added.ok()) throw Exception(added);
    batch.forward().value();
  }
  return all_logits(batch, sequence, ids.subspan(head), std::min(chunk, std::size_t{64}), role);
}

double log_sum_exp(std::span<const float> row) {
  double top = row[0], sum = 0;
  for (float value : row) top = std::max(top, static_cast<double>(value));
  for (float value : row) sum += std::exp(static_cast<double>(value) - top);
  return top + std::log(sum);
}

template <class B>
void check_prompts(const Reference& reference, const Context& context, KvType type, double logit_tolerance,
                   double margin, bool by_token) {
  auto running = Running<B>::load(reference.model, context, {.max_tokens = 1024, .type = type});
  auto batch = Batch<B>::create(running.cache, {.max_rows = 256, .max_wanted = 64}).value();
  const std::size_t vocab = running.model.spec().vocab;
  std::size_t compared = 0;
  for (const nlohmann::json& prompt : reference.figures["prompts"]) {
    INFO(prompt["name"].get<std::string>() << " on " << B::kName);
    const auto expected = prompt["greedy"].get<std::vector<TokenId>>();
    const auto margins = prompt["greedy_margin"].get<std::vector<double>>();
    auto ids = prompt["ids"].get<std::vector<TokenId>>();
    const std::size_t length = ids.size();
    ids.insert(ids.end(), expected.begin(), expected.end() - 1);
    if (by_token && !full() && length > 64) continue;  // the long prompts one token at a time only in full runs
    Sequence<B> sequence(running.cache);
    const std::size_t wanted =
        std::min<std::size_t>(expected.size() + 3, ids.size());  // the last four prompt positions, and the replies
    const std::vector<float> logits =
        last_logits(batch, sequence, ids, wanted, by_token ? Role::kGenerated : Role::kPrompt, by_token ? 1 : 256);
    const auto row = [&](std::size_t position) {
      return std::span(logits).subspan((position - (ids.size() - wanted)) * vocab, vocab);
    };
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (margins[i] <= margin) continue;
      INFO("step " << i << ", margin " << margins[i]);
      CHECK(argmax(row(length - 1 + i)) == expected[i]);
      ++compared;
    }
    for (const nlohmann::json& position : prompt["last_positions"])
      for (const nlohmann::json& top : position["top"]) {
        const std::size_t at = position["position"];
        if (at < ids.size() - wanted) continue;
        const double difference = std::fabs(row(at)[top[0].get<std::size_t>()] - top[1].get<double>());
        if (difference > logit_tolerance) {
          INFO("position " << at << ", id " << top[0]);
          CHECK(difference <= logit_tolerance);
        }
      }
  }
  CHECK(compared > 20);
}

/// Mean negative log-likelihood of the first windows of the reference text; `visit(window, position, row)` sees every
/// row of logits.
template <class B, class Visit>
double mean_nll(Batch<B>& batch, const nlohmann::json& nll, std::size_t first_window, std::size_t num_windows,
                Visit visit) {
  auto ids = nll["ids"].get<std::vector<TokenId>>();
  double sum = 0;
  for (std::size_t window = first_window; window < first_window + num_windows; ++window) {
    // Where the file asks for BOS, each window begins with it; the first id of the text is one then.
    if (nll["first_id_of_each_window_replaced_by_bos"].get<bool>()) ids[window * 512] = ids[0];
    Sequence<B> sequence(batch.cache());
    for (std::size_t at = 0; at < 512; at += 64) {
      const Status added =
          batch.add(sequence, std::span(ids).subspan(window * 512 + at, 64), Role::kPrompt, Wanted::kAll);
      if (!added.ok()) throw Exception(added);
      const Logits logits = batch.forward().value();
      for (std::size_t i = 0; i < 64; ++i) {
        const std::span<const float> row = logits.row(i);
        visit(window, at + i, row);
        if (at + i + 1 < 512)
          sum += log_sum_exp(row) - static_cast<double>(row[static_cast<std::size_t>(ids[window * 512 + at + i + 1])]);
      }
    }
  }
  return sum / (511.0 * static_cast<double>(num_windows));
}

double expected_nll(const nlohmann::json& nll, std::size_t first_window, std::size_t num_windows) {
  double sum = 0;
  for (std::size_t i = first_window; i < first_window + num_windows; ++i)
    sum += nll["per_window"][i]["nll_sum_1_511"].get<double>();
  return sum / (511.0 * static_cast<double>(num_windows));
}

void check_ref(const std::string& name, const std::string& test_name) {
  for (const Reference& reference : references(name, test_name)) {
    const Context context({.threads = 2});
    check_prompts<RefBackend>(reference, context, KvType::kF32, 1e-3, -1, false);
    auto running = Running<RefBackend>::load(reference.model, context, {.max_tokens = 512, .type = KvType::kF32});
    auto batch = Batch<RefBackend>::create(running.cache, {.max_rows = 64, .max_wanted = 64}).value();
    const nlohmann::json& nll = reference.figures["nll"];
    const std::size_t windows = full() ? 8 : 1;
    const double mean = mean_nll(batch, nll, 0, windows, [](std::size_t, std::size_t, std::span<const float>) {});
    CHECK(std::fabs(mean - expected_nll(nll, 0, windows)) <= 1e-4);
    if (full()) CHECK(std::fabs(mean - nll["mean_nll_1_511"].get<double>()) <= 1e-4);
  }
}

#if CORBEL_HAS_CPU
void check_cpu(const std::string& name, const std::string& test_name) {
  for (const Reference& reference : references(name, test_name)) {
    const nlohmann::json& nll = reference.figures["nll"];
    const std::size_t windows = full() ? 4 : 1;
    // The log-probabilities of ref, one float per entry: kept for one window at a time.
    const Context ref_context({.threads = 2});
    auto ref = Running<RefBackend>::load(reference.model, ref_context, {.max_tokens = 512, .type = KvType::kF32});
    auto ref_batch = Batch<RefBackend>::create(ref.cache, {.max_rows = 64, .max_wanted = 64}).value();
    const std::size_t vocab = ref.model.spec().vocab;
    const std::vector<IsaLevel> levels = isa_levels(test_name);
    std::vector<double> kl(levels.size(), 0), mean(levels.size(), 0);
    for (std::size_t window = 0; window < windows; ++window) {
      std::vector<float> expected(512 * vocab);
      mean_nll(ref_batch, nll, window, 1, [&](std::size_t, std::size_t position, std::span<const float> row) {
        const double total = log_sum_exp(row);
        for (std::size_t i = 0; i < vocab; ++i)
          expected[position * vocab + i] = static_cast<float>(static_cast<double>(row[i]) - total);
      });
      for (std::size_t level = 0; level < levels.size(); ++level) {
        auto running = Running<CpuBackend>::load(reference.model, context_at(levels[level]), {.max_tokens = 512});
        auto batch = Batch<CpuBackend>::create(running.cache, {.max_rows = 64, .max_wanted = 64}).value();
        mean[level] +=
            mean_nll(batch, nll, window, 1, [&](std::size_t, std::size_t position, std::span<const float> row) {
              const double total = log_sum_exp(row);
              for (std::size_t i = 0; i < vocab; ++i) {
                const double p = static_cast<double>(expected[position * vocab + i]);
                kl[level] += std::exp(p) * (p - (static_cast<double>(row[i]) - total));
              }
            });
      }
    }
    for (std::size_t level = 0; level < levels.size(); ++level) {
      INFO(name << " at " << isa_name(levels[level]));
      const double tokens = 512.0 * static_cast<double>(windows);
      const double perplexity = std::exp(mean[level] / static_cast<double>(windows));
      const double expected = std::exp(expected_nll(nll, 0, windows));
      std::printf("%s cpu %s: mean KL to ref %.2e over %.0f tokens, perplexity %.4f (reference %.4f)\n", name.c_str(),
                  isa_name(levels[level]), kl[level] / tokens, tokens, perplexity, expected);
      CHECK(kl[level] / tokens <= 5e-3);
      CHECK(std::fabs(perplexity / expected - 1) <= 0.01);
      check_prompts<CpuBackend>(reference, context_at(levels[level]), KvType::kF16, 1e9, 0.5, false);
      check_prompts<CpuBackend>(reference, context_at(levels[level]), KvType::kF16, 1e9, 0.5, true);
    }
  }
}
#endif

}  // namespace

TEST_CASE("reference: ref on SmolLM2", "[reference][ref][slow]") { check_ref("smollm2", "reference: ref on SmolLM2"); }
TEST_CASE("reference: ref on Gemma 3", "[reference][ref][slow]") { check_ref("gemma3", "reference: ref on Gemma 3"); }
#if CORBEL_HAS_CPU
TEST_CASE("reference: cpu on SmolLM2", "[reference][cpu][slow]") { check_cpu("smollm2", "reference: cpu on SmolLM2"); }
TEST_CASE("reference: cpu on Gemma 3", "[reference][cpu][slow]") { check_cpu("gemma3", "reference: cpu on Gemma 3"); }
#endif
