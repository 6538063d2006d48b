// generate: prompt ids in, a reply out, token by token.
//
//   auto cache = corbel::KVCache<>::create(model).value();
//   corbel::Sequence<> sequence(cache);
//   auto sampler = corbel::Sampler<>::create({.temperature = 0.7f, .seed = 42}).value();
//   auto ids = model.tokenizer().encode("Once upon a time", {.add_special = true}).value();
//   auto reply = corbel::generate(model, sequence, sampler, ids, {.max_tokens = 100}, [](std::string_view text) {
//     std::fwrite(text.data(), 1, text.size(), stdout);
//     return corbel::Next::kContinue;
//   }).value();
#pragma once

#include <corbel/batch.hpp>
#include <corbel/config.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/error.hpp>
#include <corbel/kv_cache.hpp>
#include <corbel/model.hpp>
#include <corbel/sampler.hpp>
#include <corbel/text/stop_strings.hpp>
#include <corbel/tokenizer.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// What a callback wants: go on; end the reply here and keep it; or give it up, as if the call had not been made.
enum class Next : std::uint8_t { kContinue, kStop, kCancel };

/// Why a reply ended.
enum class FinishReason : std::uint8_t {
  kEndOfGeneration,  ///< the model ended it: a token that its tokenizer or its generation_defaults() name
  kStopToken,        ///< one of GenerateOptions::stop_tokens
  kStopString,       ///< one of GenerateOptions::stop
  kLength,           ///< GenerateOptions::max_tokens
  kContext,          ///< the model's context or the cache is full
  kStopped,          ///< the callback said Next::kStop
};

/// "end_of_generation", "stop_token", "stop_string", "length", "context", "stopped".
CORBEL_API const char* finish_reason_name(FinishReason reason) noexcept;

/// Cancels calls from outside: cancel() may be called from any thread, and the call ends within one prefill chunk or
/// one token. Must outlive the calls that look at it. Thread-safe.
class CancelToken {
 public:
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  void reset() noexcept { cancelled_.store(false, std::memory_order_relaxed); }
  bool cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
};

struct GenerateOptions {
  std::uint32_t max_tokens = 0;  ///< tokens of the reply at most; 0: as many as fit
  std::vector<std::string> stop =
      {};  ///< the reply ends before the first of these texts; at most 256 strings, 64 KiB in all
  std::vector<TokenId> stop_tokens = {};  ///< the reply ends before the first of these tokens
  bool ignore_end_of_generation = false;  ///< go on after tokens that end a reply; they are then part of it
  bool special = false;                   ///< the text shows control tokens
  std::uint32_t chunk = 512;              ///< prompt tokens in one run, above 0; smaller chunks react faster to cancel
  std::uint32_t choice = 0;               ///< tells several replies to one request apart: each has its own draws
  const CancelToken* cancel = nullptr;    ///< looked at before every run
};

struct GenerateStatistics {
  std::size_t prompt_tokens = 0;   ///< tokens before the reply, reused ones included
  std::size_t reused_tokens = 0;   ///< of these, how many were in the cache already
  std::size_t decoded_tokens = 0;  ///< tokens of the reply
  double seconds = 0.0;            ///< the whole call
  double ttft_seconds = 0.0;       ///< until the first token was chosen
};

struct GenerateResult {
  FinishReason finish = FinishReason::kLength;
  /// The reply's tokens, without the one that ended it; those that form a stop string are included.
  std::vector<TokenId> tokens;
  /// The reply's text: exactly what the callback received. Valid UTF-8.
  std::string text;
  /// The token chosen last, which the sequence does not hold yet: the last of `tokens`, or the one that ended the
  /// reply. To go on with the same sequence, begin the next prompt with it.
  TokenId pending = kNoToken;
  GenerateStatistics statistics;
};

/// A step of a reply. The text holds whole code points only, and none that may become part of a stop string; it may be
/// empty.
struct TokenEvent {
  TokenId token = kNoToken;  ///< kNoToken where the end of the reply sets free text that was held back
  std::string_view text;     ///< valid during the call
  std::size_t index = 0;     ///< of the token in the reply
};

/// A callback for those who want only the result.
struct NoCallback {
  Next operator()(const TokenEvent&) const noexcept { return Next::kContinue; }
};

