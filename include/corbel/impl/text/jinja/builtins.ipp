// Definitions of text/jinja/builtins.hpp: argument matching, lookup, global functions.
#pragma once

#include <corbel/text/jinja/builtins.hpp>
#include <corbel/text/jinja/operators.hpp>
#include <corbel/text/jinja/print.hpp>

#include <algorithm>
#include <string>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

CORBEL_INLINE bool Parameters::bind(Runtime& runtime, std::string_view function, const Arguments& arguments,
                                    std::initializer_list<std::string_view> names) {
  function_ = function;
  std::copy(names.begin(), names.end(), names_);
  if (arguments.positional.size() > names.size()) {
    return runtime.fail(std::string(function) + " takes at most " + std::to_string(names.size()) + " arguments");
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [keyword, value] : arguments.keywords) {
    const auto* found = std::find(names_, names_ + names.size(), keyword.as_view());
    const auto index = static_cast<std::size_t>(found - names_);
    if (index >= names.size() || values_[index] != nullptr) {
      return runtime.fail(std::string(function) + " takes no argument '" + std::string(keyword.as_view()) + "' here");
    }
    values_[index] = &value;
  }
  return true;
}

CORBEL_INLINE bool Parameters::required(Runtime& runtime, std::size_t index, const Value*& out) const {
  out = values_[index];
  if (out != nullptr) return true;
  return runtime.fail(std::string(function_) + " misses its argument '" + std::string(names_[index]) + "'");
}

CORBEL_INLINE bool Parameters::integer(Runtime& runtime, std::size_t index, std::int64_t fallback,
                                       std::int64_t& out) const {
  out = fallback;
  if (values_[index] == nullptr) return true;
  if (!values_[index]->is_integral()) {
    return runtime.fail(std::string(function_) + ": '" + std::string(names_[index]) + "' must be an integer, not " +
                        values_[index]->type_name());
  }
  out = values_[index]->as_int();
  return true;
}

CORBEL_INLINE bool Parameters::flag(std::size_t index, bool fallback) const noexcept {
  return values_[index] == nullptr ? fallback : values_[index]->truth();
}

CORBEL_INLINE bool Parameters::string(Runtime& runtime, std::size_t index, const Text*& out) const {
  out = nullptr;
  if (values_[index] == nullptr || values_[index]->is(Kind::kNone)) return true;
  if (!values_[index]->is_string()) {
    return runtime.fail(std::string(function_) + ": '" + std::string(names_[index]) + "' must be a string, not " +
                        values_[index]->type_name());
  }
  out = &values_[index]->as_text();
  return true;
}

// --- lookup

CORBEL_INLINE std::int32_t find_builtin(std::span<const NamedBuiltin> table, std::string_view name) noexcept {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].name == name) return static_cast<std::int32_t>(i);
  }
  return -1;
}

CORBEL_INLINE std::int32_t find_filter(std::string_view name) noexcept {
  std::size_t before = 0;
  for (const auto& table : {text_filters(), markup_filters(), sequence_filters()}) {
    const std::int32_t found = find_builtin(table, name);
    if (found >= 0) return found + static_cast<std::int32_t>(before);
    before += table.size();
  }
  return -1;
}

CORBEL_INLINE const NamedBuiltin& filter_at(std::uint32_t number) noexcept {
  std::size_t at = number;
  for (const auto& table : {text_filters(), markup_filters()}) {
    if (at < table.size()) return table[at];
    at -= table.size();
  }
  return sequence_filters()[at];
}

CORBEL_INLINE std::int32_t find_test(std::string_view name) noexcept { return find_builtin(all_tests(), name); }
CORBEL_INLINE const NamedBuiltin& test_at(std::uint32_t number) noexcept { return all_tests()[number]; }
CORBEL_INLINE std::size_t function_count() noexcept { return all_functions().size(); }
CORBEL_INLINE const NamedBuiltin& function_at(std::uint32_t number) noexcept { return all_functions()[number]; }

