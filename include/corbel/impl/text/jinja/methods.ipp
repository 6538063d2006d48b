// Methods of strings, lists, dicts, numbers, loops and cyclers (text/jinja/builtins.hpp). None changes its object but
// for loops and cyclers.
#pragma once

#include <corbel/impl/text/jinja/format_braces.ipp>
#include <corbel/text/jinja/builtins.hpp>
#include <corbel/text/jinja/operators.hpp>
#include <corbel/text/jinja/print.hpp>
#include <corbel/text/jinja/strings.hpp>

#include <algorithm>
#include <cmath>
#include <string>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

namespace methods {

// --- strings

template <bool kLeft, bool kRight>
bool strip_method(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Text* characters = nullptr;
  if (!parameters.bind(runtime, "strip", arguments, {"chars"}) || !parameters.string(runtime, 0, characters) ||
      !runtime.charge_bytes(self.as_view().size())) {
    return false;
  }
  out = strip(self.as_text(), characters, kLeft, kRight);
  return true;
}

template <bool kFromRight>
bool split_method(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Text* separator = nullptr;
  std::int64_t limit = -1;
  if (!parameters.bind(runtime, "split", arguments, {"sep", "maxsplit"}) || !parameters.string(runtime, 0, separator) ||
      !parameters.integer(runtime, 1, -1, limit)) {
    return false;
  }
  if (separator != nullptr && separator->bytes.empty()) return runtime.fail("empty separator");
  // A part costs about a hundred bytes: charged before they are made by what there can be at most.
  std::uint64_t most = self.as_view().size() / (separator == nullptr ? 2 : separator->bytes.size()) + 1;
  if (separator != nullptr) {
    most = 1;
    for (std::size_t at = 0; (at = self.as_view().find(separator->bytes, at)) != std::string_view::npos;
         at += separator->bytes.size()) {
      ++most;
    }
  }
  if (!runtime.charge_bytes(self.as_view().size() + most * 64)) return false;
  return make_sequence(runtime, Kind::kList, split(self.as_text(), separator, limit, kFromRight), out);
}

inline bool splitlines(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  if (!parameters.bind(runtime, "splitlines", arguments, {"keepends"})) return false;
  const auto lines = static_cast<std::uint64_t>(std::count(self.as_view().begin(), self.as_view().end(), '\n')) + 1;
  if (!runtime.charge_bytes(self.as_view().size() + lines * 64)) return false;
  return make_sequence(runtime, Kind::kList, split_lines(self.as_text(), parameters.flag(0, false)), out);
}

/// The bytes of the characters [start, end), as a slice takes them, of parameters `first` and the next; false in
/// `valid` where it starts behind its end.
inline bool window(Runtime& runtime, const Value& self, const Parameters& parameters, std::size_t first, ByteRange& out,
                   bool& valid) {
  const auto size = static_cast<std::int64_t>(self.as_text().characters);
  std::int64_t bounds[2] = {0, size};
  for (std::size_t side = 0; side < 2; ++side) {
    const Value* given = parameters.value(first + side);
    if (given == nullptr || given->is(Kind::kNone)) continue;
    if (!parameters.integer(runtime, first + side, 0, bounds[side])) return false;
    if (bounds[side] < 0) bounds[side] = std::max<std::int64_t>(0, bounds[side] + size);
  }
  valid = bounds[0] <= bounds[1] && bounds[0] <= size;
  if (!runtime.charge_bytes(self.as_view().size())) return false;
  out.begin = byte_of_character(self.as_text(), static_cast<std::size_t>(std::min(bounds[0], size)));
  out.end = valid ? byte_of_character(self.as_text(), static_cast<std::size_t>(std::min(bounds[1], size))) : out.begin;
  return true;
}

template <bool kEnd>
bool affix(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Value* wanted = nullptr;
  ByteRange range;
  bool valid = false;
  if (!parameters.bind(runtime, kEnd ? "endswith" : "startswith", arguments, {"prefix", "start", "end"}) ||
      !parameters.required(runtime, 0, wanted) || !window(runtime, self, parameters, 1, range, valid)) {
    return false;
  }
  const auto matches = [&](const Value& candidate, bool& result) {
    if (!candidate.is_string()) return runtime.fail(std::string("a string is needed, not ") + candidate.type_name());
    const std::string_view text = self.as_view().substr(range.begin, range.end - range.begin);
    const std::string_view part = candidate.as_view();
    result = valid && part.size() <= text.size() &&
             (kEnd ? text.substr(text.size() - part.size()) : text.substr(0, part.size())) == part;
    return runtime.charge_bytes(part.size());
  };
  bool result = false;
  if (!wanted->is(Kind::kTuple)) {
    if (!matches(*wanted, result)) return false;
  } else {
    for (const Value& candidate : wanted->as_sequence().items) {
      if (!result && !matches(candidate, result)) return false;
    }
  }
  out = Value::boolean(result);
  return true;
}

template <Case kCase>
bool case_method(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  if (!parameters.bind(runtime, "the method", arguments, {}) || !runtime.charge_bytes(self.as_view().size() * 4))
    return false;
  out = change_case(self.as_text(), kCase);
  return true;
}

template <CharacterClass kClass>
bool class_method(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  if (!parameters.bind(runtime, "the method", arguments, {}) || !runtime.charge_bytes(self.as_view().size()))
    return false;
  out = Value::boolean(all_of_class(self.as_view(), kClass));
  return true;
}

inline bool needed_string(Runtime& runtime, const Parameters& parameters, std::size_t index, const Text*& out) {
  const Value* value = nullptr;
  if (!parameters.required(runtime, index, value) || !parameters.string(runtime, index, out)) return false;
  return out != nullptr || runtime.fail("a string is needed, not NoneType");
}

inline bool replace_method(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Text* from = nullptr;
  const Text* to = nullptr;
  std::int64_t limit = -1;
  return parameters.bind(runtime, "replace", arguments, {"old", "new", "count"}) &&
         needed_string(runtime, parameters, 0, from) && needed_string(runtime, parameters, 1, to) &&
         parameters.integer(runtime, 2, -1, limit) &&
         (!self.is_markup() || runtime.charge_bytes(to->bytes.size() * 5)) &&
         replace(runtime, self.as_text(), *from, self.is_markup() ? escape_markup(*parameters.value(1)).as_text() : *to,
                 limit, out);
}

inline bool join_method(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Value* list = nullptr;
  std::vector<Value> items;
  if (!parameters.bind(runtime, "join", arguments, {"iterable"}) || !parameters.required(runtime, 0, list) ||
      !iterate(runtime, *list, items)) {
    return false;
  }
  TextBuilder builder;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return runtime.fail("join: item " + std::to_string(i) + " is no string but " + items[i].type_name());
    }
    if (!runtime.charge_bytes(self.as_view().size() + items[i].as_view().size() * (self.is_markup() ? 5 : 1))) {
      return false;
    }
    if (i > 0) builder.append(self.as_text());
    builder.append(self.is_markup() ? escape_markup(items[i]).as_text() : items[i].as_text());
  }
  out = builder.take();
  return true;
}

