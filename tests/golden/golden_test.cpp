// Tiny random models of every supported family against transformers' logits and greedy tokens, on every backend and ISA
// level.
#include "support/golden.hpp"

#include <catch2/catch.hpp>

using namespace corbel;
using namespace corbel_test;

namespace {

struct Case {
  std::string name;
  std::string model;       // path of the GGUF file
  std::string golden;      // path of the safetensors file
  bool quantized = false;  // 4- to 8-bit weights: backends with 8-bit activations are further from float32
};

std::vector<Case> committed_cases() {
  std::vector<Case> cases;
  for (const char* name : {"llama-gqa", "qwen2-f16", "qwen3", "gemma3-text", "llama-q4_k_m"}) {
    const std::string folder = test_data("golden/") + name;
    cases.push_back(
        {name, folder + "/model.gguf", folder + "/golden.safetensors", std::string_view(name) == "llama-q4_k_m"});
  }
  return cases;
}

std::vector<Case> shared_cases(const char* test_name) {
  std::vector<Case> cases;
  const std::string root = shared_data("golden", test_name);
  if (root.empty()) return cases;
  for (const char* name :
       {"llama-gqa", "llama-gqa-bf16", "llama-tied-bias", "llama3-rope", "qwen2", "qwen2-f16", "qwen3"}) {
    const std::string folder = root + "/given/" + name;
    cases.push_back({name, folder + "/model.gguf", folder + "/golden.safetensors"});
  }
  cases.push_back(
      {"gguf/gemma3-text", root + "/gguf/gemma3-text/model.gguf", root + "/gguf/gemma3-text/golden.safetensors"});
  for (const char* type : {"q3_k_m", "q4_0", "q4_k_m", "q6_k", "q8_0"}) {
    const std::string stem = root + "/gguf/llama-kquant/" + type;
    cases.push_back({std::string("gguf/llama-kquant/") + type, stem + ".gguf", stem + ".golden.safetensors", true});
  }
  return cases;
}

template <class B>
void check(const Case& test_case, const Context& context, double tolerance, bool exact_greedy) {
  INFO("case " << test_case.name << " on " << B::kName);
  const Golden golden = read_golden(test_case.golden);
  auto running = Running<B>::load(test_case.model, context, {.max_tokens = 256, .type = KvType::kF32});
  auto batch = Batch<B>::create(running.cache, {.max_rows = 64, .max_wanted = 64}).value();
  Sequence<B> sequence(running.cache);
  const std::vector<float> logits = all_logits(batch, sequence, golden.prompt, 64);
  CHECK(max_difference(logits, golden.logits) <= tolerance);
  sequence.clear();
  const std::vector<TokenId> ids = greedy(batch, sequence, golden.prompt, golden.greedy.size());
  if (exact_greedy) CHECK(ids == golden.greedy);
}

}  // namespace

TEST_CASE("golden: ref agrees with transformers", "[golden][ref]") {
  const Context context({.threads = 2});
  for (const Case& test_case : committed_cases()) check<RefBackend>(test_case, context, 1e-3, true);
  for (const Case& test_case : shared_cases("golden: ref agrees with transformers"))
    check<RefBackend>(test_case, context, 1e-3, true);
}

#if CORBEL_HAS_CPU
TEST_CASE("golden: cpu agrees with transformers at every ISA level", "[golden][cpu]") {
  const char* name = "golden: cpu agrees with transformers at every ISA level";
  std::vector<Case> cases = committed_cases();
  for (Case& shared : shared_cases(name)) cases.push_back(std::move(shared));
  for (IsaLevel level : isa_levels(name)) {
    INFO("level " << isa_name(level));
    const Context context = context_at(level);
    for (const Case& test_case : cases)
      check<CpuBackend>(test_case, context, test_case.quantized ? 0.25 : 1e-3, !test_case.quantized);
  }
}
#endif

TEST_CASE("golden: a family that is not supported is refused by name", "[golden]") {
  const std::string root = shared_data("golden", "golden: a family that is not supported is refused by name");
  if (root.empty()) return;
  const Context context;
  for (const char* name : {"gpt2", "gpt-neox", "falcon-new", "phi3"}) {
    INFO(name);
    const auto model = Model<RefBackend>::load(root + "/given/" + name + "/model.gguf", context);
    REQUIRE_FALSE(model.ok());
    CHECK(model.status().code() == Errc::kUnsupported);
    CHECK(model.status().message().find("supported are llama") != std::string_view::npos);
  }
  const auto mixture = Model<RefBackend>::load(root + "/given/mixtral/model.gguf", context);
  REQUIRE_FALSE(mixture.ok());
  CHECK(mixture.status().code() == Errc::kUnsupported);
  CHECK(mixture.status().message().find("expert") != std::string_view::npos);
}
