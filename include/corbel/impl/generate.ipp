// Definitions of generate.hpp that do not depend on a backend.
#pragma once

#include <corbel/generate.hpp>

#include <algorithm>
#include <fmt/format.h>

CORBEL_NAMESPACE_BEGIN

CORBEL_INLINE const char* finish_reason_name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::kEndOfGeneration:
      return "end_of_generation";
    case FinishReason::kStopToken:
      return "stop_token";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kStopped:
      break;
  }
  return "stopped";
}

namespace detail {

CORBEL_INLINE Result<Reply> Reply::create(const Tokenizer& tokenizer, std::span<const std::uint32_t> ends,
                                          std::uint64_t vocab, const GenerateOptions& options) {
  if (options.chunk == 0) return Status(Errc::kInvalidArgument, "chunk must be above 0");
  // Without a tokenizer, or where it has fewer, the model's own tokens count.
  const std::uint64_t size = std::max<std::uint64_t>(tokenizer.size(), vocab);
  for (const TokenId id : options.stop_tokens) {
    if (id < 0 || static_cast<std::uint64_t>(id) >= size) {
      return Status(Errc::kInvalidArgument,
                    fmt::format("stop_tokens: token {} is outside the vocabulary of {}", id, size));
    }
  }
  CORBEL_ASSIGN_OR_RETURN(text::StopStrings stop, text::StopStrings::create(options.stop));
  return Reply(tokenizer, ends, options, std::move(stop));
}

CORBEL_INLINE bool Reply::ends_reply(TokenId token) const noexcept {
  return tokenizer_.is_end_of_generation(token) ||
         std::find(ends_.begin(), ends_.end(), static_cast<std::uint32_t>(token)) != ends_.end();
}

CORBEL_INLINE void Reply::reserve(std::size_t num_tokens) {
  constexpr std::size_t kPieceBytes = 256, kBytesPerToken = 8;
  decoded_.reserve(kPieceBytes);
  fresh_.reserve(kPieceBytes);
  result_.tokens.reserve(num_tokens);
  result_.text.reserve(num_tokens * kBytesPerToken);
}

CORBEL_INLINE Status Reply::add(TokenId token, bool has_room) {
  result_.pending = token;
  const std::vector<TokenId>& stop_tokens = options_->stop_tokens;
  if (std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end()) {
    finish(FinishReason::kStopToken);
    return {};
  }
  if (!options_->ignore_end_of_generation && ends_reply(token)) {
    finish(FinishReason::kEndOfGeneration);
    return {};
  }
  event_ = {token, {}, result_.tokens.size()};
  result_.tokens.push_back(token);
  // Logits may have more columns than the vocabulary has tokens (padding): such a token has no text.
  if (static_cast<std::size_t>(token) < tokenizer_.size()) {
    decoded_.clear();
    CORBEL_RETURN_IF_ERROR(decoder_.push(token, decoded_));
    const std::size_t begin = fresh_.size();
    stop_.push(decoded_, fresh_);
    release(begin);
  }
  if (stop_.stopped()) {
    finished_ = true;
    result_.finish = FinishReason::kStopString;
  } else if (options_->max_tokens > 0 && result_.tokens.size() >= options_->max_tokens) {
    finish(FinishReason::kLength);
  } else if (!has_room) {
    finish(FinishReason::kContext);
  }
  return {};
}

CORBEL_INLINE void Reply::finish(FinishReason reason) {
  if (event_.token == kNoToken) event_.index = result_.tokens.size();
  const std::size_t begin = fresh_.size();
  decoded_.clear();
  decoder_.finish(decoded_);
  stop_.push(decoded_, fresh_);
  stop_.finish(fresh_);
  release(begin);
  result_.finish = stop_.stopped() ? FinishReason::kStopString : reason;
  finished_ = true;
}

}  // namespace detail
CORBEL_NAMESPACE_END
