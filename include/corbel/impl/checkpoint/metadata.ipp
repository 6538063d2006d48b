// Definitions of metadata.hpp.
#pragma once

#include <corbel/checkpoint/metadata.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

CORBEL_NAMESPACE_BEGIN
namespace detail {

enum class MetaKind : std::uint8_t { kUnsigned, kSigned, kFloat, kBool, kOther };

struct MetaTypeRow {
  const char* name;
  std::uint8_t bytes;
  MetaKind kind;
};

inline constexpr MetaTypeRow kMetaTypes[] = {
    {"u8", 1, MetaKind::kUnsigned}, {"i8", 1, MetaKind::kSigned},    {"u16", 2, MetaKind::kUnsigned},
    {"i16", 2, MetaKind::kSigned},  {"u32", 4, MetaKind::kUnsigned}, {"i32", 4, MetaKind::kSigned},
    {"f32", 4, MetaKind::kFloat},   {"bool", 1, MetaKind::kBool},    {"string", 0, MetaKind::kOther},
    {"array", 0, MetaKind::kOther}, {"u64", 8, MetaKind::kUnsigned}, {"i64", 8, MetaKind::kSigned},
    {"f64", 8, MetaKind::kFloat},
};

inline MetaTypeRow meta_type_row(MetaType type) noexcept {
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(kMetaTypes) ? kMetaTypes[index] : MetaTypeRow{"unknown", 0, MetaKind::kOther};
}

// The little-endian number of `count` <= 8 bytes, and back.
inline std::uint64_t load_little(const std::byte* bytes, std::size_t count) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < count; ++i) value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

inline void store_little(std::vector<std::byte>& out, std::uint64_t value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i) & 0xFFu));
}

// The value of `bytes` as a two's complement number of that width.
inline std::int64_t sign_extend(std::uint64_t bits, std::size_t bytes) noexcept {
  const std::size_t unused = 64 - 8 * bytes;
  return static_cast<std::int64_t>(bits << unused) >> unused;
}

inline double load_float(std::uint64_t bits, std::size_t bytes) noexcept {
  if (bytes == 8) return std::bit_cast<double>(bits);
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
}

inline Status meta_type_mismatch(const char* wanted, MetaType type) {
  return {Errc::kTypeMismatch, std::string("expected ") + wanted + ", found type " + meta_type_name(type)};
}

}  // namespace detail

CORBEL_INLINE const char* meta_type_name(MetaType type) noexcept { return detail::meta_type_row(type).name; }

CORBEL_INLINE std::size_t meta_type_bytes(MetaType type) noexcept { return detail::meta_type_row(type).bytes; }

CORBEL_INLINE MetaValue MetaValue::from_uint(std::uint64_t value, MetaType type) {
  const detail::MetaKind kind = detail::meta_type_row(type).kind;
  MetaValue result;
  const bool integer = kind == detail::MetaKind::kUnsigned || kind == detail::MetaKind::kSigned;
  result.type_ = result.element_ = integer ? type : MetaType::kU32;
  detail::store_little(result.raw_, value, meta_type_bytes(result.type_));
  return result;
}

CORBEL_INLINE MetaValue MetaValue::from_int(std::int64_t value, MetaType type) {
  const detail::MetaKind kind = detail::meta_type_row(type).kind;
  const bool integer = kind == detail::MetaKind::kUnsigned || kind == detail::MetaKind::kSigned;
  return from_uint(static_cast<std::uint64_t>(value), integer ? type : MetaType::kI32);
}

CORBEL_INLINE MetaValue MetaValue::from_float(double value, MetaType type) {
  MetaValue result;
  result.type_ = result.element_ = type == MetaType::kF64 ? type : MetaType::kF32;
  const std::uint64_t bits = type == MetaType::kF64
                                 ? std::bit_cast<std::uint64_t>(value)
                                 : std::uint64_t{std::bit_cast<std::uint32_t>(static_cast<float>(value))};
  detail::store_little(result.raw_, bits, meta_type_bytes(result.type_));
  return result;
}

CORBEL_INLINE MetaValue MetaValue::from_bool(bool value) {
  MetaValue result;
  result.type_ = result.element_ = MetaType::kBool;
  result.raw_.push_back(static_cast<std::byte>(value ? 1 : 0));
  return result;
}

CORBEL_INLINE MetaValue MetaValue::from_string(std::string_view value) {
  MetaValue result;
  result.type_ = result.element_ = MetaType::kString;
  const auto bytes = std::as_bytes(std::span<const char>(value));
  result.raw_.assign(bytes.begin(), bytes.end());
  result.string_ends_.push_back(value.size());
  return result;
}

CORBEL_INLINE MetaValue MetaValue::from_strings(std::span<const std::string> values) {
  MetaValue result;
  result.type_ = MetaType::kArray;
  result.element_ = MetaType::kString;
  for (const std::string& value : values) {
    const auto bytes = std::as_bytes(std::span<const char>(value));
    result.raw_.insert(result.raw_.end(), bytes.begin(), bytes.end());
    result.string_ends_.push_back(result.raw_.size());
  }
  return result;
}

