// The four normalization forms (Unicode 16, UAX 15) and lower case, from tables of our own.
#pragma once

#include <corbel/config.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace text {

enum class NormalForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };

/// A text being rewritten. `cuts`, ascending offsets into the text, become offsets into `out` as the writer passes
/// them.
class Rewriting {
 public:
  Rewriting(std::string_view text, std::string& out, std::span<std::size_t> cuts)
      : text_(text), out_(out), cuts_(cuts) {}

  std::string_view text() const noexcept { return text_; }
  std::string& out() noexcept { return out_; }
  /// What is appended from now on comes of text[at] or what is behind it.
  void reached(std::size_t at) noexcept {
    while (!cuts_.empty() && cuts_.front() <= at) {
      cuts_.front() = out_.size();
      cuts_ = cuts_.subspan(1);
    }
  }
  /// Appends text[begin, end) as it is.
  void keep(std::size_t begin, std::size_t end) {
    while (!cuts_.empty() && cuts_.front() <= end) {
      const std::size_t cut = cuts_.front();
      cuts_.front() = out_.size() + (cut > begin ? cut - begin : 0);
      cuts_ = cuts_.subspan(1);
    }
    out_.append(text_, begin, end - begin);
  }

 private:
  std::string_view text_;
  std::string& out_;
  std::span<std::size_t> cuts_;
};

/// Appends the text (valid UTF-8) in this form. Linear, but for the sorting of marks on one character.
CORBEL_API void normalize(NormalForm form, Rewriting& rewriting);
/// Appends the text with every code point in lower case, as the full mapping of Unicode says without regard to what is
/// around it: U+0130 becomes two, a capital sigma never a final one (the tokenizers package lowers characters one by
/// one).
CORBEL_API void lowercase(Rewriting& rewriting);

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/normalization.ipp>
#endif
