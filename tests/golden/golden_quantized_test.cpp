// Tiny quantized Hugging Face checkpoints of every scheme against the results of a reader that shares no code with
// ours: logits and greedy tokens with float activations and with the activations that the scheme asks for.
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <set>

#include "support/golden.hpp"

using namespace corbel;
using namespace corbel_test;

namespace {

namespace fs = std::filesystem;

struct Case {
  std::string name;
  std::string folder;
};

/// The committed cases and all of $CORBEL_TEST_DATA, by name.
std::vector<Case> all_cases(const char* test_name) {
  std::vector<Case> cases;
  const auto add = [&](const std::string& root, const std::string& prefix) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(root))
      if (entry.is_directory()) names.insert(entry.path().filename().string());
    for (const std::string& name : names) cases.push_back({prefix + name, root + "/" + name});
  };
  add(test_data("golden_quantized"), "committed/");
  if (const std::string root = shared_data("golden_quantized", test_name); !root.empty()) add(root, "");
  return cases;
}

struct Outcome {
  double logits = 0;   // largest difference
  double kl = 0;       // mean Kullback-Leibler divergence of the next token's distribution
  bool greedy = true;  // all tokens equal
  double gap = 1e30;   // of the golden logits where a greedy token first differs from ours, or of all
};

double divergence(std::span<const float> expected, std::span<const float> got) {
  const auto log_sum = [](std::span<const float> row) {
    double top = -1e30, sum = 0;
    for (const float value : row) top = std::max(top, static_cast<double>(value));
    for (const float value : row) sum += std::exp(static_cast<double>(value) - top);
    return top + std::log(sum);
  };
  const double a = log_sum(expected), b = log_sum(got);
  double sum = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double p = static_cast<double>(expected[i]) - a, q = static_cast<double>(got[i]) - b;
    sum += std::exp(p) * (p - q);
  }
  return sum;
}

/// The gap between the best two logits of a row.
double gap_of(std::span<const float> row) {
  double best = -1e30, second = -1e30;
  for (const float value : row) {
    const double x = static_cast<double>(value);
    second = std::max(second, std::min(best, x));
    best = std::max(best, x);
  }
  return best - second;
}

template <class B>
Outcome run(const Case& c, const Context& context, models::ActivationRounding rounding) {
  const bool rounded = rounding == models::ActivationRounding::kAsStored;
  const Golden golden = read_golden(c.folder + "/golden.safetensors", rounded ? "logits_actquant" : "logits",
                                    rounded ? "greedy_actquant" : "greedy");
  LoadOptions options;
  options.activations = rounding;
  auto running = Running<B>::load(c.folder, context, {.max_tokens = 256, .type = KvType::kF32}, options);
  auto batch = Batch<B>::create(running.cache, {.max_rows = 64, .max_wanted = 64}).value();
  Sequence<B> sequence(running.cache);
  const std::vector<float> logits = all_logits(batch, sequence, golden.prompt, 64);
  Outcome outcome;
  outcome.logits = max_difference(logits, golden.logits);
  const std::size_t vocab = logits.size() / golden.prompt.size();
  for (std::size_t r = 0; r < golden.prompt.size(); ++r)
    outcome.kl +=
        divergence(std::span(golden.logits).subspan(r * vocab, vocab), std::span(logits).subspan(r * vocab, vocab)) /
        static_cast<double>(golden.prompt.size());
  // Where the golden logits leave no doubt, the next token is theirs.
  for (std::size_t r = 0; r < golden.prompt.size(); ++r) {
    const auto expected = std::span<const float>(golden.logits).subspan(r * vocab, vocab);
    if (gap_of(expected) > 0.5 && argmax(expected) != argmax(std::span<const float>(logits).subspan(r * vocab, vocab)))
      outcome.gap = std::min(outcome.gap, gap_of(expected));
  }
  sequence.clear();
  outcome.greedy = greedy(batch, sequence, golden.prompt, golden.greedy.size()) == golden.greedy;
  return outcome;
}

}  // namespace

TEST_CASE("golden quantized: ref agrees, with float activations and as the scheme says", "[golden][ref]") {
  const Context context({.threads = 2});
  for (const Case& c : all_cases("golden quantized: ref agrees, with float activations and as the scheme says")) {
    INFO("case " << c.name);
    const Outcome plain = run<RefBackend>(c, context, models::ActivationRounding::kNever);
    CHECK(plain.logits <= 1e-3);
    CHECK(plain.greedy);
    if (!has_tensor(c.folder + "/golden.safetensors", "logits_actquant")) continue;
    const Outcome rounded = run<RefBackend>(c, context, models::ActivationRounding::kAsStored);
    CHECK(rounded.logits <= 5e-3);
    CHECK(rounded.greedy);
  }
}

#if CORBEL_HAS_CPU
TEST_CASE("golden quantized: cpu agrees at every ISA level", "[golden][cpu]") {
  const char* name = "golden quantized: cpu agrees at every ISA level";
  const std::vector<Case> cases = all_cases(name);
  for (const IsaLevel level : isa_levels(name)) {
    const Context context = context_at(level);
    for (const Case& c : cases) {
      INFO("case " << c.name << " at " << isa_name(level));
      // Integer weights meet activations of 8 bits with a scale per 32 (ADR 5), whatever the scheme says.
      const Outcome plain = run<CpuBackend>(c, context, models::ActivationRounding::kNever);
      CAPTURE(plain.logits, plain.kl, plain.gap);
      CHECK(plain.kl <= 5e-3);
      CHECK(plain.gap == 1e30);
      if (!has_tensor(c.folder + "/golden.safetensors", "logits_actquant")) continue;
      const Outcome rounded = run<CpuBackend>(c, context, models::ActivationRounding::kAsStored);
      CAPTURE(rounded.logits, rounded.kl, rounded.gap);
      CHECK(rounded.kl <= 5e-3);
      CHECK(rounded.gap == 1e30);
      // The scheme's own codes are multiplied as they are, but for those with a zero point, and float inputs beside
      // them.
      const bool again = c.name.find("asym") != std::string::npos || c.name.find("mixed") != std::string::npos;
      if (!again) CHECK(rounded.logits <= 5e-3);
    }
  }
}
#endif