namespace detail {

/// What a reply has become so far: tokens, text, and whether it has ended.
class CORBEL_API Reply {
 public:
  /// `ends`: more tokens that end a reply; `vocab`: tokens that the model has. kInvalidArgument for a chunk of 0 or a
  /// stop token outside the vocabulary; errors of StopStrings.
  static Result<Reply> create(const Tokenizer& tokenizer, std::span<const std::uint32_t> ends, std::uint64_t vocab,
                              const GenerateOptions& options);

  /// Makes room for the memory of so many tokens, so that add() allocates nothing.
  void reserve(std::size_t num_tokens);
  /// The next token. Afterwards finished() may be true, and event() is what the callback is to see.
  Status add(TokenId token, bool has_room);
  /// Ends the reply; the event then has the text that was held back.
  void finish(FinishReason reason);
  /// Ends the reply as it is, dropping what is held back.
  void stop() noexcept {
    finished_ = true;
    result_.finish = FinishReason::kStopped;
  }

  bool finished() const noexcept { return finished_; }
  const TokenEvent& event() const noexcept { return event_; }
  bool has_event() const noexcept { return event_.token != kNoToken || !event_.text.empty(); }
  void clear_event() noexcept {
    event_ = {};
    fresh_.clear();
  }
  GenerateResult& result() noexcept { return result_; }
  const GenerateResult& result() const noexcept { return result_; }

 private:
  Reply(const Tokenizer& tokenizer, std::span<const std::uint32_t> ends, const GenerateOptions& options,
        text::StopStrings stop)
      : tokenizer_(tokenizer),
        ends_(ends.begin(), ends.end()),
        decoder_(tokenizer, {.special = options.special}),
        options_(&options),
        stop_(std::move(stop)) {}
  /// The end of fresh_ from `begin` on is new text of the reply.
  void release(std::size_t begin) {
    result_.text.append(fresh_, begin);
    event_.text = fresh_;
  }

  bool ends_reply(TokenId token) const noexcept;

  Tokenizer tokenizer_;
  std::vector<std::uint32_t> ends_;
  StreamDecoder decoder_;
  const GenerateOptions* options_;
  text::StopStrings stop_;
  GenerateResult result_;
  std::string decoded_;  // scratch memory: the text of one token
  std::string fresh_;    // the event's text
  TokenEvent event_;
  bool finished_ = false;
};

/// One call of generate. Until commit(), the destructor puts the sequence back to the length that it had.
template <class B, class S>
class Generation {
 public:
  /// `roles` is as long as `prompt`, or empty where all are Role::kPrompt.
  Generation(Batch<B>& batch, Sequence<B>& sequence, S& sampler, std::span<const TokenId> prompt,
             std::span<const Role> roles, const GenerateOptions& options, const CancelToken* second_cancel, Reply reply)
      : batch_(batch),
        sequence_(sequence),
        sampler_(sampler),
        prompt_(prompt),
        roles_(roles),
        options_(options),
        second_cancel_(second_cancel),
        reply_(std::move(reply)),
        start_size_(sequence.size()) {}
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;
  ~Generation() {
    if (!committed_) static_cast<void>(sequence_.truncate(start_size_));
  }

  Reply& reply() noexcept { return reply_; }

  /// Checks the request and tells the sampler.
  Status start() {
    if (prompt_.empty()) return Status(Errc::kInvalidArgument, "the prompt is empty");
    if (start_size_ + prompt_.size() > capacity()) {
      return Status(Errc::kContextOverflow,
                    std::to_string(prompt_.size()) + " prompt tokens after " + std::to_string(start_size_) +
                        " do not fit: the model has " + std::to_string(model().spec().context_length) +
                        " positions, the cache " + std::to_string(sequence_.cache().capacity()));
    }
    if (sequence_.empty() && sequence_.planned_length() == 0) {
      const std::uint64_t wanted = options_.max_tokens != 0 ? prompt_.size() + options_.max_tokens : capacity();
      CORBEL_RETURN_IF_ERROR(sequence_.plan_length(static_cast<std::uint32_t>(std::min(wanted, capacity()))));
    }
    std::uint64_t reply = capacity() - start_size_ - prompt_.size() + 1;  // the last token need not fit
    if (options_.max_tokens != 0) reply = std::min<std::uint64_t>(reply, options_.max_tokens);
    reply = std::min<std::uint64_t>(reply, kReservedTokens);
    reply_.reserve(reply);
    CORBEL_RETURN_IF_ERROR(sequence_.reserve(start_size_ + prompt_.size() + reply));
    std::vector<TokenId> context(sequence_.tokens().begin(), sequence_.tokens().end());
    context.insert(context.end(), prompt_.begin(), prompt_.end());
    return sampler_.start(context, options_.choice);
  }