CORBEL_INLINE MetaValue MetaValue::from_floats(std::span<const float> values) {
  MetaValue result = from_bytes(MetaType::kF32, {});
  for (const float value : values) detail::store_little(result.raw_, std::bit_cast<std::uint32_t>(value), 4);
  return result;
}

CORBEL_INLINE MetaValue MetaValue::from_ints(std::span<const std::int32_t> values) {
  MetaValue result = from_bytes(MetaType::kI32, {});
  for (const std::int32_t value : values) detail::store_little(result.raw_, static_cast<std::uint32_t>(value), 4);
  return result;
}

CORBEL_INLINE MetaValue MetaValue::from_bytes(MetaType element, std::span<const std::byte> bytes) {
  MetaValue result;
  result.type_ = MetaType::kArray;
  const std::size_t width = meta_type_bytes(element);
  if (width == 0) return result;
  result.element_ = element;
  const auto whole = bytes.first(bytes.size() - bytes.size() % width);
  result.raw_.assign(whole.begin(), whole.end());
  return result;
}

CORBEL_INLINE std::size_t MetaValue::size() const noexcept {
  if (!is_array()) return 1;
  return element_ == MetaType::kString ? string_ends_.size() : raw_.size() / meta_type_bytes(element_);
}

CORBEL_INLINE Result<std::uint64_t> MetaValue::as_uint() const {
  const detail::MetaTypeRow row = detail::meta_type_row(type_);
  if (row.kind != detail::MetaKind::kUnsigned && row.kind != detail::MetaKind::kSigned) {
    return detail::meta_type_mismatch("an integer", type_);
  }
  const std::uint64_t bits = detail::load_little(raw_.data(), row.bytes);
  if (row.kind == detail::MetaKind::kUnsigned) return bits;
  const std::int64_t value = detail::sign_extend(bits, row.bytes);
  if (value < 0) return Status(Errc::kBadValue, "expected a number >= 0, found " + std::to_string(value));
  return static_cast<std::uint64_t>(value);
}

CORBEL_INLINE Result<std::int64_t> MetaValue::as_int() const {
  const detail::MetaTypeRow row = detail::meta_type_row(type_);
  if (row.kind != detail::MetaKind::kUnsigned && row.kind != detail::MetaKind::kSigned) {
    return detail::meta_type_mismatch("an integer", type_);
  }
  const std::uint64_t bits = detail::load_little(raw_.data(), row.bytes);
  if (row.kind == detail::MetaKind::kSigned) return detail::sign_extend(bits, row.bytes);
  if (bits > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return Status(Errc::kBadValue, "expected a number < 2^63, found " + std::to_string(bits));
  }
  return static_cast<std::int64_t>(bits);
}

CORBEL_INLINE Result<double> MetaValue::as_float() const {
  const detail::MetaTypeRow row = detail::meta_type_row(type_);
  if (row.kind != detail::MetaKind::kFloat) return detail::meta_type_mismatch("a float", type_);
  return detail::load_float(detail::load_little(raw_.data(), row.bytes), row.bytes);
}

CORBEL_INLINE Result<bool> MetaValue::as_bool() const {
  if (type_ != MetaType::kBool) return detail::meta_type_mismatch("a bool", type_);
  return raw_[0] != std::byte{0};
}

CORBEL_INLINE Result<std::string_view> MetaValue::as_string() const {
  if (type_ != MetaType::kString) return detail::meta_type_mismatch("a string", type_);
  return string_at(0);
}

CORBEL_INLINE std::string_view MetaValue::string_at(std::size_t index) const noexcept {
  if (index >= string_ends_.size()) return {};
  const std::size_t begin = index == 0 ? 0 : string_ends_[index - 1];
  return {reinterpret_cast<const char*>(raw_.data()) + begin, string_ends_[index] - begin};
}

CORBEL_INLINE std::int64_t MetaValue::int_at(std::size_t index) const noexcept {
  const detail::MetaTypeRow row = detail::meta_type_row(element_);
  if (row.bytes == 0 || index >= size()) return 0;
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const std::uint64_t bits = detail::load_little(raw_.data() + index * row.bytes, row.bytes);
  if (row.kind == detail::MetaKind::kSigned) return detail::sign_extend(bits, row.bytes);
  if (row.kind == detail::MetaKind::kFloat) {
    const double value = detail::load_float(bits, row.bytes);
    if (value != value) return 0;
    if (value >= 0x1p63) return kMax;
    return value < -0x1p63 ? kMin : static_cast<std::int64_t>(value);
  }
  return bits > static_cast<std::uint64_t>(kMax) ? kMax : static_cast<std::int64_t>(bits);
}

CORBEL_INLINE double MetaValue::float_at(std::size_t index) const noexcept {
  const detail::MetaTypeRow row = detail::meta_type_row(element_);
  if (row.bytes == 0 || index >= size()) return 0;
  const std::uint64_t bits = detail::load_little(raw_.data() + index * row.bytes, row.bytes);
  if (row.kind == detail::MetaKind::kFloat) return detail::load_float(bits, row.bytes);
  if (row.kind == detail::MetaKind::kSigned) return static_cast<double>(detail::sign_extend(bits, row.bytes));
  return static_cast<double>(bits);
}

