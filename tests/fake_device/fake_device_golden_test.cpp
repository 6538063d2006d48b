// The golden models on the fake device: the host code touches no device memory, waits where it must, and keeps upload
// sources alive.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fake_device/fake_backend.hpp>
#include <filesystem>
#include <support/golden.hpp>
#include <thread>

namespace corbel_test {
namespace {

using corbel::Batch;
using corbel::Context;
using corbel::KvType;
using corbel::RefBackend;
using corbel::Role;
using corbel::Sequence;
using corbel::TokenId;
using corbel::Wanted;

struct Case {
  std::string name, model, golden;
};

/// A folder with a checkpoint, a GGUF file or both, and what is expected of them.
void add_folder(const std::filesystem::path& folder, std::vector<Case>& all) {
  const std::string golden = folder / "golden.safetensors";
  if (!std::filesystem::exists(golden)) return;
  const std::string name = folder.filename();
  if (std::filesystem::exists(folder / "config.json")) all.push_back({name, folder, golden});
  if (std::filesystem::exists(folder / "model.gguf")) all.push_back({name + " (gguf)", folder / "model.gguf", golden});
}

/// All that lies in the data; golden_test.cpp checks that nothing is missing there.
std::vector<Case> cases(const char* test_name) {
  std::vector<Case> all;
  for (const auto& entry : std::filesystem::directory_iterator(test_data("golden"))) add_folder(entry.path(), all);
  const std::string root = shared_data("golden", test_name);
  if (root.empty()) return all;
  for (const char* folder : {"/given", "/gguf"})
    for (const auto& entry : std::filesystem::directory_iterator(root + folder)) add_folder(entry.path(), all);
  for (const char* type : {"q3_k_m", "q4_0", "q6_k", "q8_0"}) {
    const std::string stem = root + "/gguf/llama-kquant/" + type;
    all.push_back({std::string("llama-kquant/") + type, stem + ".gguf", stem + ".golden.safetensors"});
  }
  std::sort(all.begin(), all.end(), [](const Case& a, const Case& b) { return a.model < b.model; });
  return all;
}

TEST_CASE("fake device: golden logits and greedy tokens, the same bits as ref") {
  const Context context({.threads = 1});
  for (const Case& c : cases("fake device: golden logits and greedy tokens, the same bits as ref")) {
    INFO(c.name);
    const Golden golden = read_golden(c.golden);
    const auto run = [&]<class B>() {
      const auto tokens = static_cast<std::uint32_t>(golden.prompt.size() + golden.greedy.size());
      auto running = Running<B>::load(c.model, context, {.max_tokens = tokens, .type = KvType::kF32});
      auto batch = Batch<B>::create(running.cache, {.max_rows = 16, .max_wanted = 16}).value();
      Sequence<B> sequence(running.cache);
      // Ropes may depend on the length that a sequence is for; the pieces of its prompt do not tell.
      REQUIRE(sequence.plan_length(static_cast<std::uint32_t>(golden.prompt.size())).ok());
      std::vector<float> logits = all_logits(batch, sequence, golden.prompt, 10);
      sequence.clear();
      const bool anew = corbel::models::num_length_frequencies(running.model.spec()) != 0;
      return std::pair(std::move(logits), anew ? greedy_anew(batch, sequence, golden.prompt, golden.greedy.size())
                                               : greedy(batch, sequence, golden.prompt, golden.greedy.size()));
    };
    const auto [logits, ids] = run.template operator()<FakeBackend>();
    CHECK(max_difference(logits, golden.logits) <= 1e-3);
    CHECK(ids == golden.greedy);
    const auto [ref_logits, ref_ids] = run.template operator()<RefBackend>();
    CHECK(logits == ref_logits);
    CHECK(ids == ref_ids);
  }
}

TEST_CASE("fake device: forks copy shared blocks in stream order") {
  const Context context({.threads = 1});
  auto running = Running<FakeBackend>::load(test_data("golden/llama-gqa/model.gguf"), context,
                                            {.max_tokens = 512, .block_tokens = 16});
  auto batch = Batch<FakeBackend>::create(running.cache, {.max_rows = 32, .max_wanted = 32}).value();
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < 30; ++i) ids.push_back((i * 7 + 3) % 100);
  Sequence<FakeBackend> whole(running.cache), trunk(running.cache);
  const std::vector<float> expected = all_logits(batch, whole, ids, 30);
  all_logits(batch, trunk, std::span(ids).first(21), 21);
  Sequence<FakeBackend> branch = trunk.fork().value();
  all_logits(batch, trunk, std::span(ids).first(9), 9);  // other tokens at positions 21..29
  const std::vector<float> rest = all_logits(batch, branch, std::span(ids).subspan(21), 9);
  CHECK(std::equal(rest.begin(), rest.end(), expected.end() - static_cast<std::ptrdiff_t>(rest.size())));
}

TEST_CASE("fake device: two threads, each with its own batch and sequence, get what they get alone") {
  const Context context({.threads = 1});
  auto running = Running<FakeBackend>::load(test_data("golden/qwen3/model.gguf"), context, {.max_tokens = 512});
  const auto talk = [&](TokenId first) {
    auto batch = Batch<FakeBackend>::create(running.cache, {.max_rows = 8}).value();
    Sequence<FakeBackend> sequence(running.cache);
    const std::vector<TokenId> prompt = {first, 5, 9, 2, 44, 17, 3, 28, 30, 6};
    return greedy(batch, sequence, prompt, 20);
  };
  const std::vector<TokenId> alone_a = talk(1), alone_b = talk(2);
  std::vector<TokenId> a, b;
  std::thread other([&] { b = talk(2); });
  a = talk(1);
  other.join();
  CHECK(a == alone_a);
  CHECK(b == alone_b);
}

}  // namespace
}  // namespace corbel_test
