// The JSON reader against nlohmann-json (an oracle for tests only) and against its own rules; the writer.
#include <corbel/checkpoint/json.hpp>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support/build_kind.hpp"
#include "support/json_equal.hpp"
#include "support/small_stack.hpp"

using corbel::Errc;
namespace json = corbel::json;

namespace {

using namespace std::string_literals;
using corbel_test::Doubles;
using corbel_test::json_equal;

// Texts on which both readers must agree: accepted with equal values, or refused by both.
const std::vector<std::string>& texts() {
  static const std::vector<std::string> list = {
      // Scalars.
      "null",
      "true",
      "false",
      "0",
      "1",
      "-1",
      "10",
      "123456789",
      "\"\"",
      "\"a\"",
      "[]",
      "{}",
      " null ",
      "\t\r\n[\t\r\n]\t\r\n",
      "nul",
      "nulll",
      "tru",
      "True",
      "FALSE",
      "NULL",
      "",
      " ",
      "undefined",
      "NaN",
      "Infinity",
      "-Infinity",
      "nan",
      "inf",
      // Numbers.
      "-0.0",
      "0.0",
      "0.5",
      "-0.5",
      "1.0",
      "1e5",
      "1E5",
      "1e+5",
      "1e-5",
      "1.5e300",
      "1e308",
      "-1e308",
      "4.9e-324",
      "2.2250738585072014e-308",
      "1.7976931348623157e308",
      "0.1",
      "0.30000000000000004",
      "123456.789e-3",
      "9007199254740993",
      "9223372036854775807",
      "-9223372036854775808",
      "9223372036854775808",
      "18446744073709551615",
      "18446744073709551616",
      "-9223372036854775809",
      "100000000000000000000000000000000000000000",
      "1e-400",
      "0e999999999999",
      "-1e-99999999999999999999",
      "0.000000000000000000000000000001",
      "01",
      "-01",
      "00",
      "+1",
      ".5",
      "5.",
      "5.e1",
      "1e",
      "1e+",
      "1e-",
      "-",
      "--1",
      "1-",
      "0x10",
      "1_000",
      "1,5",
      "1e1.5",
      "0b1",
      "- 1",
      "1 2",
      "1e309",
      "-1e309",
      "1e99999999999999999999",
      "123456789e301",
      // Strings.
      "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
      "\"\\u0041\"",
      "\"\\u00e4\"",
      "\"\\u20AC\"",
      "\"\\uD83D\\uDE00\"",
      "\"\\u0000\"",
      "\"a\\u0000b\"",
      "\"\\uFFFF\"",
      "\"\xC3\xA4\"",
      "\"\xE2\x82\xAC\"",
      "\"\xF0\x9F\x98\x80\"",
      "\"\xF4\x8F\xBF\xBF\"",
      "\"\x7F\"",
      "\"\xEF\xBB\xBF\"",
      "\"/\"",
      "\"",
      "\"a",
      "\"\\",
      "\"\\\"",
      "\"\\x41\"",
      "\"\\a\"",
      "\"\\'\"",
      "\"\\u\"",
      "\"\\u12\"",
      "\"\\u123g\"",
      "\"\\U0041\"",
      "\"\\u{41}\"",
      "'a'",
      "\"\\uD83D\"",
      "\"\\uDE00\"",
      "\"\\uD83D\\uD83D\"",
      "\"\\uD83Dx\"",
      "\"\\uD83D\\n\"",
      "\"\\uDE00\\uD83D\"",
      "\"\\uD83D\\u0041\"",
      "\"\\uD83D\\u\"",
      "\"\n\"",
      "\"\t\"",
      "\"\x01\"",
      "\"\x1F\"",
      "\"a\0b\""s,
      "\"\x80\"",
      "\"\xC0\x80\"",
      "\"\xC1\xBF\"",
      "\"\xE0\x80\x80\"",
      "\"\xED\xA0\x80\"",
      "\"\xED\xBF\xBF\"",
      "\"\xF0\x80\x80\x80\"",
      "\"\xF4\x90\x80\x80\"",
      "\"\xF5\x80\x80\x80\"",
      "\"\xFF\"",
      "\"\xC3\"",
      "\"\xE2\x82\"",
      "\"\xF0\x9F\x98\"",
      // Arrays and objects.
      "[1]",
      "[1,2,3]",
      "[[],[[]],{}]",
      "[null,true,false]",
      "[ 1 , 2 ]",
      "[1",
      "[",
      "]",
      "[1,",
      "[,1]",
      "[1,]",
      "[1,,2]",
      "[1 2]",
      "[1}",
      "[1]]",
      "[]x",
      R"({"a":1})",
      R"({"a":1,"b":[2,{"c":3}]})",
      R"({"":0})",
      R"({ "a" : 1 , "b" : 2 })",
      R"({"a\u0000":1})",
      R"({"a":{"a":{"a":{}}}})",
      R"({"a")",
      R"({"a":)",
      R"({"a":1)",
      R"({"a":1,)",
      R"({"a":1,})",
      "{",
      "}",
      "{,}",
      R"({a:1})",
      R"({'a':1})",
      R"({1:1})",
      R"({"a" 1})",
      R"({"a":1 "b":2})",
      R"({"a":1]})",
      R"({"a"::1})",
      R"({"a",1})",
      R"({null:1})",
      R"({"a":1}{)",
      R"({"a":1};)",
      R"(["a":1])",
      // Other things around.
      "/* c */ 1",
      "1 // c",
      "# 1",
      "\xFE\xFF",
      "\0"s,
      "\x0B"
      "1",
      "\x0C"
      "1",
      "\xC2\xA0"
      "1",
      "\xE2\x80\x83"
      "1",
      "null,",
      "[null]null",
      "[1]\x80",
  };
  return list;
}

std::string nested(std::size_t depth, const char* open, const char* close, const char* inner) {
  std::string text;
  for (std::size_t i = 0; i < depth; ++i) text += open;
  text += inner;
  for (std::size_t i = 0; i < depth; ++i) text += close;
  return text;
}

void check_refused(std::string_view text, Errc code, std::string_view message, const json::ParseOptions& options = {}) {
  CAPTURE(text);
  const auto result = json::parse(text, options);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == code);
  CHECK(std::string(result.status().message()) == message);
}

}  // namespace

