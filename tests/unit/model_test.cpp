// Loading, cache, sequences and batches: progress, cancellation, budgets, full pools, contexts side by side, threads.
#include <corbel/any_model.hpp>
#include <corbel/plan.hpp>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "support/golden.hpp"
#include "support/tiny_model.hpp"

using namespace corbel;
using namespace corbel_test;

namespace {

std::string tiny_path() { return test_data("golden/llama-gqa/model.gguf"); }

std::vector<TokenId> some_ids(std::size_t count) {
  std::vector<TokenId> ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<TokenId>(3 + (i * 31) % 300);
  return ids;
}

/// Counts what it hands out; fails from the n-th allocation on where asked to.
class CountingMemory final : public MemoryResource {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    if (count_.fetch_add(1) >= fail_from) return nullptr;
    live_ += bytes;
    return ::operator new(bytes, std::align_val_t(alignment), std::nothrow);
  }
  void deallocate(void* memory, std::size_t bytes, std::size_t alignment) noexcept override {
    live_ -= bytes;
    ::operator delete(memory, std::align_val_t(alignment));
  }
  std::uint64_t live() const { return live_.load(); }
  std::uint64_t count() const { return count_.load(); }
  std::uint64_t fail_from = UINT64_MAX;

 private:
  std::atomic<std::uint64_t> live_{0}, count_{0};
};

}  // namespace

TEST_CASE("progress rises to the total, and stopping cancels", "[model]") {
  const Context context({.threads = 2});
  std::uint64_t last = 0, total = 0, calls = 0;
  LoadOptions options;
  options.progress = [&](LoadPhase, std::uint64_t done, std::uint64_t all) {
    CHECK(done >= last);
    last = done;
    total = all;
    ++calls;
    return true;
  };
  REQUIRE(Model<>::load(tiny_path(), context, options).ok());
  CHECK(calls > 2);
  CHECK(total > 500000);
  CHECK(last <= total);
  std::uint64_t seen = 0;
  options.progress = [&](LoadPhase, std::uint64_t done, std::uint64_t) {
    seen = done;
    return done < 100000;
  };
  const auto stopped = Model<>::load(tiny_path(), context, options);
  REQUIRE_FALSE(stopped.ok());
  CHECK(stopped.status().code() == Errc::kCancelled);
  CHECK(seen < total);
  CHECK(context.bytes_in_use() == 0);
  struct HostError {};
  options.progress = [](LoadPhase, std::uint64_t, std::uint64_t) -> bool { throw HostError(); };
  CHECK_THROWS_AS(Model<>::load(tiny_path(), context, options), HostError);
  CHECK(context.bytes_in_use() == 0);
}

TEST_CASE("a load that runs out of memory at any allocation gives everything back", "[model]") {
  CountingMemory counting;
  {
    const Context context({.memory = &counting, .threads = 1});
    REQUIRE(Model<>::load(tiny_path(), context).ok());
  }
  REQUIRE(counting.live() == 0);
  REQUIRE(counting.count() > 5);
  for (std::uint64_t fail = 0; fail < counting.count(); ++fail) {
    INFO("allocation " << fail);
    CountingMemory failing;
    failing.fail_from = fail;
    const Context context({.memory = &failing, .threads = 1});
    const auto model = Model<>::load(tiny_path(), context);
    REQUIRE_FALSE(model.ok());
    CHECK(model.status().code() == Errc::kOutOfMemory);
    CHECK(failing.live() == 0);
  }
}

TEST_CASE("a budget covers models and caches together", "[model]") {
  const Context context({.threads = 1, .memory_budget = 2u << 20});
  const auto model = Model<>::load(tiny_path(), context);
  REQUIRE(model.ok());
  const auto cache = KVCache<>::create(*model, {.max_tokens = 1u << 20});
  REQUIRE_FALSE(cache.ok());
  CHECK(cache.status().code() == Errc::kOutOfMemory);
  CHECK(cache.status().message().find("2097152") != std::string_view::npos);
  CHECK(KVCache<>::create(*model, {.max_tokens = 64}).ok());
}

TEST_CASE("cache options are validated", "[model]") {
  const Context context({.threads = 1});
  const auto model = Model<>::load(tiny_path(), context).value();
  CHECK(KVCache<>::create(model, {.max_tokens = 0}).status().code() == Errc::kInvalidArgument);
  CHECK(KVCache<>::create(model, {.max_tokens = 64, .block_tokens = 24}).status().code() == Errc::kInvalidArgument);
  const auto cache = KVCache<>::create(model, {.max_tokens = 100, .block_tokens = 16}).value();
  CHECK(cache.num_blocks() == 7);
  CHECK(cache.capacity() == 112);
  CHECK(Batch<>::create(cache, {.max_rows = 0}).status().code() == Errc::kInvalidArgument);
}

