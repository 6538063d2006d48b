// Definitions of context.hpp.
#pragma once

#include <corbel/context.hpp>
#include <corbel/detail/cpu_count.hpp>
#include <corbel/detail/cpu_features.hpp>
#include <corbel/detail/fp_environment.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/thread_pool.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <new>
#include <string>
#include <thread>
#if defined(__linux__)
#include <sys/mman.h>
#endif

CORBEL_NAMESPACE_BEGIN
namespace detail {

/// What the copies of a Context share.
struct ContextState {
  explicit ContextState(const ContextOptions& given) : options(given) {
    // More threads than this is a mistake of the caller, not a machine.
    constexpr std::size_t kMaxThreads = 1024;
    const bool own = options.executor == nullptr;
    const std::size_t threads = !own                  ? options.executor->concurrency()
                                : options.threads > 0 ? static_cast<std::size_t>(options.threads)
                                                      : default_threads();
    if (threads > 1)
      pool.reset(new (std::nothrow) ThreadPool(std::min(threads, kMaxThreads),
                                               own ? ThreadPool::Threads::kOwn : ThreadPool::Threads::kLent));
  }
  ~ContextState() {
    // In a forked child the threads are gone: joining them, or destroying what they waited on, would never end.
    if (pool && pool->lost_in_fork()) static_cast<void>(pool.release());
  }
  ContextState(const ContextState&) = delete;
  ContextState& operator=(const ContextState&) = delete;

  /// Charges `bytes` to the budget; false, and nothing is charged, where they do not fit.
  bool charge(std::uint64_t bytes) noexcept {
    const std::uint64_t limit =
        options.memory_budget != 0 ? options.memory_budget : std::numeric_limits<std::uint64_t>::max();
    std::uint64_t used = bytes_in_use.load(std::memory_order_relaxed);
    do {
      if (used > limit || bytes > limit - used) return false;
    } while (!bytes_in_use.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    std::uint64_t peak = peak_bytes.load(std::memory_order_relaxed);
    while (peak < used + bytes && !peak_bytes.compare_exchange_weak(peak, used + bytes, std::memory_order_relaxed)) {
    }
    return true;
  }
  void discharge(std::uint64_t bytes) noexcept { bytes_in_use.fetch_sub(bytes, std::memory_order_relaxed); }

  void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    if (options.memory != nullptr) return options.memory->allocate(bytes, alignment);
    void* const memory = ::operator new (bytes, std::align_val_t{alignment}, std::nothrow);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (memory != nullptr && alignment >= Context::kHugePage)
      static_cast<void>(
          ::madvise(memory, bytes & ~(Context::kHugePage - 1), MADV_HUGEPAGE));  // advice: it may be refused
#endif
    return memory;
  }
  void deallocate(void* memory, std::size_t bytes, std::size_t alignment) noexcept {
    if (options.memory != nullptr) return options.memory->deallocate(memory, bytes, alignment);
    ::operator delete (memory, std::align_val_t{alignment});
  }

  const ContextOptions options;
  std::atomic<std::uint64_t> bytes_in_use{0};
  std::atomic<std::uint64_t> peak_bytes{0};
  std::atomic<std::uint64_t> measured{0};
  std::unique_ptr<ThreadPool> pool;       // of lent threads where there is an executor; none: no second thread
  std::atomic<bool> lent{false};          // the executor's threads, to one run_many() at a time
  std::atomic<std::thread::id> leader{};  // which thread opens the regions there
};

/// A task as the host's executor sees it: its threads may have any floating-point environment.
struct GuardedTask {
  Executor::Task task;
  void* argument;
  static void run(void* self, std::size_t index) noexcept {
    const ScopedFpEnvironment environment;
    const GuardedTask& guarded = *static_cast<const GuardedTask*>(self);
    guarded.task(guarded.argument, index);
  }
};

/// A run_many() as the host's executor sees it: the first thread that comes leads, the others help. So an executor that
/// runs tasks one after the other does no harm: whoever comes after the end has nothing to do.
struct LentThreads {
  ContextState& state;
  void (*body)(void* argument) noexcept;
  void* argument;
  std::atomic<bool> led{false};
  std::atomic<bool> done{false};

  static void run(void* self, std::size_t) noexcept {
    const ScopedFpEnvironment environment;
    LentThreads& lent = *static_cast<LentThreads*>(self);
    if (lent.led.exchange(true, std::memory_order_relaxed)) return lent.state.pool->help(lent.done);
    lent.state.leader.store(std::this_thread::get_id(), std::memory_order_relaxed);
    lent.body(lent.argument);
    lent.state.leader.store(std::thread::id(), std::memory_order_relaxed);
    lent.state.pool->dismiss(lent.done);
  }
};

}  // namespace detail

CORBEL_INLINE const char* isa_name(IsaLevel level) noexcept {
  switch (level) {
    case IsaLevel::kBase:
      return "base";
    case IsaLevel::kAvx2:
      return "avx2";
    case IsaLevel::kAvx512:
      return "avx512";
    case IsaLevel::kAmx:
      return "amx";
  }
  return "unknown";
}

CORBEL_INLINE Result<IsaLevel> isa_from_name(std::string_view name) {
  for (const IsaLevel level : {IsaLevel::kBase, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmx}) {
    if (name == isa_name(level)) return level;
  }
  return detail::guard([&]() -> Result<IsaLevel> {
    return Status(Errc::kInvalidArgument, fmt::format("ISA level: expected base, avx2, avx512 or amx, got \"{}\"",
                                                      detail::printable(name, 64)));
  });
}

