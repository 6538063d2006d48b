// Sets of code points as ascending ranges: categories, scripts, and what patterns call \s, \w and so on. Unicode 16, as
// Oniguruma 6.9.10 sees it.
#pragma once

#include <corbel/config.hpp>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text::sets {

using Ranges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // first, last

/// Sorts, and joins what touches or overlaps.
CORBEL_API void tidy(Ranges& ranges);
/// Both take tidy ranges and give tidy ranges.
CORBEL_API Ranges complement(const Ranges& ranges);
CORBEL_API Ranges intersection(const Ranges& a, const Ranges& b);
/// With every code point that differs in case only (simple case folding; tidy).
CORBEL_API Ranges with_other_case(const Ranges& ranges);

/// The property White_Space.
CORBEL_API Ranges space();
/// \w : letters, marks, decimal and letter-like numbers, connectors, and what else Oniguruma counts.
CORBEL_API Ranges word();
/// A general category or group of them, a script, or a POSIX class, by short or long name, case, '_', '-' and spaces
/// ignored; nothing where it is unknown.
CORBEL_API std::optional<Ranges> property(std::string_view name);

}  // namespace text::sets
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/code_point_sets.ipp>
#endif
