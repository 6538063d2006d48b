// Tiny random models of every supported family against transformers' logits and greedy tokens, on every backend and ISA
// level, from Hugging Face folders and from GGUF files. Every case is listed by name; a case that lies in the data and
// not in a list fails.
#include "support/golden.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

using namespace corbel;
using namespace corbel_test;

namespace {

struct Case {
  std::string name;
  std::string model;       // path of the folder or the GGUF file
  std::string golden;      // path of the safetensors file with the expected values
  bool quantized = false;  // 4- to 8-bit weights: backends with 8-bit activations are further from float32

  /// How far logits may be from float32 ones: tiles round activations to bfloat16 where weights are no finer.
  double tolerance(IsaLevel level) const {
    if (quantized) return 0.25;
    return level == IsaLevel::kAmx && name.find("bf16") != std::string::npos ? 0.1 : 1e-3;
  }
};

// Folders of golden/given; those with `gguf` have a model.gguf beside the checkpoint.
struct Given {
  const char* name;
  bool gguf;
};
constexpr Given kGiven[] = {
    {"deepseek-v2-lite", false},
    {"falcon-new", true},
    {"gemma", true},
    {"gemma2", false},
    {"gemma3-text", false},
    {"gemma3-text-bf16", false},
    {"gemma3-text-v5cfg", false},
    {"gpt-neox", true},
    {"gpt-oss", false},
    {"gpt2", true},
    {"gpt2-hubnames", false},
    {"llama-gqa", true},
    {"llama-gqa-bf16", true},
    {"llama-sharded", false},
    {"llama-tied-bias", true},
    {"llama3-rope", true},
    {"llama3-rope-v5cfg", false},
    {"mistral-window", false},
    {"mixtral", true},
    {"phi3", true},
    {"phi3-longrope", true},
    {"phi3-longrope-short", true},
    {"qwen2", true},
    {"qwen2-f16", true},
    {"qwen3", true},
    {"qwen3-moe", false},
    {"smollm3", false},
    {"starcoder2", false},
};
constexpr const char* kGguf[] = {"gemma2", "gemma3-text", "gpt-oss", "qwen3-moe", "smollm3", "starcoder2"};
constexpr const char* kQuants[] = {"q3_k_m", "q4_0", "q4_k_m", "q6_k", "q8_0"};

// Folders of tests/data/golden: GGUF files and checkpoints.
constexpr const char* kCommittedGguf[] = {"llama-gqa", "qwen2-f16", "qwen3", "gemma3-text", "llama-q4_k_m"};
constexpr const char* kCommittedFolders[] = {"arcee",
                                             "bloom-post-norm",
                                             "cohere-qk",
                                             "cohere2-full",
                                             "deepseek-v2-lite",
                                             "deepseek-v3-halves",
                                             "falcon-rw",
                                             "gemma-legacy",
                                             "gemma3-defaults",
                                             "glm4",
                                             "gpt-bigcode",
                                             "gpt-oss",
                                             "gpt2-by-layer",
                                             "granite",
                                             "hunyuan",
                                             "llama-dynamic",
                                             "ministral3",
                                             "nemotron",
                                             "olmo2",
                                             "olmo3",
                                             "phi-tied",
                                             "qwen2-moe-window",
                                             "qwen3-moe-window",
                                             "seed-oss",
                                             "smollm3-window",
                                             "stablelm-qkln"};

std::vector<Case> committed_cases() {
  std::vector<Case> cases;
  for (const char* name : kCommittedGguf) {
    const std::string folder = test_data("golden/") + name;
    cases.push_back(
        {name, folder + "/model.gguf", folder + "/golden.safetensors", std::string_view(name) == "llama-q4_k_m"});
  }
  for (const char* name : kCommittedFolders) {
    const std::string folder = test_data("golden/") + name;
    cases.push_back({name, folder, folder + "/golden.safetensors"});
  }
  return cases;
}

std::vector<Case> all_cases(const char* test_name) {
  std::vector<Case> cases = committed_cases();
  const std::string root = shared_data("golden", test_name);
  if (root.empty()) return cases;
  for (const Given& given : kGiven) {
    const std::string folder = root + "/given/" + given.name;
    cases.push_back({given.name, folder, folder + "/golden.safetensors"});
    if (given.gguf)
      cases.push_back({std::string(given.name) + " (gguf)", folder + "/model.gguf", folder + "/golden.safetensors"});
  }
  for (const char* name : kGguf) {
    const std::string folder = root + "/gguf/" + name;
    cases.push_back({std::string("gguf/") + name, folder + "/model.gguf", folder + "/golden.safetensors"});
  }
  for (const char* type : kQuants) {
    const std::string stem = root + "/gguf/llama-kquant/" + type;
    cases.push_back({std::string("gguf/llama-kquant/") + type, stem + ".gguf", stem + ".golden.safetensors", true});
  }
  return cases;
}

struct Outcome {
  std::vector<float> logits;
  std::vector<TokenId> ids;
};

/// Prompt logits and greedy tokens. The cache holds just what the case needs: ropes may depend on it.
template <class B>
Outcome run(const Case& test_case, const Golden& golden, const Context& context) {
  const auto tokens = static_cast<std::uint32_t>(golden.prompt.size() + golden.greedy.size());
  auto running = Running<B>::load(test_case.model, context, {.max_tokens = tokens, .type = KvType::kF32});
  auto batch = Batch<B>::create(running.cache, {.max_rows = 64, .max_wanted = 64}).value();
  Sequence<B> sequence(running.cache);
  Outcome outcome;
  outcome.logits = all_logits(batch, sequence, golden.prompt, 64);
  sequence.clear();
  const bool anew = models::num_length_frequencies(running.model.spec()) != 0;
  outcome.ids = anew ? greedy_anew(batch, sequence, golden.prompt, golden.greedy.size())
                     : greedy(batch, sequence, golden.prompt, golden.greedy.size());
  return outcome;
}

template <class B>
void check(const Case& test_case, const Context& context, double tolerance, bool exact_greedy) {
  INFO("case " << test_case.name << " on " << B::kName);
  const Golden golden = read_golden(test_case.golden);
  const Outcome outcome = run<B>(test_case, golden, context);
  CHECK(max_difference(outcome.logits, golden.logits) <= tolerance);
  if (exact_greedy) CHECK(outcome.ids == golden.greedy);
}

}  // namespace

