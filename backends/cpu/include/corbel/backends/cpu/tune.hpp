// Measures the values of tuning.hpp on a packed weight, in some milliseconds. Private to the backend.
#pragma once

#include <corbel/backends/cpu/cpu_backend.hpp>
#include <corbel/backends/cpu/kernel_table.hpp>
#include <corbel/backends/cpu/tuning.hpp>
#include <corbel/context.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace cpu {

/// One measurement. It leaves the fixed values where nothing is better by a clear margin, again and again: a busy
/// machine must not make the next hour slow.
class Tuner {
 public:
  Tuner(const Context& context, const KernelTable& kernels) noexcept : context_(context), kernels_(kernels) {}

  /// Of a weight whose segment is too small to say anything, only the price of a region is measured.
  Tuning run(const CpuBackend::Weight::Segment* segment, std::size_t columns) noexcept {
    Tuning tuning;
    tuning.region_cost = region_cost(tuning.region_cost);
    if (segment != nullptr) choose_reading(*segment, columns, tuning);
    tuning.measured = true;
    return tuning;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kTries = 7;
  static constexpr std::size_t kMaxElements = 12288;
  static constexpr std::chrono::milliseconds kLongest{6};

  static double seconds_since(Clock::time_point begin) noexcept {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  template <std::size_t kCount>
  static double median(double (&times)[kCount], int count) noexcept {
    std::nth_element(times, times + count / 2, times + count);
    return times[count / 2];
  }

  /// More than the fixed value only where that much work, shared out, takes twice as long as on one thread; less only
  /// where half as much is done in not much more than half the time.
  std::size_t region_cost(std::size_t fixed) const noexcept {
    constexpr double kLoses = 2.0, kPays = 0.6;
    if (context_.concurrency() == 1) return fixed;
    const Result<Allocation> memory = context_.allocate(kMaxElements * sizeof(float), "measuring speed");
    if (!memory.ok()) return fixed;
    auto* const values = reinterpret_cast<float*>(memory->data());
    std::fill_n(values, kMaxElements, 0.0f);
    for (int i = 0; i < 4; ++i) ratio_of_region(fixed, values);  // starts or wakes the threads
    std::size_t cost = fixed;
    while (cost < fixed * 4 && ratio_of_region(cost, values) > kLoses) cost *= 2;
    if (cost != fixed) return cost;
    while (cost > fixed / 4 && ratio_of_region(cost / 2, values) < kPays) cost /= 2;
    return cost;
  }

  /// An elementwise op of two operations an element: its time shared out, of that alone.
  double ratio_of_region(std::size_t cost, float* values) const noexcept {
    constexpr int kRepeats = 25;
    struct Work {
      const KernelTable& kernels;
      std::size_t threads, width;
      float* values;
      static void run(void* self, std::size_t index) noexcept {
        Work& work = *static_cast<Work*>(self);
        const std::size_t begin = work.width * index / work.threads, end = work.width * (index + 1) / work.threads;
        work.kernels.scale_row(1, work.values + begin, work.values + begin, end - begin);
      }
    } work = {kernels_, 1, std::min(cost / 2, kMaxElements), values};
    double alone[kRepeats], shared[kRepeats];
    for (int i = 0; i < kRepeats; ++i) {
      work.threads = 1;
      auto begin = Clock::now();
      Work::run(&work, 0);
      alone[i] = seconds_since(begin);
      work.threads = context_.concurrency();
      begin = Clock::now();
      context_.run(work.threads, &Work::run, &work);
      shared[i] = seconds_since(begin);
    }
    return median(shared, kRepeats) / std::max(median(alone, kRepeats), 1e-9);
  }

  /// How weights are read. Passes over other groups of the weight each time, on all threads, the choices in turns.
  void choose_reading(const CpuBackend::Weight::Segment& segment, std::size_t columns, Tuning& tuning) noexcept {
    struct Choice {
      std::size_t distance;
      bool streams;
    };
    constexpr Choice kChoices[] = {{4096, true}, {4096, false}, {1024, true},  // the fixed one first
                                   {2048, true}, {8192, true},  {16384, true}};
    constexpr std::size_t kCount = std::size(kChoices);
    constexpr double kBetter = 0.96;
    const std::size_t threads = context_.concurrency();
    const auto group_bytes = static_cast<std::size_t>(segment.group_bytes);
    const std::size_t num_groups = static_cast<std::size_t>(segment.rows) / kGroupRows;
    const std::size_t groups = std::min(num_groups, (std::size_t{768} << 10) / group_bytes + 1) / threads;  // of a task
    if (groups == 0) return;
    const std::size_t x_bytes = columns / kBlockColumns * sizeof(ActivationBlock);
    Result<Allocation> memory =
        context_.allocate(x_bytes + threads * groups * kGroupRows * sizeof(float), "measuring speed");
    if (!memory.ok()) return;
    std::memset(memory->data(), 0, x_bytes);

    struct Pass {
      const KernelTable& kernels;
      const CpuBackend::Weight::Segment& segment;
      LinearArgs args;
      std::size_t begin, groups;
      static void run(void* self, std::size_t index) noexcept {
        const Pass& pass = *static_cast<const Pass*>(self);
        LinearArgs args = pass.args;
        args.weights = pass.segment.groups + (pass.begin + index * pass.groups) * args.group_bytes;
        args.out += index * pass.groups * kGroupRows;
        pass.kernels.linear[static_cast<std::size_t>(pass.segment.dtype)](args);
      }
    } pass = {kernels_, segment, {}, 0, groups};
    pass.args.group_bytes = group_bytes;
    pass.args.num_columns = groups * kGroupRows;
    pass.args.k = columns;
    pass.args.x_blocks = reinterpret_cast<const ActivationBlock*>(memory->data());
    pass.args.x_block_stride = columns / kBlockColumns;
    pass.args.out = reinterpret_cast<float*>(memory->data() + x_bytes);
    pass.args.out_stride = pass.args.num_columns;
    pass.args.num_rows = 1;

    double times[kCount][kTries];
    int wins[kCount] = {};
    int tries = 0;
    const auto begin = Clock::now();
    for (; tries < kTries; ++tries) {
      for (std::size_t i = 0; i < kCount; ++i) {
        const std::size_t which = (i + static_cast<std::size_t>(tries)) % kCount;
        if (pass.begin + threads * groups > num_groups) pass.begin = 0;
        pass.args.prefetch_distance = kChoices[which].distance;
        pass.args.streams = kChoices[which].streams;
        const auto start = Clock::now();
        context_.run(threads, &Pass::run, &pass);
        times[which][tries] = seconds_since(start);
        pass.begin += threads * groups;
      }
      for (std::size_t i = 0; i < kCount; ++i) wins[i] += times[i][tries] < times[0][tries] ? 1 : 0;
      if (Clock::now() - begin > kLongest) {
        ++tries;
        break;
      }
    }
    if (tries < 5) return;
    std::size_t best = 0;
    double least = kBetter * median(times[0], tries);
    for (std::size_t i = 1; i < kCount; ++i) {
      const double time = median(times[i], tries);
      if (time < least && wins[i] >= tries - 1) best = i, least = time;
    }
    tuning.prefetch_distance = kChoices[best].distance;
    tuning.streams = kChoices[best].streams;
  }

  const Context& context_;
  const KernelTable& kernels_;
};

}  // namespace cpu
CORBEL_NAMESPACE_END
