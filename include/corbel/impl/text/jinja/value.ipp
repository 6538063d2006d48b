// Definitions of text/jinja/value.hpp: life of values, strings with content ranges.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/text/jinja/value.hpp>

#include <algorithm>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

CORBEL_INLINE Value Value::boolean(bool value) noexcept {
  Value out(Kind::kBool);
  out.payload_.integer = value ? 1 : 0;
  return out;
}

CORBEL_INLINE Value Value::integer(std::int64_t value) noexcept {
  Value out(Kind::kInt);
  out.payload_.integer = value;
  return out;
}

CORBEL_INLINE Value Value::real(double value) noexcept {
  Value out(Kind::kFloat);
  out.payload_.real = value;
  return out;
}

CORBEL_INLINE Value Value::function(std::uint32_t index) noexcept {
  Value out(Kind::kFunction);
  out.payload_.integer = index;
  return out;
}

CORBEL_INLINE Value Value::macro(std::uint32_t index, std::uint32_t scope) noexcept {
  Value out(Kind::kMacro);
  out.payload_.integer = static_cast<std::int64_t>(std::uint64_t{scope} << 32 | index);
  return out;
}

CORBEL_INLINE Value Value::object(Object* fresh) noexcept {
  Value out;
  out.kind_ = fresh->kind;
  out.payload_.object = fresh;
  out.retain();
  return out;
}

CORBEL_INLINE Value Value::string(std::string_view text, bool content) {
  TextBuilder builder;
  builder.append(text, content);
  return builder.take();
}

CORBEL_INLINE Value Value::undefined(std::string_view what) {
  Value out = string(what);
  out.kind_ = Kind::kUndefined;
  return out;
}

// Objects are destroyed from a list, not by recursion: values nest as deep as templates make them. The kind inside the
// object says what it is (an undefined value may hold the text that names it).
CORBEL_INLINE void Value::unlink(Value& value, Object*& dead) noexcept {
  Object* object = value.heap();
  value.kind_ = Kind::kNone;
  value.payload_.integer = 0;
  if (object == nullptr || object->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  object->next = dead;
  dead = object;
}

CORBEL_INLINE void Value::release() noexcept {
  if (heap() == nullptr) return;
  Object* dead = nullptr;
  unlink(*this, dead);
  while (dead != nullptr) {
    Object* object = dead;
    dead = object->next;
    const auto unlink_all = [&dead](std::vector<Value>& values) {
      for (Value& value : values) unlink(value, dead);
    };
    switch (object->kind) {
      case Kind::kList:
      case Kind::kTuple:
      case Kind::kGenerator:
      case Kind::kKeys:
      case Kind::kValues:
      case Kind::kItems:
        unlink_all(static_cast<Sequence*>(object)->items);
        break;
      case Kind::kDict:
      case Kind::kNamespace:
        for (auto& [key, value] : static_cast<Dict*>(object)->entries) {
          unlink(key, dead);
          unlink(value, dead);
        }
        break;
      case Kind::kLoop:
        unlink_all(static_cast<Loop*>(object)->items);
        unlink_all(static_cast<Loop*>(object)->kept);
        unlink_all(static_cast<Loop*>(object)->previous);
        break;
      case Kind::kMethod:
        unlink(static_cast<Method*>(object)->receiver, dead);
        break;
      case Kind::kCycler:
      case Kind::kJoiner:
        unlink_all(static_cast<Cycle*>(object)->items);
        break;
      default:
        break;
    }
    destroy(object);
  }
}

CORBEL_INLINE void Value::destroy(Object* object) noexcept {
  switch (object->kind) {
    case Kind::kString:
      delete static_cast<Text*>(object);
      break;
    case Kind::kDict:
    case Kind::kNamespace:
      delete static_cast<Dict*>(object);
      break;
    case Kind::kRange:
      delete static_cast<Range*>(object);
      break;
    case Kind::kLoop:
      delete static_cast<Loop*>(object);
      break;
    case Kind::kMethod:
      delete static_cast<Method*>(object);
      break;
    case Kind::kCycler:
    case Kind::kJoiner:
      delete static_cast<Cycle*>(object);
      break;
    default:
      delete static_cast<Sequence*>(object);
      break;
  }
}

CORBEL_INLINE const Text& Value::as_text() const noexcept { return *static_cast<const Text*>(payload_.object); }
CORBEL_INLINE std::string_view Value::as_view() const noexcept { return as_text().bytes; }
CORBEL_INLINE bool Value::is_markup() const noexcept { return is_string() && as_text().markup; }
CORBEL_INLINE const Sequence& Value::as_sequence() const noexcept {
  return *static_cast<const Sequence*>(payload_.object);
}
CORBEL_INLINE const Dict& Value::as_dict() const noexcept { return *static_cast<const Dict*>(payload_.object); }
CORBEL_INLINE Dict& Value::as_namespace() const noexcept { return *static_cast<Dict*>(payload_.object); }
CORBEL_INLINE const Range& Value::as_range() const noexcept { return *static_cast<const Range*>(payload_.object); }
CORBEL_INLINE Loop& Value::as_loop() const noexcept { return *static_cast<Loop*>(payload_.object); }
CORBEL_INLINE const Method& Value::as_method() const noexcept { return *static_cast<const Method*>(payload_.object); }
CORBEL_INLINE Cycle& Value::as_cycle() const noexcept { return *static_cast<Cycle*>(payload_.object); }

CORBEL_INLINE const char* Value::type_name() const noexcept {
  static constexpr const char* kNames[] = {
      "NoneType", "bool",      "int",   "float",       "Macro",     "function",    "Undefined",
      "str",      "list",      "tuple", "generator",   "dict_keys", "dict_values", "dict_items",
      "dict",     "Namespace", "range", "LoopContext", "method",    "Cycler",      "Joiner"};
  return kNames[static_cast<std::size_t>(kind_)];
}

CORBEL_INLINE bool Value::truth() const noexcept {
  switch (kind_) {
    case Kind::kNone:
    case Kind::kUndefined:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return payload_.integer != 0;
    case Kind::kFloat:
      return payload_.real != 0;
    case Kind::kString:
      return !as_text().bytes.empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kKeys:
    case Kind::kValues:
    case Kind::kItems:
      return !as_sequence().items.empty();
    case Kind::kDict:
      return !as_dict().entries.empty();
    case Kind::kRange:
      return as_range().count != 0;
    default:
      return true;
  }
}

CORBEL_INLINE void TextBuilder::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!content_.empty() && content_.back().end == begin) {
    content_.back().end = end;
  } else {
    content_.push_back({begin, end});
  }
}

