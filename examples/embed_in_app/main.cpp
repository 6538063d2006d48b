// An application that has everything already (an allocator, threads, a log, a cancel button) and uses Corbel as one
// part.
//
//   embed_in_app MODEL
//
// It also checks what it relies on: memory comes from its allocator and goes back, work runs on its threads, the
// library prints nothing, two of its threads with two sequences on one model get the tokens of two runs alone, the
// cancel button leaves everything as it was, and its own floating-point mode changes no bit. Exit code 0: all of that
// holds.
#include <corbel/corbel.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <mutex>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace {

/// The application's allocator: here malloc's, counted.
class AppMemory : public corbel::MemoryResource {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory != nullptr) in_use_ += bytes;
    return memory;
  }
  void deallocate(void* memory, std::size_t bytes, std::size_t) noexcept override {
    in_use_ -= bytes;
    std::free(memory);
  }
  std::size_t in_use() const noexcept { return in_use_; }

 private:
  std::atomic<std::size_t> in_use_{0};
};

/// The application's threads: two workers that take the library's tasks when they have nothing else to do.
class AppThreads : public corbel::Executor {
 public:
  AppThreads() {
    for (std::thread& worker : workers_) worker = std::thread([this] { work(); });
  }
  ~AppThreads() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  std::size_t concurrency() const noexcept override { return std::size(workers_) + 1; }

  void run(std::size_t num_tasks, Task task, void* argument) noexcept override {
    ++num_runs_;
    Job job{task, argument, num_tasks};
    {
      const std::lock_guard lock(mutex_);
      if (job_ == nullptr) job_ = &job;  // else the workers are busy with another caller: this one works alone
    }
    wake_.notify_all();
    job.take_tasks();
    std::unique_lock lock(mutex_);
    if (job_ == &job) job_ = nullptr;
    done_.wait(lock, [&] { return job.num_helpers == 0; });
  }

  std::size_t num_runs() const noexcept { return num_runs_; }

 private:
  struct Job {
    Task task;
    void* argument;
    std::size_t num_tasks;
    std::atomic<std::size_t> next{0};
    int num_helpers = 0;  // guarded by mutex_

    void take_tasks() noexcept {
      for (std::size_t i = next++; i < num_tasks; i = next++) task(argument, i);
    }
  };

