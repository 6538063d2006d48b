// Definitions of bounded_reader.hpp.
#pragma once

#include <corbel/checkpoint/bounded_reader.hpp>

#include <algorithm>
#include <cstring>

CORBEL_NAMESPACE_BEGIN
namespace detail {

CORBEL_INLINE Status BoundedReader::truncated(const char* what, const std::string& expected) const {
  return {Errc::kTruncated, std::string(what) + " at byte " + std::to_string(offset()) + ": expected " + expected +
                                " bytes, the file has " + std::to_string(remaining()) + " more"};
}

CORBEL_INLINE Status BoundedReader::refill(std::size_t count, const char* what) {
  if (remaining() < count || reader_ == nullptr) return truncated(what, std::to_string(count));
  const std::size_t kept = loaded_.size() - used_;
  if (kept != 0) std::memmove(window_.data(), loaded_.data() + used_, kept);
  base_ += used_;
  used_ = 0;
  loaded_ = window_.first(kept);
  while (loaded_.size() < count) {
    const std::uint64_t at = base_ + loaded_.size();
    const auto room = static_cast<std::size_t>(std::min<std::uint64_t>(window_.size() - loaded_.size(), size_ - at));
    const std::span<std::byte> target = window_.subspan(loaded_.size(), room);
    const Result<std::size_t> got = reader_->read(at, target);
    if (!got.ok()) return got.status().with_place("byte " + std::to_string(at));
    if (*got == 0) return truncated(what, std::to_string(count));
    if (*got > room) return {Errc::kIoRead, "the reader answered with more bytes than it was asked for"};
    loaded_ = window_.first(loaded_.size() + *got);
  }
  return {};
}

CORBEL_INLINE Status BoundedReader::fill(std::span<std::byte> out, const char* what) {
  if (out.size() > remaining()) return truncated(what, std::to_string(out.size()));
  const std::size_t here = std::min(out.size(), loaded_.size() - used_);
  if (here != 0) std::memcpy(out.data(), loaded_.data() + used_, here);
  used_ += here;
  out = out.subspan(here);
  if (out.empty()) return {};
  if (out.size() <= window_.size() / 2) {
    CORBEL_RETURN_IF_ERROR(ensure(out.size(), what));
    return fill(out, what);
  }
  // Much more than the window: past it, straight to its place.
  CORBEL_RETURN_IF_ERROR(read_exactly(*reader_, offset(), out));
  base_ = offset() + out.size();
  used_ = 0;
  loaded_ = {};
  return {};
}

CORBEL_INLINE Status BoundedReader::append(std::vector<std::byte>& out, std::uint64_t count, const char* what) {
  if (count > remaining()) return truncated(what, std::to_string(count));
  const std::size_t old = out.size();
  const std::size_t needed = old + static_cast<std::size_t>(count);
  if (needed > out.capacity()) {
    const std::uint64_t possible = old + remaining();
    out.reserve(std::max(needed, static_cast<std::size_t>(std::min<std::uint64_t>(2 * old, possible))));
  }
  out.resize(needed);
  return fill(std::span(out).subspan(old), what);
}

CORBEL_INLINE Result<std::string> BoundedReader::text(std::uint64_t count, const char* what) {
  if (count > remaining()) return truncated(what, std::to_string(count));
  std::string result(static_cast<std::size_t>(count), '\0');
  CORBEL_RETURN_IF_ERROR(fill(std::as_writable_bytes(std::span(result)), what));
  return result;
}

}  // namespace detail
CORBEL_NAMESPACE_END