TEST_CASE("batches refuse what cannot run and leave everything as it was", "[model]") {
  const Context context({.threads = 1});
  auto running = Running<DefaultBackend>::load(tiny_path(), context, {.max_tokens = 64, .block_tokens = 16});
  auto batch = Batch<>::create(running.cache, {.max_rows = 128, .max_wanted = 2, .max_sequences = 2}).value();
  Sequence<> sequence(running.cache);
  const std::vector<TokenId> ids = some_ids(129);
  const TokenId negative = -1, beyond = 320;
  CHECK(batch.add(sequence, {}, Role::kPrompt).code() == Errc::kInvalidArgument);
  CHECK(batch.add(sequence, {&negative, 1}, Role::kPrompt).code() == Errc::kInvalidArgument);
  CHECK(batch.add(sequence, {&beyond, 1}, Role::kPrompt).message().find("320") != std::string_view::npos);
  CHECK(batch.add(sequence, ids, Role::kPrompt).code() == Errc::kContextOverflow);  // 129 of 128 positions
  CHECK(batch.add(sequence, std::span(ids).first(3), Role::kPrompt, Wanted::kAll).code() == Errc::kLimitExceeded);
  CHECK(batch.num_rows() == 0);
  CHECK(batch.forward().status().code() == Errc::kInvalidArgument);
  REQUIRE(batch.add(sequence, std::span(ids).first(5), Role::kPrompt).ok());
  CHECK(batch.add(sequence, std::span(ids).first(5), Role::kPrompt).code() ==
        Errc::kInvalidArgument);  // twice in one batch
  auto other = KVCache<>::create(running.model, {.max_tokens = 32}).value();
  Sequence<> foreign(other);
  CHECK(batch.add(foreign, std::span(ids).first(5), Role::kPrompt).code() == Errc::kInvalidArgument);
  REQUIRE(batch.forward().ok());
  CHECK(sequence.size() == 5);

  INFO("a full pool: 4 blocks, 1 used, 65 more tokens need 4");
  REQUIRE(batch.add(sequence, std::span(ids).first(65), Role::kPrompt).ok());
  const auto full = batch.forward();
  REQUIRE_FALSE(full.ok());
  CHECK(full.status().code() == Errc::kOutOfMemory);
  CHECK(full.status().message().find("3 of 4 free") != std::string_view::npos);
  CHECK(sequence.size() == 5);
  CHECK(running.cache.num_free_blocks() == 3);
  const TokenId next = 7;
  REQUIRE(batch.add(sequence, {&next, 1}, Role::kGenerated).ok());
  CHECK(batch.forward().ok());
  CHECK(sequence.roles()[5] == Role::kGenerated);
  CHECK(sequence.truncate(7).code() == Errc::kInvalidArgument);
}

TEST_CASE("forks share blocks until they grow; the pool counts holders", "[model]") {
  const Context context({.threads = 1});
  auto running = Running<DefaultBackend>::load(tiny_path(), context, {.max_tokens = 128, .block_tokens = 16});
  auto batch = Batch<>::create(running.cache, {.max_rows = 64}).value();
  const std::uint32_t all = running.cache.num_blocks();
  {
    Sequence<> trunk(running.cache);
    REQUIRE(batch.add(trunk, some_ids(20), Role::kPrompt).ok());
    REQUIRE(batch.forward().ok());
    CHECK(running.cache.num_free_blocks() == all - 2);
    Sequence<> branch = trunk.fork().value();
    CHECK(running.cache.num_free_blocks() == all - 2);
    const TokenId id = 9;
    REQUIRE(batch.add(branch, {&id, 1}, Role::kGenerated).ok());
    REQUIRE(batch.forward().ok());
    CHECK(running.cache.num_free_blocks() == all - 3);  // the half-filled block was copied
    REQUIRE(batch.add(trunk, {&id, 1}, Role::kGenerated).ok());
    REQUIRE(batch.forward().ok());
    CHECK(running.cache.num_free_blocks() == all - 3);  // trunk owns its tail alone again
    REQUIRE(branch.truncate(16).ok());
    CHECK(running.cache.num_free_blocks() == all - 2);
    Sequence<> moved = std::move(trunk);
    CHECK(moved.size() == 21);
  }
  CHECK(running.cache.num_free_blocks() == all);
}

