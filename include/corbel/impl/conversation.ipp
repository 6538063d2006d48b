// Definitions of conversation.hpp that do not depend on a backend.
#pragma once

#include <corbel/conversation.hpp>

#include <algorithm>
#include <cstddef>

CORBEL_NAMESPACE_BEGIN
namespace detail {

/// What follows the first `bytes` bytes.
CORBEL_INLINE std::vector<PromptSegment> without_prefix(std::span<const PromptSegment> segments, std::size_t bytes) {
  std::vector<PromptSegment> rest;
  for (const PromptSegment& segment : segments) {
    const std::size_t cut = std::min(bytes, segment.text.size());
    bytes -= cut;
    if (cut < segment.text.size()) rest.push_back({segment.text.substr(cut), segment.is_content});
  }
  return rest;
}

CORBEL_INLINE Result<ChatRecord> extend(const ChatRecord& known, const Tokenizer& tokenizer,
                                        std::span<const PromptSegment> prompt) {
  ChatRecord record;
  record.text = join(prompt);
  const auto common = static_cast<std::size_t>(
      std::mismatch(known.text.begin(), known.text.end(), record.text.begin(), record.text.end()).first -
      known.text.begin());
  std::size_t num_replies = known.reply_ends.size();
  while (num_replies > 0 && known.reply_ends[num_replies - 1].text_bytes > common) --num_replies;
  if (num_replies > 0) {
    const ChatRecord::Mark mark = known.reply_ends[num_replies - 1];
    CORBEL_ASSIGN_OR_RETURN(const std::vector<TokenId> rest, tokenizer.encode(without_prefix(prompt, mark.text_bytes)));
    // Text behind a control token is encoded the same whatever stands before it; other text might merge with the reply.
    if (!rest.empty() && (tokenizer.is_control(rest[0]) || tokenizer.is_end_of_generation(rest[0]))) {
      const auto count = static_cast<std::ptrdiff_t>(mark.tokens);
      record.tokens.assign(known.tokens.begin(), known.tokens.begin() + count);
      record.roles.assign(known.roles.begin(), known.roles.begin() + count);
      record.tokens.insert(record.tokens.end(), rest.begin(), rest.end());
      record.roles.resize(record.tokens.size(), Role::kPrompt);
      record.reply_ends.assign(known.reply_ends.begin(),
                               known.reply_ends.begin() + static_cast<std::ptrdiff_t>(num_replies));
      return record;
    }
  }
  CORBEL_ASSIGN_OR_RETURN(record.tokens, tokenizer.encode(prompt));
  if (tokenizer.adds_bos() && tokenizer.bos() != kNoToken &&
      (record.tokens.empty() || record.tokens[0] != tokenizer.bos())) {
    record.tokens.insert(record.tokens.begin(), tokenizer.bos());
  }
  record.roles.assign(record.tokens.size(), Role::kPrompt);
  return record;
}

CORBEL_INLINE Status add_reply(ChatRecord& record, const Tokenizer& tokenizer, const GenerateResult& reply) {
  record.text += reply.text;
  record.tokens.insert(record.tokens.end(), reply.tokens.begin(), reply.tokens.end());
  record.roles.resize(record.tokens.size(), Role::kGenerated);
  // A reply that was cut at a stop string, or has control tokens or half a character, is not what its text encodes to:
  // the next prompt will be encoded from the text.
  const Result<std::string> decoded = tokenizer.decode(reply.tokens);
  const bool plain =
      std::none_of(reply.tokens.begin(), reply.tokens.end(), [&](TokenId id) { return tokenizer.is_control(id); });
  if (plain && decoded.ok() && *decoded == reply.text) {
    record.reply_ends.push_back({record.text.size(), record.tokens.size()});
  }
  return {};
}

}  // namespace detail
CORBEL_NAMESPACE_END
