// Filters over lists and mappings (text/jinja/builtins.hpp).
#pragma once

#include <corbel/text/jinja/builtins.hpp>
#include <corbel/text/jinja/operators.hpp>
#include <corbel/text/jinja/print.hpp>
#include <corbel/text/jinja/strings.hpp>

#include <algorithm>
#include <string>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

namespace filters {

inline bool length(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  std::int64_t size = 0;
  if (!length_of(runtime, value, size)) return false;
  out = Value::integer(size);
  return true;
}

inline bool end_item(Runtime& runtime, const Value& value, bool last, Value& out) {
  if (value.is_string() && !value.as_view().empty()) {
    if (!runtime.charge_bytes(last ? value.as_view().size() : 0)) return false;
    return get_item(runtime, value, Value::integer(last ? -1 : 0), out);
  }
  std::vector<Value> items;
  if (!iterate(runtime, value, items)) return false;
  out = !items.empty() ? (last ? items.back() : items.front())
                       : Value::undefined("the sequence is empty and has no first or last item");
  return true;
}

inline bool first(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  return end_item(runtime, value, false, out);
}

inline bool last(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  return end_item(runtime, value, true, out);
}

inline bool list(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  std::vector<Value> items;
  return iterate(runtime, value, items) && make_sequence(runtime, Kind::kList, std::move(items), out);
}

inline bool reverse(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  if (value.is_string()) {
    return get_slice(runtime, value, Value::none(), Value::none(), Value::integer(-1), out);
  }
  std::vector<Value> items;
  if (!iterate(runtime, value, items)) return false;
  std::reverse(items.begin(), items.end());
  return make_sequence(runtime, Kind::kGenerator, std::move(items), out);
}

inline bool default_value(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  if (!parameters.bind(runtime, "default", arguments, {"default_value", "boolean"})) return false;
  const bool replaced = value.is_undefined() || (parameters.flag(1, false) && !value.truth());
  out = !replaced ? value : parameters.value(0) == nullptr ? Value::string("") : *parameters.value(0);
  return true;
}

/// value.a.b or value[1], where `path` is "a.b" or 1; undefined where a part is missing.
inline bool attribute_path(Runtime& runtime, const Value& value, const Value& path, Value& out) {
  if (!path.is_string()) return get_item(runtime, value, path, out);
  out = value;
  std::size_t begin = 0;
  while (begin <= path.as_view().size()) {
    const std::size_t end = std::min(path.as_view().find('.', begin), path.as_view().size());
    const std::string_view part = path.as_view().substr(begin, end - begin);
    std::int64_t number = 0;
    const Value key = parse_integer(part, 10, number) && number >= 0 ? Value::integer(number) : Value::string(part);
    Value item;
    if (!get_item(runtime, out, key, item)) return false;
    out = std::move(item);
    begin = end + 1;
  }
  return true;
}

/// What a value sorts by: the attribute if there is one, without case unless asked for.
inline bool sort_key(Runtime& runtime, const Value& item, const Value* attribute, bool case_sensitive, Value& out) {
  if (attribute == nullptr || attribute->is(Kind::kNone)) {
    out = item;
  } else if (!attribute_path(runtime, item, *attribute, out)) {
    return false;
  }
  if (case_sensitive || !out.is_string()) return true;
  if (!runtime.charge_bytes(out.as_view().size() * 4)) return false;
  out = change_case(out.as_text(), Case::kLower);
  return true;
}

/// Sorts items by their keys, stably; fails where keys have no order.
inline bool sort_by(Runtime& runtime, std::vector<std::pair<Value, Value>>& keyed, bool descending) {
  bool good = true;
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    bool before = false;
    good = good && (descending ? less(runtime, b.first, a.first, before) : less(runtime, a.first, b.first, before));
    return good && before;
  });
  return good;
}

inline bool keyed_items(Runtime& runtime, const Value& value, const Value* attribute, bool case_sensitive,
                        std::vector<std::pair<Value, Value>>& out) {
  std::vector<Value> items;
  if (!iterate(runtime, value, items)) return false;
  for (Value& item : items) {
    Value key;
    if (!sort_key(runtime, item, attribute, case_sensitive, key)) return false;
    out.emplace_back(std::move(key), std::move(item));
  }
  return true;
}

