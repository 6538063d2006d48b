// Replaces operator new and delete of the test program by ones that count per thread.
#include "support/alloc_counter.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <malloc.h>
#include <new>

namespace corbel_test {
namespace {

thread_local AllocationStats current;
std::atomic<std::uint64_t> calls{0};

void* counted(std::size_t bytes, void* memory) noexcept {
  if (memory == nullptr) return nullptr;
  ++current.count;
  calls.fetch_add(1, std::memory_order_relaxed);
  current.largest = std::max(current.largest, bytes);
  current.live += static_cast<std::int64_t>(malloc_usable_size(memory));
  current.peak = std::max(current.peak, current.live);
  return memory;
}

void* plain(std::size_t bytes) noexcept { return counted(bytes, std::malloc(bytes == 0 ? 1 : bytes)); }

void* aligned(std::size_t bytes, std::align_val_t alignment) noexcept {
  void* memory = nullptr;
  const std::size_t at_least = std::max(static_cast<std::size_t>(alignment), sizeof(void*));
  return posix_memalign(&memory, at_least, bytes == 0 ? 1 : bytes) == 0 ? counted(bytes, memory) : nullptr;
}

void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  current.live -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

std::uint64_t allocations_of_all_threads() noexcept { return calls.load(std::memory_order_relaxed); }

AllocationScope::AllocationScope() noexcept { current = {}; }
AllocationStats AllocationScope::stats() const noexcept { return current; }

}  // namespace corbel_test

using namespace corbel_test;

void* operator new(std::size_t bytes) { return or_throw(plain(bytes)); }
void* operator new[](std::size_t bytes) { return or_throw(plain(bytes)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return plain(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return plain(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) { return or_throw(aligned(bytes, alignment)); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return or_throw(aligned(bytes, alignment)); }
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return aligned(bytes, alignment);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return aligned(bytes, alignment);
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept { release(memory); }
