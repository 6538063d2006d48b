// StopStrings: finds the first of several strings in a text that arrives in pieces, and holds back no more of the text
// than it must.
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// Copyable; one per reply. Time is linear in the text times the number of strings (Knuth, Morris, Pratt: one automaton
/// per string).
class CORBEL_API StopStrings {
 public:
  /// Searches nothing: push() appends its text.
  StopStrings() = default;
  /// kInvalidArgument for an empty string, or one that is not valid UTF-8; kLimitExceeded above 256 strings or 65536
  /// bytes in all.
  static Result<StopStrings> create(std::span<const std::string> strings);

  /// Takes the next piece of text, and appends to `out` what now certainly comes before any stop string. Held back is
  /// the longest end of the text with which a stop string begins. The first stop string to be complete ends the text
  /// (the longest, where several end at the same byte): it and what follows is dropped, and so is everything pushed
  /// later.
  void push(std::string_view piece, std::string& out);
  /// The end of the text: appends what was held back.
  void finish(std::string& out);

  bool stopped() const noexcept { return stopped_; }
  /// The index of the string that was found; meaningful after stopped().
  std::size_t which() const noexcept { return which_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<std::uint32_t>
        fallback;             // [i]: length of the longest proper end of text[0, i] that is also its beginning
    std::size_t matched = 0;  // bytes at the end of the input with which this string begins
  };

  std::vector<Pattern> patterns_;
  std::string held_;
  bool stopped_ = false;
  std::size_t which_ = 0;
};

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/stop_strings.ipp>
#endif
