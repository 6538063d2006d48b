// Conversation: messages in, replies out; keeps what is already computed from turn to turn.
//
//   corbel::Conversation talk(model, cache, {.system = "You are brief."});
//   auto reply = talk.say("Why is the sky blue?", sampler, [](std::string_view text) {
//     std::fwrite(text.data(), 1, text.size(), stdout);
//     return corbel::Next::kContinue;
//   }).value();
//   reply.statistics.reused_tokens                            // of the second turn: all of the first
#pragma once

#include <corbel/batch.hpp>
#include <corbel/chat.hpp>
#include <corbel/config.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/error.hpp>
#include <corbel/generate.hpp>
#include <corbel/kv_cache.hpp>
#include <corbel/model.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN

struct ConversationOptions {
  std::string system = {};  ///< content of a system message at the start; empty: none
  /// What the template is given. Its variables must outlive the conversation; add_generation_prompt is always on; where
  /// `now` is negative, it is the time at which the conversation is made.
  RenderOptions render = {};
};

namespace detail {

/// A conversation as the model saw it: the rendered text and its tokens, in which replies have the ids that were
/// generated.
struct ChatRecord {
  struct Mark {
    std::size_t text_bytes = 0;
    std::size_t tokens = 0;
  };
  std::string text;
  std::vector<TokenId> tokens;
  std::vector<Role> roles;       ///< [tokens]
  std::vector<Mark> reply_ends;  ///< rising; up to each, text and tokens agree
};

/// The record of a newly rendered prompt. Up to the last reply that `known` and the prompt have in common, tokens are
/// those of `known`; the rest is encoded. Where the template does not begin with the beginning-of-sequence token and
/// the file asks for one, it is added.
CORBEL_API Result<ChatRecord> extend(const ChatRecord& known, const Tokenizer& tokenizer,
                                     std::span<const PromptSegment> prompt);
/// Adds a reply.
CORBEL_API Status add_reply(ChatRecord& record, const Tokenizer& tokenizer, const GenerateResult& reply);

}  // namespace detail

/// One thread at a time, but for cancel(). Movable while no call runs.
///
/// Every turn renders the model's own chat template over all messages and compares the tokens with those in the cache:
/// only what differs is computed. A reply keeps the ids that were generated (its text may have another tokenization),
/// as long as the template repeats it unchanged; a template that trims or drops parts of earlier replies makes that
/// part be computed anew. Message content never becomes control tokens.
template <hal::Backend B = DefaultBackend>
class Conversation {
 public:
  /// Takes no cache memory yet. `cache` must be of `model`: else every say() is kInvalidArgument.
  Conversation(const Model<B>& model, const KVCache<B>& cache, ConversationOptions options = {})
      : model_(model), options_(std::move(options)), sequence_(cache), cancel_(std::make_unique<CancelToken>()) {
    options_.render.add_generation_prompt = true;
    if (options_.render.now < 0) {
      options_.render.now =
          std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    }
    reset();
  }

  /// Says `text` as the user and returns the reply; see generate() for `sampler`, `callback` and `options`. On success
  /// both are part of messages(). On every error, after a cancel, and when an exception of the callback passes through,
  /// the conversation is as before the call. Errors: those of generate() and of rendering; missing_key where the model
  /// has no chat template; kContextOverflow where the conversation has become too long (drop messages with
  /// set_messages); kBusy when called from its own callback.
  template <class S, class Callback = NoCallback>
  Result<GenerateResult> say(std::string_view text, S& sampler, Callback&& callback = {},
                             const GenerateOptions& options = {}) {
    if (busy_) return Status(Errc::kBusy, "say() was called from the callback of say()");
    const Busy busy(busy_);
    cancel_->reset();
    std::vector<Message> messages;
    detail::ChatRecord record;
    CORBEL_RETURN_IF_ERROR(detail::guard([&] { return prepare(text, options, messages, record); }));
    const std::size_t kept = sequence_.size();
    if (kept == 0)  // later turns will go on
      CORBEL_RETURN_IF_ERROR(sequence_.plan_length(static_cast<std::uint32_t>(
          std::min<std::uint64_t>(model_.spec().context_length, sequence_.cache().capacity()))));
    Result<GenerateResult> reply =
        detail::generate(*batch_, sequence_, sampler, std::span<const TokenId>(record.tokens).subspan(kept),
                         std::span<const Role>(record.roles).subspan(kept), options, cancel_.get(), callback);
    if (!reply.ok()) return reply;
    CORBEL_RETURN_IF_ERROR(detail::guard([&]() -> Status {
      messages.push_back({"assistant", reply->text});
      return detail::add_reply(record, model_.tokenizer(), *reply);
    }));
    messages_.swap(messages);
    std::swap(record_, record);
    return reply;
  }