TEST_CASE("golden: ref agrees with transformers", "[golden][ref]") {
  const Context context({.threads = 2});
  for (const Case& test_case : all_cases("golden: ref agrees with transformers")) {
    try {
      check<RefBackend>(test_case, context, 1e-3, true);
    } catch (const std::exception& error) {
      FAIL_CHECK(test_case.name << ": " << error.what());
    }
  }
}

#if CORBEL_HAS_CPU
TEST_CASE("golden: cpu agrees with transformers at every ISA level", "[golden][cpu]") {
  const char* name = "golden: cpu agrees with transformers at every ISA level";
  const std::vector<Case> cases = all_cases(name);
  for (IsaLevel level : isa_levels(name)) {
    INFO("level " << isa_name(level));
    const Context context = context_at(level);
    for (const Case& test_case : cases) {
      try {
        check<CpuBackend>(test_case, context, test_case.tolerance(level), !test_case.quantized);
      } catch (const std::exception& error) {
        FAIL_CHECK(test_case.name << ": " << error.what());
      }
    }
  }
}
#endif

TEST_CASE("golden: a folder and the GGUF file made from it give the same logits", "[golden]") {
  const char* name = "golden: a folder and the GGUF file made from it give the same logits";
  const std::string root = shared_data("golden", name);
  if (root.empty()) return;
  const Context context({.threads = 2});
  for (const Given& given : kGiven) {
    if (!given.gguf) continue;
    INFO(given.name);
    const std::string folder = root + "/given/" + given.name;
    const Golden golden = read_golden(folder + "/golden.safetensors");
    const Outcome from_folder = run<RefBackend>({given.name, folder, {}}, golden, context);
    const Outcome from_gguf = run<RefBackend>({given.name, folder + "/model.gguf", {}}, golden, context);
    CHECK(max_difference(from_folder.logits, from_gguf.logits) <= 1e-4);
    CHECK(from_folder.ids == from_gguf.ids);
  }
}

TEST_CASE("golden: every folder of the data is a case", "[golden]") {
  const std::string root = shared_data("golden", "golden: every folder of the data is a case");
  if (root.empty()) return;
  const auto names = [](const std::string& folder) {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) found.push_back(entry.path().filename());
    return found;
  };
  for (const std::string& name : names(root + "/given")) {
    INFO(name);
    const auto* given =
        std::find_if(std::begin(kGiven), std::end(kGiven), [&](const Given& g) { return name == g.name; });
    REQUIRE(given != std::end(kGiven));
    CHECK(given->gguf == std::filesystem::exists(root + "/given/" + name + "/model.gguf"));
  }
  for (const std::string& name : names(root + "/gguf")) {
    INFO(name);
    CHECK((name == "llama-kquant" || std::find(std::begin(kGguf), std::end(kGguf), name) != std::end(kGguf)));
  }
}
