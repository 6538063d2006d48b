// BlockPool: which blocks of a KV cache are free, and how many block tables hold each of the others.
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace cache {

/// Thread-safe. A block is free when its reference count is zero; no block is ever moved, since any free block serves.
class BlockPool {
 public:
  explicit BlockPool(std::uint32_t num_blocks) : references_(num_blocks, 0) {
    free_.reserve(num_blocks);
    for (std::uint32_t i = num_blocks; i-- > 0;) free_.push_back(static_cast<std::int32_t>(i));
  }
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// Fills `out` with free blocks, each then held once; all or none: false where too few are free.
  bool acquire(std::span<std::int32_t> out) noexcept {
    const std::lock_guard lock(mutex_);
    if (free_.size() < out.size()) return false;
    for (std::int32_t& block : out) {
      block = free_.back();
      free_.pop_back();
      references_[static_cast<std::size_t>(block)] = 1;
    }
    return true;
  }
  /// One more holder for each block.
  void share(std::span<const std::int32_t> blocks) noexcept {
    const std::lock_guard lock(mutex_);
    for (std::int32_t block : blocks) ++references_[static_cast<std::size_t>(block)];
  }
  /// One holder less for each block; those without holders become free.
  void release(std::span<const std::int32_t> blocks) noexcept {
    const std::lock_guard lock(mutex_);
    for (std::int32_t block : blocks)
      if (--references_[static_cast<std::size_t>(block)] == 0)
        free_.push_back(block);  // never beyond the reserved capacity
  }
  bool is_shared(std::int32_t block) const noexcept {
    const std::lock_guard lock(mutex_);
    return references_[static_cast<std::size_t>(block)] > 1;
  }
  std::uint32_t num_blocks() const noexcept { return static_cast<std::uint32_t>(references_.size()); }
  std::uint32_t num_free() const noexcept {
    const std::lock_guard lock(mutex_);
    return static_cast<std::uint32_t>(free_.size());
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::uint32_t> references_;
  std::vector<std::int32_t> free_;
};

}  // namespace cache
CORBEL_NAMESPACE_END
