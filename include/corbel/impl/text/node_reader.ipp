// NodeReader: typed members of one node of a tokenizer.json, with errors that name the place.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/error.hpp>

#include <fmt/format.h>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace text {

class NodeReader {
 public:
  NodeReader(const json::Value& node, std::string_view place) : node_(node), place_(place) {}

  Status flag(std::string_view key, bool& value) const {
    const json::Value* member = node_.find(key);
    if (member == nullptr || member->is_null()) return {};
    if (member->type() != json::Type::kBool) return wrong(key, "true or false");
    value = member->as_bool();
    return {};
  }
  Status string(std::string_view key, std::string_view& value) const {
    const json::Value* member = node_.find(key);
    if (member == nullptr || member->is_null()) return {};
    if (!member->is_string()) return wrong(key, "a string");
    value = member->as_string();
    return {};
  }
  Status missing(std::string_view key) const {
    return Status(Errc::kMissingKey, fmt::format("{}.{}: not there", place_, key));
  }
  Status wrong(std::string_view key, std::string_view expected) const {
    return Status(Errc::kTypeMismatch, fmt::format("{}.{}: expected {}", place_, key, expected));
  }
  Status unknown(std::string_view key, std::string_view value) const {
    return Status(Errc::kUnsupported,
                  fmt::format("{}.{}: '{}' is not supported", place_, key, detail::printable(value, 64)));
  }
  const json::Value* find(std::string_view key) const { return node_.find(key); }
  std::string_view place() const { return place_; }

 private:
  const json::Value& node_;
  std::string_view place_;
};

}  // namespace text
CORBEL_NAMESPACE_END