  /// One run of the model: the next chunk of the prompt, or the next token of the reply.
  Status step() {
    reply_.clear_event();
    if (cancelled()) return cancelled_status("");
    if (num_prefilled_ < prompt_.size()) {
      CORBEL_RETURN_IF_ERROR(prefill());
      if (num_prefilled_ < prompt_.size()) return {};
    } else {
      const Status status = decode();
      if (status.code() == Errc::kOutOfMemory && sequence_.cache().num_free_blocks() == 0) {
        reply_.finish(FinishReason::kContext);  // other sequences took the last blocks
        return {};
      }
      CORBEL_RETURN_IF_ERROR(status);
    }
    CORBEL_ASSIGN_OR_RETURN(const TokenId token, sampler_.sample(logits_.row(0)));
    if (reply_.result().pending == kNoToken) reply_.result().statistics.ttft_seconds = seconds();
    CORBEL_RETURN_IF_ERROR(reply_.add(token, sequence_.size() < capacity()));
    return reply_.event().token == kNoToken ? Status() : sampler_.accept(token);
  }

  Status cancelled_status(std::string_view by) const {
    return Status(Errc::kCancelled, "cancelled" + std::string(by) + " after " + std::to_string(num_prefilled_) +
                                        " of " + std::to_string(prompt_.size()) + " prompt tokens and " +
                                        std::to_string(reply_.result().tokens.size()) + " tokens of the reply");
  }

  /// The sequence stays as it is now.
  GenerateResult commit() {
    committed_ = true;
    GenerateResult& result = reply_.result();
    result.statistics.prompt_tokens = start_size_ + prompt_.size();
    result.statistics.reused_tokens = start_size_;
    result.statistics.decoded_tokens = result.tokens.size();
    result.statistics.seconds = seconds();
    return std::move(result);
  }

 private:
  using Clock = std::chrono::steady_clock;
  /// The memory of longer replies grows as they do.
  static constexpr std::uint32_t kReservedTokens = 4096;

  const Model<B>& model() const noexcept { return sequence_.cache().model(); }
  std::uint64_t capacity() const noexcept {
    return std::min<std::uint64_t>(model().spec().context_length, sequence_.cache().capacity());
  }
  double seconds() const noexcept { return std::chrono::duration<double>(Clock::now() - start_time_).count(); }
  bool cancelled() const noexcept {
    return (options_.cancel != nullptr && options_.cancel->cancelled()) ||
           (second_cancel_ != nullptr && second_cancel_->cancelled());
  }

  Status prefill() {
    const std::size_t limit =
        std::min<std::size_t>({options_.chunk, batch_.options().max_rows, prompt_.size() - num_prefilled_});
    const auto role_of = [&](std::size_t i) { return roles_.empty() ? Role::kPrompt : roles_[i]; };
    const Role role = role_of(num_prefilled_);
    std::size_t count = 1;
    while (count < limit && role_of(num_prefilled_ + count) == role) ++count;
    const bool last = num_prefilled_ + count == prompt_.size();
    CORBEL_RETURN_IF_ERROR(run(prompt_.subspan(num_prefilled_, count), role, last ? Wanted::kLast : Wanted::kNone));
    num_prefilled_ += count;
    return {};
  }
  Status decode() {
    const TokenId token = reply_.result().pending;
    return run({&token, 1}, Role::kGenerated, Wanted::kLast);
  }
  Status run(std::span<const TokenId> ids, Role role, Wanted wanted) {
    CORBEL_RETURN_IF_ERROR(batch_.add(sequence_, ids, role, wanted));
    CORBEL_ASSIGN_OR_RETURN(logits_, batch_.forward());
    return {};
  }

