// Context: memory and its budget, threads, the log, instruction levels, floating-point environment.
#include <corbel/context.hpp>
#include <corbel/detail/cpu_count.hpp>
#include <corbel/detail/fp_environment.hpp>
#include <corbel/detail/stall_backoff.hpp>
#ifdef _OPENMP
#include <corbel/backends/cpu/openmp_executor.hpp>
#endif
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <mutex>
#include <pthread.h>
#include <set>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/support.hpp"

using corbel::Allocation;
using corbel::Context;
using corbel::Errc;
using corbel::Result;

namespace {

// Counts calls and bytes; gives nothing while `fail` is set.
class CountingResource final : public corbel::MemoryResource {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    ++allocations;
    last_alignment = alignment;
    if (fail) return nullptr;
    live += bytes;
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  void deallocate(void* memory, std::size_t bytes, std::size_t) noexcept override {
    live -= bytes;
    std::free(memory);
  }
  std::atomic<std::size_t> allocations{0}, live{0}, last_alignment{0};
  std::atomic<bool> fail{false};
};

// Calls `function(i)` for each i in [0, n) on the context.
template <class Function>
void run(const Context& context, std::size_t n, Function function) {
  context.run(
      n, [](void* f, std::size_t i) noexcept { (*static_cast<Function*>(f))(i); }, &function);
}

// Runs a region on as many threads as the context has: every task waits until that many are inside (or ten seconds have
// passed).
template <class Function>
std::size_t run_on_all(const Context& context, Function function) {
  const std::size_t n = context.concurrency();
  std::atomic<std::size_t> inside{0};
  run(context, n, [&](std::size_t) {
    ++inside;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (inside < n && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    function();
  });
  return inside;
}

}  // namespace

TEST_CASE("memory comes from the host's resource, aligned and counted") {
  CountingResource resource;
  {
    const Context context({.memory = &resource});
    Result<Allocation> a = context.allocate(1000, "weights");
    REQUIRE(a.ok());
    CHECK(a->size() == 1000);
    CHECK(reinterpret_cast<std::uintptr_t>(a->data()) % 64 == 0);
    CHECK(resource.last_alignment == 64);
    Result<Allocation> b = context.allocate(24, "page", 4096);
    CHECK(reinterpret_cast<std::uintptr_t>(b->data()) % 4096 == 0);
    CHECK(context.bytes_in_use() == 1024);
    CHECK(resource.live == 1024);

    const std::byte* const data = a->data();
    Allocation moved = std::move(*a);
    CHECK(moved.data() == data);
    CHECK(a->data() == nullptr);
    *b = Allocation();
    CHECK(context.bytes_in_use() == 1000);
    CHECK(context.peak_bytes() == 1024);

    CHECK(context.allocate(0, "nothing").value().data() == nullptr);
    CHECK(context.allocate(8, "odd", 48).status().code() == Errc::kInvalidArgument);
    CHECK(context.allocate(8, "odd", 0).status().code() == Errc::kInvalidArgument);
    CHECK(resource.allocations == 2);
  }
  CHECK(resource.live == 0);
}

TEST_CASE("an allocation keeps its context's state alive") {
  CountingResource resource;
  Allocation kept;
  {
    const Context context({.memory = &resource});
    kept = context.allocate(64, "kept").value();
  }
  kept.data()[63] = std::byte{1};
  CHECK(resource.live == 64);
  kept = Allocation();
  CHECK(resource.live == 0);
}

TEST_CASE("a resource without memory is an error that names place and size") {
  CountingResource resource;
  const Context context({.memory = &resource});
  resource.fail = true;
  const Result<Allocation> none = context.allocate(4096, "KV cache");
  CHECK(none.status().code() == Errc::kOutOfMemory);
  CHECK(none.status().message() == "KV cache: the memory resource gave no 4096 bytes; 0 bytes in use");
  CHECK(context.bytes_in_use() == 0);
  resource.fail = false;
  CHECK(context.allocate(4096, "KV cache").ok());
}

TEST_CASE("the budget is over everything made from a context") {
  const Context context({.memory_budget = 1000});
  Result<Allocation> a = context.allocate(600, "first");
  REQUIRE(a.ok());
  const Context same = context;
  const Result<Allocation> b = same.allocate(401, "second");
  CHECK(b.status().code() == Errc::kOutOfMemory);
  CHECK(b.status().message() == "second: 401 bytes do not fit; 600 bytes in use, a budget of 1000 bytes");
  CHECK(same.allocate(400, "second").ok());
  *a = Allocation();
  CHECK(same.allocate(1000, "all").ok());
  CHECK(same.bytes_in_use() == 0);
  CHECK(same.peak_bytes() == 1000);
}

TEST_CASE("sizes that no machine has are refused before the resource is asked") {
  CountingResource resource;
  const Context context({.memory = &resource});
  for (const std::uint64_t bytes : {std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1} << 63}) {
    CHECK(context.allocate(bytes, "huge").status().code() == Errc::kOutOfMemory);
  }
  CHECK(resource.allocations == 0);
  CHECK(context.bytes_in_use() == 0);
  CHECK(context.peak_bytes() == 0);
}

