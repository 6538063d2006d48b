// Values of the template language: reference-counted, immutable but for namespaces, loops and cyclers. A string
// remembers which of its bytes are message content, through every operation.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/config.hpp>
#include <corbel/text/jinja/runtime.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

/// Kinds up to kFunction hold no object.
enum class Kind : std::uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kMacro,     ///< a macro of the program and the scope in which it was defined
  kFunction,  ///< a global function, by number
  kUndefined,
  kString,
  kList,
  kTuple,
  kGenerator,  ///< what Python's lazy filters give; here a list that has no length
  kKeys,
  kValues,
  kItems,
  kDict,
  kNamespace,
  kRange,
  kLoop,
  kMethod,
  kCycler,
  kJoiner,
};

/// Base of everything that lives on the heap.
struct Object {
  explicit Object(Kind object_kind) noexcept : kind(object_kind) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  std::atomic<std::uint32_t> references{0};
  Kind kind;
  std::uint32_t depth = 0;  ///< 1 + the deepest container inside, for lists and dicts
  Object* next = nullptr;   ///< links objects that are being destroyed
};

struct Text;
struct Sequence;
struct Dict;
struct Range;
struct Loop;
struct Method;
struct Cycle;

class Value {
 public:
  Value() noexcept : kind_(Kind::kUndefined) { payload_.object = nullptr; }
  Value(const Value& other) noexcept : kind_(other.kind_), payload_(other.payload_) { retain(); }
  Value(Value&& other) noexcept : kind_(other.kind_), payload_(other.payload_) {
    other.kind_ = Kind::kUndefined;
    other.payload_.object = nullptr;
  }
  Value& operator=(const Value& other) noexcept {
    Value copy(other);
    swap(copy);
    return *this;
  }
  Value& operator=(Value&& other) noexcept {
    Value taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Value() { release(); }

  static Value none() noexcept { return Value(Kind::kNone); }
  static Value boolean(bool value) noexcept;
  static Value integer(std::int64_t value) noexcept;
  static Value real(double value) noexcept;
  static Value function(std::uint32_t index) noexcept;
  static Value macro(std::uint32_t index, std::uint32_t scope) noexcept;
  static Value string(std::string_view text, bool content = false);
  /// Takes ownership of a new object.
  static Value object(Object* fresh) noexcept;
  /// An undefined value; printing the error of its misuse names it.
  static Value undefined(std::string_view what);

  Kind kind() const noexcept { return kind_; }
  bool is(Kind kind) const noexcept { return kind_ == kind; }
  bool is_undefined() const noexcept { return kind_ == Kind::kUndefined; }
  bool is_string() const noexcept { return kind_ == Kind::kString; }
  /// A string that counts as escaped (Jinja's Markup).
  bool is_markup() const noexcept;
  /// Integers as Python sees them: True is 1.
  bool is_integral() const noexcept { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const noexcept { return is_integral() || kind_ == Kind::kFloat; }
  /// List, tuple, generator, or dict view: as_sequence() works.
  bool is_sequence() const noexcept { return kind_ >= Kind::kList && kind_ <= Kind::kItems; }

  // Unchecked access: look at kind() first.
  bool as_bool() const noexcept { return payload_.integer != 0; }
  std::int64_t as_int() const noexcept { return payload_.integer; }
  double as_double() const noexcept {
    return kind_ == Kind::kFloat ? payload_.real : static_cast<double>(payload_.integer);
  }
  std::uint32_t index() const noexcept { return static_cast<std::uint32_t>(payload_.integer); }
  std::uint32_t scope() const noexcept { return static_cast<std::uint32_t>(payload_.integer >> 32); }
  const Text& as_text() const noexcept;
  std::string_view as_view() const noexcept;
  const Sequence& as_sequence() const noexcept;
  const Dict& as_dict() const noexcept;
  Dict& as_namespace() const noexcept;
  const Range& as_range() const noexcept;
  Loop& as_loop() const noexcept;
  const Method& as_method() const noexcept;
  Cycle& as_cycle() const noexcept;
  /// The object behind the value, or nullptr.
  Object* heap() const noexcept { return holds_object() ? payload_.object : nullptr; }

  /// "str", "list", "NoneType", ... for messages.
  const char* type_name() const noexcept;
  /// Python's truth; namespaces, loops and functions are true.
  bool truth() const noexcept;

 private:
  explicit Value(Kind kind) noexcept : kind_(kind) { payload_.integer = 0; }
  bool holds_object() const noexcept { return kind_ > Kind::kFunction; }
  void swap(Value& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(payload_, other.payload_);
  }
  void retain() const noexcept {
    if (Object* object = heap()) object->references.fetch_add(1, std::memory_order_relaxed);
  }
  void release() noexcept;
  static void destroy(Object* object) noexcept;
  static void unlink(Value& value, Object*& dead) noexcept;

  Kind kind_;
  union Payload {
    std::int64_t integer;
    double real;
    Object* object;
  } payload_;
};

/// Bytes [begin, end).
struct ByteRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// A string: UTF-8 (invalid bytes count as one character each) and the sorted, disjoint ranges that are message
/// content.
struct Text : Object {
  Text() noexcept : Object(Kind::kString) {}
  std::string bytes;
  std::vector<ByteRange> content;
  std::size_t characters = 0;
  bool markup = false;  ///< from the filters safe and escape: what it is joined with is escaped
};

struct Sequence : Object {
  using Object::Object;
  std::vector<Value> items;
  bool is_group = false;  ///< of the filter groupby: the items are also members `grouper` and `list`
};

/// Keeps the order of insertion; keys are equal as in Python (1 == True == 1.0).
struct Dict : Object {
  using Object::Object;
  std::vector<std::pair<Value, Value>> entries;
  std::vector<std::uint32_t> slots;  ///< open-addressing hash table over entries (number + 1), for more than 8 entries
};

struct Range : Object {
  Range() noexcept : Object(Kind::kRange) {}
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;  ///< of numbers
};

/// The state of a running {% for %}.
struct Loop : Object {
  Loop() noexcept : Object(Kind::kLoop) {}
  std::vector<Value> items;
  std::vector<Value> kept;      ///< what the loop's `if` has let through so far
  std::vector<Value> previous;  ///< arguments of the last loop.changed()
  std::size_t next_item = 0;
  std::uint32_t level = 0;  ///< of recursion
  std::uint32_t entry = 0;  ///< where loop(...) continues; 0 for a loop that is not recursive
  std::uint32_t outer = 0;  ///< scope around the loop
  bool running = true;
};

struct Method : Object {
  Method() noexcept : Object(Kind::kMethod) {}
  Value receiver;
  std::uint32_t index = 0;
};

/// cycler(...): items and position. joiner(sep): one item, position 0 before the first use.
struct Cycle : Object {
  using Object::Object;
  std::vector<Value> items;
  std::size_t position = 0;
};

/// Builds a string from pieces; linear.
class TextBuilder {
 public:
  void append(std::string_view text, bool content);
  /// The bytes [begin, end) of a text, with what is content among them.
  void append(const Text& text, std::size_t begin, std::size_t end);
  void append(const Text& text) { append(text, 0, text.bytes.size()); }
  std::size_t size() const noexcept { return bytes_.size(); }
  const std::string& bytes() const noexcept { return bytes_; }
  const std::vector<ByteRange>& content() const noexcept { return content_; }
  /// The string; the builder is then empty.
  Value take();

 private:
  void mark(std::size_t begin, std::size_t end);
  std::string bytes_;
  std::vector<ByteRange> content_;
};

/// Bytes of the character at `at`; 1 where the bytes are no valid UTF-8.
std::size_t character_length(std::string_view text, std::size_t at) noexcept;
/// Part of a string value, by bytes.
Value slice_bytes(const Text& text, std::size_t begin, std::size_t end);
/// True where any byte of the text is content.
inline bool has_content(const Text& text) noexcept { return !text.content.empty(); }
/// True where the byte is content; `cursor` walks over the ranges of one text with growing `at` (start with 0).
bool is_content_at(const Text& text, std::size_t at, std::size_t& cursor) noexcept;

/// New containers; kDepthExceeded past kMaxValueDepth. Charged by the number of items.
bool make_sequence(Runtime& runtime, Kind kind, std::vector<Value> items, Value& out);
/// Collects members, later ones with the same key replacing earlier ones, then makes the value.
class DictBuilder {
 public:
  explicit DictBuilder(Kind kind = Kind::kDict) : dict_(Value::object(new Dict(kind))) {}
  /// Fails for keys that cannot be hashed.
  bool set(Runtime& runtime, const Value& key, Value value);
  Value take() { return std::move(dict_); }

 private:
  Value dict_;
};

/// The member with this key or nullptr; false where the key cannot be hashed.
bool dict_find(Runtime& runtime, const Dict& dict, const Value& key, const Value*& out);
/// The member with this string key or nullptr.
const Value* dict_find(Runtime& runtime, const Dict& dict, std::string_view key);
/// Sets a member of a namespace.
bool dict_set(Runtime& runtime, Dict& dict, const Value& key, Value value);

/// Python's == and <; order fails for kinds that have none.
bool equals(Runtime& runtime, const Value& a, const Value& b, bool& out);
bool less(Runtime& runtime, const Value& a, const Value& b, bool& out);
/// Python's `is`, as far as it matters.
bool same(const Value& a, const Value& b) noexcept;

/// A JSON value; with `content` every string inside (keys too) is message content. kDepthExceeded past kMaxValueDepth.
bool from_json(Runtime& runtime, const json::Value& json, bool content, Value& out);

}  // namespace text::jinja
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/jinja/containers.ipp>
#include <corbel/impl/text/jinja/value.ipp>
#endif
