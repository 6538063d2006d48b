// The chat templates of a checkpoint, as texts.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN

namespace detail {
/// The name of the template that has none of its own.
inline constexpr std::string_view kDefaultTemplate = "default";
}  // namespace detail

/// A chat template of a checkpoint as its files have it. The one without a name of its own is "default".
struct NamedTemplate {
  std::string name;
  std::string source;
};

/// All templates of a checkpoint, "default" first, then by name; empty where there is none. Of a Hugging Face folder:
/// chat_template.jinja and additional_chat_templates/NAME.jinja, else `chat_template` of tokenizer_config.json (a text,
/// or a list of names and templates), else of chat_template.json; of GGUF: tokenizer.chat_template and
/// tokenizer.chat_template.NAME. Errors of Checkpoint::document and of JSON, kTypeMismatch, kDuplicate, kLimitExceeded
/// (more than 64).
CORBEL_API Result<std::vector<NamedTemplate>> read_chat_templates(const Checkpoint& checkpoint);

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/chat_templates.ipp>
#endif
