// Definitions of chat_templates.hpp.
#pragma once

#include <corbel/checkpoint/chat_templates.hpp>
#include <corbel/checkpoint/json.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>

CORBEL_NAMESPACE_BEGIN
namespace detail {

class TemplateCollector {
 public:
  explicit TemplateCollector(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  Result<std::vector<NamedTemplate>> collect() {
    if (checkpoint_.format() == CheckpointFormat::kGguf) {
      CORBEL_RETURN_IF_ERROR(from_metadata());
    } else {
      CORBEL_RETURN_IF_ERROR(from_files());
      if (found_.empty()) CORBEL_RETURN_IF_ERROR(from_json("tokenizer_config.json"));
      if (found_.empty()) CORBEL_RETURN_IF_ERROR(from_json("chat_template.json"));
    }
    std::sort(found_.begin(), found_.end(), [](const NamedTemplate& a, const NamedTemplate& b) {
      const bool first = a.name == kDefaultTemplate;
      return first != (b.name == kDefaultTemplate) ? first : a.name < b.name;
    });
    return std::move(found_);
  }

 private:
  static constexpr std::size_t kMaxTemplates = 64;

  Status add(std::string_view name, std::string_view source) {
    if (found_.size() >= kMaxTemplates) {
      return {Errc::kLimitExceeded, "more than " + std::to_string(kMaxTemplates) + " chat templates"};
    }
    for (const NamedTemplate& other : found_) {
      if (other.name == name) {
        return {Errc::kDuplicate, "the chat template \"" + printable(name, 100) + "\" appears twice"};
      }
    }
    found_.push_back({std::string(name), std::string(source)});
    return {};
  }

  Status from_metadata() {
    static constexpr std::string_view kKey = "tokenizer.chat_template";
    for (const Metadata::Entry& entry : checkpoint_.metadata().entries()) {
      const std::string_view key = entry.key;
      if (!key.starts_with(kKey) || (key.size() > kKey.size() && key[kKey.size()] != '.')) continue;
      CORBEL_ASSIGN_OR_RETURN(const std::string_view source, checkpoint_.metadata().get_string(key));
      CORBEL_RETURN_IF_ERROR(add(key.size() > kKey.size() ? key.substr(kKey.size() + 1) : kDefaultTemplate, source));
    }
    return {};
  }

  Status from_files() {
    static constexpr std::string_view kFolder = "additional_chat_templates/";
    static constexpr std::string_view kEnding = ".jinja";
    for (const std::string& document : checkpoint_.documents()) {
      const bool named = document.starts_with(kFolder);
      if (!named && document != "chat_template.jinja") continue;
      std::string_view name = kDefaultTemplate;
      if (named)
        name = std::string_view(document).substr(kFolder.size(), document.size() - kFolder.size() - kEnding.size());
      CORBEL_ASSIGN_OR_RETURN(const std::string source, checkpoint_.document(document));
      Status status = add(name, source);
      if (!status.ok()) return status.with_place(place());
    }
    return {};
  }

  Status from_json(const char* document) {
    if (!checkpoint_.has_document(document)) return {};
    CORBEL_ASSIGN_OR_RETURN(const json::Value all, checkpoint_.json_document(document));
    const json::Value* value = all.find("chat_template");
    if (value == nullptr || value->is_null()) return {};
    return from_value(*value).with_place(std::string(document) + ": chat_template").with_place(place());
  }

  // A template, a list of {"name": ..., "template": ...}, or an object of names and templates.
  Status from_value(const json::Value& value) {
    if (value.is_string()) return add(kDefaultTemplate, value.as_string());
    if (value.is_object()) {
      for (const auto& [name, source] : value.members()) CORBEL_RETURN_IF_ERROR(add_checked(name, &source));
      return {};
    }
    if (!value.is_array()) return {Errc::kTypeMismatch, "expected a text or a list of templates"};
    for (const json::Value& item : value.items()) {
      const json::Value* name = item.find("name");
      if (name == nullptr || !name->is_string()) return {Errc::kTypeMismatch, "expected a name for each template"};
      CORBEL_RETURN_IF_ERROR(add_checked(name->as_string(), item.find("template")));
    }
    return {};
  }

  Status add_checked(std::string_view name, const json::Value* source) {
    if (source != nullptr && source->is_string()) return add(name, source->as_string());
    return {Errc::kTypeMismatch, "\"" + printable(name, 100) + "\": expected a text"};
  }

  std::string place() const { return printable(checkpoint_.name(), 200); }

  const Checkpoint& checkpoint_;
  std::vector<NamedTemplate> found_;
};

}  // namespace detail

CORBEL_INLINE Result<std::vector<NamedTemplate>> read_chat_templates(const Checkpoint& checkpoint) {
  return detail::guard([&]() { return detail::TemplateCollector(checkpoint).collect(); });
}

CORBEL_NAMESPACE_END