  Batch<B>& batch_;
  Sequence<B>& sequence_;
  S& sampler_;
  std::span<const TokenId> prompt_;
  std::span<const Role> roles_;
  const GenerateOptions& options_;
  const CancelToken* second_cancel_;
  Reply reply_;
  std::size_t start_size_;
  std::size_t num_prefilled_ = 0;
  Logits logits_;
  Clock::time_point start_time_ = Clock::now();
  bool committed_ = false;
};

/// Hands an event to a callback that takes text or events.
template <class Callback>
Next notify(Callback& callback, const TokenEvent& event) {
  if constexpr (std::is_invocable_r_v<Next, Callback&, std::string_view>) {
    return event.text.empty() ? Next::kContinue : callback(event.text);
  } else {
    static_assert(std::is_invocable_r_v<Next, Callback&, const TokenEvent&>,
                  "a callback takes a std::string_view or a const corbel::TokenEvent&, and returns a corbel::Next");
    return callback(event);
  }
}

/// The loop of generate. The callback runs outside of every guard, so that what it throws is its own affair.
template <class B, class S, class Callback>
Result<GenerateResult> generate(Batch<B>& batch, Sequence<B>& sequence, S& sampler, std::span<const TokenId> prompt,
                                std::span<const Role> roles, const GenerateOptions& options,
                                const CancelToken* second_cancel, Callback& callback) {
  const Model<B>& model = sequence.cache().model();
  Result<Reply> reply = guard([&] {
    return Reply::create(model.tokenizer(), model.generation_defaults().eos_ids, model.spec().vocab, options);
  });
  if (!reply.ok()) return reply.status();
  Generation<B, S> run(batch, sequence, sampler, prompt, roles, options, second_cancel, *std::move(reply));
  CORBEL_RETURN_IF_ERROR(guard([&] { return run.start(); }));
  while (!run.reply().finished()) {
    CORBEL_RETURN_IF_ERROR(guard([&] { return run.step(); }));
    if (!run.reply().has_event()) continue;
    const Next next = notify(callback, run.reply().event());
    if (next == Next::kCancel) return run.cancelled_status(" by the callback");
    if (next == Next::kStop && !run.reply().finished()) run.reply().stop();
  }
  return run.commit();
}

}  // namespace detail

/// Appends `prompt` to `sequence` and generates a reply to the whole. `sampler` is a Sampler<...> or anything with its
/// start(), sample() and accept(); it is started anew, so the reply depends on its parameters and not on its past.
/// `callback` takes a std::string_view (called where there is new text) or a const TokenEvent& (called for every
/// token), and returns a Next.
///
/// On success the sequence holds the prompt and the reply up to, not including, GenerateResult::pending. On every
/// error, and when an exception of the callback passes through, it is as before the call: kCancelled (by the callback
/// or a CancelToken), kContextOverflow (the prompt does not fit; nothing is ever dropped or shifted to make room),
/// kOutOfMemory (too few free blocks for the prompt), kInvalidArgument (empty prompt, bad options), errors of the
/// sampler and of the backend.
///
/// A step allocates nothing once the first tokens have given scratch memory its size, apart from what grows with the
/// reply beyond 4096 tokens, or 8 bytes of text a token.
///
/// Belongs to one thread at a time with its sequence, sampler and batch; other sequences may run at the same time.
/// `batch` lends its memory and needs max_wanted >= 1; it must be empty.
template <hal::Backend B, class S, class Callback = NoCallback>
Result<GenerateResult> generate(Batch<B>& batch, Sequence<B>& sequence, S& sampler,
                                std::type_identity_t<std::span<const TokenId>> prompt,
                                const GenerateOptions& options = {}, Callback&& callback = {}) {
  return detail::generate(batch, sequence, sampler, prompt, {}, options, nullptr, callback);
}

/// The same with a batch of its own, made for the call. kInvalidArgument where the sequence belongs to another model.
template <hal::Backend B, class S, class Callback = NoCallback>
Result<GenerateResult> generate(const Model<B>& model, Sequence<B>& sequence, S& sampler,
                                std::type_identity_t<std::span<const TokenId>> prompt,
                                const GenerateOptions& options = {}, Callback&& callback = {}) {
  if (&model.spec() != &sequence.cache().model().spec()) {
    return Status(Errc::kInvalidArgument, "the sequence belongs to another model");
  }
  const auto rows = static_cast<std::uint32_t>(std::clamp<std::size_t>(prompt.size(), 1, std::max(options.chunk, 1u)));
  Result<Batch<B>> batch = Batch<B>::create(sequence.cache(), {.max_rows = rows, .max_wanted = 1, .max_sequences = 1});
  if (!batch.ok()) return batch.status();
  return detail::generate(*batch, sequence, sampler, prompt, {}, options, nullptr, callback);
}

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/generate.ipp>
#endif