inline bool sort(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::vector<Value> all;
  std::vector<Value> paths = {Value::none()};  // "a,b" sorts by a, then by b
  if (!parameters.bind(runtime, "sort", arguments, {"reverse", "case_sensitive", "attribute"}) ||
      !iterate(runtime, value, all)) {
    return false;
  }
  if (const Value* attribute = parameters.value(2); attribute != nullptr && attribute->is_string()) {
    const Value comma = Value::string(",");
    if (!runtime.charge_bytes(attribute->as_view().size() * 64)) return false;
    paths = split(attribute->as_text(), &comma.as_text(), -1, false);
  } else if (attribute != nullptr) {
    paths = {*attribute};
  }
  // Lists of keys: as in Jinja, equal keys then need no order.
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : all) {
    std::vector<Value> keys(paths.size());
    for (std::size_t at = 0; at < paths.size(); ++at) {
      if (!runtime.charge(1) || !sort_key(runtime, item, &paths[at], parameters.flag(1, false), keys[at])) return false;
    }
    Value key;
    if (!make_sequence(runtime, Kind::kList, std::move(keys), key)) return false;
    keyed.emplace_back(std::move(key), std::move(item));
  }
  if (!sort_by(runtime, keyed, parameters.flag(0, false))) return false;
  std::vector<Value> items;
  for (auto& entry : keyed) items.push_back(std::move(entry.second));
  return make_sequence(runtime, Kind::kList, std::move(items), out);
}

inline bool unique(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::vector<std::pair<Value, Value>> keyed;
  if (!parameters.bind(runtime, "unique", arguments, {"case_sensitive", "attribute"}) ||
      !keyed_items(runtime, value, parameters.value(1), parameters.flag(0, false), keyed)) {
    return false;
  }
  Dict seen(Kind::kDict);
  std::vector<Value> items;
  for (auto& [key, item] : keyed) {
    const std::size_t before = seen.entries.size();
    if (!dict_set(runtime, seen, key, Value::none())) return false;
    if (seen.entries.size() > before) items.push_back(std::move(item));
  }
  return make_sequence(runtime, Kind::kGenerator, std::move(items), out);
}

inline bool extreme(Runtime& runtime, const Value& value, const Arguments& arguments, bool largest, Value& out) {
  Parameters parameters;
  std::vector<std::pair<Value, Value>> keyed;
  if (!parameters.bind(runtime, largest ? "max" : "min", arguments, {"case_sensitive", "attribute"}) ||
      !keyed_items(runtime, value, parameters.value(1), parameters.flag(0, false), keyed)) {
    return false;
  }
  out = Value::undefined("no aggregated item, the sequence was empty");
  const std::pair<Value, Value>* best = nullptr;
  for (const auto& entry : keyed) {
    bool better = best == nullptr;
    if (!better && !(largest ? less(runtime, best->first, entry.first, better)
                             : less(runtime, entry.first, best->first, better))) {
      return false;
    }
    if (better) best = &entry;
  }
  if (best != nullptr) out = best->second;
  return true;
}

inline bool max(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  return extreme(runtime, value, arguments, true, out);
}

inline bool min(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  return extreme(runtime, value, arguments, false, out);
}

inline bool sum(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::vector<std::pair<Value, Value>> keyed;
  if (!parameters.bind(runtime, "sum", arguments, {"attribute", "start"}) ||
      !keyed_items(runtime, value, parameters.value(0), true, keyed)) {
    return false;
  }
  out = parameters.value(1) == nullptr ? Value::integer(0) : *parameters.value(1);
  for (const auto& entry : keyed) {
    Value total;
    if (!arithmetic(runtime, OpCode::kAdd, out, entry.first, total)) return false;
    out = std::move(total);
  }
  return true;
}

