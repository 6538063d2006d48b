// Speed of a model on the own pool of threads, on OpenMP, and on a host's executor (a queue with a lock and a condition
// variable, as programs have): executors MODEL [THREADS [ROUNDS]]. Rounds take the executors in turn; medians, and
// ratios to the own pool. Not part of the tests.
#include <corbel/backends/cpu/openmp_executor.hpp>
#include <corbel/corbel.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Backend = corbel::CpuBackend;

/// Threads that sleep until there is a region, and take its tasks under a lock.
class HostPool final : public corbel::Executor {
 public:
  explicit HostPool(int threads) {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~HostPool() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  std::size_t concurrency() const noexcept override { return threads_.size() + 1; }
  void run(std::size_t num_tasks, Task task, void* argument) noexcept override {
    const std::lock_guard<std::mutex> one_region(regions_);
    std::unique_lock<std::mutex> lock(mutex_);
    task_ = task, argument_ = argument, next_ = 0, end_ = num_tasks, left_ = num_tasks;
    wake_.notify_all();
    take_tasks(lock);
    done_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  void take_tasks(std::unique_lock<std::mutex>& lock) {
    while (next_ < end_) {
      const std::size_t index = next_++;
      lock.unlock();
      task_(argument_, index);
      lock.lock();
      if (--left_ == 0) done_.notify_all();
    }
  }
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stop_ || next_ < end_; });
      if (stop_) return;
      take_tasks(lock);
    }
  }

  std::mutex regions_, mutex_;
  std::condition_variable wake_, done_;
  Task task_ = nullptr;
  void* argument_ = nullptr;
  std::size_t next_ = 0, end_ = 0, left_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

struct Rates {
  std::vector<double> prefill, decode;
};

/// A model on one executor, with a prompt of 512 tokens and 64 steps behind it.
class Subject {
 public:
  Subject(const char* model, corbel::Executor* executor, int threads)
      : model_(
            corbel::Model<Backend>::load(model, corbel::Context({.executor = executor, .threads = threads})).value()),
        cache_(corbel::KVCache<Backend>::create(model_, {.max_tokens = 1024}).value()),
        batch_(corbel::Batch<Backend>::create(cache_, {.max_rows = 512}).value()) {}

  void measure(Rates& rates) {
    corbel::Sequence<Backend> sequence(cache_);
    std::vector<corbel::TokenId> ids(512);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<corbel::TokenId>(i * 7919 % model_.spec().vocab);
    rates.prefill.push_back(512 / step(sequence, ids, corbel::Role::kPrompt));
    constexpr int kSteps = 64;
    double seconds = 0;
    for (int i = 0; i < kSteps; ++i) seconds += step(sequence, {ids.data(), 1}, corbel::Role::kGenerated);
    rates.decode.push_back(kSteps / seconds);
  }

 private:
  double step(corbel::Sequence<Backend>& sequence, std::span<const corbel::TokenId> ids, corbel::Role role) {
    const Clock::time_point begin = Clock::now();
    if (!batch_.add(sequence, ids, role).ok() || !batch_.forward().ok()) std::abort();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  corbel::Model<Backend> model_;
  corbel::KVCache<Backend> cache_;
  corbel::Batch<Backend> batch_;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: executors MODEL [THREADS [ROUNDS]]\n");
    return 2;
  }
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2, rounds = argc > 3 ? std::atoi(argv[3]) : 15;
  corbel::OpenMpExecutor openmp(threads);
  HostPool host(threads);
  const char* const names[] = {"own pool", "OpenMP", "host's pool"};
  corbel::Executor* const executors[] = {nullptr, &openmp, &host};
  std::vector<std::unique_ptr<Subject>> subjects;
  for (corbel::Executor* executor : executors)
    subjects.push_back(std::make_unique<Subject>(argv[1], executor, threads));
  Rates rates[3], ignored;
  for (const auto& subject : subjects) subject->measure(ignored);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < 3; ++i)
      subjects[(i + static_cast<std::size_t>(round)) % 3]->measure(rates[(i + static_cast<std::size_t>(round)) % 3]);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const double prefill = median(rates[i].prefill), decode = median(rates[i].decode);
    std::printf("%-12s prefill %7.1f tokens/s (%.2f)  decode %6.1f tokens/s (%.2f)\n", names[i], prefill,
                prefill / median(rates[0].prefill), decode, decode / median(rates[0].decode));
  }
}
