// Device memory of the fake device: pages that fault when the host touches them.
#pragma once

#include <corbel/context.hpp>

#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

namespace corbel_test {

/// Every allocation is a mapping of its own, inaccessible except while at least one Access exists. Fresh memory holds
/// 0xff bytes (as floats: NaN); freed memory is unmapped. Thread-safe. Lives until the last allocation is freed, so
/// that buffers may outlive their backend.
class ProtectedMemory final : public corbel::MemoryResource, public std::enable_shared_from_this<ProtectedMemory> {
 public:
  void* allocate(std::size_t bytes, std::size_t) noexcept override {  // pages satisfy every alignment in use
    const std::lock_guard<std::mutex> lock(mutex_);
    void* memory = ::mmap(nullptr, pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    std::memset(memory, 0xff, pages(bytes));
    if (accesses_ == 0) protect(memory, bytes, PROT_NONE);
    regions_[memory] = {bytes, shared_from_this()};
    return memory;
  }

  void deallocate(void* memory, std::size_t bytes, std::size_t) noexcept override {
    std::shared_ptr<ProtectedMemory> keep_alive;  // released after the lock
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto region = regions_.find(memory);
    keep_alive.swap(region->second.owner);
    regions_.erase(region);
    ::munmap(memory, pages(bytes));
  }

  /// While one exists, the device works: memory can be read and written.
  class Access {
   public:
    explicit Access(ProtectedMemory& memory) : memory_(memory) { memory_.change(+1); }
    ~Access() { memory_.change(-1); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    ProtectedMemory& memory_;
  };

  /// Address of an allocation, for tests that touch it on purpose; nullptr where there is none.
  void* any_region() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return regions_.empty() ? nullptr : regions_.begin()->first;
  }

 private:
  struct Region {
    std::size_t bytes = 0;
    std::shared_ptr<ProtectedMemory> owner;
  };

  static std::size_t pages(std::size_t bytes) noexcept {
    const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
  }
  static void protect(void* memory, std::size_t bytes, int rights) noexcept {
    ::mprotect(memory, pages(bytes), rights);
  }
  void change(int by) {
    const std::lock_guard<std::mutex> lock(mutex_);
    accesses_ += by;
    if (accesses_ > 1 || (accesses_ == 1 && by < 0)) return;
    for (const auto& [memory, region] : regions_) {
      protect(memory, region.bytes, accesses_ == 0 ? PROT_NONE : PROT_READ | PROT_WRITE);
    }
  }

  std::mutex mutex_;
  std::map<void*, Region> regions_;
  int accesses_ = 0;
};

}  // namespace corbel_test
