// What the fuzz targets share: checks that stop the fuzzer, the bound on single allocations, and the ways into a reader.
#pragma once

#include <corbel/checkpoint/file.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <sanitizer/allocator_interface.h>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace corbel_fuzz {

[[noreturn]] inline void fail(const char* file, int line, const char* what, std::string_view detail) {
  std::fprintf(stderr, "FUZZ CHECK FAILED: %s:%d: %s: %.*s\n", file, line, what, static_cast<int>(detail.size()),
               detail.data());
  __builtin_trap();
}

/// The oracle of a target: stops the fuzzer with the place and `detail` where `condition` is false.
#define FUZZ_CHECK(condition, detail)                                               \
  do {                                                                              \
    if (!(condition)) ::corbel_fuzz::fail(__FILE__, __LINE__, #condition, (detail)); \
  } while (false)

/// What every error must keep, whatever the input: a kind that is no fault of the library, and a short printable message.
inline void check_status(const corbel::Status& status) {
  if (status.ok()) return;
  const std::string_view message = status.message();
  FUZZ_CHECK(status.code() != corbel::Errc::kInternal, message);
  FUZZ_CHECK(!message.empty() && message.size() <= 512, message);
  FUZZ_CHECK(corbel::detail::is_utf8(message), message);
  FUZZ_CHECK(std::none_of(message.begin(), message.end(), [](char c) { return c >= 0 && c < ' '; }), message);
}

inline thread_local std::size_t largest_allowed = 0;  // 0: no bound
inline thread_local std::uint64_t total_allocated = 0;

/// Watches the allocations of this thread from the first call on.
inline void watch_allocations() {
  static std::once_flag once;
  std::call_once(once, [] {
    __sanitizer_install_malloc_and_free_hooks(
        [](const volatile void*, std::size_t size) {
          total_allocated += size;
          const std::size_t bound = largest_allowed;
          if (bound == 0 || size <= bound) return;
          largest_allowed = 0;
          fail(__FILE__, __LINE__, "allocation", std::to_string(size) + " bytes, the bound is " + std::to_string(bound));
        },
        [](const volatile void*) {});
  });
}

/// Bytes that this thread has allocated since watch_allocations().
inline std::uint64_t allocated_bytes() noexcept { return total_allocated; }

/// While it lives, one allocation of this thread above `bytes` stops the fuzzer.
class AllocationBound {
 public:
  explicit AllocationBound(std::size_t bytes) noexcept {
    watch_allocations();
    largest_allowed = bytes;
  }
  AllocationBound(const AllocationBound&) = delete;
  AllocationBound& operator=(const AllocationBound&) = delete;
  ~AllocationBound() { largest_allowed = 0; }
};

/// The bound for parsing a file: as large as the file, and 1 MiB.
inline std::size_t parse_bound(std::size_t file_bytes) { return file_bytes + (std::size_t{1} << 20); }

/// Answers every read with `piece` bytes at most.
class PieceReader final : public corbel::FileReader {
 public:
  PieceReader(std::span<const std::byte> bytes, std::size_t piece) : bytes_(bytes), piece_(piece) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  corbel::Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) const override {
    FUZZ_CHECK(!out.empty() && offset < bytes_.size(), "a read outside the file");
    const std::size_t left = bytes_.size() - static_cast<std::size_t>(offset);
    const std::size_t count = std::min({out.size(), left, piece_});
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), count, out.begin());
    return count;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t piece_;
};

/// Calls open(nullptr) for the buffer, then open(reader) for readers that give one byte and 4093 bytes at a time; all
/// must end in the same way. Returns the first.
template <class Open>
auto open_in_every_mode(std::span<const std::byte> bytes, Open&& open) {
  auto first = open(std::shared_ptr<const corbel::FileReader>());
  check_status(first.status());
  for (const std::size_t piece : {std::size_t{1}, std::size_t{4093}}) {
    if (piece == 1 && bytes.size() > 2048) continue;
    const auto other = open(std::make_shared<const PieceReader>(bytes, piece));
    FUZZ_CHECK(other.ok() == first.ok() && other.status().code() == first.status().code(), other.status().message());
    FUZZ_CHECK(other.status().message() == first.status().message(), other.status().message());
  }
  return first;
}

inline std::span<const std::byte> bytes_of(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}
inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Takes numbers from the front of the input; zeros when it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint32_t byte() { return at_ < size_ ? data_[at_++] : 0u; }
  std::uint32_t below(std::uint32_t bound) { return bound <= 256 ? byte() % bound : (byte() | byte() << 8) % bound; }
  std::size_t remaining() const { return size_ - at_; }
  std::string_view rest() const { return text_of(data_ + at_, size_ - at_); }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

}  // namespace corbel_fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
