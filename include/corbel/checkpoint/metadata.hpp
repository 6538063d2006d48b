// Metadata: the keys and values of a model file, with typed access.
//
//   corbel::Metadata metadata;
//   metadata.set("general.name", corbel::MetaValue::from_string("tiny"));
//   corbel::Result<std::uint64_t> layers = metadata.get_uint("llama.block_count");
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// Types of metadata values; the numbers are those of GGUF.
enum class MetaType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// "u8", "string", ...; "unknown" for a number that is no type. Static storage. Thread-safe.
CORBEL_API const char* meta_type_name(MetaType type) noexcept;
/// Bytes of a value of a fixed-size type; 0 for strings, arrays and numbers that are no type.
CORBEL_API std::size_t meta_type_bytes(MetaType type) noexcept;

/// One metadata value: a scalar, a string, or an array of scalars or strings (never of arrays). The strings of an array
/// share one buffer. Const access is thread-safe.
class CORBEL_API MetaValue {
 public:
  /// Scalars. `type` is an integer (or float) type; the value is reduced to its width. Another type gives the default
  /// one.
  static MetaValue from_uint(std::uint64_t value, MetaType type = MetaType::kU32);
  static MetaValue from_int(std::int64_t value, MetaType type = MetaType::kI32);
  static MetaValue from_float(double value, MetaType type = MetaType::kF32);
  static MetaValue from_bool(bool value);
  static MetaValue from_string(std::string_view value);
  /// Arrays.
  static MetaValue from_strings(std::span<const std::string> values);
  static MetaValue from_floats(std::span<const float> values);
  static MetaValue from_ints(std::span<const std::int32_t> values);
  /// An array of `element` from its little-endian bytes. Fixed-size element types only (others give an empty array of
  /// u8); bytes beyond the last whole element are dropped.
  static MetaValue from_bytes(MetaType element, std::span<const std::byte> bytes);

  MetaType type() const noexcept { return type_; }
  bool is_array() const noexcept { return type_ == MetaType::kArray; }
  /// Element type of an array; of a scalar its own type.
  MetaType element_type() const noexcept { return element_; }
  /// Number of elements of an array; 1 for a scalar.
  std::size_t size() const noexcept;

  /// Scalars. An integer type of any width and sign is read as either kind where the value fits (kBadValue otherwise);
  /// floats of either width; everything else is kTypeMismatch. The string lives as long as this value.
  Result<std::uint64_t> as_uint() const;
  Result<std::int64_t> as_int() const;
  Result<double> as_float() const;
  Result<bool> as_bool() const;
  Result<std::string_view> as_string() const;

  /// Element of an array of strings; empty where `index` >= size() or element_type() is another.
  std::string_view string_at(std::size_t index) const noexcept;
  /// Elements of a numeric array of any type, as is; `index` < size(), otherwise (and for strings) 0. Integers out of
  /// int64's range saturate, floats are cut towards zero (NaN is 0).
  std::int64_t int_at(std::size_t index) const noexcept;
  double float_at(std::size_t index) const noexcept;
  /// The bytes of a numeric array or scalar, little-endian; the characters of a string or of all strings of an array.
  std::span<const std::byte> raw() const noexcept { return raw_; }

 private:
  friend class MetaValueReader;
  MetaType type_ = MetaType::kU8;
  MetaType element_ = MetaType::kU8;
  std::vector<std::byte> raw_;              // numeric bytes, or the characters of all strings
  std::vector<std::uint64_t> string_ends_;  // end offset in raw_ of each string (of a scalar string: one)
};

/// Keys and values in file order. Const access is thread-safe.
class CORBEL_API Metadata {
 public:
  struct Entry {
    std::string key;
    MetaValue value;
  };
  /// Takes the entries in their order. kDuplicate names a key that appears twice.
  static Result<Metadata> from_entries(std::vector<Entry> entries);

  std::span<const Entry> entries() const noexcept { return entries_; }
  /// The value of a key, or nullptr. Lives until the next set() or erase().
  const MetaValue* find(std::string_view key) const noexcept;
  /// Adds or replaces. (For writers and tests: cost grows with the number of keys.)
  void set(std::string key, MetaValue value);
  /// Removes; false where absent.
  bool erase(std::string_view key);

  /// Typed access. kMissingKey, kTypeMismatch, kBadValue; messages name the key.
  Result<std::uint64_t> get_uint(std::string_view key) const;
  Result<double> get_float(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;
  /// Same, `fallback` where the key is absent.
  Result<std::uint64_t> get_uint_or(std::string_view key, std::uint64_t fallback) const;
  Result<double> get_float_or(std::string_view key, double fallback) const;
  Result<bool> get_bool_or(std::string_view key, bool fallback) const;
  Result<std::string_view> get_string_or(std::string_view key, std::string_view fallback) const;

 private:
  std::size_t lower_bound(std::string_view key) const noexcept;

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> by_key_;  // indices of entries_, sorted by key: no input can make look-ups slow
};

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/metadata.ipp>
#endif
