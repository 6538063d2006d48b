// Definitions of text/pipeline_model.hpp: encoding and decoding.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/byte_stand_ins.hpp>
#include <corbel/text/code_point_sets.hpp>
#include <corbel/text/pipeline_model.hpp>
#include <corbel/text/unicode.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <optional>
#include <unordered_set>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

inline constexpr std::uint8_t kSingleWord = 1;
inline constexpr std::uint8_t kStripLeft = 2;
inline constexpr std::uint8_t kStripRight = 4;

// \w as annex C of Unicode's technical standard 18 has it: letters, marks, decimal digits, connectors, joiners, and
// letters in circles.
CORBEL_INLINE sets::Ranges word_characters() {
  sets::Ranges all = {{0x200C, 0x200D}, {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
  for (const std::string_view category : {"L", "M", "Nd", "Nl", "Pc"}) {
    const std::optional<sets::Ranges> part = sets::property(category);
    if (part.has_value()) all.insert(all.end(), part->begin(), part->end());
  }
  sets::tidy(all);
  return all;
}

CORBEL_INLINE std::uint32_t point_at(std::string_view text, std::size_t at) noexcept {
  return detail::decode_utf8(text, at).value;
}

// Where the character that ends at `end` begins.
CORBEL_INLINE std::size_t character_before(std::string_view text, std::size_t end) noexcept {
  std::size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

struct PipelineModel::Call {
  std::span<const TextSpan> spans;
  std::size_t span = 0;  // the first that ends after the last gap's begin
  std::vector<TokenId> ids;
  EncodeScratch scratch;
  CutScratch cut;
  std::string normalized;
  std::string spelled;  // a word in the stand-ins of its bytes
};

CORBEL_INLINE void PipelineModel::add_token(const AddedToken& token) {
  const auto at = static_cast<std::size_t>(token.id);
  if (flags_.size() <= at) flags_.resize(at + 1);
  flags_[at] = static_cast<std::uint8_t>((token.single_word ? kSingleWord : 0) | (token.strip_left ? kStripLeft : 0) |
                                         (token.strip_right ? kStripRight : 0));
}

CORBEL_INLINE bool PipelineModel::in_word(std::uint32_t point) const noexcept {
  const auto after = std::upper_bound(word_characters_.begin(), word_characters_.end(), point,
                                      [](std::uint32_t value, const auto& range) { return value < range.first; });
  return after != word_characters_.begin() && point <= std::prev(after)->second;
}

CORBEL_INLINE Status PipelineModel::finish_added(const std::vector<AddedToken>& added) {
  std::string normalized;
  // Tokens that are looked for in the text as it is come first, and cut it; so one pass does only where all are equal.
  const bool one_pass = normalizer_.empty() && std::all_of(added.begin(), added.end(), [](const AddedToken& token) {
                          return token.normalized || token.content.empty();
                        });
  std::unordered_set<std::string> taken;  // normalized texts: the first token counts, special ones before others
  for (const bool special : {true, false}) {
    for (const AddedToken& token : added) {
      if (token.content.empty() || token.special != special) continue;
      add_token(token);
      if (token.single_word && word_characters_.empty()) word_characters_ = word_characters();
      if (!token.normalized || one_pass) {
        raw_.add(token.content, token.id, !token.special);
        continue;
      }
      CORBEL_RETURN_IF_ERROR(normalizer_.apply(token.content, normalized));
      // What the token decodes to is its normalized text, as in the reference.
      if (normalized != token.content) decoded_as_[token.id] = normalized;
      if (token.special) normalized_controls_.add(token.content, token.id, false);
      if (normalized.empty() || !taken.insert(normalized).second) continue;
      normalized_.add(normalized, token.id, !token.special);
    }
  }
  raw_.finish();
  normalized_.finish();
  normalized_controls_.finish();
  return {};
}

// Cuts `text`, which begins at byte `offset` of what `spans` cover, at the tokens that `matcher` finds.
template <class Gap, class Token>
void PipelineModel::cut(std::string_view text, const SpecialMatcher& matcher, std::span<const TextSpan> spans,
                        std::size_t offset, Call& call, Gap&& gap, Token&& token) const {
  std::vector<SpecialMatcher::Match> found;
  matcher.find(text, spans, offset, found, call.scratch.merge.steps);
  std::size_t begin = 0;       // of the gap that is still open
  std::size_t at = 0;          // end of the last token that was looked at
  std::size_t spaces_end = 0;  // of the spaces after the last token that takes them
  for (; !found.empty(); found.pop_back()) {
    const SpecialMatcher::Match match = found.back();
    if (match.begin < at) continue;
    std::size_t start = match.begin;
    std::size_t stop = match.end();
    at = stop;
    const std::uint8_t flags = flags_[static_cast<std::size_t>(match.id)];
    if ((flags & kSingleWord) != 0) {
      const bool word_before = start > 0 && in_word(point_at(text, character_before(text, start)));
      const bool word_after = stop < text.size() && in_word(point_at(text, stop));
      if (word_before || word_after) continue;
    }
    if ((flags & kStripLeft) != 0) {
      start = std::max(start, begin);  // what the token before took
      while (start > begin) {
        const std::size_t before = character_before(text, start);
        if (before < begin || !is_space(char_class(point_at(text, before)))) break;
        start = before;
      }
    }
    if ((flags & kStripRight) != 0) {
      if (stop >= spaces_end) {
        spaces_end = stop;
        while (spaces_end < text.size() && is_space(char_class(point_at(text, spaces_end)))) {
          spaces_end += std::max(detail::decode_utf8(text, spaces_end).length, 1u);
        }
      }
      stop = spaces_end;
    }
    if (begin < start) gap(begin, start);
    if (start < stop) token(match.id);
    begin = stop;  // a token among spaces that the one before took turns it back, as in the reference
  }
  if (begin < text.size()) gap(begin, text.size());
}

CORBEL_INLINE Result<std::vector<TokenId>> PipelineModel::encode(std::string_view text, std::span<const TextSpan> spans,
                                                                 bool add_special, std::uint64_t& steps) const {
  if (text.size() > kMaxTextBytes) return too_long(text.size());
  std::vector<TextSpan> moved(spans.begin(), spans.end());
  std::string rewritten;
  if (normalize(text, moved, rewritten)) text = rewritten;
  if (text.size() > kMaxTextBytes) return too_long(text.size());

  Call call;
  call.spans = moved;
  call.ids.reserve(text.size() / 4 + 2);
  if (add_special) call.ids = before_;
  Status status;
  cut(
      text, raw_, moved, 0, call,
      [&](std::size_t begin, std::size_t end) {
        if (status.ok()) status = encode_gap(text.substr(begin, end - begin), begin, call);
      },
      [&](TokenId id) { call.ids.push_back(id); });
  CORBEL_RETURN_IF_ERROR(std::move(status));
  if (call.scratch.missing_unknown) {
    return Status(Errc::kVocabInvalid, "text to encode: a part is in no token, and the tokenizer has no unknown token");
  }
  if (add_special) call.ids.insert(call.ids.end(), after_.begin(), after_.end());
  steps += call.scratch.merge.steps;
  return std::move(call.ids);
}

// `begin`: where `text` starts in the whole text.
CORBEL_INLINE Status PipelineModel::encode_gap(std::string_view text, std::size_t begin, Call& call) const {
  bool literal = false;  // some of it is message content
  bool plain = false;    // some of it is template text
  while (call.spans[call.span].end <= begin) ++call.span;
  for (std::size_t at = call.span; at < call.spans.size() && !(literal && plain); ++at) {
    if (at > call.span && call.spans[at - 1].end >= begin + text.size()) break;
    if (at > call.span && call.spans[at].end == call.spans[at - 1].end) continue;
    (call.spans[at].literal ? literal : plain) = true;
  }
  if (!literal || !plain || normalized_controls_.empty()) return encode_normalized(text, !literal, begin == 0, call);
  // Both kinds in one stretch: after normalization nobody could say which is which, so control tokens are looked for
  // before it.
  Status status;
  cut(
      text, normalized_controls_, call.spans.subspan(call.span), begin, call,
      [&](std::size_t at, std::size_t end) {
        if (status.ok()) status = encode_normalized(text.substr(at, end - at), false, begin + at == 0, call);
      },
      [&](TokenId id) { call.ids.push_back(id); });
  return status;
}

CORBEL_INLINE Status PipelineModel::encode_normalized(std::string_view text, bool template_text, bool first,
                                                      Call& call) const {
  std::string normalized;
  if (!normalizer_.empty()) {
    normalized.swap(call.normalized);
    CORBEL_RETURN_IF_ERROR(normalizer_.apply(text, normalized, {}, call.scratch.merge.steps));
    if (normalized.size() > kMaxTextBytes) return too_long(normalized.size());
    text = normalized;
  }
  Status status;
  if (normalized_.empty()) {
    if (!text.empty()) status = encode_words(text, first, call);
  } else {
    const TextSpan whole = {text.size(), !template_text};
    cut(
        text, normalized_, {&whole, 1}, 0, call,
        [&](std::size_t begin, std::size_t end) {
          if (status.ok()) status = encode_words(text.substr(begin, end - begin), first && begin == 0, call);
        },
        [&](TokenId id) { call.ids.push_back(id); });
  }
  if (normalized.capacity() > call.normalized.capacity()) call.normalized.swap(normalized);
  return status;
}

CORBEL_INLINE Status PipelineModel::encode_words(std::string_view text, bool first, Call& call) const {
  EncodeScratch& scratch = call.scratch;
  call.cut.steps = 0;
  CORBEL_ASSIGN_OR_RETURN(const std::string_view cut_text, cutter_.cut(text, first, call.cut));
  scratch.merge.steps += call.cut.steps;
  reset_cache(cut_text.size(), scratch);
  const bool spell = cutter_.byte_level() && !words_->takes_bytes();
  for (const Word& word : call.cut.words) {
    encode_cached(cut_text, word.begin, word.end, scratch, call.ids, [&](std::string_view bytes) {
      if (spell) {
        call.spelled.clear();
        for (const char c : bytes) detail::append_utf8(call.spelled, stand_in(static_cast<unsigned char>(c)));
        bytes = call.spelled;
      }
      words_->encode_word(bytes, scratch, call.ids);
    });
  }
  return {};
}

CORBEL_INLINE void PipelineModel::append_bytes(TokenId id, bool special, DecodeState& state, std::string& out) const {
  const PieceType type = vocabulary().type(id);
  const auto other = decoded_as_.find(id);
  // A control token that is looked for in normalized text shows all the same where that text is not its own, as in the
  // reference.
  const bool control = type == PieceType::kControl || type == PieceType::kUnknown;
  if (!special && control && other == decoded_as_.end()) return;
  if (type == PieceType::kUndefined && vocabulary().piece(id).empty()) return;  // a hole
  decoder_.append(other == decoded_as_.end() ? vocabulary().piece(id) : std::string_view(other->second), state, out);
}

CORBEL_INLINE std::uint64_t PipelineModel::memory_bytes() const noexcept {
  return TokenizerModel::memory_bytes() + sizeof(*this) + (words_ ? words_->memory_bytes() : 0) +
         normalizer_.memory_bytes() + cutter_.memory_bytes() + decoder_.memory_bytes() + raw_.memory_bytes() +
         normalized_.memory_bytes() + normalized_controls_.memory_bytes() + flags_.capacity();
}

}  // namespace text
CORBEL_NAMESPACE_END