TEST_CASE("the budget holds when threads allocate at the same time") {
  const Context context({.threads = 1, .memory_budget = 10000});
  std::atomic<int> given{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      std::vector<Allocation> held;
      for (int i = 0; i < 100; ++i) {
        if (Result<Allocation> a = context.allocate(100, "piece"); a.ok()) held.push_back(std::move(*a));
        if (context.bytes_in_use() > 10000) ++given;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(given == 0);
  CHECK(context.bytes_in_use() == 0);
  CHECK(context.peak_bytes() <= 10000);
}

TEST_CASE("every task runs exactly once, whatever the number of threads") {
  for (const int threads : {1, 2, 3, 8}) {
    const Context context({.threads = threads});
    CHECK(context.concurrency() == static_cast<std::size_t>(threads));
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{1000}}) {
      std::vector<int> hits(n, 0);
      run(context, n, [&](std::size_t i) { ++hits[i]; });
      CHECK(hits == std::vector<int>(n, 1));
    }
  }
}

TEST_CASE("the pool survives a storm of short regions") {
  const Context context({.threads = 4});
  std::vector<std::uint64_t> slots(64 * 8, 0);
  std::uint64_t expected = 0;
  for (std::uint64_t region = 0; region < 20000; ++region) {
    const std::size_t n = 1 + region % 8;
    run(context, n, [&](std::size_t i) { slots[i * 64] += region; });  // plain data: joined before the next region
    expected += region * n;
    // Now and then long enough that the workers go to sleep.
    if (region % 4096 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < 8; ++i) sum += slots[i * 64];
  CHECK(sum == expected);
}

TEST_CASE("stalls buy times without workers, longer ones from stall to stall, and quiet times pay them back") {
  using corbel::detail::StallBackoff;
  using std::chrono::microseconds;
  StallBackoff backoff;
  StallBackoff::Time now{std::chrono::hours(1)};
  // A region whose own tasks take `own`, and which then waits.
  const auto region = [&](microseconds own, microseconds wait) {
    backoff.joined(now, now + own, now + own + wait);
    now += own + wait;
  };
  CHECK_FALSE(backoff.alone(now));
  region(microseconds(20), microseconds(300));  // short
  CHECK_FALSE(backoff.alone(now));
  region(microseconds(5000), microseconds(5000));  // as long as the last task of another may be
  CHECK_FALSE(backoff.alone(now));

  region(microseconds(20), microseconds(4000));
  CHECK(backoff.alone(now));
  CHECK(backoff.alone(now + microseconds(31999)));
  CHECK_FALSE(backoff.alone(now + microseconds(32000)));

  // A core that is always taken: after some stalls next to nothing of the time is waited for.
  microseconds waited{0};
  const StallBackoff::Time start = now;
  for (int stall = 0; stall < 20; ++stall) {
    while (backoff.alone(now)) now += microseconds(100);
    region(microseconds(20), microseconds(4000));
    waited += microseconds(4000);
  }
  CHECK(waited * 50 < now - start);
  CHECK_FALSE(backoff.alone(now + StallBackoff::kLongest));  // it is tried again

  // Without stalls the next one costs little again.
  now += StallBackoff::kLongest;
  for (int i = 0; i < 200000; ++i) region(microseconds(50), microseconds(2));
  region(microseconds(20), microseconds(1000));
  CHECK(backoff.alone(now + microseconds(7999)));
  CHECK_FALSE(backoff.alone(now + microseconds(8000)));
}

TEST_CASE("the threads have names, block all signals and compute in the default environment") {
  const Context context({.threads = 3});
  std::mutex mutex;
  std::set<std::string> names;
  int blocked = 0, callers = 0, wrong_environment = 0;
  const std::thread::id caller = std::this_thread::get_id();
  const std::size_t inside = run_on_all(context, [&] {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof(name));
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    const std::lock_guard<std::mutex> lock(mutex);
    wrong_environment +=
        (corbel::detail::fp_control() & ~corbel::detail::kFpStatusBits) != corbel::detail::kDefaultFpControl;
    if (std::this_thread::get_id() == caller) {
      ++callers;
      return;
    }
    names.insert(name);
    blocked += sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGPROF) == 1;
  });
  CHECK(wrong_environment == 0);
  CHECK(inside == 3);
  CHECK(callers == 1);
  CHECK(blocked == 2);
  CHECK(names == std::set<std::string>{"corbel-0", "corbel-1"});
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  CHECK(sigismember(&mine, SIGINT) == 0);  // the caller's mask is as it was
}

