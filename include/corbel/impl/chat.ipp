// Definitions of chat.hpp.
#pragma once

#include <corbel/chat.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/text/jinja/compiler.hpp>
#include <corbel/text/jinja/machine.hpp>
#include <corbel/text/jinja/strings.hpp>

#include <algorithm>
#include <optional>

CORBEL_NAMESPACE_BEGIN

namespace text {

// What a ChatTemplate shares between its copies.
class CompiledTemplate {
 public:
  CompiledTemplate(jinja::Program program, std::string_view bos_token, std::string_view eos_token,
                   const TemplateLimits& limits)
      : program_(std::move(program)),
        bos_token_(jinja::Value::string(bos_token)),
        eos_token_(jinja::Value::string(eos_token)),
        limits_(limits) {}

  /// Either `messages` or `options.variables` (or both) may be given; see ChatTemplate::render.
  Result<std::vector<PromptSegment>> render(const std::span<const Message>* messages,
                                            const RenderOptions& options) const;

 private:
  jinja::Program program_;
  jinja::Value bos_token_;
  jinja::Value eos_token_;
  TemplateLimits limits_;
};

CORBEL_INLINE bool messages_value(jinja::Runtime& runtime, std::span<const Message> messages, jinja::Value& out) {
  std::vector<jinja::Value> list;
  jinja::Runtime input(~std::uint64_t{0}, -1);  // only what the template does is charged
  for (const Message& message : messages) {
    jinja::DictBuilder dict;
    if (!dict.set(input, jinja::Value::string("role", true), jinja::Value::string(message.role, true)) ||
        !dict.set(input, jinja::Value::string("content", true), jinja::Value::string(message.content, true))) {
      return runtime.fail(input.status().code(), input.status().message());
    }
    list.push_back(dict.take());
  }
  return jinja::make_sequence(input, jinja::Kind::kList, std::move(list), out);
}

// Strings below these variables come from outside: users, models, tools, retrieved documents.
CORBEL_INLINE bool is_content_variable(std::string_view name) noexcept {
  return name == "messages" || name == "documents" || name == "tools";
}

CORBEL_INLINE std::vector<PromptSegment> make_segments(const jinja::TextBuilder& output) {
  std::vector<PromptSegment> segments;
  std::size_t at = 0;
  const std::string& bytes = output.bytes();
  for (const jinja::ByteRange& range : output.content()) {
    if (range.begin > at) segments.push_back({bytes.substr(at, range.begin - at), false});
    segments.push_back({bytes.substr(range.begin, range.end - range.begin), true});
    at = range.end;
  }
  if (at < bytes.size()) segments.push_back({bytes.substr(at), false});
  return segments;
}

// The text of the last message: its content, or the last text among its parts.
CORBEL_INLINE std::optional<std::string_view> final_message(const json::Value* messages) noexcept {
  if (messages == nullptr || !messages->is_array() || messages->items().empty()) return std::nullopt;
  const json::Value* content = messages->items().back().find("content");
  if (content != nullptr && content->is_array()) {
    const json::Value::Array& parts = content->items();
    content = nullptr;
    for (const json::Value& part : parts) content = part.find("text") != nullptr ? part.find("text") : content;
  }
  if (content == nullptr || !content->is_string()) return std::nullopt;
  return content->as_string();
}

// Drops what the template wrote behind the last message. Spaces around the message stay where the template kept those
// before it.
CORBEL_INLINE Result<std::vector<PromptSegment>> end_after(std::vector<PromptSegment> segments,
                                                           std::string_view message) {
  const jinja::Value whole = jinja::Value::string(message);
  const jinja::Value stripped = jinja::strip(whole.as_text(), nullptr, true, true);
  const std::string text = join(segments);
  const std::size_t at = text.rfind(stripped.as_view());
  if (at == std::string::npos) return Status(Errc::kTemplateError, "the prompt does not contain the final message");
  std::size_t keep = at + (text.compare(at, message.size(), message) == 0 ? message.size() : stripped.as_view().size());
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (keep < segments[i].text.size()) segments[i].text.resize(keep);
    keep -= segments[i].text.size();
    if (segments[i].text.empty()) segments.resize(i);
  }
  return segments;
}