  void work() {
    std::unique_lock lock(mutex_);
    while (!closing_) {
      Job* job = job_;
      if (job == nullptr || job->next >= job->num_tasks) {
        wake_.wait(lock);
        continue;
      }
      ++job->num_helpers;
      lock.unlock();
      job->take_tasks();
      lock.lock();
      if (--job->num_helpers == 0) done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  Job* job_ = nullptr;
  bool closing_ = false;
  std::atomic<std::size_t> num_runs_{0};
  std::thread workers_[2];
};

/// The application's log.
struct AppLog {
  static void write(void* user, corbel::LogLevel, std::string_view line) noexcept {
    AppLog& log = *static_cast<AppLog*>(user);
    const std::lock_guard lock(log.mutex);
    ++log.num_lines;
    log.num_bytes += line.size();
  }
  std::mutex mutex;
  std::size_t num_lines = 0;
  std::size_t num_bytes = 0;
};

/// Sends stdout and stderr to a file while it lives, to see that the library writes to neither.
class OutputWatch {
 public:
  OutputWatch() {
    std::fflush(stdout);
    std::FILE* file = std::tmpfile();
    if (file == nullptr) return;
    file_ = file;
    for (int i = 0; i < 2; ++i) {
      saved_[i] = dup(i + 1);
      dup2(fileno(file), i + 1);
    }
  }
  ~OutputWatch() { finish(); }
  /// Bytes that were written; stdout and stderr are as before.
  long finish() {
    if (file_ == nullptr) return 0;
    std::fflush(stdout);
    for (int i = 0; i < 2; ++i) {
      dup2(saved_[i], i + 1);
      close(saved_[i]);
    }
    struct stat info = {};
    fstat(fileno(file_), &info);
    std::fclose(file_);
    file_ = nullptr;
    return static_cast<long>(info.st_size);
  }

 private:
  std::FILE* file_ = nullptr;
  int saved_[2] = {-1, -1};
};

int num_failed = 0;

void expect(bool holds, const char* what) {
  std::printf("%s: %s\n", holds ? "ok    " : "FAILED", what);
  if (!holds) ++num_failed;
}

using Ids = std::vector<corbel::TokenId>;
using Cache = corbel::KVCache<>;

constexpr const char* kPrompts[] = {"Once upon a time there was", "The capital of France is"};

Ids generate(const corbel::Model<>& model, const Cache& cache, const char* prompt) {
  const Ids ids = model.tokenizer().encode(prompt, {.add_special = true}).value();
  corbel::Sequence<> sequence(cache);
  auto sampler = corbel::Sampler<>::create({.temperature = 0.8f, .seed = 7}).value();
  return corbel::generate(model, sequence, sampler, ids, {.max_tokens = 12, .ignore_end_of_generation = true})
      .value()
      .tokens;
}

/// Two of the application's threads use one model and one cache at the same time.
std::vector<Ids> generate_together(const corbel::Model<>& model, const Cache& cache) {
  std::vector<Ids> replies(2);
  std::thread threads[2];
  for (std::size_t i = 0; i < 2; ++i)
    threads[i] = std::thread([&, i] { replies[i] = generate(model, cache, kPrompts[i]); });
  for (std::thread& thread : threads) thread.join();
  return replies;
}

struct Cancelled {
  corbel::Errc code = corbel::Errc::kOk;
  std::size_t tokens_left = 0;
  Ids reply_afterwards;
};

/// Another thread, where the button is, cancels a reply that has begun.
Cancelled press_cancel(const corbel::Model<>& model, const Cache& cache) {
  const Ids ids = model.tokenizer().encode(kPrompts[0], {.add_special = true}).value();
  corbel::Sequence<> sequence(cache);
  auto sampler = corbel::Sampler<>::create().value();
  corbel::CancelToken button;
  std::atomic<bool> begun{false};
  std::thread user([&] {
    while (!begun) std::this_thread::yield();
    button.cancel();
  });
  const auto reply = corbel::generate(model, sequence, sampler, ids,
                                      {.max_tokens = 200, .ignore_end_of_generation = true, .cancel = &button},
                                      [&](const corbel::TokenEvent&) {
                                        begun = true;
                                        while (!button.cancelled()) std::this_thread::yield();
                                        return corbel::Next::kContinue;
                                      });
  begun = true;
  user.join();
  return {reply.status().code(), sequence.size(), generate(model, cache, kPrompts[0])};
}

std::vector<float> logits(const corbel::Model<>& model, const Cache& cache) {
  const Ids ids = model.tokenizer().encode(kPrompts[1], {.add_special = true}).value();
  corbel::Sequence<> sequence(cache);
  auto batch = corbel::Batch<>::create(cache).value();
  if (const corbel::Status added = batch.add(sequence, ids, corbel::Role::kPrompt); !added.ok())
    throw corbel::Exception(added);
  const corbel::Logits result = batch.forward().value();
  return {result.values.begin(), result.values.end()};
}

std::vector<float> logits_with_flush_to_zero(const corbel::Model<>& model, const Cache& cache) {
#if defined(__SSE2__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040u);  // flush to zero, denormals are zero
  std::vector<float> result = logits(model, cache);
  const bool kept = (_mm_getcsr() & 0x8040u) == 0x8040u;
  _mm_setcsr(before);
  expect(kept, "the application's floating-point mode is as it was");
  return result;
#else
  return logits(model, cache);
#endif
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void run(const char* path) {
  AppMemory memory;
  AppThreads threads;
  AppLog log;
  {
    OutputWatch watch;
    const corbel::Context context({.memory = &memory, .executor = &threads, .log = {&AppLog::write, &log}});
    const auto model = corbel::Model<>::load(path, context).value();
    const auto cache = Cache::create(model, {.max_tokens = 1024}).value();
    const std::vector<Ids> alone = {generate(model, cache, kPrompts[0]), generate(model, cache, kPrompts[1])};
    const std::vector<Ids> together = generate_together(model, cache);
    const Cancelled cancelled = press_cancel(model, cache);
    const std::vector<float> plain = logits(model, cache);
    const std::size_t in_use = memory.in_use();
    const long written = watch.finish();

    expect(written == 0, "the library writes nothing to stdout and stderr");
    expect(in_use >= model.weight_bytes() + cache.bytes(), "weights and cache are in the application's memory");
    expect(threads.num_runs() > 0, "the work runs on the application's threads");
    expect(alone[0].size() == 12 && together == alone, "two threads get the tokens of two runs alone");
    expect(cancelled.code == corbel::Errc::kCancelled, "the cancel button stops the reply");
    expect(cancelled.tokens_left == 0, "a cancelled sequence is as before");
    expect(cancelled.reply_afterwards == alone[0], "after a cancelled reply the next one is as ever");
    expect(cache.num_free_blocks() == cache.num_blocks(), "all blocks of the cache are free again");
    expect(same_bits(logits_with_flush_to_zero(model, cache), plain), "flush-to-zero of the host changes no bit");
  }
  expect(memory.in_use() == 0, "all memory went back");
  std::printf("the library logged %zu lines\n", log.num_lines);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: embed_in_app MODEL (a GGUF file or a Hugging Face folder)\n");
    return 2;
  }
  try {
    run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "embed_in_app: %s\n", error.what());
    return 1;
  }
  return num_failed == 0 ? 0 : 1;
}