// --- functions

namespace functions {

inline bool range(Runtime& runtime, const Value&, const Arguments& arguments, Value& out) {
  Parameters parameters;
  std::int64_t first = 0;
  std::int64_t second = 0;
  std::int64_t step = 1;
  const Value* needed = nullptr;
  if (!parameters.bind(runtime, "range", arguments, {"start", "stop", "step"}) ||
      !parameters.required(runtime, 0, needed) || !parameters.integer(runtime, 0, 0, first) ||
      !parameters.integer(runtime, 1, 0, second) || !parameters.integer(runtime, 2, 1, step)) {
    return false;
  }
  if (step == 0) return runtime.fail("range() arg 3 must not be zero");
  const bool one = parameters.value(1) == nullptr;
  const std::int64_t start = one ? 0 : first;
  const std::int64_t stop = one ? first : second;
  std::uint64_t count = 0;
  if (step > 0 && start < stop) {
    count =
        (static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start) - 1) / static_cast<std::uint64_t>(step) +
        1;
  } else if (step < 0 && start > stop) {
    count = (static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(stop) - 1) /
                (0 - static_cast<std::uint64_t>(step)) +
            1;
  }
  static constexpr std::uint64_t kMaxRange = 100'000;  // as Jinja's sandbox
  if (count > kMaxRange) return runtime.fail(Errc::kTemplateBudget, "a range has more than 100000 numbers");
  Range* range = new Range;
  out = Value::object(range);
  range->start = start;
  range->stop = stop;
  range->step = step;
  range->count = static_cast<std::int64_t>(count);
  return true;
}

// Members from a mapping or pairs, and from keywords.
inline bool collect(Runtime& runtime, std::string_view function, Kind kind, const Arguments& arguments, Value& out) {
  DictBuilder builder(kind);
  const auto set = [&](const Value& key, const Value& value) {
    if (kind == Kind::kNamespace && (!key.is_string() || key.as_view().substr(0, 1) == "_")) {
      return runtime.fail("names in a namespace are strings that do not begin with '_'");
    }
    return builder.set(runtime, key, value);
  };
  if (arguments.positional.size() > 1) return runtime.fail(std::string(function) + " takes at most 1 argument");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::kDict) || source.is(Kind::kNamespace)) {
      for (const auto& [key, value] : source.as_dict().entries) {
        if (!set(key, value)) return false;
      }
    } else {
      std::vector<Value> pairs;
      std::vector<Value> pair;
      if (!iterate(runtime, source, pairs)) return false;
      for (const Value& item : pairs) {
        if (!iterate(runtime, item, pair)) return false;
        if (pair.size() != 2) return runtime.fail(std::string(function) + " needs pairs of key and value");
        if (!set(pair[0], pair[1])) return false;
      }
    }
  }
  for (const auto& [key, value] : arguments.keywords) {
    if (!set(key, value)) return false;
  }
  out = builder.take();
  return true;
}

inline bool dict(Runtime& runtime, const Value&, const Arguments& arguments, Value& out) {
  return collect(runtime, "dict", Kind::kDict, arguments, out);
}

inline bool make_namespace(Runtime& runtime, const Value&, const Arguments& arguments, Value& out) {
  return collect(runtime, "namespace", Kind::kNamespace, arguments, out);
}

inline bool cycler(Runtime& runtime, const Value&, const Arguments& arguments, Value& out) {
  if (arguments.positional.empty() || !arguments.keywords.empty()) return runtime.fail("cycler needs items");
  Cycle* cycle = new Cycle(Kind::kCycler);
  out = Value::object(cycle);
  cycle->items = arguments.positional;
  return true;
}

inline bool joiner(Runtime& runtime, const Value&, const Arguments& arguments, Value& out) {
  Parameters parameters;
  if (!parameters.bind(runtime, "joiner", arguments, {"sep"})) return false;
  Cycle* cycle = new Cycle(Kind::kJoiner);
  out = Value::object(cycle);
  cycle->items.push_back(parameters.value(0) == nullptr ? Value::string(", ") : *parameters.value(0));
  return true;
}