TEST_CASE("json: agrees with the oracle on every text of the list") {
  REQUIRE(texts().size() > 180);
  std::size_t accepted = 0;
  for (const std::string& text : texts()) {
    CAPTURE(text);
    const auto ours = json::parse(text);
    nlohmann::json theirs;
    bool theirs_ok = true;
    try {
      theirs = nlohmann::json::parse(text);
    } catch (const nlohmann::json::exception&) {
      theirs_ok = false;
    }
    CHECK(ours.ok() == theirs_ok);
    if (!ours.ok()) {
      const Errc code = ours.status().code();
      CHECK((code == Errc::kBadJson || code == Errc::kBadUtf8));
      CHECK(ours.status().message().substr(0, 10) == "JSON byte ");
      continue;
    }
    ++accepted;
    if (theirs_ok) CHECK(json_equal(*ours, theirs, Doubles::kToTheBit));
    // What is written reads back equal, for both readers.
    const std::string written = json::write(*ours);
    const auto again = json::parse(written);
    REQUIRE(again.ok());
    CHECK(json::write(*again) == written);
    CHECK(json_equal(*ours, nlohmann::json::parse(written), Doubles::kToTheBit));
  }
  CHECK(accepted > 60);
  CHECK(accepted < texts().size() - 100);
}

TEST_CASE("json: every prefix and every changed byte of a text is judged like the oracle") {
  const std::string text = R"( {"a" : [1, -2.5e+3, true, null, "\u00e4\n\ud83d\ude00"], "b\"":{"":")"
                           "\xC3\xA4\xE2\x82\xAC"
                           R"("}, "c":[]} )";
  std::vector<std::string> variants;
  for (std::size_t length = 0; length < text.size(); ++length) variants.push_back(text.substr(0, length));
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int byte = 1; byte < 256; ++byte) {  // the oracle takes NUL for the end of the text
      variants.push_back(text);
      variants.back()[at] = static_cast<char>(byte);
    }
  }
  int differ = 0;
  int accepted = 0;
  for (const std::string& variant : variants) {
    const auto ours = json::parse(variant);
    const nlohmann::json theirs = nlohmann::json::parse(variant, nullptr, false);
    if (!ours.ok() && ours.status().code() == Errc::kDuplicate) continue;  // the oracle takes the last
    accepted += ours.ok() ? 1 : 0;
    const bool same =
        ours.ok() != theirs.is_discarded() && (!ours.ok() || json_equal(*ours, theirs, Doubles::kToTheBit));
    if (!same) UNSCOPED_INFO(variant);
    differ += same ? 0 : 1;
  }
  CHECK(differ == 0);
  CHECK(accepted > 1000);
}

