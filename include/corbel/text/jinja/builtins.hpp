// Filters, tests, global functions and methods, by name. None calls back into the template.
#pragma once

#include <corbel/config.hpp>
#include <corbel/text/jinja/value.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<Value, Value>> keywords;  ///< names are strings
};

/// A filter or method of `subject`; a global function has an undefined one. A test answers with a bool.
using Builtin = bool (*)(Runtime& runtime, const Value& subject, const Arguments& arguments, Value& out);

struct NamedBuiltin {
  std::string_view name;
  Builtin call = nullptr;
};

/// The number of a filter or test, or -1.
std::int32_t find_filter(std::string_view name) noexcept;
std::int32_t find_test(std::string_view name) noexcept;
const NamedBuiltin& filter_at(std::uint32_t number) noexcept;
const NamedBuiltin& test_at(std::uint32_t number) noexcept;

/// Functions that every template sees: range, dict, namespace, raise_exception, strftime_now, ...
std::size_t function_count() noexcept;
const NamedBuiltin& function_at(std::uint32_t number) noexcept;

/// The number of the method of values of this kind, or -1.
std::int32_t find_method(Kind kind, std::string_view name) noexcept;
const NamedBuiltin& method_at(std::uint32_t number) noexcept;

/// Methods of markup give markup: a string, or a list or tuple of strings, becomes it; other values stay.
bool markup_strings(Runtime& runtime, Value& value);

/// Matches arguments with parameter names, at most eight. value(i) is nullptr where parameter i was not given.
class Parameters {
 public:
  /// Fails where arguments are too many, unknown or given twice.
  bool bind(Runtime& runtime, std::string_view function, const Arguments& arguments,
            std::initializer_list<std::string_view> names);
  const Value* value(std::size_t index) const noexcept { return values_[index]; }
  /// The argument, which must be there.
  bool required(Runtime& runtime, std::size_t index, const Value*& out) const;
  bool integer(Runtime& runtime, std::size_t index, std::int64_t fallback, std::int64_t& out) const;
  bool flag(std::size_t index, bool fallback) const noexcept;
  /// A string, or nullptr where it is absent or none.
  bool string(Runtime& runtime, std::size_t index, const Text*& out) const;

 private:
  std::string_view function_;
  std::string_view names_[8];
  const Value* values_[8] = {};
};

// The tables, by file.
std::span<const NamedBuiltin> text_filters() noexcept;
std::span<const NamedBuiltin> markup_filters() noexcept;
std::span<const NamedBuiltin> sequence_filters() noexcept;
std::span<const NamedBuiltin> all_tests() noexcept;
std::span<const NamedBuiltin> all_functions() noexcept;

}  // namespace text::jinja
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/jinja/builtins.ipp>
#include <corbel/impl/text/jinja/filters_markup.ipp>
#include <corbel/impl/text/jinja/filters_sequence.ipp>
#include <corbel/impl/text/jinja/filters_text.ipp>
#include <corbel/impl/text/jinja/methods.ipp>
#include <corbel/impl/text/jinja/tests.ipp>
#endif
