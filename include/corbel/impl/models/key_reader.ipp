// Definitions of models/key_reader.hpp.
#pragma once

#include <corbel/impl/models/config_types.ipp>
#include <corbel/models/architecture.hpp>
#include <corbel/models/key_reader.hpp>

#include <fmt/format.h>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

inline bool is_integer_type(MetaType type) noexcept {
  return type != MetaType::kString && type != MetaType::kBool && type != MetaType::kF32 && type != MetaType::kF64 &&
         type != MetaType::kArray;
}

inline constexpr std::size_t kMaxListed = 65536;

}  // namespace detail

CORBEL_INLINE KeyReader::KeyReader(const Checkpoint& checkpoint, std::string_view architecture)
    : checkpoint_(checkpoint), place_("config.json: "), prefix_(std::string(architecture) + ".") {
  config_ = checkpoint.config();
  if (config_ == nullptr) return;
  // Models that also see or hear keep the text model's keys in an object of their own.
  const json::Value* text = config_->find("text_config");
  if (text != nullptr && text->is_object()) {
    config_ = text;
    place_ += "text_config.";
  }
  scope_ = config_;
  const json::Value* type = config_->find("model_type");
  if (type == nullptr || !type->is_string() || find_hf_architecture(type->as_string()) == nullptr)
    type = checkpoint.config()->find("model_type");
  if (type == nullptr || !type->is_string()) return;
  const Architecture* const family = find_hf_architecture(type->as_string());
  if (family == nullptr) return;
  Result<json::Value> defaults = json::parse(family->defaults);
  if (defaults.ok()) defaults_ = std::move(*defaults);
}

CORBEL_INLINE void KeyReader::fail(Errc code, std::string_view message) {
  if (status_.ok()) status_ = Status(code, message);
}

CORBEL_INLINE bool KeyReader::enter(std::string_view member) {
  scope_ = config_;
  scope_place_.clear();
  if (config_ == nullptr || member.empty()) return config_ != nullptr;
  const json::Value* inner = detail::find_path(*config_, member);
  if (inner == nullptr || !inner->is_object()) return false;
  scope_ = inner;
  scope_place_ = std::string(member) + ".";
  return true;
}

