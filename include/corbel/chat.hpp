// ChatTemplate: a checkpoint's own Jinja template turns messages into a prompt.
//
//   auto chat = corbel::ChatTemplate::from_checkpoint(checkpoint, tokenizer);
//   std::vector<corbel::Message> messages = {{"user", "Why is the sky blue?"}};
//   auto prompt = chat->render(messages);                     // segments; tokenizer.encode(*prompt) gives ids
#pragma once

#include <corbel/checkpoint/chat_templates.hpp>
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/json.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/tokenizer.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// One message of a conversation.
struct Message {
  std::string role;  ///< "system", "user", "assistant", ...
  std::string content;
};

/// Budgets of one rendering; going over is Errc::kTemplateBudget.
struct TemplateLimits {
  std::uint64_t source_bytes = 1u << 20;
  std::uint64_t fuel = 10'000'000;  ///< evaluation steps and bytes touched
  std::uint64_t output_bytes = 16u << 20;
  std::uint32_t depth = 200;  ///< nesting of the source, and of calls
};

struct RenderOptions {
  bool add_generation_prompt = true;
  /// Ends the prompt with the text of the last message, for the model to go on with it; add_generation_prompt is then
  /// false.
  bool continue_final_message = false;
  /// More template variables (an object), for example {"enable_thinking": false, "tools": [...]}. They cannot override
  /// `messages`.
  const json::Value* variables = nullptr;
  /// Seconds since 1970-01-01 UTC that strftime_now shows; the template fails where it asks for the time and this is
  /// negative.
  std::int64_t now = -1;
};

namespace text {
class CompiledTemplate;
}

/// Immutable, cheap to copy, thread-safe.
class CORBEL_API ChatTemplate {
 public:
  /// kTemplateError with line and column where the source does not compile, kUnsupported for {% include %} and its
  /// kind, kDepthExceeded for nesting, kLimitExceeded where it is too long.
  static Result<ChatTemplate> compile(std::string_view source, std::string_view bos_token, std::string_view eos_token,
                                      const TemplateLimits& limits = {});
  /// One of read_chat_templates(): the one with this name; without a name "default", or the only one. kMissingKey, with
  /// the names that there are, where there is none such.
  static Result<ChatTemplate> from_checkpoint(const Checkpoint& checkpoint, const Tokenizer& tokenizer,
                                              const TemplateLimits& limits = {}, std::string_view name = {});

  /// The prompt as segments of template text and message content. Errors, with line and column: kTemplateError (also
  /// what raise_exception says: see raised_text), kTemplateBudget, kDepthExceeded.
  Result<std::vector<PromptSegment>> render(std::span<const Message> messages, const RenderOptions& options = {}) const;
  /// The same from any variables, an object. All strings inside `messages`, `tools` and `documents` count as content;
  /// those of other variables as template text. `bos_token` and `eos_token` replace those given to compile(). As in
  /// transformers, `tools` and `documents` are none and `add_generation_prompt` is false where they are absent, as long
  /// as there are `messages`, and `continue_final_message` true does what RenderOptions says; without `messages` the
  /// template sees just these variables.
  Result<std::vector<PromptSegment>> render(const json::Value& variables, std::int64_t now = -1) const;

 private:
  std::shared_ptr<const text::CompiledTemplate> compiled_;
};

/// The segments joined.
CORBEL_API std::string join(std::span<const PromptSegment> segments);
/// What the template said through raise_exception, where that is the error; else empty, with data() null. (It is what
/// follows "raise_exception: " in the message, with control characters escaped, and cut where the message reaches 512
/// bytes.) Lives as long as the status.
CORBEL_API std::string_view raised_text(const Status& status) noexcept;

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/chat.ipp>
#endif
