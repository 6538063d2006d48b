// BoundedReader: the one way by which numbers and lengths of an untrusted file come in.
//
// It reads forward, knows how many bytes remain, and compares every count with them before anything is allocated. A
// file in memory is read in place; any other source through a window, so that it works from a path, and from a reader
// that answers with one byte at a time.
#pragma once

#include <corbel/checkpoint/file.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace detail {

class BoundedReader {
 public:
  /// A whole file in memory.
  explicit BoundedReader(std::span<const std::byte> memory) noexcept : size_(memory.size()), loaded_(memory) {}
  /// A file behind a reader, read through `window` (at least 8 bytes). Both must outlive this object.
  BoundedReader(const FileReader& reader, std::span<std::byte> window) noexcept
      : reader_(&reader), window_(window), size_(reader.size()) {}

  /// Place of the next byte, from the start of the file.
  std::uint64_t offset() const noexcept { return base_ + used_; }
  std::uint64_t remaining() const noexcept { return size_ - offset(); }
  std::uint64_t size() const noexcept { return size_; }

  /// kTruncated unless `count` records of at least `min_bytes` each can still follow. Call before reserving for them.
  Status expect(std::uint64_t count, std::uint64_t min_bytes, const char* what) const {
    if (count <= remaining() / min_bytes) return {};
    return truncated(what, std::to_string(count) + (min_bytes == 1 ? "" : " x " + std::to_string(min_bytes)));
  }

  /// A little-endian number of sizeof(T) bytes.
  template <class T>
  Result<T> number(const char* what) {
    CORBEL_RETURN_IF_ERROR(ensure(sizeof(T), what));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<std::uint64_t>(loaded_[used_ + i]) << (8 * i);
    used_ += sizeof(T);
    return static_cast<T>(value);
  }

  /// The next `count` bytes, appended to `out`, which grows to what is needed and not beyond what the file can fill.
  Status append(std::vector<std::byte>& out, std::uint64_t count, const char* what);
  /// The next `count` bytes as text.
  Result<std::string> text(std::uint64_t count, const char* what);
  /// Fills `out` with the next bytes.
  Status fill(std::span<std::byte> out, const char* what);

 private:
  Status truncated(const char* what, const std::string& expected) const;
  /// Makes the next `count` bytes available at loaded_[used_]; `count` is at most the size of the window.
  Status ensure(std::size_t count, const char* what) {
    if (loaded_.size() - used_ >= count) return {};
    return refill(count, what);
  }
  Status refill(std::size_t count, const char* what);

  const FileReader* reader_ = nullptr;
  std::span<std::byte> window_;
  std::uint64_t size_ = 0;
  std::uint64_t base_ = 0;             // place of loaded_[0] in the file
  std::span<const std::byte> loaded_;  // what is in memory now
  std::size_t used_ = 0;               // of loaded_
};

}  // namespace detail
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/bounded_reader.ipp>
#endif