TEST_CASE("threads start at the first parallel region and end with the context") {
  const auto named_threads = [] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
      count += corbel_test::read_file(entry.path().string() + "/comm").rfind("corbel-", 0) == 0;
    }
    return count;
  };
  {
    const Context context({.threads = 3});
    run(context, 1, [](std::size_t) {});
    CHECK(named_threads() == 0);
    run_on_all(context, [] {});
    CHECK(named_threads() == 2);
  }
  CHECK(named_threads() == 0);
}

TEST_CASE("a nested region and a second caller run on their own threads") {
  const Context context({.threads = 2});
  std::atomic<int> total{0}, moved{0};
  run(context, 4, [&](std::size_t) {
    const std::thread::id outer = std::this_thread::get_id();
    run(context, 5, [&](std::size_t) {
      ++total;
      if (std::this_thread::get_id() != outer) ++moved;
    });
  });
  CHECK(total == 20);
  CHECK(moved == 0);

  total = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int region = 0; region < 500; ++region) run(context, 3, [&](std::size_t) { ++total; });
    });
  }
  for (std::thread& thread : callers) thread.join();
  CHECK(total == 4 * 500 * 3);
}

TEST_CASE("two contexts share nothing") {
  CountingResource left_memory, right_memory;
  const Context left({.memory = &left_memory, .threads = 2, .memory_budget = 500});
  const Context right({.memory = &right_memory, .threads = 3});
  const Allocation a = left.allocate(500, "left").value();
  const Allocation b = right.allocate(5000, "right").value();
  CHECK(left.bytes_in_use() == 500);
  CHECK(right.bytes_in_use() == 5000);
  CHECK(left_memory.live == 500);
  CHECK(right_memory.live == 5000);
  CHECK(left.concurrency() == 2);
  CHECK(right.concurrency() == 3);
  std::atomic<int> total{0};
  run(left, 2,
      [&](std::size_t) { run(right, 3, [&](std::size_t) { ++total; }); });  // one context's task may use another's pool
  CHECK(total == 6);
}

TEST_CASE("the host's own executor gets the tasks") {
  class Backwards final : public corbel::Executor {
   public:
    std::size_t concurrency() const noexcept override { return 5; }
    void run(std::size_t num_tasks, Task task, void* argument) noexcept override {
      ++regions;
      while (num_tasks-- > 0) task(argument, num_tasks);
    }
    int regions = 0;
  };
  Backwards executor;
  const Context context({.executor = &executor, .threads = 2});
  CHECK(context.concurrency() == 5);
  std::vector<std::size_t> order;
  run(context, 3, [&](std::size_t i) { order.push_back(i); });
  CHECK(order == std::vector<std::size_t>{2, 1, 0});
  CHECK(executor.regions == 1);
  run(context, 1, [](std::size_t) {});
  CHECK(executor.regions == 1);  // one task is no region
}