TEST_CASE("two contexts, interleaved token by token, equal their lone runs", "[model]") {
  CountingMemory counting;
  const Context first({.memory = &counting, .threads = 1, .isa = IsaLevel::kBase, .force_isa = true});
  const Context second({.threads = 2, .isa = detected_isa(), .force_isa = true});
  const std::vector<TokenId> prompt = some_ids(12);
  const auto lone = [&](const Context& context) {
    auto running = Running<DefaultBackend>::load(tiny_path(), context, {.max_tokens = 64});
    auto batch = Batch<>::create(running.cache, {.max_rows = 16}).value();
    Sequence<> sequence(running.cache);
    return all_logits(batch, sequence, prompt, 1);
  };
  const std::vector<float> expected_first = lone(first), expected_second = lone(second);
  auto a = Running<DefaultBackend>::load(tiny_path(), first, {.max_tokens = 64});
  auto b = Running<DefaultBackend>::load(tiny_path(), second, {.max_tokens = 64});
  auto batch_a = Batch<>::create(a.cache, {.max_rows = 16}).value();
  auto batch_b = Batch<>::create(b.cache, {.max_rows = 16}).value();
  Sequence<> sequence_a(a.cache), sequence_b(b.cache);
  std::vector<float> got_a, got_b;
  for (const TokenId& id : prompt) {
    for (const float value : all_logits(batch_a, sequence_a, {&id, 1}, 1)) got_a.push_back(value);
    for (const float value : all_logits(batch_b, sequence_b, {&id, 1}, 1)) got_b.push_back(value);
  }
  CHECK(got_a == expected_first);
  CHECK(got_b == expected_second);
  CHECK(counting.live() > 0);
}

TEST_CASE("two threads with two sequences on one model equal two runs alone", "[model][threads]") {
  const Context context({.threads = 2});
  auto running = Running<DefaultBackend>::load(tiny_path(), context, {.max_tokens = 512});
  const auto run = [&](std::size_t length) {
    auto batch = Batch<>::create(running.cache, {.max_rows = 16}).value();
    Sequence<> sequence(running.cache);
    return greedy(batch, sequence, some_ids(length), 40);
  };
  const std::vector<TokenId> expected_short = run(5), expected_long = run(50);
  for (int round = 0; round < 3; ++round) {
    std::vector<TokenId> got_short, got_long;
    std::thread one([&] { got_short = run(5); });
    std::thread two([&] { got_long = run(50); });
    one.join();
    two.join();
    CHECK(got_short == expected_short);
    CHECK(got_long == expected_long);
  }
}

TEST_CASE("a model outlives its checkpoint, context and cache handles", "[model]") {
  std::vector<std::byte> bytes = TinyModel().writer().to_bytes().value();
  auto sequence = [&] {
    const Context context({.threads = 2});
    const auto model = [&] {
      const auto checkpoint = Checkpoint::from_memory(bytes, context).value();
      return Model<>::load(checkpoint, context).value();
    }();
    std::fill(bytes.begin(), bytes.end(), std::byte{0});  // not needed after loading
    return Sequence<>(KVCache<>::create(model, {.max_tokens = 64}).value());
  }();
  auto batch = Batch<>::create(sequence.cache(), {.max_rows = 8}).value();
  REQUIRE(batch.add(sequence, some_ids(1), Role::kPrompt).ok());
  CHECK(batch.forward().ok());
}

TEST_CASE("AnyModel chooses a backend by name", "[model]") {
  const Context context({.threads = 1});
  const auto ref = AnyModel::load(tiny_path(), "ref", context).value();
  CHECK(ref.backend_name() == std::string("ref"));
  CHECK(ref.visit([](const auto& model) { return model.spec().vocab; }) == 320);
  CHECK(AnyModel::load(tiny_path(), "", context).value().backend_name() == std::string(DefaultBackend::kName));
  if (detected_isa() < IsaLevel::kAmx) {
    INFO("a forced level that the CPU lacks is told, not exchanged for another backend");
    const Context forced({.threads = 1, .isa = IsaLevel::kAmx, .force_isa = true});
    CHECK(AnyModel::load(tiny_path(), "", forced).status().code() == Errc::kUnsupported);
  }
  const auto wrong = AnyModel::load(tiny_path(), "gpu", context);
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.status().code() == Errc::kInvalidArgument);
  CHECK(wrong.status().message().find("ref") != std::string_view::npos);
}

TEST_CASE("the plan agrees with what is then taken", "[model]") {
  const std::string paths[] = {tiny_path(), test_data("golden/llama-q4_k_m/model.gguf"),
                               test_data("golden/gemma3-text/model.gguf")};
  for (const std::string& path : paths) {
    INFO(path);
    const Context context({.threads = 1});
    const KVCacheOptions cache_options = {.max_tokens = 512};
    const BatchOptions batch_options = {.max_rows = 64};
    const auto checkpoint = Checkpoint::open(path, context).value();
    const MemoryPlan plan = plan_memory<>(checkpoint, context, {cache_options, batch_options}).value();
    const auto model = Model<>::load(path, context).value();
    const auto cache = KVCache<>::create(model, cache_options).value();
    const auto batch = Batch<>::create(cache, batch_options).value();
    CHECK(plan.weights == model.weight_bytes());
    CHECK(plan.kv_cache == cache.bytes());
    CHECK(plan.arena + plan.workspace + plan.staging == batch.bytes());
    const double planned = static_cast<double>(plan.total() - plan.vocabulary);
    CHECK(static_cast<double>(context.bytes_in_use()) == Approx(planned).epsilon(0.05));
  }
}