CORBEL_INLINE void TextBuilder::append(std::string_view text, bool content) {
  const std::size_t begin = bytes_.size();
  bytes_ += text;
  if (content) mark(begin, bytes_.size());
}

CORBEL_INLINE void TextBuilder::append(const Text& text, std::size_t begin, std::size_t end) {
  const std::size_t base = bytes_.size();
  bytes_.append(text.bytes, begin, end - begin);
  auto range = std::partition_point(text.content.begin(), text.content.end(),
                                    [begin](const ByteRange& r) { return r.end <= begin; });
  for (; range != text.content.end() && range->begin < end; ++range) {
    mark(base + std::max(range->begin, begin) - begin, base + std::min(range->end, end) - begin);
  }
}

CORBEL_INLINE Value TextBuilder::take() {
  Text* text = new Text;
  Value out = Value::object(text);
  text->bytes = std::move(bytes_);
  text->content = std::move(content_);
  bytes_.clear();
  content_.clear();
  for (std::size_t at = 0; at < text->bytes.size(); at += character_length(text->bytes, at)) ++text->characters;
  return out;
}

CORBEL_INLINE std::size_t character_length(std::string_view text, std::size_t at) noexcept {
  if (static_cast<unsigned char>(text[at]) < 0x80u) return 1;
  return std::max<std::size_t>(1, detail::decode_utf8(text, at).length);
}

CORBEL_INLINE Value slice_bytes(const Text& text, std::size_t begin, std::size_t end) {
  TextBuilder builder;
  builder.append(text, begin, end);
  return builder.take();
}

CORBEL_INLINE bool is_content_at(const Text& text, std::size_t at, std::size_t& cursor) noexcept {
  while (cursor < text.content.size() && text.content[cursor].end <= at) ++cursor;
  return cursor < text.content.size() && text.content[cursor].begin <= at;
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