template <bool kLast, bool kMustExist>
bool find_method_of(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Text* needle = nullptr;
  ByteRange range;
  bool valid = false;
  if (!parameters.bind(runtime, "find", arguments, {"sub", "start", "end"}) ||
      !needed_string(runtime, parameters, 0, needle) || !window(runtime, self, parameters, 1, range, valid)) {
    return false;
  }
  std::int64_t result = -1;
  if (valid) {
    const std::size_t at = find(self.as_view().substr(range.begin, range.end - range.begin), needle->bytes, kLast);
    if (at != std::string_view::npos) {
      result = static_cast<std::int64_t>(count_characters(self.as_view(), range.begin + at));
    }
  }
  if (kMustExist && result < 0) return runtime.fail("substring not found");
  out = Value::integer(result);
  return true;
}

inline bool count_method(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Text* needle = nullptr;
  ByteRange range;
  bool valid = false;
  if (!parameters.bind(runtime, "count", arguments, {"sub", "start", "end"}) ||
      !needed_string(runtime, parameters, 0, needle) || !window(runtime, self, parameters, 1, range, valid)) {
    return false;
  }
  const std::string_view text = self.as_view().substr(range.begin, range.end - range.begin);
  std::int64_t count = 0;
  if (needle->bytes.empty()) {
    count = valid ? static_cast<std::int64_t>(count_characters(text, text.size())) + 1 : 0;
  } else {
    for (std::size_t at = 0; (at = text.find(needle->bytes, at)) != std::string_view::npos;
         at += needle->bytes.size()) {
      ++count;
    }
  }
  out = Value::integer(count);
  return true;
}