CORBEL_INLINE KeyReader::Found KeyReader::find(std::string_view key) const {
  Found found;
  if (config_ == nullptr) {
    found.name = prefix_ + std::string(key);
    found.meta = checkpoint_.metadata().find(found.name);
    return found;
  }
  const std::string_view names = detail::hf_names(key);
  const std::string place = place_ + scope_place_;
  found.name = place + std::string(names.substr(0, names.find(' ')));
  bool stated = false;
  for (const json::Value* object : {scope_, &defaults_}) {
    // A key that is there, if only as null, has no default.
    if (object == &defaults_ && (stated || scope_ != config_ || !defaults_.is_object())) break;
    for (std::string_view rest = names; !rest.empty();) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      const std::string_view name = rest.substr(0, end);
      if (const json::Value* value = detail::find_path(*object, name); value != nullptr) {
        found.name = place + std::string(name);
        found.json = value;
        return found;
      }
      stated = stated || object->find(name) != nullptr;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return found;
}

CORBEL_INLINE bool KeyReader::has(std::string_view key) const { return static_cast<bool>(find(key)); }
CORBEL_INLINE bool KeyReader::has_list(std::string_view key) const {
  const Found found = find(key);
  return found.meta != nullptr ? found.meta->is_array() : found.json != nullptr && found.json->is_array();
}
CORBEL_INLINE std::string KeyReader::name_of(std::string_view key) const { return find(key).name; }

CORBEL_INLINE KeyReader::Found KeyReader::require(std::string_view key) {
  Found found = find(key);
  if (!found) fail(Errc::kMissingKey, fmt::format("{}: missing", found.name));
  return found;
}

CORBEL_INLINE std::uint32_t KeyReader::fail_count(Errc code, std::string_view message) {
  fail(code, message);
  return 1;
}

CORBEL_INLINE std::uint32_t KeyReader::in_range(const std::string& name, std::uint64_t value, std::uint64_t low,
                                                std::uint64_t high) {
  if (value < low) return fail_count(Errc::kBadValue, fmt::format("{}: {} is below {}", name, value, low));
  if (value > high)
    return fail_count(Errc::kLimitExceeded, fmt::format("{}: {} is above the limit {}", name, value, high));
  return static_cast<std::uint32_t>(value);
}

CORBEL_INLINE std::uint32_t KeyReader::count(std::string_view key, std::uint64_t low, std::uint64_t high) {
  const Found found = require(key);
  if (!found) return 1;
  if (found.meta != nullptr) {
    const Result<std::uint64_t> value = checkpoint_.metadata().get_uint(found.name);
    if (value.ok()) return in_range(found.name, *value, low, high);
    if (status_.ok()) status_ = value.status();
    return 1;
  }
  if (!found.json->is_integer())
    return fail_count(Errc::kTypeMismatch, fmt::format("{}: expected an integer", found.name));
  if (found.json->type() == json::Type::kInt && found.json->as_int() < 0)
    return fail_count(Errc::kBadValue, fmt::format("{}: {} is negative", found.name, found.json->as_int()));
  return in_range(found.name, found.json->as_uint(), low, high);
}

CORBEL_INLINE std::uint32_t KeyReader::count_or(std::string_view key, std::uint32_t fallback, std::uint64_t low,
                                                std::uint64_t high) {
  return has(key) ? count(key, low, high) : fallback;
}

CORBEL_INLINE std::uint32_t KeyReader::uniform_count(std::string_view key, std::uint32_t layers, std::uint64_t low,
                                                     std::uint64_t high) {
  const Found found = find(key);
  const bool array = found.meta != nullptr ? found.meta->is_array() : found.json != nullptr && found.json->is_array();
  if (!array) return count(key, low, high);
  if (found.meta != nullptr && !detail::is_integer_type(found.meta->element_type()))
    return fail_count(Errc::kTypeMismatch, fmt::format("{}: expected an array of integers", found.name));
  const std::size_t size = found.meta != nullptr ? found.meta->size() : found.json->items().size();
  if (size != layers)
    return fail_count(Errc::kShapeMismatch, fmt::format("{}: {} entries for {} layers", found.name, size, layers));
  std::int64_t first = 0;
  for (std::size_t i = 0; i < size; ++i) {
    if (found.json != nullptr && !found.json->items()[i].is_integer())
      return fail_count(Errc::kTypeMismatch, fmt::format("{}: expected an array of integers", found.name));
    const std::int64_t value = found.meta != nullptr ? found.meta->int_at(i) : found.json->items()[i].as_int();
    if (i == 0) first = value;
    if (value != first)
      return fail_count(Errc::kUnsupported, fmt::format("{}: layers with different counts", found.name));
  }
  if (first < 0) return fail_count(Errc::kBadValue, fmt::format("{}: {} is negative", found.name, first));
  return in_range(found.name, static_cast<std::uint64_t>(first), low, high);
}

CORBEL_INLINE double KeyReader::number(std::string_view key, double low, double high) {
  const Found found = require(key);
  if (!found) return 1;
  double value = 0;
  if (found.meta != nullptr) {
    // Some converters write whole numbers as integers.
    const bool integer = !found.meta->is_array() && detail::is_integer_type(found.meta->type());
    const Result<double> read = integer ? Result<double>(static_cast<double>(found.meta->int_at(0)))
                                        : checkpoint_.metadata().get_float(found.name);
    if (!read.ok()) {
      if (status_.ok()) status_ = read.status();
      return 1;
    }
    value = *read;
  } else if (found.json->is_number()) {
    value = found.json->as_double();
  } else {
    fail(Errc::kTypeMismatch, fmt::format("{}: expected a number", found.name));
    return 1;
  }
  if (!(value > low && value <= high)) {
    fail(Errc::kBadValue, fmt::format("{}: {} is not above {} and at most {}", found.name, value, low, high));
    return 1;
  }
  return value;
}

CORBEL_INLINE double KeyReader::number_or(std::string_view key, double fallback, double low, double high) {
  return has(key) ? number(key, low, high) : fallback;
}

CORBEL_INLINE bool KeyReader::flag_or(std::string_view key, bool fallback) {
  const Found found = find(key);
  if (!found) return fallback;
  if (found.json != nullptr) {
    if (found.json->type() == json::Type::kBool) return found.json->as_bool();
    fail(Errc::kTypeMismatch, fmt::format("{}: expected true or false", found.name));
    return fallback;
  }
  const Result<bool> value = checkpoint_.metadata().get_bool(found.name);
  if (value.ok()) return *value;
  if (status_.ok()) status_ = value.status();
  return fallback;
}

CORBEL_INLINE std::string KeyReader::text_or(std::string_view key, std::string_view fallback) {
  const Found found = find(key);
  if (!found) return std::string(fallback);
  std::string_view text;
  if (found.json != nullptr) {
    if (!found.json->is_string()) {
      fail(Errc::kTypeMismatch, fmt::format("{}: expected a string", found.name));
      return std::string(fallback);
    }
    text = found.json->as_string();
  } else {
    const Result<std::string_view> value = checkpoint_.metadata().get_string(found.name);
    if (!value.ok()) {
      if (status_.ok()) status_ = value.status();
      return std::string(fallback);
    }
    text = *value;
  }
  if (text.size() > 64) {
    fail(Errc::kLimitExceeded, fmt::format("{}: {} bytes, the limit is 64", found.name, text.size()));
    return std::string(fallback);
  }
  return std::string(text);
}

CORBEL_INLINE std::vector<double> KeyReader::numbers(std::string_view key) {
  const Found found = find(key);
  std::vector<double> values;
  if (!found) return values;
  const bool array = found.meta != nullptr ? found.meta->is_array() && found.meta->element_type() != MetaType::kString
                                           : found.json->is_array();
  if (!array) {
    fail(Errc::kTypeMismatch, fmt::format("{}: expected an array of numbers", found.name));
    return values;
  }
  const std::size_t size = found.meta != nullptr ? found.meta->size() : found.json->items().size();
  if (size > detail::kMaxListed) {
    fail(Errc::kLimitExceeded, fmt::format("{}: {} entries, the limit is {}", found.name, size, detail::kMaxListed));
    return values;
  }
  const bool integers = found.meta != nullptr && found.meta->element_type() != MetaType::kF32 &&
                        found.meta->element_type() != MetaType::kF64;
  for (std::size_t i = 0; i < size; ++i) {
    if (found.meta != nullptr) {
      values.push_back(integers ? static_cast<double>(found.meta->int_at(i)) : found.meta->float_at(i));
      continue;
    }
    const json::Value& item = found.json->items()[i];
    if (!item.is_number()) {
      fail(Errc::kTypeMismatch, fmt::format("{}: expected an array of numbers", found.name));
      return {};
    }
    values.push_back(item.as_double());
  }
  return values;
}

CORBEL_INLINE std::vector<std::string> KeyReader::texts(std::string_view key) {
  const Found found = find(key);
  std::vector<std::string> values;
  if (!found) return values;
  const bool array = found.meta != nullptr ? found.meta->is_array() && found.meta->element_type() == MetaType::kString
                                           : found.json->is_array();
  if (!array) {
    fail(Errc::kTypeMismatch, fmt::format("{}: expected an array of strings", found.name));
    return values;
  }
  const std::size_t size = found.meta != nullptr ? found.meta->size() : found.json->items().size();
  if (size > detail::kMaxListed) {
    fail(Errc::kLimitExceeded, fmt::format("{}: {} entries, the limit is {}", found.name, size, detail::kMaxListed));
    return values;
  }
  for (std::size_t i = 0; i < size; ++i) {
    if (found.json != nullptr && !found.json->items()[i].is_string()) {
      fail(Errc::kTypeMismatch, fmt::format("{}: expected an array of strings", found.name));
      return {};
    }
    values.emplace_back(found.meta != nullptr ? found.meta->string_at(i) : found.json->items()[i].as_string());
  }
  return values;
}

}  // namespace models
CORBEL_NAMESPACE_END
