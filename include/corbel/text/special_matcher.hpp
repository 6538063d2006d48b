// SpecialMatcher: finds control and user-defined pieces in a text, the longest at the leftmost position.
#pragma once

#include <corbel/config.hpp>
#include <corbel/text/hash.hpp>
#include <corbel/text/token.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// A trie in one flat hash table: a look-up costs one probe for each byte that agrees with some piece, and most
/// positions end at the first byte.
class SpecialMatcher {
 public:
  struct Match {
    TokenId id = -1;
    std::size_t length = 0;
  };

  /// `in_content`: the piece matches also in text that may not become control tokens. Pieces must not be empty.
  void add(std::string_view piece, TokenId id, bool in_content);
  bool empty() const noexcept { return nodes_.empty(); }

  /// The longest piece that starts at text[at]; those not allowed in content must end at or before `control_end`. Adds
  /// the bytes looked at to `steps`.
  Match match(std::string_view text, std::size_t at, std::size_t control_end, std::uint64_t& steps) const noexcept;
  /// Calls `seen(id, length)` for every piece that starts at text[at], the shortest first.
  template <class Seen>
  void visit(std::string_view text, std::size_t at, std::uint64_t& steps, Seen&& seen) const;
  bool can_start(char first) const noexcept { return starts_[static_cast<unsigned char>(first)]; }
  std::uint64_t memory_bytes() const noexcept {
    return nodes_.capacity() * sizeof(Node) + edges_.capacity() * sizeof(Edge);
  }

 private:
  struct Node {
    TokenId id = -1;
    bool in_content = false;
  };
  struct Edge {
    std::uint32_t from = 0;  // parent node; children are numbered from 1, so a child of 0 is an empty slot
    std::uint32_t child = 0;
    unsigned char byte = 0;
  };
  std::size_t slot(std::uint32_t from, unsigned char byte) const noexcept;
  void grow();

  std::vector<Node> nodes_;  // [0] is the root
  std::vector<Edge> edges_;
  bool starts_[256] = {};
};

template <class Seen>
void SpecialMatcher::visit(std::string_view text, std::size_t at, std::uint64_t& steps, Seen&& seen) const {
  if (nodes_.empty()) return;
  std::uint32_t node = 0;
  for (std::size_t end = at; end < text.size();) {
    ++steps;
    node = edges_[slot(node, static_cast<unsigned char>(text[end]))].child;
    if (node == 0) break;
    ++end;
    if (nodes_[node].id >= 0) seen(nodes_[node].id, end - at);
  }
}

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/special_matcher.ipp>
#endif