CORBEL_INLINE Result<Metadata> Metadata::from_entries(std::vector<Entry> entries) {
  Metadata result;
  result.entries_ = std::move(entries);
  result.by_key_.resize(result.entries_.size());
  std::iota(result.by_key_.begin(), result.by_key_.end(), 0u);
  std::sort(result.by_key_.begin(), result.by_key_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return result.entries_[a].key < result.entries_[b].key; });
  const auto twice = std::adjacent_find(
      result.by_key_.begin(), result.by_key_.end(),
      [&](std::uint32_t a, std::uint32_t b) { return result.entries_[a].key == result.entries_[b].key; });
  if (twice != result.by_key_.end()) {
    const std::string key = detail::printable(result.entries_[*twice].key, 100);
    return Status(Errc::kDuplicate, "metadata key \"" + key + "\" appears twice (entries " +
                                        std::to_string(std::min(twice[0], twice[1])) + " and " +
                                        std::to_string(std::max(twice[0], twice[1])) + ")");
  }
  return result;
}

CORBEL_INLINE std::size_t Metadata::lower_bound(std::string_view key) const noexcept {
  const auto found =
      std::lower_bound(by_key_.begin(), by_key_.end(), key,
                       [&](std::uint32_t index, std::string_view wanted) { return entries_[index].key < wanted; });
  return static_cast<std::size_t>(found - by_key_.begin());
}

CORBEL_INLINE const MetaValue* Metadata::find(std::string_view key) const noexcept {
  const std::size_t place = lower_bound(key);
  if (place == by_key_.size() || entries_[by_key_[place]].key != key) return nullptr;
  return &entries_[by_key_[place]].value;
}

CORBEL_INLINE void Metadata::set(std::string key, MetaValue value) {
  const std::size_t place = lower_bound(key);
  if (place < by_key_.size() && entries_[by_key_[place]].key == key) {
    entries_[by_key_[place]].value = std::move(value);
    return;
  }
  by_key_.reserve(by_key_.size() + 1);
  entries_.push_back({std::move(key), std::move(value)});
  by_key_.insert(by_key_.begin() + static_cast<std::ptrdiff_t>(place), static_cast<std::uint32_t>(entries_.size() - 1));
}

CORBEL_INLINE bool Metadata::erase(std::string_view key) {
  const std::size_t place = lower_bound(key);
  if (place == by_key_.size() || entries_[by_key_[place]].key != key) return false;
  const std::uint32_t index = by_key_[place];
  by_key_.erase(by_key_.begin() + static_cast<std::ptrdiff_t>(place));
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(index));
  for (std::uint32_t& other : by_key_) other -= other > index ? 1u : 0u;
  return true;
}

namespace detail {

// Reads `key` with one of MetaValue's accessors and puts the key in front of the message.
template <class T>
Result<T> get_meta(const Metadata& metadata, std::string_view key, Result<T> (MetaValue::*read)() const,
                   const T* fallback) {
  const MetaValue* value = metadata.find(key);
  if (value == nullptr) {
    if (fallback != nullptr) return *fallback;
    return Status(Errc::kMissingKey, "metadata key \"" + printable(key, 100) + "\" is missing");
  }
  Result<T> result = (value->*read)();
  if (!result.ok()) return result.status().with_place("metadata key \"" + printable(key, 100) + "\"");
  return result;
}

}  // namespace detail

CORBEL_INLINE Result<std::uint64_t> Metadata::get_uint(std::string_view key) const {
  return detail::get_meta<std::uint64_t>(*this, key, &MetaValue::as_uint, nullptr);
}

CORBEL_INLINE Result<double> Metadata::get_float(std::string_view key) const {
  return detail::get_meta<double>(*this, key, &MetaValue::as_float, nullptr);
}

CORBEL_INLINE Result<bool> Metadata::get_bool(std::string_view key) const {
  return detail::get_meta<bool>(*this, key, &MetaValue::as_bool, nullptr);
}

CORBEL_INLINE Result<std::string_view> Metadata::get_string(std::string_view key) const {
  return detail::get_meta<std::string_view>(*this, key, &MetaValue::as_string, nullptr);
}

CORBEL_INLINE Result<std::uint64_t> Metadata::get_uint_or(std::string_view key, std::uint64_t fallback) const {
  return detail::get_meta(*this, key, &MetaValue::as_uint, &fallback);
}

CORBEL_INLINE Result<double> Metadata::get_float_or(std::string_view key, double fallback) const {
  return detail::get_meta(*this, key, &MetaValue::as_float, &fallback);
}

CORBEL_INLINE Result<bool> Metadata::get_bool_or(std::string_view key, bool fallback) const {
  return detail::get_meta(*this, key, &MetaValue::as_bool, &fallback);
}

CORBEL_INLINE Result<std::string_view> Metadata::get_string_or(std::string_view key, std::string_view fallback) const {
  return detail::get_meta(*this, key, &MetaValue::as_string, &fallback);
}

CORBEL_NAMESPACE_END
