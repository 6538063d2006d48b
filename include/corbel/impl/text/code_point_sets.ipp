// Definitions of text/code_point_sets.hpp.
#pragma once

#include <corbel/text/code_point_sets.hpp>
#include <corbel/text/normalization_tables.hpp>
#include <corbel/text/unicode_properties.hpp>

#include <algorithm>
#include <iterator>
#include <string>

CORBEL_NAMESPACE_BEGIN
namespace text::sets {

CORBEL_INLINE void tidy(Ranges& ranges) {
  std::sort(ranges.begin(), ranges.end());
  std::size_t kept = 0;
  for (const auto& [first, last] : ranges) {
    if (kept > 0 && first <= ranges[kept - 1].second + 1) {
      ranges[kept - 1].second = std::max(ranges[kept - 1].second, last);
    } else {
      ranges[kept++] = {first, last};
    }
  }
  ranges.resize(kept);
}

CORBEL_INLINE Ranges complement(const Ranges& ranges) {
  Ranges out;
  std::uint32_t from = 0;
  for (const auto& [first, last] : ranges) {
    if (first > from) out.emplace_back(from, first - 1);
    from = last + 1;
  }
  if (from <= 0x10FFFF) out.emplace_back(from, 0x10FFFF);
  return out;
}

CORBEL_INLINE Ranges intersection(const Ranges& a, const Ranges& b) {
  Ranges out;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::uint32_t first = std::max(a[i].first, b[j].first);
    const std::uint32_t last = std::min(a[i].second, b[j].second);
    if (first <= last) out.emplace_back(first, last);
    if (a[i].second < b[j].second) {
      ++i;
    } else {
      ++j;
    }
  }
  return out;
}

CORBEL_INLINE Ranges with_other_case(const Ranges& ranges) {
  Ranges out = ranges;
  tidy(out);
  const auto inside = [](const Ranges& set, std::uint32_t value) {
    const auto at = std::lower_bound(set.begin(), set.end(), value,
                                     [](const auto& range, std::uint32_t wanted) { return range.second < wanted; });
    return at != set.end() && at->first <= value;
  };
  // Twice: from one spelling to the folded one, and from there to all others.
  for (int round = 0; round < 2; ++round) {
    const Ranges before = out;
    const auto pair = [&](std::uint32_t value, std::uint32_t folded) {
      const bool here = inside(before, value);
      const bool there = inside(before, folded);
      if (here && !there) out.emplace_back(folded, folded);
      if (there && !here) out.emplace_back(value, value);
    };
    for (const LowerRange& range : kLowerRanges) {
      for (std::uint32_t value = range.first; value <= range.last; value += range.step) {
        pair(value, static_cast<std::uint32_t>(static_cast<std::int32_t>(value) + range.delta));
      }
    }
    for (const std::uint64_t folded : kFolded) {
      pair(static_cast<std::uint32_t>(folded >> 32), static_cast<std::uint32_t>(folded));
    }
    tidy(out);
  }
  return out;
}

// All runs whose number has its bit in `wanted`.
template <std::size_t kCount>
Ranges runs(const std::uint32_t (&table)[kCount], std::uint32_t bits, std::uint64_t wanted) {
  Ranges out;
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::uint32_t number = table[i] & ((1u << bits) - 1);
    if (number < 64 && (wanted >> number & 1) == 0) continue;
    const std::uint32_t last = i + 1 < kCount ? (table[i + 1] >> bits) - 1 : 0x10FFFFu;
    out.emplace_back(table[i] >> bits, last);
  }
  tidy(out);
  return out;
}

// Of the categories whose names begin with one of the letters (or pairs of letters) in `names`, separated by spaces.
CORBEL_INLINE Ranges categories(std::string_view names) {
  std::uint64_t wanted = 0;
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find(' '));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    for (std::size_t i = 0; i < std::size(kCategoryNames); ++i) {
      if (std::string_view(kCategoryNames[i]).substr(0, name.size()) == name) wanted |= std::uint64_t{1} << i;
    }
  }
  return runs(kCategoryRuns, 5, wanted);
}

CORBEL_INLINE Ranges with(Ranges ranges, const Ranges& more) {
  ranges.insert(ranges.end(), more.begin(), more.end());
  tidy(ranges);
  return ranges;
}

