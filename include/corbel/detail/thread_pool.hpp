// A fork-join pool for regions of a few microseconds, of which a generated token needs hundreds: of the library's own
// threads, or of threads that a host lends for a while.
#pragma once

#include <corbel/config.hpp>
#include <corbel/detail/fp_environment.hpp>
#include <corbel/detail/stall_backoff.hpp>

#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <pthread.h>
#include <signal.h>
#include <thread>
#include <unistd.h>

CORBEL_NAMESPACE_BEGIN
namespace detail {

/// Tells the core that this thread waits in a loop.
inline void cpu_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/// Own threads are persistent: "corbel-0", "corbel-1", ... They block all signals and run in the default floating-point
/// environment. They start at the first region; where fewer can be made, fewer are used. Lent ones are those that are
/// in help(). Thread-safe; destroyed by a thread that is not its own.
///
/// One atomic counter hands out the tasks of a region, and everything a thread knows about the region it reads after it
/// has claimed a task: the region cannot end, and its description cannot change, before that task is finished. So a
/// thread that wakes up late does no harm, nobody waits for a thread that holds no task, and the calling thread does by
/// itself what others do not claim.
class ThreadPool {
 public:
  using Task = void (*)(void* argument, std::size_t index) noexcept;

  enum class Threads : std::uint8_t { kOwn, kLent };

  /// `concurrency` counts the calling thread, so one thread fewer is started.
  explicit ThreadPool(std::size_t concurrency, Threads threads = Threads::kOwn) noexcept
      : start_tried_(threads == Threads::kLent), concurrency_(concurrency) {}

  ~ThreadPool() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_.store(true, std::memory_order_relaxed);
    }
    wake_.notify_all();
    for (std::size_t i = 0; i < num_started_; ++i) pthread_join(workers_[i].handle, nullptr);
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  std::size_t concurrency() const noexcept { return concurrency_; }

  /// The process was forked after the threads had started: this copy of the pool has none and must not be destroyed.
  bool lost_in_fork() const noexcept { return num_started_ > 0 && owner_ != getpid(); }

  /// Calls task(argument, i) once for each i in [0, num_tasks) and returns true when all have returned. Returns false
  /// and does nothing, so that the caller does it all by itself, while another thread's region (or the region that this
  /// call is nested in) uses the pool, and for a while after a stall.
  bool try_run(std::size_t num_tasks, Task task, void* argument) noexcept {
    if (busy_.exchange(true, std::memory_order_acquire)) return false;
    const auto begin = std::chrono::steady_clock::now();
    if (backoff_.alone(begin)) {
      busy_.store(false, std::memory_order_release);
      return false;
    }
    if (!start_tried_) start();
    region_ = {task, argument, num_tasks};
    unfinished_.store(num_tasks, std::memory_order_relaxed);
    // Sequentially consistent with the sleepers' count: either a worker sees the tasks or this thread sees the sleeper.
    unclaimed_.store(num_tasks, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake(num_tasks - 1);
    const std::size_t mine = run_tasks();
    if (unfinished_.load(std::memory_order_acquire) != mine) join(mine, begin);
    busy_.store(false, std::memory_order_release);
    return true;
  }

  /// Lends the calling thread: it takes part in the regions of others until dismiss(done).
  void help(const std::atomic<bool>& done) noexcept { work_until(done); }
  void dismiss(std::atomic<bool>& done) noexcept {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      done.store(true, std::memory_order_release);
    }
    wake_.notify_all();
  }

 private:
  struct Region {
    Task task = nullptr;
    void* argument = nullptr;
    std::size_t num_tasks = 0;
  };
  struct Worker {
    ThreadPool* pool = nullptr;
    std::size_t index = 0;
    pthread_t handle{};
  };

  // Longer than the serial parts between two regions of a token, short enough not to burn a core between tokens of a
  // slow reader.
  static constexpr std::chrono::microseconds kIdleSpin{100};
  static constexpr int kJoinSpins = 4096;