inline bool join(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::vector<std::pair<Value, Value>> keyed;
  Value separator = Value::string("");
  if (!parameters.bind(runtime, "join", arguments, {"d", "attribute"}) ||
      !keyed_items(runtime, value, parameters.value(1), true, keyed)) {
    return false;
  }
  if (parameters.value(0) != nullptr && !to_str(runtime, *parameters.value(0), separator)) return false;
  TextBuilder builder;
  bool first_item = true;
  for (const auto& entry : keyed) {
    if (!first_item && !append_str(runtime, separator, builder)) return false;
    first_item = false;
    if (!append_str(runtime, entry.first, builder)) return false;
  }
  out = builder.take();
  return true;
}

// --- filters that apply filters and tests

// As in Jinja, these take everything that is false for an empty list.
inline bool iterate_true(Runtime& runtime, const Value& value, std::vector<Value>& out) {
  return !value.truth() || iterate(runtime, value, out);
}

inline bool map(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  std::vector<Value> items;
  if (!iterate_true(runtime, value, items)) return false;
  if (arguments.positional.empty()) {
    Parameters parameters;
    const Value* path = nullptr;
    if (!parameters.bind(runtime, "map", arguments, {"attribute", "default"}) ||
        !parameters.required(runtime, 0, path)) {
      return false;
    }
    for (Value& item : items) {
      Value mapped;
      if (!attribute_path(runtime, item, *path, mapped)) return false;
      item = mapped.is_undefined() && parameters.value(1) != nullptr ? *parameters.value(1) : std::move(mapped);
    }
    return make_sequence(runtime, Kind::kGenerator, std::move(items), out);
  }
  const Value& name = arguments.positional[0];
  const std::int32_t filter = name.is_string() ? find_filter(name.as_view()) : -1;
  if (filter < 0) return runtime.fail("map: there is no such filter");
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + 1, arguments.positional.end());
  rest.keywords = arguments.keywords;
  // A filter that maps again would nest the call stack by what the template says.
  if (filter_at(static_cast<std::uint32_t>(filter)).call == &map) return runtime.fail("map cannot be mapped");
  for (Value& item : items) {
    Value mapped;
    if (!runtime.charge(1)) return false;
    if (!filter_at(static_cast<std::uint32_t>(filter)).call(runtime, item, rest, mapped)) return false;
    item = std::move(mapped);
  }
  return make_sequence(runtime, Kind::kGenerator, std::move(items), out);
}

// select, reject, selectattr, rejectattr: keeps items whose test (of an attribute, where `skip` is 1) is `wanted`.
inline bool select_items(Runtime& runtime, const Value& value, const Arguments& arguments, std::size_t skip,
                         bool wanted, Value& out) {
  std::vector<Value> items;
  if (!iterate_true(runtime, value, items)) return false;
  if (arguments.positional.size() < skip) return runtime.fail("the filter misses the name of an attribute");
  const NamedBuiltin* test = nullptr;
  Arguments rest;
  rest.keywords = arguments.keywords;
  if (arguments.positional.size() > skip) {
    const Value& name = arguments.positional[skip];
    const std::int32_t number = name.is_string() ? find_test(name.as_view()) : -1;
    if (number < 0) return runtime.fail("select: there is no such test");
    test = &test_at(static_cast<std::uint32_t>(number));
    rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(skip) + 1,
                           arguments.positional.end());
  }
  std::vector<Value> kept;
  for (Value& item : items) {
    Value judged = item;
    if (skip == 1 && !attribute_path(runtime, item, arguments.positional[0], judged)) return false;
    Value result = judged;
    if (!runtime.charge(1)) return false;
    if (test != nullptr && !test->call(runtime, judged, rest, result)) return false;
    if (result.truth() == wanted) kept.push_back(std::move(item));
  }
  return make_sequence(runtime, Kind::kGenerator, std::move(kept), out);
}

inline bool select(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  return select_items(runtime, value, arguments, 0, true, out);
}

inline bool reject(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  return select_items(runtime, value, arguments, 0, false, out);
}

inline bool selectattr(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  return select_items(runtime, value, arguments, 1, true, out);
}

inline bool rejectattr(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  return select_items(runtime, value, arguments, 1, false, out);
}