CORBEL_INLINE Ranges space() { return with(categories("Z"), {{0x09, 0x0D}, {0x85, 0x85}}); }

CORBEL_INLINE Ranges word() {
  return with(categories("L M Nd Nl Pc"), {{0xB2, 0xB3},
                                           {0xB9, 0xB9},
                                           {0xBC, 0xBE},
                                           {0x24B6, 0x24E9},
                                           {0x1F130, 0x1F149},
                                           {0x1F150, 0x1F169},
                                           {0x1F170, 0x1F189}});
}

CORBEL_INLINE std::optional<Ranges> property(std::string_view name) {
  const auto plain = [](std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '_' || c == '-' || c == ' ') continue;
      out += c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    }
    return out;
  };
  struct LongName {
    std::string_view name;
    std::string_view categories;
  };
  static constexpr LongName kLongNames[] = {
      {"other", "C"},
      {"control", "Cc"},
      {"cntrl", "Cc"},
      {"format", "Cf"},
      {"unassigned", "Cn"},
      {"privateuse", "Co"},
      {"surrogate", "Cs"},
      {"letter", "L"},
      {"casedletter", "Lu Ll Lt"},
      {"lc", "Lu Ll Lt"},
      {"uppercaseletter", "Lu"},
      {"lowercaseletter", "Ll"},
      {"titlecaseletter", "Lt"},
      {"modifierletter", "Lm"},
      {"otherletter", "Lo"},
      {"mark", "M"},
      {"combiningmark", "M"},
      {"nonspacingmark", "Mn"},
      {"spacingmark", "Mc"},
      {"enclosingmark", "Me"},
      {"number", "N"},
      {"decimalnumber", "Nd"},
      {"digit", "Nd"},
      {"letternumber", "Nl"},
      {"othernumber", "No"},
      {"punctuation", "P"},
      {"connectorpunctuation", "Pc"},
      {"dashpunctuation", "Pd"},
      {"openpunctuation", "Ps"},
      {"closepunctuation", "Pe"},
      {"initialpunctuation", "Pi"},
      {"finalpunctuation", "Pf"},
      {"otherpunctuation", "Po"},
      {"symbol", "S"},
      {"mathsymbol", "Sm"},
      {"currencysymbol", "Sc"},
      {"modifiersymbol", "Sk"},
      {"othersymbol", "So"},
      {"separator", "Z"},
      {"spaceseparator", "Zs"},
      {"lineseparator", "Zl"},
      {"paragraphseparator", "Zp"},
      {"punct", "P S"},
      {"graph", "L M N P S Cf Co"},
  };
  const std::string wanted = plain(name);
  for (const LongName& row : kLongNames) {
    if (row.name == wanted) return categories(row.categories);
  }
  if (wanted == "any") return Ranges{{0, 0x10FFFF}};
  if (wanted == "ascii") return Ranges{{0, 0x7F}};
  if (wanted == "space" || wanted == "whitespace") return space();
  if (wanted == "blank") return with(categories("Zs"), {{'\t', '\t'}});
  if (wanted == "word") return word();
  if (wanted == "xdigit" || wanted == "asciihexdigit") return Ranges{{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
  if (wanted == "l" || wanted == "m" || wanted == "n" || wanted == "p" || wanted == "s" || wanted == "z" ||
      wanted == "c") {
    const char letter[1] = {static_cast<char>(wanted[0] - ('a' - 'A'))};
    return categories({letter, 1});
  }
  for (std::size_t i = 0; i < std::size(kCategoryNames); ++i) {
    if (plain(kCategoryNames[i]) == wanted) return runs(kCategoryRuns, 5, std::uint64_t{1} << i);
  }
  for (std::size_t script = 0; script < std::size(kScriptNames); ++script) {
    if (plain(kScriptNames[script].code) != wanted && plain(kScriptNames[script].name) != wanted) continue;
    Ranges out;
    for (std::size_t i = 0; i < std::size(kScriptRuns); ++i) {
      if ((kScriptRuns[i] & 0xFF) != script) continue;
      out.emplace_back(kScriptRuns[i] >> 8, i + 1 < std::size(kScriptRuns) ? (kScriptRuns[i + 1] >> 8) - 1 : 0x10FFFFu);
    }
    tidy(out);
    return out;
  }
  return std::nullopt;
}

}  // namespace text::sets
CORBEL_NAMESPACE_END