  void start() noexcept {
    start_tried_ = true;
    owner_ = getpid();
    const std::size_t wanted = concurrency_ - 1;
    workers_.reset(new (std::nothrow) Worker[wanted]);
    if (!workers_) return;
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;  // threads inherit the mask
    for (; num_started_ < wanted; ++num_started_) {
      Worker& worker = workers_[num_started_];
      worker.pool = this;
      worker.index = num_started_;
      if (pthread_create(&worker.handle, nullptr, &ThreadPool::thread_main, &worker) != 0) break;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  static void* thread_main(void* argument) noexcept {
    const Worker& worker = *static_cast<const Worker*>(argument);
    set_fp_control(kDefaultFpControl);
#if defined(__linux__)
    char name[16] = "corbel-";  // the kernel's limit, with the zero
    std::to_chars(name + 7, name + 15, worker.index);
    pthread_setname_np(pthread_self(), name);
#endif
    worker.pool->work_until(worker.pool->stop_);
    return nullptr;
  }

  void work_until(const std::atomic<bool>& stop) noexcept {
    while (wait_for_tasks(stop)) {
      if (const std::size_t done = run_tasks(); done != 0) unfinished_.fetch_sub(done, std::memory_order_release);
    }
  }

  // Waits for the tasks of others; `mine` are done, of a region that began at `begin`.
  void join(std::size_t mine, StallBackoff::Time begin) noexcept {
    const auto done = std::chrono::steady_clock::now();
    for (int spins = 0; unfinished_.load(std::memory_order_acquire) != mine; ++spins) {
      if (spins < kJoinSpins) {
        cpu_pause();
      } else {
        std::this_thread::yield();  // a worker holds a long task, or the system took its core away
      }
    }
    backoff_.joined(begin, done, std::chrono::steady_clock::now());
  }

  // Claims and runs tasks until none is left. Until the caller reports them as finished, the region is the same one.
  std::size_t run_tasks() noexcept {
    std::size_t done = 0;
    std::size_t left = unclaimed_.load(std::memory_order_relaxed);
    while (left != 0) {
      if (!unclaimed_.compare_exchange_weak(left, left - 1, std::memory_order_acquire, std::memory_order_relaxed))
        continue;
      region_.task(region_.argument, region_.num_tasks - left);
      ++done;
      left = unclaimed_.load(std::memory_order_relaxed);
    }
    return done;
  }

  // False where it is time to stop.
  bool wait_for_tasks(const std::atomic<bool>& stop) noexcept {
    const auto end = std::chrono::steady_clock::now() + kIdleSpin;
    do {
      for (int i = 0; i < 64; ++i) {
        if (unclaimed_.load(std::memory_order_relaxed) != 0) return true;
        cpu_pause();
      }
    } while (std::chrono::steady_clock::now() < end && !stop.load(std::memory_order_relaxed));
    std::unique_lock<std::mutex> lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (!stop.load(std::memory_order_relaxed) && unclaimed_.load(std::memory_order_seq_cst) == 0) wake_.wait(lock);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    return !stop.load(std::memory_order_relaxed);
  }

  void wake(std::size_t wanted) noexcept {
    const std::size_t sleeping = sleepers_.load(std::memory_order_relaxed);
    // A worker that has counted itself but not yet gone to sleep holds the mutex.
    { const std::lock_guard<std::mutex> lock(mutex_); }
    if (wanted >= sleeping) {
      wake_.notify_all();
    } else {
      for (std::size_t i = 0; i < wanted; ++i) wake_.notify_one();
    }
  }

  // The counter that everybody polls lies with what a claimer reads next; the one that finished workers write lies
  // apart.
  alignas(64) std::atomic<std::size_t> unclaimed_{0};
  Region region_;
  alignas(64) std::atomic<std::size_t> unfinished_{0};
  alignas(64) std::atomic<bool> busy_{false};
  std::atomic<std::size_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  StallBackoff backoff_;  // this and the next three: owned by who holds busy_
  bool start_tried_;
  std::size_t num_started_ = 0;
  std::unique_ptr<Worker[]> workers_;
  const std::size_t concurrency_;
  pid_t owner_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace detail
CORBEL_NAMESPACE_END