CORBEL_INLINE IsaLevel detected_isa() noexcept {
  const detail::CpuFeatures features = detail::cpu_features();
  if (features.amx) return IsaLevel::kAmx;
  if (features.avx512) return IsaLevel::kAvx512;
  return features.avx2 ? IsaLevel::kAvx2 : IsaLevel::kBase;
}

CORBEL_INLINE Allocation::~Allocation() {
  if (data_ == nullptr) return;
  state_->deallocate(data_, size_, alignment_);
  state_->discharge(size_);
}

CORBEL_INLINE Context::Context(const ContextOptions& options) noexcept {
#if CORBEL_HAS_EXCEPTIONS
  try {
    state_ = std::make_shared<detail::ContextState>(options);
  } catch (
      ...) {  // no memory for the state: the context has no memory to give, runs on the calling thread, and is silent
  }
#else
  state_ = std::make_shared<detail::ContextState>(options);
#endif
}

CORBEL_INLINE Result<Allocation> Context::allocate(std::uint64_t bytes, std::string_view what,
                                                   std::size_t alignment) const {
  return detail::guard([&]() -> Result<Allocation> {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
      return Status(Errc::kInvalidArgument, fmt::format("{}: alignment {} is not a power of two", what, alignment));
    }
    Allocation result;
    if (bytes == 0) return result;
    if (!state_) return Status(Errc::kOutOfMemory, fmt::format("{}: the context has no state", what));
    const std::uint64_t budget = state_->options.memory_budget;
    // No object may be larger than half the address space.
    if (bytes > static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max()) || !state_->charge(bytes)) {
      const std::string limit = budget == 0 ? "no budget" : fmt::format("a budget of {} bytes", budget);
      return Status(Errc::kOutOfMemory, fmt::format("{}: {} bytes do not fit; {} bytes in use, {}", what, bytes,
                                                    state_->bytes_in_use.load(std::memory_order_relaxed), limit));
    }
    const auto size = static_cast<std::size_t>(bytes);
    const std::size_t aligned = std::max<std::size_t>(alignment, 64);
    void* const memory = state_->allocate(size, aligned);
    if (memory == nullptr) {
      state_->discharge(bytes);
      return Status(Errc::kOutOfMemory, fmt::format("{}: the memory resource gave no {} bytes; {} bytes in use", what,
                                                    bytes, state_->bytes_in_use.load(std::memory_order_relaxed)));
    }
    result.state_ = state_;
    result.data_ = static_cast<std::byte*>(memory);
    result.size_ = size;
    result.alignment_ = aligned;
    return result;
  });
}

CORBEL_INLINE void Context::run(std::size_t num_tasks, Executor::Task task, void* argument) const noexcept {
  const detail::ScopedFpEnvironment environment;
  if (num_tasks > 1 && state_) {
    Executor* const executor = state_->options.executor;
    const bool leads = state_->leader.load(std::memory_order_relaxed) == std::this_thread::get_id();
    if (executor != nullptr && !leads) {
      detail::GuardedTask guarded{task, argument};
      return executor->run(num_tasks, &detail::GuardedTask::run, &guarded);
    }
    if (state_->pool && state_->pool->try_run(num_tasks, task, argument)) return;
  }
  for (std::size_t i = 0; i < num_tasks; ++i) task(argument, i);
}

CORBEL_INLINE void Context::run_many(void (*body)(void* argument) noexcept, void* argument) const noexcept {
  const std::size_t threads = concurrency();
  if (threads == 1 || state_->options.executor == nullptr || !state_->pool ||
      state_->lent.exchange(true, std::memory_order_acquire))
    return body(argument);
  detail::LentThreads lent{*state_, body, argument};
  state_->options.executor->run(threads, &detail::LentThreads::run, &lent);
  state_->lent.store(false, std::memory_order_release);
}

CORBEL_INLINE std::size_t Context::concurrency() const noexcept {
  if (!state_) return 1;
  if (state_->options.executor != nullptr) return std::max<std::size_t>(1, state_->options.executor->concurrency());
  return state_->pool ? state_->pool->concurrency() : 1;
}

CORBEL_INLINE void Context::log(LogLevel level, std::string_view line) const noexcept {
  if (!state_ || state_->options.log.write == nullptr) return;
  const LogSink& sink = state_->options.log;
  constexpr std::size_t kMaxLineBytes = 1024;
#if CORBEL_HAS_EXCEPTIONS
  try {
    sink.write(sink.user, level, detail::printable(line, kMaxLineBytes));
  } catch (...) {  // no memory for the line
  }
#else
  sink.write(sink.user, level, detail::printable(line, kMaxLineBytes));
#endif
}

CORBEL_INLINE std::uint64_t Context::bytes_in_use() const noexcept {
  return state_ ? state_->bytes_in_use.load(std::memory_order_relaxed) : 0;
}

CORBEL_INLINE std::uint64_t Context::peak_bytes() const noexcept {
  return state_ ? state_->peak_bytes.load(std::memory_order_relaxed) : 0;
}

CORBEL_INLINE std::uint64_t Context::measured() const noexcept {
  return state_ ? state_->measured.load(std::memory_order_relaxed) : 0;
}

CORBEL_INLINE void Context::set_measured(std::uint64_t word) const noexcept {
  if (state_) state_->measured.store(word, std::memory_order_relaxed);
}

CORBEL_INLINE const ContextOptions& Context::options() const noexcept {
  static constexpr ContextOptions kNone{};
  return state_ ? state_->options : kNone;
}

CORBEL_NAMESPACE_END
