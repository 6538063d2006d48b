// Rewrites a text character by character and moves the ends of its spans along.
#pragma once

#include <corbel/text/tokenizer_model.hpp>

CORBEL_NAMESPACE_BEGIN
namespace text {

/// `next(at, out)` appends what stands for the characters at text[at] and answers how many bytes it took. A character
/// across the end of a span goes to the literal side: no byte of message content ever helps to spell a control piece.
template <class Next>
void rewrite_text(std::string_view text, std::vector<TextSpan>& spans, std::string& out, Next&& next) {
  out.reserve(text.size() + text.size() / 8);
  std::size_t span = 0;
  std::size_t before = 0;  // size of `out` before the last character
  for (std::size_t at = 0;;) {
    for (; span < spans.size() && spans[span].end <= at; ++span) {
      spans[span].end = spans[span].end == at || spans[span].literal ? out.size() : before;
    }
    if (at >= text.size()) break;
    before = out.size();
    at += next(at, out);
  }
}

}  // namespace text
CORBEL_NAMESPACE_END
