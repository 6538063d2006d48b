// Typed access to the members of a JSON object that belongs to a tokenizer; errors name the JSON path.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace text {

inline const char* json_type_name(const json::Value& value) noexcept {
  switch (value.type()) {
    case json::Type::kNull:
      return "null";
    case json::Type::kBool:
      return "bool";
    case json::Type::kInt:
    case json::Type::kUint:
      return "integer";
    case json::Type::kDouble:
      return "number";
    case json::Type::kString:
      return "string";
    case json::Type::kArray:
      return "array";
    case json::Type::kObject:
      return "object";
  }
  return "value";
}

inline Status json_mismatch(std::string_view path, std::string_view wanted, const json::Value& got) {
  return Status(Errc::kTypeMismatch, fmt::format("{}: expected {}, got {}", path, wanted, json_type_name(got)));
}

/// A member that is not null, or nullptr.
inline const json::Value* json_member(const json::Value& object, std::string_view key) noexcept {
  const json::Value* value = object.find(key);
  return value != nullptr && value->is_null() ? nullptr : value;
}

/// The string under `key`, which lives as long as `object`. kMissingKey, kTypeMismatch.
inline Result<std::string_view> json_string(const json::Value& object, std::string_view key, std::string_view path) {
  const json::Value* value = object.find(key);
  if (value == nullptr) return Status(Errc::kMissingKey, fmt::format("{}.{}: not in the file", path, key));
  if (!value->is_string()) return json_mismatch(fmt::format("{}.{}", path, key), "string", *value);
  return value->as_string();
}

/// The same; `fallback` where it is absent or null.
inline Result<std::string_view> json_string_or(const json::Value& object, std::string_view key, std::string_view path,
                                               std::string_view fallback) {
  if (json_member(object, key) == nullptr) return fallback;
  return json_string(object, key, path);
}

inline Result<bool> json_bool_or(const json::Value& object, std::string_view key, std::string_view path,
                                 bool fallback) {
  const json::Value* value = json_member(object, key);
  if (value == nullptr) return fallback;
  if (value->type() != json::Type::kBool) return json_mismatch(fmt::format("{}.{}", path, key), "bool", *value);
  return value->as_bool();
}

/// kBadValue (or `out_of_range`) outside [0, `limit`].
inline Result<std::uint64_t> json_uint_or(const json::Value& object, std::string_view key, std::string_view path,
                                          std::uint64_t fallback, std::uint64_t limit,
                                          Errc out_of_range = Errc::kBadValue) {
  const json::Value* value = json_member(object, key);
  if (value == nullptr) return fallback;
  if (!value->is_integer()) {
    // An integer beyond 64 bits is read as a number.
    if (value->type() == json::Type::kDouble && (value->as_double() > 1e19 || value->as_double() < -9e18)) {
      return Status(out_of_range, fmt::format("{}.{}: expected 0 to {}", path, key, limit));
    }
    return json_mismatch(fmt::format("{}.{}", path, key), "integer", *value);
  }
  if (value->type() == json::Type::kInt || value->as_uint() > limit) {
    return Status(out_of_range,
                  value->type() == json::Type::kInt
                      ? fmt::format("{}.{}: {} given, expected 0 to {}", path, key, value->as_int(), limit)
                      : fmt::format("{}.{}: {} given, expected 0 to {}", path, key, value->as_uint(), limit));
  }
  return value->as_uint();
}

}  // namespace text
CORBEL_NAMESPACE_END