inline bool lipsum(Runtime& runtime, const Value&, const Arguments&, Value&) {
  return runtime.fail(Errc::kUnsupported, "lipsum() is not supported: a prompt does not depend on chance");
}

inline bool raise_exception(Runtime& runtime, const Value&, const Arguments& arguments, Value&) {
  Parameters parameters;
  const Value* message = nullptr;
  Value text;
  if (!parameters.bind(runtime, "raise_exception", arguments, {"message"}) ||
      !parameters.required(runtime, 0, message) || !to_str(runtime, *message, text)) {
    return false;
  }
  return runtime.fail("raise_exception: " + std::string(text.as_view()));
}

/// A moment in the proleptic Gregorian calendar, UTC.
struct CivilTime {
  std::int64_t year = 0;
  int month = 0;    // 0..11
  int day = 0;      // 1..31
  int weekday = 0;  // 0 is Sunday
  int yearday = 0;  // 0..365
  int hour = 0;
  int minute = 0;
  int second = 0;
};

inline bool is_leap(std::int64_t year) noexcept { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

inline CivilTime civil_time(std::int64_t seconds) noexcept {
  static constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  CivilTime time;
  std::int64_t days = seconds / 86400;
  const auto rest = static_cast<int>(seconds % 86400);
  time.hour = rest / 3600;
  time.minute = rest / 60 % 60;
  time.second = rest % 60;
  time.weekday = static_cast<int>((days + 4) % 7);
  const std::int64_t cycles = days / 146097;  // of 400 years
  days -= cycles * 146097;
  time.year = 1970 + cycles * 400;
  for (int length = 365; days >= (length = is_leap(time.year) ? 366 : 365); ++time.year) days -= length;
  time.yearday = static_cast<int>(days);
  int left = time.yearday;
  for (int length = 0;; ++time.month) {
    length = kDays[time.month] + (time.month == 1 && is_leap(time.year) ? 1 : 0);
    if (left < length) break;
    left -= length;
  }
  time.day = left + 1;
  return time;
}

/// Year and week of ISO 8601: week 1 is the one with the year's first Thursday.
inline std::pair<std::int64_t, int> iso_week(const CivilTime& time) noexcept {
  const int thursday = time.yearday + 3 - (time.weekday + 6) % 7;  // of this week, as a day of this year
  if (thursday < 0) {
    const int days = is_leap(time.year - 1) ? 366 : 365;
    return {time.year - 1, (thursday + days) / 7 + 1};
  }
  if (thursday >= (is_leap(time.year) ? 366 : 365)) return {time.year + 1, 1};
  return {time.year, thursday / 7 + 1};
}

inline std::string padded(std::int64_t value, std::size_t width, bool bare) {
  std::string digits = std::to_string(value);
  if (!bare && digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

/// One conversion of strftime in the C locale; false for unknown letters.
inline bool append_time(const CivilTime& time, char letter, bool bare, std::string& out) {
  static constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                                 "July",    "August",   "September", "October", "November", "December"};
  static constexpr std::string_view kWeekdays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
  const int twelve = time.hour % 12 == 0 ? 12 : time.hour % 12;
  const auto compound = [&](std::string_view letters, char between) {
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (i > 0) out += between;
      append_time(time, letters[i], false, out);
    }
  };
  switch (letter) {
    case 'Y':
      out += std::to_string(time.year);
      break;
    case 'y':
      out += padded(time.year % 100, 2, bare);
      break;
    case 'C':
      out += padded(time.year / 100, 2, bare);
      break;
    case 'm':
      out += padded(time.month + 1, 2, bare);
      break;
    case 'd':
      out += padded(time.day, 2, bare);
      break;
    case 'e':
      out += time.day < 10 && !bare ? " " + std::to_string(time.day) : std::to_string(time.day);
      break;
    case 'H':
      out += padded(time.hour, 2, bare);
      break;
    case 'I':
      out += padded(twelve, 2, bare);
      break;
    case 'M':
      out += padded(time.minute, 2, bare);
      break;
    case 'S':
      out += padded(time.second, 2, bare);
      break;
    case 'j':
      out += padded(time.yearday + 1, 3, bare);
      break;
    case 'f':
      out += "000000";
      break;
    case 'p':
      out += time.hour < 12 ? "AM" : "PM";
      break;
    case 'A':
      out += kWeekdays[time.weekday];
      break;
    case 'a':
      out += kWeekdays[time.weekday].substr(0, 3);
      break;
    case 'B':
      out += kMonths[time.month];
      break;
    case 'b':
    case 'h':
      out += kMonths[time.month].substr(0, 3);
      break;
    case 'w':
      out += std::to_string(time.weekday);
      break;
    case 'u':
      out += std::to_string(time.weekday == 0 ? 7 : time.weekday);
      break;
    case 'U':  // weeks from the first Sunday, and from the first Monday
      out += padded((time.yearday + 7 - time.weekday) / 7, 2, bare);
      break;
    case 'W':
      out += padded((time.yearday + 7 - (time.weekday + 6) % 7) / 7, 2, bare);
      break;
    case 'G':
    case 'V': {
      const auto [year, week] = iso_week(time);
      out += letter == 'G' ? std::to_string(year) : padded(week, 2, bare);
      break;
    }
    case 'F':
      compound("Ymd", '-');
      break;
    case 'T':
    case 'X':
      compound("HMS", ':');
      break;
    case 'R':
      compound("HM", ':');
      break;
    case 'D':
    case 'x':
      compound("mdy", '/');
      break;
    case 'c':
      compound("abeTY", ' ');
      break;
    case 'Z':
    case 'z':
      break;  // Python's naive datetime has no zone
    case 'n':
      out += '\n';
      break;
    case 't':
      out += '\t';
      break;
    case '%':
      out += '%';
      break;
    default:
      return false;
  }
  return true;
}

inline bool strftime_now(Runtime& runtime, const Value&, const Arguments& arguments, Value& out) {
  Parameters parameters;
  const Value* format = nullptr;
  const Text* text = nullptr;
  if (!parameters.bind(runtime, "strftime_now", arguments, {"format"}) || !parameters.required(runtime, 0, format) ||
      !parameters.string(runtime, 0, text)) {
    return false;
  }
  if (text == nullptr) return runtime.fail("strftime_now needs a format");
  if (runtime.now() < 0) return runtime.fail("strftime_now: the template asks for the time and none was given");
  if (!runtime.charge_bytes(text->bytes.size() * 8)) return false;
  const CivilTime time = civil_time(runtime.now());
  std::string result;
  for (std::size_t at = 0; at < text->bytes.size(); ++at) {
    const bool bare = text->bytes.compare(at, 2, "%-") == 0;
    const std::size_t letter = at + (bare ? 2 : 1);
    if (text->bytes[at] != '%' || letter >= text->bytes.size() ||
        !append_time(time, text->bytes[letter], bare, result)) {
      result += text->bytes[at];
    } else {
      at = letter;
    }
  }
  out = Value::string(result, has_content(*text));
  return true;
}

}  // namespace functions

CORBEL_INLINE std::span<const NamedBuiltin> all_functions() noexcept {
  static constexpr NamedBuiltin kTable[] = {
      {"range", functions::range},
      {"dict", functions::dict},
      {"namespace", functions::make_namespace},
      {"cycler", functions::cycler},
      {"joiner", functions::joiner},
      {"lipsum", functions::lipsum},
      {"raise_exception", functions::raise_exception},
      {"strftime_now", functions::strftime_now},
  };
  return kTable;
}

}  // namespace text::jinja
CORBEL_NAMESPACE_END
