// Compares what our JSON reader makes of a text with what nlohmann-json makes of it.
#pragma once

#include <corbel/checkpoint/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace corbel_test {

/// Texts of all kinds of numbers may be compared by value alone: the other reader loses the sign of "-0".
enum class Doubles { kToTheBit, kByValue };

inline bool json_equal(const corbel::json::Value& ours, const nlohmann::json& theirs, Doubles doubles) {
  using corbel::json::Type;
  switch (ours.type()) {
    case Type::kNull:
      return theirs.is_null();
    case Type::kBool:
      return theirs.is_boolean() && theirs.get<bool>() == ours.as_bool();
    case Type::kInt:
      return theirs.is_number_integer() && theirs.get<std::int64_t>() == ours.as_int() && ours.as_int() < 0;
    case Type::kUint:
      return theirs.is_number_unsigned() && theirs.get<std::uint64_t>() == ours.as_uint();
    case Type::kDouble:
      if (!theirs.is_number() || theirs.get<double>() != ours.as_double()) return false;
      return doubles == Doubles::kByValue ||
             (theirs.is_number_float() && std::signbit(theirs.get<double>()) == std::signbit(ours.as_double()));
    case Type::kString:
      return theirs.is_string() && theirs.get<std::string>() == ours.as_string();
    case Type::kArray: {
      if (!theirs.is_array() || theirs.size() != ours.items().size()) return false;
      for (std::size_t i = 0; i < theirs.size(); ++i) {
        if (!json_equal(ours.items()[i], theirs[i], doubles)) return false;
      }
      return true;
    }
    case Type::kObject:
      if (!theirs.is_object() || theirs.size() != ours.members().size()) return false;
      return std::all_of(ours.members().begin(), ours.members().end(), [&](const corbel::json::Value::Member& member) {
        return theirs.contains(member.first) && json_equal(member.second, theirs[member.first], doubles);
      });
  }
  return false;
}

}  // namespace corbel_test
