// Definitions of error.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/error.hpp>

#include <algorithm>
#include <cstddef>

CORBEL_NAMESPACE_BEGIN

CORBEL_INLINE const char* errc_name(Errc code) noexcept {
  static constexpr const char* kNames[] = {
      "ok",              "io_open",        "io_read",          "io_write",        "no_space",        "truncated",
      "bad_magic",       "unsupported_version", "unsupported", "limit_exceeded",  "overflow",        "bad_type",
      "type_mismatch",   "missing_key",    "missing_tensor",   "duplicate",       "bad_value",       "bad_alignment",
      "bad_offset",      "overlap",        "gap",              "trailing_data",   "shape_mismatch",  "size_mismatch",
      "bad_utf8",        "bad_json",       "depth_exceeded",   "vocab_invalid",   "template_error",  "template_budget",
      "grammar_error",   "grammar_budget", "path_escape",      "state_incompatible", "checksum",     "out_of_memory",
      "invalid_argument", "busy",          "cancelled",        "model_lost",      "context_overflow", "internal"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == static_cast<std::size_t>(Errc::kInternal) + 1);
  const auto index = static_cast<std::size_t>(code);
  return index < sizeof(kNames) / sizeof(kNames[0]) ? kNames[index] : "unknown";
}

CORBEL_INLINE Status::Status(Errc code, std::string_view message) noexcept : code_(code) {
#if CORBEL_HAS_EXCEPTIONS
  try {
    message_ = std::make_shared<const std::string>(detail::printable(message, 512));
  } catch (...) {  // no memory for the text: the code alone remains
  }
#else
  message_ = std::make_shared<const std::string>(detail::printable(message, 512));
#endif
}

CORBEL_INLINE std::string_view Status::message() const noexcept {
  if (message_) return *message_;
  return ok() ? std::string_view() : std::string_view(errc_name(code_));
}

CORBEL_INLINE Status Status::with_place(std::string_view place) const noexcept {
  if (ok()) return *this;
#if CORBEL_HAS_EXCEPTIONS
  try {
#endif
    std::string text = detail::printable(place, 512);
    std::string_view same = text;
    while (same.size() > 1 && same.back() == '/') same.remove_suffix(1);
    const std::string_view behind = message().substr(std::min(same.size(), message().size()));
    if (!same.empty() && message().starts_with(same) && (behind.starts_with(": ") || behind.starts_with("/"))) {
      return *this;
    }
    text += ": ";
    text += message();
    return Status(code_, text);
#if CORBEL_HAS_EXCEPTIONS
  } catch (...) {
    return *this;
  }
#endif
}

#if CORBEL_HAS_EXCEPTIONS
CORBEL_INLINE const char* Exception::what() const noexcept { return status_.message().data(); }
#endif

CORBEL_NAMESPACE_END
