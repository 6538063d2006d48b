// Definitions of text/piece_automaton.hpp.
#pragma once

#include <corbel/text/hash.hpp>
#include <corbel/text/piece_automaton.hpp>

#include <algorithm>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

// Where a branch is, or the empty slot where it would be.
CORBEL_INLINE std::size_t PieceAutomaton::slot(State from, unsigned char byte) const noexcept {
  const std::size_t mask = branches_.size() - 1;
  std::size_t at = static_cast<std::size_t>(mix_hash(std::uint64_t{from} << 8 | byte)) & mask;
  for (; branches_[at].to != 0; at = (at + 1) & mask) {
    if (branches_[at].from == from && nodes_[branches_[at].to].label == byte) break;
  }
  return at;
}

CORBEL_INLINE void PieceAutomaton::enter_branch(State from, State to) {
  if (3 * branch_count_ >= 2 * branches_.size()) {
    Blocks<Branch> old;
    std::swap(old, branches_);
    for (std::size_t left = std::max(2 * old.size(), std::size_t{16}); left > 0; --left) branches_.push_back({});
    for (std::size_t at = 0; at < old.size(); ++at) {
      if (old[at].to != 0) branches_[slot(old[at].from, nodes_[old[at].to].label)] = old[at];
    }
  }
  branches_[slot(from, nodes_[to].label)] = {from, to};
  ++branch_count_;
}

CORBEL_INLINE PieceAutomaton::State PieceAutomaton::add_child(State from, unsigned char byte) {
  const auto last = static_cast<State>(nodes_.size() - 1);
  const State known = from == 0 ? roots_[byte] : from < last ? child(from, byte) : 0;
  if (known != 0) return known;
  Node node;
  node.fail = from;
  node.label = byte;
  node.chained = from != 0 && from == last;
  nodes_.push_back(node);
  const State to = last + 1;
  if (from == 0) {
    roots_[byte] = to;
  } else if (!node.chained) {
    nodes_[from].branches = true;
    enter_branch(from, to);
  }
  return to;
}

// All nodes nearer to the start have their links.
CORBEL_INLINE void PieceAutomaton::link(State node, State parent) {
  State fail = 0;
  if (parent != 0) {
    std::uint64_t steps = 0;
    fail = step(nodes_[parent].fail, nodes_[node].label, steps);
  }
  nodes_[node].fail = fail;
  const std::uint32_t shorter = nodes_[fail].piece;
  std::uint32_t& number = nodes_[node].piece;
  if (number == 0) {
    number = shorter;
    return;
  }
  Piece& piece = pieces_[number];
  piece.shorter = shorter;
  if (piece.in_content == 0) piece.in_content = pieces_[shorter].in_content;
}

CORBEL_INLINE void PieceAutomaton::finish() {
  if (nodes_.size() == 0) return;
  // Chains of nodes with the next number, by the depth of their first node; nodes are linked depth by depth.
  struct Chain {
    State first = 0;
    std::uint32_t depth = 0;
    std::uint32_t next = 0;  // another chain of the same depth, or later one at work; 0: none
  };
  Blocks<Chain> chains;
  Blocks<std::uint32_t> at_depth;
  chains.push_back({});
  at_depth.push_back(0);
  const auto depth_of = [&](State node) {
    std::size_t low = 0;
    std::size_t high = chains.size();  // the chain of the node is in [low, high)
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      (chains[middle].first <= node ? low : high) = middle;
    }
    return chains[low].depth + (node - chains[low].first);
  };
  const auto count = static_cast<State>(nodes_.size());
  for (State node = 1; node < count; ++node) {
    if (nodes_[node].chained) continue;
    const std::uint32_t depth = nodes_[node].fail == 0 ? 1 : depth_of(nodes_[node].fail) + 1;
    while (at_depth.size() <= depth) at_depth.push_back(0);
    chains.push_back({node, depth, at_depth[depth]});
    at_depth[depth] = static_cast<std::uint32_t>(chains.size() - 1);
  }
  nodes_.push_back({});  // so that every node has one behind it
  chains.push_back({count, 0, 0});

  std::uint32_t active = 0;
  for (std::uint32_t depth = 1; active != 0 || depth < at_depth.size(); ++depth) {
    if (depth < at_depth.size()) {
      for (std::uint32_t chain = at_depth[depth]; chain != 0;) {
        const std::uint32_t next = chains[chain].next;
        chains[chain].next = active;
        active = chain;
        chain = next;
      }
    }
    std::uint32_t left = 0;
    for (std::uint32_t chain = active; chain != 0;) {
      const std::uint32_t next = chains[chain].next;
      const State node = chains[chain].first + (depth - chains[chain].depth);
      link(node, nodes_[node].chained ? node - 1 : nodes_[node].fail);
      if (node + 1 != chains[chain + 1].first) {
        chains[chain].next = left;
        left = chain;
      }
      chain = next;
    }
    active = left;
  }
}

}  // namespace text
CORBEL_NAMESPACE_END