template <bool kSuffix>
bool remove_affix(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Text* part = nullptr;
  if (!parameters.bind(runtime, "removeprefix", arguments, {"prefix"}) ||
      !needed_string(runtime, parameters, 0, part) || !runtime.charge_bytes(self.as_view().size())) {
    return false;
  }
  const std::string_view text = self.as_view();
  const std::size_t size = part->bytes.size();
  const bool found =
      size <= text.size() && (kSuffix ? text.substr(text.size() - size) : text.substr(0, size)) == part->bytes;
  out = !found    ? self
        : kSuffix ? slice_bytes(self.as_text(), 0, text.size() - size)
                  : slice_bytes(self.as_text(), size, text.size());
  return true;
}

template <bool kFromRight>
bool partition(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Text* separator = nullptr;
  if (!parameters.bind(runtime, "partition", arguments, {"sep"}) || !needed_string(runtime, parameters, 0, separator) ||
      !runtime.charge_bytes(self.as_view().size())) {
    return false;
  }
  if (separator->bytes.empty()) return runtime.fail("empty separator");
  const std::size_t at = find(self.as_view(), separator->bytes, kFromRight);
  const Value empty = Value::string("");
  std::vector<Value> parts;
  if (at == std::string_view::npos) {
    parts = kFromRight ? std::vector<Value>{empty, empty, self} : std::vector<Value>{self, empty, empty};
  } else {
    const std::size_t end = at + separator->bytes.size();
    parts = {slice_bytes(self.as_text(), 0, at), slice_bytes(self.as_text(), at, end),
             slice_bytes(self.as_text(), end, self.as_view().size())};
  }
  return make_sequence(runtime, Kind::kTuple, std::move(parts), out);
}

template <Align kAlign>
bool justify(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::int64_t width = 0;
  const Text* fill = nullptr;
  const Value* needed = nullptr;
  if (!parameters.bind(runtime, "justify", arguments, {"width", "fillchar"}) ||
      !parameters.required(runtime, 0, needed) || !parameters.integer(runtime, 0, 0, width) ||
      !parameters.string(runtime, 1, fill)) {
    return false;
  }
  if (fill != nullptr && fill->characters != 1) return runtime.fail("the fill character must be one character long");
  return pad(runtime, self.as_text(), width, kAlign,
             fill == nullptr ? std::string_view(" ") : std::string_view(fill->bytes), out);
}

inline bool zfill(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::int64_t width = 0;
  const Value* needed = nullptr;
  if (!parameters.bind(runtime, "zfill", arguments, {"width"}) || !parameters.required(runtime, 0, needed) ||
      !parameters.integer(runtime, 0, 0, width)) {
    return false;
  }
  const bool sign = !self.as_view().empty() && (self.as_view().front() == '-' || self.as_view().front() == '+');
  const Value digits = slice_bytes(self.as_text(), sign ? 1 : 0, self.as_view().size());
  Value padded;
  if (!pad(runtime, digits.as_text(), width - (sign ? 1 : 0), Align::kRight, "0", padded)) return false;
  TextBuilder builder;
  builder.append(self.as_text(), 0, sign ? 1 : 0);
  builder.append(padded.as_text());
  out = builder.take();
  return true;
}

inline bool expandtabs(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::int64_t width = 8;
  if (!parameters.bind(runtime, "expandtabs", arguments, {"tabsize"}) || !parameters.integer(runtime, 0, 8, width) ||
      !runtime.charge_bytes(self.as_view().size())) {
    return false;
  }
  const std::string_view text = self.as_view();
  TextBuilder builder;
  std::int64_t column = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_length(text, at);
    if (text[at] == '\t') {
      const std::int64_t spaces = width > 0 ? width - column % width : 0;
      if (!runtime.charge(1 + static_cast<std::uint64_t>(spaces))) return false;
      builder.append(std::string(static_cast<std::size_t>(spaces), ' '), false);
      column += spaces;
    } else {
      builder.append(self.as_text(), at, at + length);
      column = text[at] == '\n' || text[at] == '\r' ? 0 : column + 1;
    }
    at += length;
  }
  out = builder.take();
  return true;
}

inline bool isascii(Runtime& runtime, const Value& self, const Arguments&, Value& out) {
  const std::string_view text = self.as_view();
  out = Value::boolean(std::none_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; }));
  return runtime.charge_bytes(text.size());
}

inline bool istitle(Runtime& runtime, const Value& self, const Arguments&, Value& out) {
  const Value title = change_case(self.as_text(), Case::kTitle);
  const bool cased = change_case(self.as_text(), Case::kUpper).as_view() != self.as_view() ||
                     change_case(self.as_text(), Case::kLower).as_view() != self.as_view();
  out = Value::boolean(cased && title.as_view() == self.as_view());
  return runtime.charge_bytes(self.as_view().size() * 12);
}