CORBEL_INLINE Result<std::vector<PromptSegment>> CompiledTemplate::render(const std::span<const Message>* messages,
                                                                          const RenderOptions& options) const {
  using jinja::Value;
  const json::Value* variables = options.variables;
  if (variables != nullptr && !variables->is_object()) {
    return Status(Errc::kInvalidArgument, "the variables of a template must be a JSON object");
  }
  jinja::Runtime runtime(limits_.fuel, options.now);
  jinja::Machine machine(program_, runtime, limits_.output_bytes, limits_.depth);
  const bool conversation = messages != nullptr || variables->find("messages") != nullptr;
  if (conversation) {
    machine.define("tools", Value::none());
    machine.define("documents", Value::none());
    machine.define("add_generation_prompt",
                   Value::boolean(options.add_generation_prompt && !options.continue_final_message));
  }
  if (conversation || !bos_token_.as_view().empty()) machine.define("bos_token", bos_token_);
  if (conversation || !eos_token_.as_view().empty()) machine.define("eos_token", eos_token_);
  if (variables != nullptr) {
    for (const auto& [name, member] : variables->members()) {
      Value value;
      if (program_.find_name(name) < 0) continue;
      if (!jinja::from_json(runtime, member, is_content_variable(name), value)) {
        return runtime.status().with_place("variable '" + name + "'");
      }
      machine.define(name, std::move(value));
    }
  }
  if (messages != nullptr) {
    Value list;
    if (!messages_value(runtime, *messages, list)) return runtime.status();
    machine.define("messages", std::move(list));
  }
  if (!machine.run()) return runtime.status();
  std::vector<PromptSegment> segments = make_segments(machine.output());
  if (!options.continue_final_message) return segments;
  std::optional<std::string_view> message;
  if (messages == nullptr) message = final_message(variables->find("messages"));
  if (messages != nullptr && !messages->empty()) message = messages->back().content;
  if (!message) return Status(Errc::kInvalidArgument, "there is no final message to continue");
  return end_after(std::move(segments), *message);
}

}  // namespace text

CORBEL_INLINE Result<ChatTemplate> ChatTemplate::compile(std::string_view source, std::string_view bos_token,
                                                         std::string_view eos_token, const TemplateLimits& limits) {
  return detail::guard([&]() -> Result<ChatTemplate> {
    if (source.size() > limits.source_bytes) {
      return Status(Errc::kLimitExceeded, "the chat template has " + std::to_string(source.size()) +
                                              " bytes; the limit is " + std::to_string(limits.source_bytes));
    }
    CORBEL_ASSIGN_OR_RETURN(text::jinja::Program program, text::jinja::compile_program(source, limits.depth));
    ChatTemplate out;
    out.compiled_ = std::make_shared<const text::CompiledTemplate>(std::move(program), bos_token, eos_token, limits);
    return out;
  });
}

CORBEL_INLINE Result<ChatTemplate> ChatTemplate::from_checkpoint(const Checkpoint& checkpoint,
                                                                 const Tokenizer& tokenizer,
                                                                 const TemplateLimits& limits, std::string_view name) {
  return detail::guard([&]() -> Result<ChatTemplate> {
    CORBEL_ASSIGN_OR_RETURN(const std::vector<NamedTemplate> all, read_chat_templates(checkpoint));
    const std::string_view wanted = !name.empty()     ? name
                                    : all.size() == 1 ? std::string_view(all[0].name)
                                                      : detail::kDefaultTemplate;
    std::string names;
    for (const NamedTemplate& one : all) {
      if (one.name == wanted) {
        return compile(one.source, tokenizer.piece(tokenizer.bos()), tokenizer.piece(tokenizer.eos()), limits);
      }
      names += (names.empty() ? "" : ", ") + detail::printable(one.name, 40);
    }
    return Status(Errc::kMissingKey, detail::printable(checkpoint.name(), 200) +
                                         (all.empty() ? ": no chat template"
                                                      : ": no chat template \"" + detail::printable(wanted, 40) +
                                                            "\", there are: " + names));
  });
}

CORBEL_INLINE Result<std::vector<PromptSegment>> ChatTemplate::render(std::span<const Message> messages,
                                                                      const RenderOptions& options) const {
  return detail::guard([&]() -> Result<std::vector<PromptSegment>> { return compiled_->render(&messages, options); });
}

CORBEL_INLINE Result<std::vector<PromptSegment>> ChatTemplate::render(const json::Value& variables,
                                                                      std::int64_t now) const {
  return detail::guard([&]() -> Result<std::vector<PromptSegment>> {
    const json::Value* to_continue = variables.find("continue_final_message");
    RenderOptions options;
    options.add_generation_prompt = false;
    options.continue_final_message =
        to_continue != nullptr && to_continue->type() == json::Type::kBool && to_continue->as_bool();
    options.variables = &variables;
    options.now = now;
    return compiled_->render(nullptr, options);
  });
}

CORBEL_INLINE std::string join(std::span<const PromptSegment> segments) {
  std::string out;
  for (const PromptSegment& segment : segments) out += segment.text;
  return out;
}

CORBEL_INLINE std::string_view raised_text(const Status& status) noexcept {
  static constexpr std::string_view kMark = "raise_exception: ";
  const std::string_view message = status.message();
  const std::size_t at = status.code() == Errc::kTemplateError ? message.find(kMark) : std::string_view::npos;
  return at == std::string_view::npos ? std::string_view() : message.substr(at + kMark.size());
}

CORBEL_NAMESPACE_END