TEST_CASE("json: where it is stricter than the oracle") {
  CHECK(json::parse("-0")->type() == json::Type::kDouble);  // keeps its sign
  CHECK(std::signbit(json::parse("-0")->as_double()));
  check_refused("[1]\0"s, Errc::kBadJson, "JSON byte 3: expected the end, found '\\x00'");
  check_refused("\xEF\xBB\xBF[]", Errc::kBadJson, "JSON byte 0: expected a value, found '\xEF\xBB\xBF'");
  check_refused(R"({"a":1,"b":2,"a":1})", Errc::kDuplicate,
                R"(JSON byte 13: the key "a" appeared before in this object)");
  check_refused(R"([{"\u0061":1,"a":2}])", Errc::kDuplicate,
                R"(JSON byte 13: the key "a" appeared before in this object)");
  CHECK(json::parse(R"([{"a":1},{"a":1}])").ok());
  CHECK(json::parse(R"({"a":{"a":1}})").ok());
}

TEST_CASE("json: messages name the byte") {
  check_refused("", Errc::kBadJson, "JSON byte 0: expected a value, found the end of the text");
  check_refused("[1,]", Errc::kBadJson, "JSON byte 3: expected a value, found ']'");
  check_refused("[1 2]", Errc::kBadJson, "JSON byte 3: expected ',' or ']', found '2'");
  check_refused("{\"a\":1 2}", Errc::kBadJson, "JSON byte 7: expected ',' or '}', found '2'");
  check_refused("{\"a\" 1}", Errc::kBadJson, "JSON byte 5: expected ':', found '1'");
  check_refused("{1}", Errc::kBadJson, "JSON byte 1: expected a quoted key, found '1'");
  check_refused("{\"a\":1}x", Errc::kBadJson, "JSON byte 7: expected the end, found 'x'");
  check_refused("\"a\nb\"", Errc::kBadJson, "JSON byte 2: expected the end of the string, found '\\x0A'");
  check_refused("\"\\q\"", Errc::kBadJson, "JSON byte 2: expected an escape: one of \"\\/bfnrtu, found 'q'");
  check_refused("\"\xFF\"", Errc::kBadUtf8, "JSON byte 1: not valid UTF-8 in a string");
  check_refused("[\xFF]", Errc::kBadUtf8, "JSON byte 1: expected a value, found bytes that are not valid UTF-8");
  check_refused("\"\\ud800\"", Errc::kBadUtf8, "JSON byte 1: half of a surrogate pair");
  check_refused("[1e400]", Errc::kBadJson, "JSON byte 1: the number \"1e400\" does not fit a double");
}

TEST_CASE("json: depth at the limit, below and above it, on a small stack") {
  for (const std::uint32_t limit : {0u, 1u, 64u, 128u}) {
    const json::ParseOptions options{.max_depth = limit};
    if (limit > 0) CHECK(json::parse(nested(limit - 1, "[", "]", "1"), options).ok());
    CHECK(json::parse(nested(limit, "[", "]", "1"), options).ok());
    CHECK(json::parse(nested(limit + 1, "[", "]", "1"), options).status().code() == Errc::kDepthExceeded);
    CHECK(json::parse(nested(limit, "{\"a\":", "}", "1"), options).ok());
    CHECK(json::parse(nested(limit + 1, "{\"a\":", "}", "1"), options).status().code() == Errc::kDepthExceeded);
  }
  CHECK(json::parse(nested(128, "[", "]", "")).ok());
  check_refused(nested(129, "[", "]", ""), Errc::kDepthExceeded, "JSON byte 128: nested deeper than 128");
  bool right = false;
  REQUIRE(corbel_test::on_small_stack([&] {
    const auto bomb = json::parse(std::string(1000000, '['));
    const auto deep = json::parse(nested(128, "[", "]", "1"));
    if (bomb.ok() || !deep.ok()) return;
    const json::Value copy = *deep;
    right = bomb.status().code() == Errc::kDepthExceeded && json::write(copy) == nested(128, "[", "]", "1");
  }));
  CHECK(right);
}

