// How a family's TensorNames are looked up.
#pragma once

#include <corbel/config.hpp>
#include <corbel/models/architecture.hpp>

#include <cstdint>
#include <string>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

/// The rule for a canonical name without "blk.N.": for the whole, or for the part before the last dot. Where a list has
/// several, the first that `fits`, else the first.
struct FoundRule {
  const TensorNames::Rule* rule = nullptr;
  bool whole = false;
};
template <class Fits>
FoundRule find_rule(const TensorNames* names, std::string_view canonical, const Fits& fits) {
  const std::string_view stem = canonical.substr(0, canonical.rfind('.'));
  FoundRule first;
  for (; names != nullptr && first.rule == nullptr; names = names->base)
    for (const TensorNames::Rule& rule : names->rules) {
      const FoundRule found = {&rule, canonical == rule.canonical};
      if (!found.whole && stem != rule.canonical) continue;
      if (fits(found)) return found;
      if (first.rule == nullptr) first = found;
    }
  return first;
}
inline FoundRule find_rule(const TensorNames* names, std::string_view canonical) {
  return find_rule(names, canonical, [](const FoundRule&) { return true; });
}

/// The module whose weight this is: a linear's name without ".weight".
inline std::string module_of(const std::string& weight) {
  constexpr std::string_view kSuffix = ".weight";
  const bool ends =
      weight.size() > kSuffix.size() && weight.compare(weight.size() - kSuffix.size(), kSuffix.size(), kSuffix) == 0;
  return ends ? weight.substr(0, weight.size() - kSuffix.size()) : weight;
}

/// `pattern` with "{}" replaced by a number.
inline std::string numbered(const std::string& pattern, std::uint64_t number) {
  const std::size_t at = pattern.find("{}");
  if (at == std::string::npos) return pattern;
  return pattern.substr(0, at) + std::to_string(number) + pattern.substr(at + 2);
}

}  // namespace detail
}  // namespace models
CORBEL_NAMESPACE_END
