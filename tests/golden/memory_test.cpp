// Memory of a real model after loading, counted at its sources (the memory resource, operator new), against the file
// and against the plan.
#include <corbel/generate.hpp>
#include <corbel/plan.hpp>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "support/alloc_counter.hpp"
#include "support/golden.hpp"

using namespace corbel;
using namespace corbel_test;

#if CORBEL_HAS_CPU
namespace {

/// Memory straight from the C library, apart from what operator new counts.
class PlainMemory final : public MemoryResource {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    const std::uint64_t live = live_ += bytes;
    std::uint64_t peak = peak_.load();
    while (live > peak && !peak_.compare_exchange_weak(peak, live)) {
    }
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  void deallocate(void* memory, std::size_t bytes, std::size_t) noexcept override {
    live_ -= bytes;
    std::free(memory);
  }
  std::uint64_t live() const { return live_.load(); }
  std::uint64_t peak() const { return peak_.load(); }

 private:
  std::atomic<std::uint64_t> live_{0}, peak_{0};
};

std::uint64_t status_kib(const char* key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(key, 0) == 0) return std::strtoull(line.c_str() + std::strlen(key) + 1, nullptr, 10);
  return 0;
}

}  // namespace

TEST_CASE("memory after load of SmolLM2, and the plan", "[memory]") {
  const std::string path = real_model("smollm2", "memory after load of SmolLM2, and the plan");
  if (path.empty()) return;
  PlainMemory memory;
  const Context context({.memory = &memory, .threads = 2});
  const KVCacheOptions cache_options = {.max_tokens = 2048};
  const MemoryPlan plan =
      plan_memory<CpuBackend>(Checkpoint::open(path, context).value(), context, {cache_options, {}}).value();
  const std::uint64_t file_bytes = std::filesystem::file_size(path);

  const AllocationScope heap;
  const auto model = Model<CpuBackend>::load(path, context).value();
  const std::uint64_t loaded = memory.live() + static_cast<std::uint64_t>(heap.stats().live);
  CHECK(static_cast<double>(loaded) <= 1.25 * static_cast<double>(file_bytes));

  const auto cache = KVCache<CpuBackend>::create(model, cache_options).value();
  const auto batch = Batch<CpuBackend>::create(cache).value();
  const std::uint64_t all = memory.live() + static_cast<std::uint64_t>(heap.stats().live);
  std::printf(
      "SmolLM2: file %.1f MB, after load %.1f MB (%.2f of the file), with cache and batch %.1f MB, planned %.1f MB, "
      "peak resident %.1f MB\n",
      static_cast<double>(file_bytes) / 1e6, static_cast<double>(loaded) / 1e6,
      static_cast<double>(loaded) / static_cast<double>(file_bytes), static_cast<double>(all) / 1e6,
      static_cast<double>(plan.total()) / 1e6, static_cast<double>(status_kib("VmHWM:")) * 1024 / 1e6);
  CHECK(static_cast<double>(all) == Approx(static_cast<double>(plan.total())).epsilon(0.05));
}

TEST_CASE("memory at most while loading, and after the first token", "[memory]") {
  for (const char* name : {"smollm2", "gemma3"}) {
    const std::string path = real_model(name, std::string("memory at most of ") + name);
    if (path.empty()) continue;
    INFO(name);
    PlainMemory memory;
    const Context context({.memory = &memory, .threads = 2});
    const auto file_bytes = static_cast<double>(std::filesystem::file_size(path));
    const AllocationScope heap;
    const auto model = Model<CpuBackend>::load(path, context).value();
    // Not both need be at their highest at the same time: this is an upper bound.
    const double peak = static_cast<double>(memory.peak()) + static_cast<double>(heap.stats().peak);
    const double packed = static_cast<double>(memory.live());
    const auto vocabulary = static_cast<double>(model.tokenizer().memory_bytes());

    const auto cache = KVCache<CpuBackend>::create(model, {.max_tokens = 1024}).value();
    Sequence<CpuBackend> sequence(cache);
    auto sampler = Sampler<>::create({.temperature = 0.7f, .top_p = 0.9f}).value();
    double after = 0;
    const std::vector<TokenId> prompt(64, 7);  // what a run works on grows with its rows
    REQUIRE(generate(model, sequence, sampler, prompt, {.max_tokens = 2, .ignore_end_of_generation = true},
                     [&](const TokenEvent&) {
                       after = static_cast<double>(memory.live()) + static_cast<double>(heap.stats().live);
                       return Next::kContinue;
                     })
                .ok());
    const double rest = after - packed - vocabulary - static_cast<double>(cache.bytes());
    std::printf(
        "%s: at most %.1f MB while loading (%.3f of the file); after the first token %.1f MB beside weights of "
        "%.1f MB, cache and vocabulary\n",
        name, peak / 1e6, peak / file_bytes, rest / 1e6, packed / 1e6);
    CHECK(peak <= 1.10 * file_bytes);
    CHECK(rest <= 12e6);
  }
}
#endif
