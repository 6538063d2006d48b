// A strict JSON reader (RFC 8259) for untrusted text, and a writer. No duplicate keys, depth limit, exact integers,
// byte offsets in errors.
#pragma once

#include <corbel/config.hpp>
#include <corbel/detail/chunked_vector.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace json {

enum class Type : std::uint8_t { kNull, kBool, kInt, kUint, kDouble, kString, kArray, kObject };

/// A JSON value. Objects keep the order of the text. Integers of 64 bits are exact; kInt is used where the value is
/// negative, kUint otherwise; numbers with a fraction or exponent, beyond 64 bits, or "-0" are kDouble. Copyable;
/// copying and destroying recurse, to the depth that the parser allowed.
class CORBEL_API Value {
 public:
  using Array = corbel::detail::ChunkedVector<Value>;  // as std::vector, in pieces
  using Member = std::pair<std::string, Value>;
  using Object = corbel::detail::ChunkedVector<Member>;

  Value() noexcept;
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(Value other) noexcept;
  ~Value();

  static Value null() { return {}; }
  static Value boolean(bool value);
  static Value integer(std::int64_t value);
  static Value unsigned_integer(std::uint64_t value);
  static Value number(double value);
  static Value string(std::string value);
  static Value array(Array items = {});
  static Value object(Object members = {});

  Type type() const noexcept { return type_; }
  bool is_null() const noexcept { return type_ == Type::kNull; }
  bool is_string() const noexcept { return type_ == Type::kString; }
  bool is_array() const noexcept { return type_ == Type::kArray; }
  bool is_object() const noexcept { return type_ == Type::kObject; }
  bool is_integer() const noexcept { return type_ == Type::kInt || type_ == Type::kUint; }
  bool is_number() const noexcept { return is_integer() || type_ == Type::kDouble; }

  /// Look at type() first: of another type these give the bits of what is there, empty text, and empty containers.
  /// as_double() accepts every number.
  bool as_bool() const noexcept { return bits_ != 0; }
  std::int64_t as_int() const noexcept { return static_cast<std::int64_t>(bits_); }
  std::uint64_t as_uint() const noexcept { return bits_; }
  double as_double() const noexcept;
  std::string_view as_string() const noexcept;  ///< lives as long as this value
  const Array& items() const noexcept;
  const Object& members() const noexcept;
  /// For changing a value that is an array or object (of another type they are lost).
  Array& items();
  Object& members();
  /// The member with this key, or nullptr (also where this is no object). Looks at one member after the other.
  const Value* find(std::string_view key) const noexcept;

 private:
  struct Body;  // text, items or members: apart, so that an array of numbers stays small
  Body& body();

  Type type_ = Type::kNull;
  std::uint64_t bits_ = 0;  // of a bool, an integer or a double
  std::unique_ptr<Body> body_;
};

struct ParseOptions {
  std::uint32_t max_depth = 128;  ///< of arrays and objects inside each other
  std::uint64_t max_bytes = 256ull << 20;
};

/// Parses exactly one value with white space around it. kBadJson (also for numbers beyond a double), kBadUtf8 (also for
/// half a surrogate pair), kDuplicate, kDepthExceeded, kLimitExceeded; messages give the byte offset. Time is linear in
/// the text (n log n in the keys of an object).
CORBEL_API Result<Value> parse(std::string_view text, const ParseOptions& options = {});

/// Compact JSON text; strings are escaped as RFC 8259 asks and no more (UTF-8 stays); doubles are the shortest that
/// reads back equal, with ".0" where they would look like an integer; NaN and infinities become null.
CORBEL_API std::string write(const Value& value);
/// Appends a quoted JSON string. Invalid UTF-8 becomes U+FFFD.
CORBEL_API void append_quoted(std::string& out, std::string_view text);

}  // namespace json
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/json.ipp>
#endif
