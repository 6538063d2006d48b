// An executor over OpenMP, for hosts whose other code runs on OpenMP's threads already. Needs -fopenmp (the target
// corbel::openmp).
#pragma once

#ifndef _OPENMP
#error "link corbel::openmp or compile with -fopenmp"
#endif

#include <corbel/context.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <omp.h>

CORBEL_NAMESPACE_BEGIN

/// Runs regions on OpenMP's threads. One region at a time: a second caller meanwhile runs its region on its own thread.
/// Thread-safe.
///
/// OpenMP's runtimes end the process when they cannot make a thread, which is why this is not the default.
class OpenMpExecutor final : public Executor {
 public:
  /// `threads` <= 0: as many as OpenMP would use now.
  explicit OpenMpExecutor(int threads = 0) noexcept : threads_(threads > 0 ? threads : omp_get_max_threads()) {}

  std::size_t concurrency() const noexcept override { return static_cast<std::size_t>(threads_); }

  void run(std::size_t num_tasks, Task task, void* argument) noexcept override {
    const bool busy = busy_.exchange(true, std::memory_order_acquire);
    if (busy || num_tasks < 2 || threads_ < 2) {
      for (std::size_t i = 0; i < num_tasks; ++i) task(argument, i);
    } else {
      const auto end = static_cast<std::int64_t>(num_tasks);
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads_)
      for (std::int64_t i = 0; i < end; ++i) task(argument, static_cast<std::size_t>(i));
    }
    if (!busy) busy_.store(false, std::memory_order_release);
  }

 private:
  int threads_;
  std::atomic<bool> busy_{false};
};

CORBEL_NAMESPACE_END