inline bool isidentifier(Runtime& runtime, const Value& self, const Arguments&, Value& out) {
  const std::string_view text = self.as_view();
  bool good = !text.empty() && !(text.front() >= '0' && text.front() <= '9');
  for (std::size_t at = 0; good && at < text.size(); at += character_length(text, at)) {
    const std::string_view character = text.substr(at, character_length(text, at));
    good = character == "_" || all_of_class(character, at == 0 ? CharacterClass::kAlpha : CharacterClass::kAlnum);
  }
  out = Value::boolean(good);
  return runtime.charge_bytes(text.size());
}

// --- lists, dicts, numbers

inline bool list_index(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Value* wanted = nullptr;
  if (!parameters.bind(runtime, "index", arguments, {"value"}) || !parameters.required(runtime, 0, wanted))
    return false;
  const std::vector<Value>& items = self.as_sequence().items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    bool equal = false;
    if (!equals(runtime, items[i], *wanted, equal)) return false;
    if (!equal) continue;
    out = Value::integer(static_cast<std::int64_t>(i));
    return true;
  }
  return runtime.fail("the value is not in the list");
}

inline bool list_count(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Value* wanted = nullptr;
  if (!parameters.bind(runtime, "count", arguments, {"value"}) || !parameters.required(runtime, 0, wanted))
    return false;
  std::int64_t count = 0;
  for (const Value& item : self.as_sequence().items) {
    bool equal = false;
    if (!equals(runtime, item, *wanted, equal)) return false;
    count += equal ? 1 : 0;
  }
  out = Value::integer(count);
  return true;
}

inline bool copy(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  out = self;  // values do not change, so that a copy is the value itself
  return parameters.bind(runtime, "copy", arguments, {});
}

template <Kind kView>
bool dict_view(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  if (!parameters.bind(runtime, "the method", arguments, {})) return false;
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().entries) {
    Value item = kView == Kind::kKeys ? key : value;
    if (kView == Kind::kItems && !make_sequence(runtime, Kind::kTuple, {key, value}, item)) return false;
    items.push_back(std::move(item));
  }
  return make_sequence(runtime, kView, std::move(items), out);
}

inline bool dict_get(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Value* key = nullptr;
  const Value* found = nullptr;
  if (!parameters.bind(runtime, "get", arguments, {"key", "default"}) || !parameters.required(runtime, 0, key))
    return false;
  if (!key->is_undefined() && !dict_find(runtime, self.as_dict(), *key, found)) return false;
  out = found != nullptr ? *found : parameters.value(1) != nullptr ? *parameters.value(1) : Value::none();
  return true;
}

inline bool bit_length(Runtime&, const Value& self, const Arguments&, Value& out) {
  std::uint64_t size =
      self.as_int() < 0 ? 0 - static_cast<std::uint64_t>(self.as_int()) : static_cast<std::uint64_t>(self.as_int());
  std::int64_t bits = 0;
  for (; size != 0; size >>= 1) ++bits;
  out = Value::integer(bits);
  return true;
}

inline bool is_integer(Runtime&, const Value& self, const Arguments&, Value& out) {
  out = Value::boolean(std::floor(self.as_double()) == self.as_double());
  return true;
}

// --- loops and cyclers

inline bool loop_cycle(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  if (arguments.positional.empty()) return runtime.fail("loop.cycle: no items for cycling given");
  const std::size_t at = self.as_loop().next_item == 0 ? 0 : self.as_loop().next_item - 1;
  out = arguments.positional[at % arguments.positional.size()];
  return true;
}

inline bool loop_changed(Runtime& runtime, const Value& self, const Arguments& arguments, Value& out) {
  Loop& loop = self.as_loop();
  bool equal = !loop.previous.empty() && loop.previous.size() == arguments.positional.size();
  for (std::size_t i = 0; equal && i < loop.previous.size(); ++i) {
    if (!equals(runtime, loop.previous[i], arguments.positional[i], equal)) return false;
  }
  if (loop.running) loop.previous = arguments.positional;
  out = Value::boolean(!equal);
  return true;
}

inline bool cycler_next(Runtime&, const Value& self, const Arguments&, Value& out) {
  Cycle& cycle = self.as_cycle();
  out = cycle.items[cycle.position];
  cycle.position = (cycle.position + 1) % cycle.items.size();
  return true;
}

inline bool cycler_reset(Runtime&, const Value& self, const Arguments&, Value& out) {
  self.as_cycle().position = 0;
  out = Value::none();
  return true;
}

struct Entry {
  Kind kind;
  NamedBuiltin method;
};

