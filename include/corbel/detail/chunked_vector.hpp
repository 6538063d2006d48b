// A sequence in pieces of bounded size, for what an untrusted text may make long: no allocation is large.
#pragma once

#include <corbel/config.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace detail {

/// As std::vector, with elements that never move once 32 KiB of them are there. T may be incomplete where the class is
/// named.
template <class T>
class ChunkedVector {
  template <class Element>
  class Iterator {
    using Owner = std::conditional_t<std::is_const_v<Element>, const ChunkedVector, ChunkedVector>;

   public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = std::remove_const_t<Element>;
    using difference_type = std::ptrdiff_t;
    using pointer = Element*;
    using reference = Element&;

    Iterator() noexcept = default;
    Iterator(Owner* owner, std::size_t index) noexcept : owner_(owner), index_(index) {}
    operator Iterator<const value_type>() const noexcept { return {owner_, index_}; }  // NOLINT implicit

    reference operator*() const noexcept { return (*owner_)[index_]; }
    pointer operator->() const noexcept { return &(*owner_)[index_]; }
    reference operator[](difference_type n) const noexcept { return *(*this + n); }
    Iterator& operator+=(difference_type n) noexcept {
      index_ += static_cast<std::size_t>(n);
      return *this;
    }
    Iterator& operator-=(difference_type n) noexcept { return *this += -n; }
    Iterator& operator++() noexcept { return *this += 1; }
    Iterator& operator--() noexcept { return *this += -1; }
    Iterator operator++(int) noexcept {
      Iterator old = *this;
      ++*this;
      return old;
    }
    Iterator operator--(int) noexcept {
      Iterator old = *this;
      --*this;
      return old;
    }
    friend Iterator operator+(Iterator it, difference_type n) noexcept { return it += n; }
    friend Iterator operator+(difference_type n, Iterator it) noexcept { return it += n; }
    friend Iterator operator-(Iterator it, difference_type n) noexcept { return it -= n; }
    friend difference_type operator-(const Iterator& a, const Iterator& b) noexcept {
      return static_cast<difference_type>(a.index_) - static_cast<difference_type>(b.index_);
    }
    friend bool operator==(const Iterator& a, const Iterator& b) noexcept { return a.index_ == b.index_; }
    friend auto operator<=>(const Iterator& a, const Iterator& b) noexcept { return a.index_ <=> b.index_; }

   private:
    Owner* owner_ = nullptr;
    std::size_t index_ = 0;
  };

 public:
  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using iterator = Iterator<T>;
  using const_iterator = Iterator<const T>;

  constexpr ChunkedVector() noexcept = default;
  ChunkedVector(std::initializer_list<T> elements) : ChunkedVector(elements.begin(), elements.end()) {}
  template <class InputIterator>
  ChunkedVector(InputIterator first, InputIterator last) {
    for (; first != last; ++first) push_back(*first);
  }

  std::size_t size() const noexcept {
    return chunks_.empty() ? 0 : (chunks_.size() - 1) * per_chunk() + chunks_.back().size();
  }
  bool empty() const noexcept { return chunks_.empty(); }
  T& operator[](std::size_t index) noexcept { return chunks_[index / per_chunk()][index % per_chunk()]; }
  const T& operator[](std::size_t index) const noexcept { return chunks_[index / per_chunk()][index % per_chunk()]; }
  T& front() noexcept { return chunks_.front().front(); }
  const T& front() const noexcept { return chunks_.front().front(); }
  T& back() noexcept { return chunks_.back().back(); }
  const T& back() const noexcept { return chunks_.back().back(); }

  iterator begin() noexcept { return {this, 0}; }
  iterator end() noexcept { return {this, size()}; }
  const_iterator begin() const noexcept { return {this, 0}; }
  const_iterator end() const noexcept { return {this, size()}; }

  template <class... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    if (chunks_.empty() || chunks_.back().size() == per_chunk()) chunks_.emplace_back();
    std::vector<T>& last = chunks_.back();
    if (last.size() == last.capacity() && last.size() > per_chunk() / 2) last.reserve(per_chunk());
    return last.emplace_back(std::forward<Arguments>(arguments)...);
  }
  void push_back(const T& value) { emplace_back(value); }
  void push_back(T&& value) { emplace_back(std::move(value)); }
  void pop_back() noexcept {
    chunks_.back().pop_back();
    if (chunks_.back().empty()) chunks_.pop_back();
  }
  /// Removes [first, end()).
  void erase_from(const_iterator first) noexcept {
    for (std::size_t rest = static_cast<std::size_t>(end_const() - first); rest > 0; --rest) pop_back();
  }
  void clear() noexcept { chunks_.clear(); }

 private:
  static constexpr std::size_t per_chunk() noexcept { return std::max<std::size_t>(1, (32u << 10) / sizeof(T)); }
  const_iterator end_const() const noexcept { return end(); }

  std::vector<std::vector<T>> chunks_;  // all but the last are full, none is empty
};

}  // namespace detail
CORBEL_NAMESPACE_END