inline bool attr(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Value* name = nullptr;
  if (!parameters.bind(runtime, "attr", arguments, {"name"}) || !parameters.required(runtime, 0, name)) return false;
  if (!name->is_string()) return runtime.fail("attr needs a name");
  if (value.is(Kind::kDict) && find_method(Kind::kDict, name->as_view()) < 0) {  // members of a dict are no attributes
    out = Value::undefined("'dict' object has no attribute '" + std::string(name->as_view()) + "'");
    return true;
  }
  return get_attribute(runtime, value, name->as_view(), out);
}

inline bool groupby(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::vector<std::pair<Value, Value>> keyed;
  const Value* attribute = nullptr;
  const auto& names = {std::string_view("attribute"), std::string_view("default"), std::string_view("case_sensitive")};
  if (!parameters.bind(runtime, "groupby", arguments, names) || !parameters.required(runtime, 0, attribute) ||
      !keyed_items(runtime, value, attribute, parameters.flag(2, false), keyed)) {
    return false;
  }
  for (auto& entry : keyed) {
    if (entry.first.is_undefined() && parameters.value(1) != nullptr) entry.first = *parameters.value(1);
  }
  if (!sort_by(runtime, keyed, false)) return false;
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> members;
    std::size_t end = begin;
    for (bool equal = true; end < keyed.size(); ++end) {
      if (!equals(runtime, keyed[begin].first, keyed[end].first, equal)) return false;
      if (!equal) break;
      members.push_back(keyed[end].second);
    }
    Value grouper;
    if (!attribute_path(runtime, members.front(), *attribute, grouper)) return false;
    if (grouper.is_undefined() && parameters.value(1) != nullptr) grouper = *parameters.value(1);
    Value list_value;
    Value group;
    if (!make_sequence(runtime, Kind::kList, std::move(members), list_value)) return false;
    if (!make_sequence(runtime, Kind::kTuple, {std::move(grouper), std::move(list_value)}, group)) return false;
    static_cast<Sequence*>(group.heap())->is_group = true;
    groups.push_back(std::move(group));
    begin = end;
  }
  return make_sequence(runtime, Kind::kList, std::move(groups), out);
}

inline bool dict_pairs(Runtime& runtime, const Value& value, std::vector<Value>& out) {
  for (const auto& [key, member] : value.as_dict().entries) {
    Value pair;
    if (!make_sequence(runtime, Kind::kTuple, {key, member}, pair)) return false;
    out.push_back(std::move(pair));
  }
  return true;
}

inline bool items(Runtime& runtime, const Value& value, const Arguments&, Value& out) {
  std::vector<Value> pairs;
  if (!value.is_undefined() && !value.is(Kind::kDict)) return runtime.fail("Can only get item pairs from a mapping.");
  if (!value.is_undefined() && !dict_pairs(runtime, value, pairs)) return false;
  return make_sequence(runtime, Kind::kGenerator, std::move(pairs), out);
}

inline bool dictsort(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Text* by = nullptr;
  std::vector<Value> pairs;
  if (!parameters.bind(runtime, "dictsort", arguments, {"case_sensitive", "by", "reverse"}) ||
      !parameters.string(runtime, 1, by)) {
    return false;
  }
  if (value.is_undefined()) return fail_undefined(runtime, value);
  if (!value.is(Kind::kDict)) return runtime.fail(std::string("dictsort needs a mapping, not ") + value.type_name());
  if (by != nullptr && by->bytes != "key" && by->bytes != "value")
    return runtime.fail("dictsort: 'by' is 'key' or 'value'");
  if (!dict_pairs(runtime, value, pairs)) return false;
  std::vector<std::pair<Value, Value>> keyed;
  const Value place = Value::integer(by != nullptr && by->bytes == "value" ? 1 : 0);
  for (const Value& pair : pairs) {
    Value key;
    if (!sort_key(runtime, pair, &place, parameters.flag(0, false), key)) return false;
    keyed.emplace_back(std::move(key), pair);
  }
  if (!sort_by(runtime, keyed, parameters.flag(2, false))) return false;
  for (std::size_t i = 0; i < keyed.size(); ++i) pairs[i] = std::move(keyed[i].second);
  return make_sequence(runtime, Kind::kList, std::move(pairs), out);
}

