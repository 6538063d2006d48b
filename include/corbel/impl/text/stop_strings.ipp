// Definitions of text/stop_strings.hpp.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/stop_strings.hpp>

#include <algorithm>
#include <fmt/format.h>

CORBEL_NAMESPACE_BEGIN
namespace text {

CORBEL_INLINE Result<StopStrings> StopStrings::create(std::span<const std::string> strings) {
  constexpr std::size_t kMaxStrings = 256;
  constexpr std::size_t kMaxBytes = 65536;
  if (strings.size() > kMaxStrings) {
    return Status(Errc::kLimitExceeded, fmt::format("{} stop strings, at most {}", strings.size(), kMaxStrings));
  }
  StopStrings result;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const std::string& string = strings[i];
    if (string.empty()) return Status(Errc::kInvalidArgument, fmt::format("stop string {} is empty", i));
    bytes += string.size();
    if (bytes > kMaxBytes) {
      return Status(Errc::kLimitExceeded, fmt::format("the stop strings have more than {} bytes in all", kMaxBytes));
    }
    // Also what keeps held back text on whole code points: no code point begins inside another.
    if (!detail::is_utf8(string)) {
      return Status(Errc::kInvalidArgument, fmt::format("stop string {} is not valid UTF-8", i));
    }
    Pattern pattern{string, std::vector<std::uint32_t>(string.size(), 0), 0};
    std::uint32_t length = 0;
    for (std::size_t at = 1; at < string.size(); ++at) {
      while (length > 0 && string[at] != string[length]) length = pattern.fallback[length - 1];
      if (string[at] == string[length]) ++length;
      pattern.fallback[at] = length;
    }
    result.patterns_.push_back(std::move(pattern));
  }
  return result;
}

CORBEL_INLINE void StopStrings::push(std::string_view piece, std::string& out) {
  if (stopped_) return;
  if (patterns_.empty()) {
    out += piece;
    return;
  }
  for (const char byte : piece) {
    held_ += byte;
    std::size_t found = 0;  // length of the longest string that ends here
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      Pattern& pattern = patterns_[i];
      while (pattern.matched > 0 && pattern.text[pattern.matched] != byte) {
        pattern.matched = pattern.fallback[pattern.matched - 1];
      }
      if (pattern.text[pattern.matched] == byte) ++pattern.matched;
      if (pattern.matched == pattern.text.size() && pattern.matched > found) {
        found = pattern.matched;
        which_ = i;
      }
    }
    if (found > 0) {
      stopped_ = true;
      out.append(held_, 0, held_.size() - found);
      held_.clear();
      return;
    }
  }
  std::size_t hold = 0;
  for (const Pattern& pattern : patterns_) hold = std::max(hold, pattern.matched);
  const std::size_t released = held_.size() - hold;
  out.append(held_, 0, released);
  held_.erase(0, released);
}

CORBEL_INLINE void StopStrings::finish(std::string& out) {
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  out += held_;
  held_.clear();
}

}  // namespace text
CORBEL_NAMESPACE_END
