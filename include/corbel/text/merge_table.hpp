// MergeTable: which two neighbours become one piece, and in which order, as one flat hash table.
#pragma once

#include <corbel/config.hpp>
#include <corbel/text/bpe_merge.hpp>
#include <corbel/text/hash.hpp>
#include <corbel/text/token.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// Pairs of ids with their rank and result. Immutable once filled, then thread-safe.
class MergeTable {
 public:
  /// Room for `count` merges; call once, before insert().
  void reserve(std::size_t count) { slots_.resize(table_capacity(count)); }

  /// Of a pair that is named twice the first rank counts, or the last with `replace`.
  void insert(TokenId left, TokenId right, std::uint32_t rank, TokenId result, bool replace = false) noexcept {
    Slot& slot = slots_[find_slot(key(left, right))];
    if (slot.pair == 0 || replace) slot = {key(left, right), rank, result};
  }
  /// `id` is -1 where the two do not merge, or one of them is -1.
  MergeCandidate find(TokenId left, TokenId right) const noexcept {
    if (left < 0 || right < 0 || slots_.empty()) return {};
    const Slot& slot = slots_[find_slot(key(left, right))];
    return {slot.result, slot.rank};
  }
  std::uint64_t memory_bytes() const noexcept { return slots_.capacity() * sizeof(Slot); }

 private:
  struct Slot {
    std::uint64_t pair = 0;  // left id + 1, right id; 0 is empty
    std::uint32_t rank = 0;
    TokenId result = -1;
  };
  static std::uint64_t key(TokenId left, TokenId right) noexcept {
    return (static_cast<std::uint64_t>(left) + 1) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t find_slot(std::uint64_t pair) const noexcept {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = static_cast<std::size_t>(mix_hash(pair)) & mask;
    while (slots_[at].pair != 0 && slots_[at].pair != pair) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
};

}  // namespace text
CORBEL_NAMESPACE_END
