// Context: what a host lends to the library (memory, threads, a log) and what is shared by everything made from it.
//
//   corbel::Context context;                                   // own threads, operator-new memory, silent
//   corbel::Context tuned({.threads = 4, .memory_budget = 2ull << 30});
//
// Nothing is process-wide: two contexts share nothing.
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

CORBEL_NAMESPACE_BEGIN

/// The host's allocator for all large memory: weights, caches, arenas, file buffers. (Small containers use operator
/// new.) Both functions are called from any thread and must not throw. The object must outlive every context that uses
/// it.
class MemoryResource {
 public:
  virtual ~MemoryResource() = default;
  /// `bytes` > 0, `alignment` a power of two. nullptr means out of memory.
  virtual void* allocate(std::size_t bytes, std::size_t alignment) noexcept = 0;
  /// Same arguments as the allocation.
  virtual void deallocate(void* memory, std::size_t bytes, std::size_t alignment) noexcept = 0;
};

/// The host's threads: an interface of two functions. The object must outlive every context that uses it.
class Executor {
 public:
  using Task = void (*)(void* argument, std::size_t index) noexcept;
  virtual ~Executor() = default;
  /// How many tasks can run at the same time, at least 1. Must not change.
  virtual std::size_t concurrency() const noexcept = 0;
  /// Calls task(argument, i) once for each i in [0, num_tasks), in any order, on any threads, and returns when all
  /// calls have returned. The calling thread may take part. May be called from several threads at once; results never
  /// depend on the schedule.
  virtual void run(std::size_t num_tasks, Task task, void* argument) noexcept = 0;
};

/// Severity of a log line.
enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError };

/// Where log lines go; silent by default. `write` is called from any thread, must not throw, and gets one printable
/// line without newline.
struct LogSink {
  void (*write)(void* user, LogLevel level, std::string_view line) noexcept = nullptr;
  void* user = nullptr;
};

/// Levels of CPU instructions, lowest first. Results are bit-equal within a level and may differ between levels.
enum class IsaLevel : std::uint8_t { kBase, kAvx2, kAvx512, kAmx };

/// "base", "avx2", "avx512", "amx".
CORBEL_API const char* isa_name(IsaLevel level) noexcept;
/// The level with this name; Errc::kInvalidArgument otherwise.
CORBEL_API Result<IsaLevel> isa_from_name(std::string_view name);
/// The highest level that this CPU and operating system have. Reads CPUID and XCR0; changes nothing.
CORBEL_API IsaLevel detected_isa() noexcept;

/// The tiles of AMX, at level amx. kNever: the level is avx512, and the system is not asked for its permission, which
/// is a lasting setting of the process. kEmulate: software gives the same bits on any CPU that has avx512, slowly; for
/// tests and comparisons.
enum class AmxUse : std::uint8_t { kAllow, kNever, kEmulate };

/// Values that change the speed of the cpu backend and no bit of any result.
struct TuningOptions {
  /// Measure what is not fixed here: some milliseconds, once for a context, when a model with enough weights is loaded.
  bool measure = true;
  std::uint32_t prefetch_distance = 0;  ///< bytes that linears ask for ahead of where they read; 0: not fixed
  std::uint32_t region_cost = 0;  ///< less work than this, in operations, is not shared out among threads; 0: not fixed
  std::uint32_t streams = 0;      ///< 1: a linear reads long weights in one stream; more: in several; 0: not fixed
};

struct ContextOptions {
  MemoryResource* memory = nullptr;  ///< nullptr: operator new
  Executor* executor = nullptr;      ///< nullptr: an own pool of persistent threads
  int threads = 0;                   ///< size of the own pool; 0: physical cores within affinity mask and cgroup
  std::uint64_t memory_budget = 0;   ///< bytes over everything made from the context; 0: no limit
  LogSink log = {};                  ///< silent by default
  /// Use no higher level than this, also where the CPU has it. A level that the CPU lacks is an error when a backend is
  /// made.
  IsaLevel isa = IsaLevel::kAmx;
  bool force_isa = false;  ///< use exactly `isa`; Errc::kUnsupported at load where the CPU lacks it
  AmxUse amx = AmxUse::kAllow;
  TuningOptions tuning = {};
};

namespace detail {
struct ContextState;
}

class Context;

/// Memory from a context's resource, charged to its budget until destroyed. Movable. Keeps the context's state alive.
class CORBEL_API Allocation {
 public:
  Allocation() noexcept = default;
  Allocation(Allocation&& other) noexcept { swap(other); }
  Allocation& operator=(Allocation&& other) noexcept {
    Allocation(std::move(other)).swap(*this);
    return *this;
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation();

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  void swap(Allocation& other) noexcept {
    std::swap(state_, other.state_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(alignment_, other.alignment_);
  }

 private:
  friend class Context;
  std::shared_ptr<detail::ContextState> state_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t alignment_ = 0;
};

/// A handle to shared state; copies are cheap and refer to the same state. The state lives as long as anything made
/// from it. Thread-safe. Making one cannot fail; the pool's threads start at the first parallel call, and if fewer can
/// be started, fewer are used.
class CORBEL_API Context {
 public:
  /// Bytes of a huge page: an Allocation aligned to it asks the system for them, where the context has no memory
  /// resource of the host's. For blocks that are filled whole: what is touched in part counts whole.
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  Context() noexcept : Context(ContextOptions{}) {}
  explicit Context(const ContextOptions& options) noexcept;

  /// `bytes` of memory with at least 64-byte alignment, not zeroed; Errc::kOutOfMemory names `what`, the bytes and the
  /// budget. bytes == 0 gives an empty Allocation.
  Result<Allocation> allocate(std::uint64_t bytes, std::string_view what, std::size_t alignment = 64) const;

  /// Runs task(argument, i) for each i in [0, num_tasks) on the context's executor; returns when all are done. With one
  /// task, with concurrency 1, or while another caller uses the pool, everything runs on the calling thread.
  void run(std::size_t num_tasks, Executor::Task task, void* argument) const noexcept;
  /// Calls body(argument), which opens many short regions by run(), and returns when it has returned. Where the host has
  /// an executor, this is one region of it: a thread of the executor calls the body, and its others help until the end.
  void run_many(void (*body)(void* argument) noexcept, void* argument) const noexcept;
  /// Tasks that can run at the same time, at least 1.
  std::size_t concurrency() const noexcept;

  /// One line to the log sink; does nothing where there is none.
  void log(LogLevel level, std::string_view line) const noexcept;

  /// Bytes now charged to the budget, and the highest value so far.
  std::uint64_t bytes_in_use() const noexcept;
  std::uint64_t peak_bytes() const noexcept;

  const ContextOptions& options() const noexcept;

  /// A word in which a backend keeps what it measured; 0 at first.
  std::uint64_t measured() const noexcept;
  void set_measured(std::uint64_t word) const noexcept;

 private:
  std::shared_ptr<detail::ContextState> state_;
};

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/context.ipp>
#endif
