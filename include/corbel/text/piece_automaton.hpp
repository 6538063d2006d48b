// PieceAutomaton: finds all of many pieces in a text, in time linear in the text.
#pragma once

#include <corbel/config.hpp>
#include <corbel/text/token.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// A growing array in blocks: no single allocation follows from the size of a vocabulary, and none is ever copied.
template <class T>
class Blocks {
 public:
  std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t at) noexcept { return blocks_[at >> kShift][at & kMask]; }
  const T& operator[](std::size_t at) const noexcept { return blocks_[at >> kShift][at & kMask]; }
  void push_back(const T& value) {
    if ((size_ & kMask) == 0) {
      blocks_.emplace_back();
      if (size_ != 0) blocks_.back().reserve(kMask + 1);
    }
    blocks_.back().push_back(value);
    ++size_;
  }
  std::uint64_t memory_bytes() const noexcept {
    std::uint64_t bytes = blocks_.capacity() * sizeof(std::vector<T>);
    for (const std::vector<T>& block : blocks_) bytes += block.capacity() * sizeof(T);
    return bytes;
  }

 private:
  static constexpr std::size_t kShift = 12;
  static constexpr std::size_t kMask = (std::size_t{1} << kShift) - 1;
  std::vector<std::vector<T>> blocks_;  // all full but the last
  std::size_t size_ = 0;
};

/// The automaton of Aho and Corasick (1975, doi:10.1145/360825.360855). Its state after some bytes of a text is the
/// longest beginning of a piece that they end with; a piece is given and met in the order in which bytes are fed, so
/// one that is fed backwards tells which pieces begin at a byte. Immutable once finished; thread-safe.
class CORBEL_API PieceAutomaton {
 public:
  using State = std::uint32_t;  ///< 0: at the start
  struct Piece {
    TokenId id = kNoToken;
    std::uint32_t length = 0;
    std::uint32_t shorter = 0;     ///< the next shorter piece that this one ends with, for piece(); 0: none
    std::uint32_t in_content = 0;  ///< this one or the next shorter that is marked so; 0: none
  };

  /// Enters a piece that is not empty; one that is entered twice counts as the last time.
  template <class Iterator>
  void add(Iterator begin, Iterator end, TokenId id, bool in_content);
  /// After the last piece, before the first step.
  void finish();
  bool empty() const noexcept { return nodes_.size() == 0; }

  bool leaves_start(unsigned char byte) const noexcept { return roots_[byte] != 0; }
  /// Adds the look-ups made to `steps`: over a text at most two for each byte.
  State step(State state, unsigned char byte, std::uint64_t& steps) const noexcept {
    for (;;) {
      ++steps;
      if (state == 0) return roots_[byte];
      if (const State next = child(state, byte); next != 0) return next;
      state = nodes_[state].fail;
    }
  }
  /// The longest piece that the text up to here ends with; 0: none.
  std::uint32_t longest(State state) const noexcept { return nodes_[state].piece; }
  const Piece& piece(std::uint32_t number) const noexcept { return pieces_[number]; }
  std::uint64_t memory_bytes() const noexcept {
    return nodes_.memory_bytes() + pieces_.memory_bytes() + branches_.memory_bytes();
  }

 private:
  // Most nodes have one child, which has the next number.
  struct Node {
    State fail = 0;           // the state for the longest proper end of this one; until finish() the parent of a branch
    std::uint32_t piece = 0;  // longest(); until finish() the piece that is this node
    unsigned char label = 0;  // the byte that leads here
    bool chained = false;     // from the node before
    bool branches = false;    // to nodes elsewhere too
  };
  struct Branch {
    State from = 0;
    State to = 0;  // 0: an empty slot
  };
  State child(State state, unsigned char byte) const noexcept {
    const Node& next = nodes_[state + 1];
    if (next.chained && next.label == byte) return state + 1;
    return nodes_[state].branches ? branches_[slot(state, byte)].to : 0;
  }
  std::size_t slot(State from, unsigned char byte) const noexcept;
  State add_child(State from, unsigned char byte);
  void enter_branch(State from, State to);
  void link(State node, State parent);

  Blocks<Node> nodes_;  // [0] is the start; once finished, one more than there are
  Blocks<Piece> pieces_;
  Blocks<Branch> branches_;  // a flat hash table of (from, label of to)
  std::size_t branch_count_ = 0;
  State roots_[256] = {};
};

template <class Iterator>
void PieceAutomaton::add(Iterator begin, Iterator end, TokenId id, bool in_content) {
  if (nodes_.size() == 0) {
    nodes_.push_back({});
    pieces_.push_back({});
  }
  State state = 0;
  std::uint32_t length = 0;
  for (; begin != end; ++begin, ++length) state = add_child(state, static_cast<unsigned char>(*begin));
  std::uint32_t& number = nodes_[state].piece;
  if (number == 0) {
    number = static_cast<std::uint32_t>(pieces_.size());
    pieces_.push_back({});
  }
  pieces_[number] = {id, length, 0, in_content ? number : 0};
}

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/piece_automaton.ipp>
#endif
