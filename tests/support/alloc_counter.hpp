// Counts what operator new gives out, on this thread or on all; the operators are replaced in alloc_counter.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace corbel_test {

struct AllocationStats {
  std::uint64_t count = 0;  // calls of operator new
  std::size_t largest = 0;  // bytes of the largest call
  std::int64_t live = 0;    // bytes given out and not given back
  std::int64_t peak = 0;    // highest value of live
};

/// Calls of operator new so far, on all threads.
std::uint64_t allocations_of_all_threads() noexcept;

/// Starts at zero; stats() is what this thread has allocated since. One at a time per thread.
class AllocationScope {
 public:
  AllocationScope() noexcept;
  AllocationStats stats() const noexcept;
};

}  // namespace corbel_test
