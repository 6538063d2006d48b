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
    if (segment != nullptr) tuning.prefetch_distance = prefetch_distance(*segment, columns, tuning.prefetch_distance);
    tuning.measured = true;
    return tuning;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kTries = 7;
  static constexpr std::chrono::milliseconds kLongest{6};

  static double seconds_since(Clock::time_point begin) noexcept {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  template <std::size_t kCount>
  static double median(double (&times)[kCount], int count) noexcept {
    std::nth_element(times, times + count / 2, times + count);
    return times[count / 2];
  }

  /// Another value only where regions cost less than half or more than twice what the fixed value assumes.
  std::size_t region_cost(std::size_t fixed) const noexcept {
    constexpr double kAssumed = 0.5e-6;
    constexpr int kRegions = 65;
    const std::size_t threads = context_.concurrency();
    if (threads == 1) return fixed;
    double times[kRegions];
    for (int i = -16; i < kRegions; ++i) {  // the first ones start or wake the threads
      const auto begin = Clock::now();
      context_.run(
          threads, [](void*, std::size_t) noexcept {}, nullptr);
      if (i >= 0) times[i] = seconds_since(begin);
    }
    const double ratio = median(times, kRegions) / kAssumed;
    if (ratio > 0.5 && ratio < 2) return fixed;
    return static_cast<std::size_t>(static_cast<double>(fixed) * std::clamp(ratio, 0.25, 8.0));
  }

  /// Passes over other groups of the weight each time, on all threads, the distances in turns.
  std::size_t prefetch_distance(const CpuBackend::Weight::Segment& segment, std::size_t columns,
                                std::size_t fixed) noexcept {
    constexpr std::size_t kDistances[] = {4096, 1024, 2048, 8192, 16384};  // the fixed one first
    constexpr std::size_t kCount = std::size(kDistances);
    constexpr double kBetter = 0.96;
    const std::size_t threads = context_.concurrency();
    const auto group_bytes = static_cast<std::size_t>(segment.group_bytes);
    const std::size_t num_groups = static_cast<std::size_t>(segment.rows) / kGroupRows;
    const std::size_t groups = std::min(num_groups, (std::size_t{768} << 10) / group_bytes + 1) / threads;  // of a task
    if (groups == 0) return fixed;
    const std::size_t x_bytes = columns / kBlockColumns * sizeof(ActivationBlock);
    Result<Allocation> memory =
        context_.allocate(x_bytes + threads * groups * kGroupRows * sizeof(float), "measuring speed");
    if (!memory.ok()) return fixed;
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
        pass.args.prefetch_distance = kDistances[which];
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
    if (tries < 5) return fixed;
    std::size_t best = 0;
    double least = kBetter * median(times[0], tries);
    for (std::size_t i = 1; i < kCount; ++i) {
      const double time = median(times[i], tries);
      if (time < least && wins[i] >= tries - 1) best = i, least = time;
    }
    return kDistances[best];
  }

  const Context& context_;
  const KernelTable& kernels_;
};

}  // namespace cpu
CORBEL_NAMESPACE_END