  /// Ends the say() that is running with kCancelled, within one prefill chunk or one token. Does nothing where none is
  /// running. From any thread.
  void cancel() noexcept { cancel_->cancel(); }

  /// All messages, the system message included.
  const std::vector<Message>& messages() const noexcept { return messages_; }
  /// Replaces the messages, for example by a saved conversation, or to drop old ones. What the cache holds of them is
  /// still used.
  void set_messages(std::vector<Message> messages) noexcept { messages_ = std::move(messages); }
  /// Forgets everything but the system message, and gives the cache's blocks back.
  void reset() {
    std::vector<Message> messages;
    if (!options_.system.empty()) messages.push_back({"system", options_.system});
    messages_.swap(messages);
    record_ = {};
    sequence_.clear();
  }

  const Sequence<B>& sequence() const noexcept { return sequence_; }

 private:
  class Busy {
   public:
    explicit Busy(bool& flag) noexcept : flag_(flag) { flag_ = true; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    ~Busy() { flag_ = false; }

   private:
    bool& flag_;
  };

  /// Renders and encodes the messages with the new one, and cuts the sequence down to what they have in common.
  Status prepare(std::string_view text, const GenerateOptions& options, std::vector<Message>& messages,
                 detail::ChatRecord& record) {
    if (&model_.spec() != &sequence_.cache().model().spec()) {
      return Status(Errc::kInvalidArgument, "the cache belongs to another model");
    }
    if (!model_.chat_template().ok()) return model_.chat_template().status();
    messages.reserve(messages_.size() + 2);
    messages = messages_;
    messages.push_back({"user", std::string(text)});
    CORBEL_ASSIGN_OR_RETURN(const std::vector<PromptSegment> prompt,
                            model_.chat_template()->render(messages, options_.render));
    CORBEL_ASSIGN_OR_RETURN(record, detail::extend(record_, model_.tokenizer(), prompt));
    if (record.tokens.empty()) return Status(Errc::kTemplateError, "the chat template renders an empty prompt");

    const std::uint32_t rows = std::max(std::min(options.chunk, kMaxRows), 1u);
    if (!batch_ || batch_->options().max_rows < rows) {
      CORBEL_ASSIGN_OR_RETURN(
          Batch<B> batch, Batch<B>::create(sequence_.cache(), {.max_rows = rows, .max_wanted = 1, .max_sequences = 1}));
      batch_.emplace(std::move(batch));
    }
    const std::span<const TokenId> cached = sequence_.tokens();
    const std::size_t limit = std::min(cached.size(), record.tokens.size() - 1);  // one row must run to give logits
    std::size_t kept = 0;
    while (kept < limit && cached[kept] == record.tokens[kept]) ++kept;
    std::copy_n(sequence_.roles().begin(), kept, record.roles.begin());
    return sequence_.truncate(kept);
  }

  static constexpr std::uint32_t kMaxRows = 4096;

  Model<B> model_;
  ConversationOptions options_;
  Sequence<B> sequence_;
  std::optional<Batch<B>> batch_;  // made by the first say()
  std::vector<Message> messages_;
  detail::ChatRecord record_;
  std::unique_ptr<CancelToken> cancel_;
  bool busy_ = false;
};

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/conversation.ipp>
#endif