TEST_CASE("many regions are one region of the host's executor") {
  // In turn, backwards, each on a thread of its own, on some threads that sleep between regions.
  class Host final : public corbel::Executor {
   public:
    explicit Host(int kind) : kind_(kind) {}
    std::size_t concurrency() const noexcept override { return 3; }
    void run(std::size_t num_tasks, Task task, void* argument) noexcept override {
      ++regions;
      if (kind_ == 0) {
        for (std::size_t i = 0; i < num_tasks; ++i) task(argument, i);
      } else if (kind_ == 1) {
        while (num_tasks-- > 0) task(argument, num_tasks);
      } else if (kind_ == 2) {
        std::thread([&] {
          for (std::size_t i = 0; i < num_tasks; ++i) task(argument, i);
        }).join();
      } else {
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < num_tasks; ++i) threads.emplace_back([&, i] { task(argument, i); });
        for (std::thread& thread : threads) thread.join();
      }
    }
    std::atomic<int> regions{0};

   private:
    int kind_;
  };
  struct Body {
    const Context& context;
    std::atomic<int> calls{0};
    std::atomic<std::size_t> tasks{0};
    static void run(void* self) noexcept {
      Body& body = *static_cast<Body*>(self);
      ++body.calls;
      for (std::size_t i = 0; i < 200; ++i) {
        ::run(body.context, 5, [&](std::size_t task) {
          body.tasks += task;
          if (i == 100) ::run(body.context, 2, [&](std::size_t) { ++body.tasks; });  // nested
        });
        if (i == 150) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // helpers fall asleep
      }
    }
  };
  for (const int kind : {0, 1, 2, 3}) {
    INFO("executor " << kind);
    Host host(kind);
    const Context context({.executor = &host});
    for (int repeat = 1; repeat <= 3; ++repeat) {
      Body body{context};
      context.run_many(&Body::run, &body);
      CHECK(body.calls == 1);
      CHECK(body.tasks == 200 * 10 + 5 * 2);
    }
    CHECK(host.regions <= 3 + 3 * 5);  // and those that helpers opened inside of tasks
    CHECK(host.regions >= 3);
    // Two threads: the second one's regions go to the executor one by one.
    Body first{context}, second{context};
    std::thread other([&] { context.run_many(&Body::run, &second); });
    context.run_many(&Body::run, &first);
    other.join();
    CHECK(first.tasks == 200 * 10 + 5 * 2);
    CHECK(second.tasks == 200 * 10 + 5 * 2);
  }
  for (const Context& context : {Context({.threads = 1}), Context({.threads = 3})}) {
    Body body{context};
    context.run_many(&Body::run, &body);
    CHECK(body.tasks == 200 * 10 + 5 * 2);
  }
}

#ifdef _OPENMP
TEST_CASE("the OpenMP executor runs every task once, also nested and from two threads") {
  corbel::OpenMpExecutor executor(3);
  const Context context({.executor = &executor});
  CHECK(context.concurrency() == 3);
  std::vector<int> hits(1000, 0);
  run(context, hits.size(), [&](std::size_t i) { ++hits[i]; });
  CHECK(hits == std::vector<int>(1000, 1));
  std::atomic<int> total{0};
  run(context, 3, [&](std::size_t) { run(context, 4, [&](std::size_t) { ++total; }); });
  CHECK(total == 12);
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) run(context, 3, [&](std::size_t) { ++total; });
  });
  for (int i = 0; i < 100; ++i) run(context, 3, [&](std::size_t) { ++total; });
  other.join();
  CHECK(total == 612);
  CHECK(corbel::OpenMpExecutor().concurrency() >= 1);
}
#else
TEST_CASE("the OpenMP executor") { corbel_test::skip("context: OpenMP executor", "built without OpenMP"); }
#endif

#if defined(__SSE2__)
TEST_CASE("a host with flush-to-zero gets the default environment in tasks, and its own back") {
  class OwnThread final : public corbel::Executor {
   public:
    std::size_t concurrency() const noexcept override { return 2; }
    void run(std::size_t num_tasks, Task task, void* argument) noexcept override {
      std::thread([&] {
        corbel::detail::set_fp_control(0xffc0);  // flush to zero, denormals are zero, round toward zero
        for (std::size_t i = 0; i < num_tasks; ++i) task(argument, i);
      }).join();
    }
  };
  OwnThread executor;
  const std::uint32_t before = corbel::detail::fp_control();
  for (const Context& context : {Context({.threads = 1}), Context({.threads = 3}), Context({.executor = &executor})}) {
    std::atomic<int> wrong{0}, flushed{0};
    corbel::detail::set_fp_control(0xffc0);
    run(context, 8, [&](std::size_t) {
      wrong += (corbel::detail::fp_control() & ~0x3fu) != 0x1f80;
      volatile float tiny = 1e-38f;
      flushed += tiny * 0.5f == 0.0f;
    });
    const std::uint32_t after = corbel::detail::fp_control();
    corbel::detail::set_fp_control(before);
    CHECK(wrong == 0);
    CHECK(flushed == 0);
    CHECK(after == 0xffc0);
  }
}
#endif