TEST_CASE("json: size at the limit, below and above it") {
  for (const std::uint64_t limit : {1u, 10u, 1000u}) {
    const json::ParseOptions options{.max_bytes = limit};
    const auto text = [](std::uint64_t bytes) { return std::string(static_cast<std::size_t>(bytes) - 1, ' ') + "1"; };
    if (limit > 1) CHECK(json::parse(text(limit - 1), options).ok());
    CHECK(json::parse(text(limit), options).ok());
    CHECK(json::parse(text(limit + 1), options).status().code() == Errc::kLimitExceeded);
  }
}

TEST_CASE("json: time is linear") {
  std::string object = "{";
  for (int i = 0; i < 200000; ++i) object += (i == 0 ? "\"k" : ",\"k") + std::to_string(i) + "\":0";
  object += "}";
  const std::string digits(200000, '7');
  const std::string escapes = "\"" + nested(100000, "\\n", "", "") + "\"";
  const auto start = std::chrono::steady_clock::now();
  CHECK(json::parse(object)->members().size() == 200000);
  CHECK(json::parse("0." + digits)->as_double() == 7.0 / 9.0);
  CHECK_FALSE(json::parse(digits).ok());
  CHECK(json::parse(escapes)->as_string().size() == 100000);
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 2 * corbel_test::kSlowness);
}

TEST_CASE("json: doubles are written as the shortest text that reads back equal") {
  const std::vector<std::pair<double, std::string>> cases = {
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {1.0, "1.0"},
      {0.1, "0.1"},
      {1e22, "1e+22"},
      {1e-7, "1e-07"},
      {-2.5, "-2.5"},
      {123456789.0, "123456789.0"},
      {5e-324, "5e-324"},
      {1.0 / 3.0, "0.3333333333333333"},
      {std::numeric_limits<double>::infinity(), "null"},
      {std::nan(""), "null"},
  };
  for (const auto& [value, text] : cases) CHECK(json::write(json::Value::number(value)) == text);
  std::mt19937_64 random(1);
  int wrong = 0;
  for (int i = 0; i < 20000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    const auto again = json::parse(json::write(json::Value::number(value)));
    wrong += !again.ok() || std::bit_cast<std::uint64_t>(again->as_double()) != std::bit_cast<std::uint64_t>(value);
  }
  CHECK(wrong == 0);
}

TEST_CASE("json: values are made, looked at, copied and written") {
  json::Value object = json::Value::object();
  object.members().emplace_back("s", json::Value::string("a\"\\\n\x01\x7F\xC3\xA4\xFF"));
  object.members().emplace_back(
      "n", json::Value::array({json::Value::integer(-5), json::Value::integer(5), json::Value::boolean(true)}));
  CHECK(json::write(object) == "{\"s\":\"a\\\"\\\\\\n\\u0001\x7F\xC3\xA4\xEF\xBF\xBD\",\"n\":[-5,5,true]}");
  const json::Value copy = object;
  object.members().clear();
  CHECK(copy.members().size() == 2);
  CHECK(object.find("s") == nullptr);
  REQUIRE(copy.find("n") != nullptr);
  CHECK(copy.find("n")->items()[0].type() == json::Type::kInt);
  CHECK(copy.find("n")->items()[1].type() == json::Type::kUint);
  CHECK(copy.find("n")->items()[0].as_double() == -5.0);
  const json::Value null;
  CHECK(null.is_null());
  CHECK(null.as_string().empty());
  CHECK(null.items().empty());
  CHECK(null.members().empty());
  CHECK(null.find("x") == nullptr);
  json::Value moved = json::Value::string("text");
  const json::Value target = std::move(moved);
  CHECK(target.as_string() == "text");
  std::string quoted;
  json::append_quoted(quoted, "\b\f\r\t/");
  CHECK(quoted == "\"\\b\\f\\r\\t/\"");
}