inline bool batch(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::int64_t size = 0;
  std::vector<Value> all;
  const Value* needed = nullptr;
  if (!parameters.bind(runtime, "batch", arguments, {"linecount", "fill_with"}) ||
      !parameters.required(runtime, 0, needed) || !parameters.integer(runtime, 0, 0, size) ||
      !iterate(runtime, value, all)) {
    return false;
  }
  if (size <= 0) return runtime.fail("batch needs a positive size");
  const auto width = static_cast<std::size_t>(size);
  std::vector<Value> batches;
  for (std::size_t begin = 0; begin < all.size(); begin += width) {
    const std::size_t end = all.size() - begin < width ? all.size() : begin + width;
    std::vector<Value> part(all.begin() + static_cast<std::ptrdiff_t>(begin),
                            all.begin() + static_cast<std::ptrdiff_t>(end));
    if (parameters.value(1) != nullptr && !parameters.value(1)->is(Kind::kNone)) {
      if (!runtime.charge((width - part.size()) * 2)) return false;
      part.resize(width, *parameters.value(1));
    }
    Value batch_value;
    if (!make_sequence(runtime, Kind::kList, std::move(part), batch_value)) return false;
    batches.push_back(std::move(batch_value));
    if (all.size() - begin <= width) break;
  }
  return make_sequence(runtime, Kind::kGenerator, std::move(batches), out);
}

// `slices` lists of about equal length; `fill_with` makes those that are shorter as long.
inline bool slice(Runtime& runtime, const Value& value, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::int64_t slices = 0;
  std::vector<Value> all;
  const Value* needed = nullptr;
  if (!parameters.bind(runtime, "slice", arguments, {"slices", "fill_with"}) ||
      !parameters.required(runtime, 0, needed) || !parameters.integer(runtime, 0, 0, slices) ||
      !iterate(runtime, value, all)) {
    return false;
  }
  if (slices <= 0) return runtime.fail("slice needs a positive number of slices");
  const auto count = static_cast<std::size_t>(slices);
  if (!runtime.charge(8 * static_cast<std::uint64_t>(slices))) return false;
  const std::size_t longer = all.size() % count;  // so many have one more
  const bool fill = parameters.value(1) != nullptr && !parameters.value(1)->is(Kind::kNone);
  std::vector<Value> lists;
  auto begin = all.begin();
  for (std::size_t number = 0; number < count; ++number) {
    const auto end = begin + static_cast<std::ptrdiff_t>(all.size() / count + (number < longer ? 1 : 0));
    std::vector<Value> part(begin, end);
    if (fill && number >= longer) part.push_back(*parameters.value(1));
    lists.emplace_back();
    if (!make_sequence(runtime, Kind::kList, std::move(part), lists.back())) return false;
    begin = end;
  }
  return make_sequence(runtime, Kind::kGenerator, std::move(lists), out);
}

}  // namespace filters

CORBEL_INLINE std::span<const NamedBuiltin> sequence_filters() noexcept {
  static constexpr NamedBuiltin kTable[] = {
      {"length", filters::length},
      {"count", filters::length},
      {"first", filters::first},
      {"last", filters::last},
      {"list", filters::list},
      {"reverse", filters::reverse},
      {"default", filters::default_value},
      {"d", filters::default_value},
      {"sort", filters::sort},
      {"unique", filters::unique},
      {"max", filters::max},
      {"min", filters::min},
      {"sum", filters::sum},
      {"join", filters::join},
      {"map", filters::map},
      {"select", filters::select},
      {"reject", filters::reject},
      {"selectattr", filters::selectattr},
      {"rejectattr", filters::rejectattr},
      {"attr", filters::attr},
      {"groupby", filters::groupby},
      {"items", filters::items},
      {"dictsort", filters::dictsort},
      {"batch", filters::batch},
      {"slice", filters::slice},
  };
  return kTable;
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