TEST_CASE("a child process made by fork can use and end its copy of a context") {
  Context* context = new Context({.threads = 3});
  run_on_all(*context, [] {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // let the workers fall asleep
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20);  // a hang is a failure
    std::atomic<int> total{0};
    run(*context, 4, [&](std::size_t) { ++total; });
    delete context;
    _exit(total == 4 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  delete context;
}

TEST_CASE("log lines reach the sink as one printable line; without a sink nothing happens") {
  struct Lines {
    std::vector<std::string> texts;
    std::vector<corbel::LogLevel> levels;
  } lines;
  const auto write = [](void* user, corbel::LogLevel level, std::string_view line) noexcept {
    static_cast<Lines*>(user)->texts.emplace_back(line);
    static_cast<Lines*>(user)->levels.push_back(level);
  };
  Context().log(corbel::LogLevel::kError, "silent");
  const Context context({.log = {write, &lines}});
  context.log(corbel::LogLevel::kWarning, "two\nlines \xff");
  context.log(corbel::LogLevel::kInfo, "");
  CHECK(lines.texts == std::vector<std::string>{"two\\x0Alines \xEF\xBF\xBD", ""});
  CHECK(lines.levels == std::vector<corbel::LogLevel>{corbel::LogLevel::kWarning, corbel::LogLevel::kInfo});
}

TEST_CASE("instruction levels have names, and the detected one is real") {
  using corbel::IsaLevel;
  for (const IsaLevel level : {IsaLevel::kBase, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmx}) {
    CHECK(corbel::isa_from_name(corbel::isa_name(level)).value() == level);
  }
  CHECK(std::string(corbel::isa_name(IsaLevel::kAvx512)) == "avx512");
  const corbel::Status status = corbel::isa_from_name("avx1024\n").status();
  CHECK(status.code() == Errc::kInvalidArgument);
  CHECK(status.message() == "ISA level: expected base, avx2, avx512 or amx, got \"avx1024\\x0A\"");
  CHECK(corbel::isa_from_name("").status().code() == Errc::kInvalidArgument);
#if defined(__x86_64__)
  __builtin_cpu_init();
  const IsaLevel level = corbel::detected_isa();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  CHECK((level >= IsaLevel::kAvx2) == avx2);
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  CHECK((level >= IsaLevel::kAvx512) == avx512);
#else
  CHECK(corbel::detected_isa() == IsaLevel::kBase);
#endif
}

TEST_CASE("a context that lost its state still answers") {
  Context context({.threads = 2});
  const Context taken = std::move(context);
  CHECK(context.concurrency() == 1);  // NOLINT use after move is the point
  CHECK(context.bytes_in_use() == 0);
  CHECK(context.peak_bytes() == 0);
  CHECK(context.options().threads == 0);
  CHECK(context.allocate(1, "x").status().code() == Errc::kOutOfMemory);
  context.log(corbel::LogLevel::kError, "nobody");
  int hits = 0;
  run(context, 3, [&](std::size_t) { ++hits; });
  CHECK(hits == 3);
  CHECK(taken.options().threads == 2);
}

#if defined(__linux__)
TEST_CASE("the default number of threads respects affinity and cgroup files") {
  using namespace corbel::detail;
  CHECK(cores_of_cpu_max("max 100000\n") == 0);
  CHECK(cores_of_cpu_max("150000 100000\n") == 2);
  CHECK(cores_of_cpu_max("200000 100000\n") == 2);
  CHECK(cores_of_cpu_max("1000 100000\n") == 1);
  CHECK(cores_of_cpu_max("") == 0);
  CHECK(cores_of_cpu_max("garbage") == 0);
  CHECK(quota_cores(-1, 100000) == 0);
  const std::string v1 = "5:memory:/m\n3:cpuset:/s\n2:cpu,cpuacct:/docker/abc\n0::/user.slice\n";
  CHECK(cgroup_path(v1, "cpu") == "/docker/abc");
  CHECK(cgroup_path(v1, "cpuacct") == "/docker/abc");
  CHECK(cgroup_path(v1, "") == "/user.slice");
  CHECK(cgroup_path(v1, "cp") == "");
  CHECK(cgroup_path("nonsense\n::\n", "cpu") == "");

  CHECK(default_threads() >= 1);
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof(before), &before) == 0);
  CPU_ZERO(&one);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
  const std::size_t bound = Context().concurrency();
  REQUIRE(sched_setaffinity(0, sizeof(before), &before) == 0);
  CHECK(bound == 1);
  CHECK(Context().concurrency() <= static_cast<std::size_t>(CPU_COUNT(&before)));
}
#endif