inline std::span<const Entry> table() noexcept {
  static constexpr Entry kTable[] = {
      {Kind::kDict, {"items", dict_view<Kind::kItems>}},
      {Kind::kDict, {"keys", dict_view<Kind::kKeys>}},
      {Kind::kDict, {"values", dict_view<Kind::kValues>}},
      {Kind::kDict, {"get", dict_get}},
      {Kind::kDict, {"copy", copy}},
      {Kind::kList, {"index", list_index}},
      {Kind::kList, {"count", list_count}},
      {Kind::kList, {"copy", copy}},
      {Kind::kTuple, {"index", list_index}},
      {Kind::kTuple, {"count", list_count}},
      {Kind::kString, {"strip", strip_method<true, true>}},
      {Kind::kString, {"lstrip", strip_method<true, false>}},
      {Kind::kString, {"rstrip", strip_method<false, true>}},
      {Kind::kString, {"split", split_method<false>}},
      {Kind::kString, {"rsplit", split_method<true>}},
      {Kind::kString, {"splitlines", splitlines}},
      {Kind::kString, {"startswith", affix<false>}},
      {Kind::kString, {"endswith", affix<true>}},
      {Kind::kString, {"upper", case_method<Case::kUpper>}},
      {Kind::kString, {"lower", case_method<Case::kLower>}},
      {Kind::kString, {"casefold", case_method<Case::kLower>}},
      {Kind::kString, {"title", case_method<Case::kTitle>}},
      {Kind::kString, {"capitalize", case_method<Case::kCapitalize>}},
      {Kind::kString, {"swapcase", case_method<Case::kSwap>}},
      {Kind::kString, {"replace", replace_method}},
      {Kind::kString, {"join", join_method}},
      {Kind::kString, {"find", find_method_of<false, false>}},
      {Kind::kString, {"rfind", find_method_of<true, false>}},
      {Kind::kString, {"index", find_method_of<false, true>}},
      {Kind::kString, {"rindex", find_method_of<true, true>}},
      {Kind::kString, {"count", count_method}},
      {Kind::kString, {"format", format_braces}},
      {Kind::kString, {"format_map", format_map}},
      {Kind::kString, {"zfill", zfill}},
      {Kind::kString, {"expandtabs", expandtabs}},
      {Kind::kString, {"isascii", isascii}},
      {Kind::kString, {"istitle", istitle}},
      {Kind::kString, {"isidentifier", isidentifier}},
      {Kind::kString, {"removeprefix", remove_affix<false>}},
      {Kind::kString, {"removesuffix", remove_affix<true>}},
      {Kind::kString, {"partition", partition<false>}},
      {Kind::kString, {"rpartition", partition<true>}},
      {Kind::kString, {"ljust", justify<Align::kLeft>}},
      {Kind::kString, {"rjust", justify<Align::kRight>}},
      {Kind::kString, {"center", justify<Align::kCenter>}},
      {Kind::kString, {"isspace", class_method<CharacterClass::kSpace>}},
      {Kind::kString, {"isupper", class_method<CharacterClass::kUpper>}},
      {Kind::kString, {"islower", class_method<CharacterClass::kLower>}},
      {Kind::kString, {"isalpha", class_method<CharacterClass::kAlpha>}},
      {Kind::kString, {"isalnum", class_method<CharacterClass::kAlnum>}},
      {Kind::kString, {"isdigit", class_method<CharacterClass::kDigit>}},
      {Kind::kString, {"isnumeric", class_method<CharacterClass::kDigit>}},
      {Kind::kString, {"isdecimal", class_method<CharacterClass::kDigit>}},
      {Kind::kInt, {"bit_length", bit_length}},
      {Kind::kBool, {"bit_length", bit_length}},
      {Kind::kFloat, {"is_integer", is_integer}},
      {Kind::kLoop, {"cycle", loop_cycle}},
      {Kind::kLoop, {"changed", loop_changed}},
      {Kind::kCycler, {"next", cycler_next}},
      {Kind::kCycler, {"reset", cycler_reset}},
  };
  return kTable;
}

}  // namespace methods

CORBEL_INLINE std::int32_t find_method(Kind kind, std::string_view name) noexcept {
  const std::span<const methods::Entry> table = methods::table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].kind == kind && table[i].method.name == name) return static_cast<std::int32_t>(i);
  }
  return -1;
}

CORBEL_INLINE const NamedBuiltin& method_at(std::uint32_t number) noexcept { return methods::table()[number].method; }

}  // namespace text::jinja
CORBEL_NAMESPACE_END
