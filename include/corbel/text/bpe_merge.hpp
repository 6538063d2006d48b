// The merge loop of byte-pair encoding, shared by both kinds: a linked list of symbols and a heap of candidate pairs.
// For n symbols O(n log n) time, O(n) memory, no recursion.
#pragma once

#include <corbel/config.hpp>
#include <corbel/text/token.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// A stretch of the text that is one token so far; dead symbols have length 0.
struct Symbol {
  std::uint32_t start = 0;   // byte offset in the text
  std::uint32_t length = 0;  // bytes
  std::uint32_t previous = 0;
  std::uint32_t next = 0;
  TokenId id = -1;  // -1: a single character that is no piece
};

/// What merging two symbols would give.
struct MergeCandidate {
  TokenId id = -1;             // -1: the two do not merge
  std::uint32_t priority = 0;  // lower merges first; ties go to the left
};

struct HeapEntry {
  std::uint64_t order = 0;   // priority, then symbol index
  std::uint32_t length = 0;  // of both: a mismatch means that one of them has grown since
  TokenId id = -1;
};

/// Memory and counters of one encode call.
struct MergeScratch {
  std::vector<Symbol> symbols;
  std::vector<HeapEntry> heap;
  std::uint64_t steps = 0;  ///< look-ups, comparisons and bytes; what the linearity tests count
};

inline constexpr std::uint32_t kNoSymbol = 0xFFFFFFFFu;

/// Links scratch.symbols (start, length and id set) in order and merges until no pair is left. `candidate(left, right)`
/// answers for two neighbours. The first symbol stays the head of the list.
template <class Candidate>
void merge_symbols(MergeScratch& scratch, Candidate&& candidate) {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<HeapEntry>& heap = scratch.heap;
  heap.clear();
  const auto count = static_cast<std::uint32_t>(symbols.size());
  for (std::uint32_t at = 0; at < count; ++at) {
    symbols[at].previous = at == 0 ? kNoSymbol : at - 1;
    symbols[at].next = at + 1 == count ? kNoSymbol : at + 1;
  }
  const auto after = [&scratch](const HeapEntry& a, const HeapEntry& b) {
    ++scratch.steps;
    return a.order > b.order;
  };
  const auto consider = [&](std::uint32_t left, std::uint32_t right) {
    if (left == kNoSymbol || right == kNoSymbol) return false;
    ++scratch.steps;
    const MergeCandidate found = candidate(symbols[left], symbols[right]);
    if (found.id < 0) return false;
    heap.push_back(
        {std::uint64_t{found.priority} << 32 | left, symbols[left].length + symbols[right].length, found.id});
    return true;
  };
  for (std::uint32_t at = 0; at + 1 < count; ++at) consider(at, at + 1);
  std::make_heap(heap.begin(), heap.end(), after);

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), after);
    const HeapEntry best = heap.back();
    heap.pop_back();
    const auto at = static_cast<std::uint32_t>(best.order);
    Symbol& left = symbols[at];
    if (left.length == 0 || left.next == kNoSymbol) continue;
    Symbol& right = symbols[left.next];
    if (left.length + right.length != best.length) continue;
    left.id = best.id;
    left.length = best.length;
    left.next = right.next;
    right.length = 0;
    if (left.next != kNoSymbol) symbols[left.next].previous = at;
    if (consider(left.previous, at)) std::push_heap(heap.begin(), heap.end(), after);
    if (consider(at, left.next)) std::push_heap(heap.begin(), heap.end(), after);
  }
}

}  // namespace text
CORBEL_NAMESPACE_END
