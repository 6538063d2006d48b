// Definitions of text/special_matcher.hpp.
#pragma once

#include <corbel/text/special_matcher.hpp>

#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

CORBEL_INLINE std::size_t SpecialMatcher::slot(std::uint32_t from, unsigned char byte) const noexcept {
  const std::size_t mask = edges_.size() - 1;
  std::size_t at = static_cast<std::size_t>(mix_hash(std::uint64_t{from} << 8 | byte)) & mask;
  while (edges_[at].child != 0 && (edges_[at].from != from || edges_[at].byte != byte)) at = (at + 1) & mask;
  return at;
}

CORBEL_INLINE void SpecialMatcher::grow() {
  std::vector<Edge> old(table_capacity(2 * nodes_.size() + 16));
  old.swap(edges_);
  for (const Edge& edge : old) {
    if (edge.child != 0) edges_[slot(edge.from, edge.byte)] = edge;
  }
}

CORBEL_INLINE void SpecialMatcher::add(std::string_view piece, TokenId id, bool in_content) {
  if (nodes_.empty()) nodes_.emplace_back();
  starts_[static_cast<unsigned char>(piece.front())] = true;
  std::uint32_t node = 0;
  for (const char c : piece) {
    if (3 * nodes_.size() >= 2 * edges_.size()) grow();
    const auto byte = static_cast<unsigned char>(c);
    Edge& edge = edges_[slot(node, byte)];
    if (edge.child == 0) {
      edge = {node, static_cast<std::uint32_t>(nodes_.size()), byte};
      nodes_.emplace_back();
    }
    node = edge.child;
  }
  nodes_[node] = {id, in_content};
}

CORBEL_INLINE SpecialMatcher::Match SpecialMatcher::match(std::string_view text, std::size_t at,
                                                          std::size_t control_end,
                                                          std::uint64_t& steps) const noexcept {
  Match best;
  std::uint32_t node = 0;
  for (std::size_t end = at; end < text.size();) {
    ++steps;
    node = edges_[slot(node, static_cast<unsigned char>(text[end]))].child;
    if (node == 0) break;
    ++end;
    const Node& here = nodes_[node];
    if (here.id >= 0 && (here.in_content || end <= control_end)) best = {here.id, end - at};
  }
  return best;
}

}  // namespace text
CORBEL_NAMESPACE_END
