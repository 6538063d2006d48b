// Stop strings against a search in the whole text, for every way to cut small texts into pieces.
#include <corbel/text/stop_strings.hpp>

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

using corbel::Errc;
using corbel::text::StopStrings;

std::string push(StopStrings& stop, std::string_view piece) {
  std::string out;
  stop.push(piece, out);
  return out;
}
std::string finish(StopStrings& stop) {
  std::string out;
  stop.finish(out);
  return out;
}

struct Expected {
  std::string text;
  bool stopped = false;
};

// What is left of a whole text: up to the string that is complete first, the longest of those that end there.
Expected search(const std::string& text, const std::vector<std::string>& strings) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t found = 0;
    for (const std::string& s : strings)
      if (s.size() <= end && text.compare(end - s.size(), s.size(), s) == 0) found = std::max(found, s.size());
    if (found > 0) return {text.substr(0, end - found), true};
  }
  return {text, false};
}

// How much of the end of `text` some string begins with.
std::size_t longest_hold(const std::string& text, const std::vector<std::string>& strings) {
  for (std::size_t length = text.size(); length > 0; --length)
    for (const std::string& s : strings)
      if (s.size() > length && s.compare(0, length, text, text.size() - length) == 0) return length;
  return 0;
}

}  // namespace

TEST_CASE("stop strings: every cut gives the same text, with the shortest hold-back", "[stop]") {
  std::mt19937 rng(4);
  const auto random_text = [&](std::size_t length) {
    std::string text;
    for (std::size_t i = 0; i < length; ++i) text += "ab "[rng() % 3];
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> strings;
    for (std::size_t i = rng() % 4 + 1; i > 0; --i) strings.push_back(random_text(rng() % 6 + 1));
    const std::string text = random_text(rng() % 30);
    const Expected expected = search(text, strings);
    auto stop = *StopStrings::create(strings);
    std::string seen;
    std::string emitted;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = std::min<std::size_t>(rng() % 4 + 1, text.size() - at);
      emitted += push(stop, std::string_view(text).substr(at, length));
      at += length;
      seen = text.substr(0, at);
      if (stop.stopped()) break;
      REQUIRE(emitted.size() == seen.size() - longest_hold(seen, strings));
    }
    if (!stop.stopped()) emitted += finish(stop);
    REQUIRE(stop.stopped() == expected.stopped);
    REQUIRE(emitted == expected.text);
    REQUIRE(finish(stop).empty());
    if (stop.stopped()) {
      ++stopped;
      REQUIRE(push(stop, "more").empty());
    }
  }
  CHECK(stopped > 500);
  CHECK(stopped < 2900);
}

TEST_CASE("stop strings: over several pieces, and none at all", "[stop]") {
  auto stop = *StopStrings::create(std::vector<std::string>{"x", "O P Q", "P Q"});
  std::string out;
  for (const char* piece : {"A", " B", " N", " O", " ", "P", " Q", " R"}) out += push(stop, piece);
  CHECK(out == "A B N ");
  CHECK(stop.stopped());
  CHECK(stop.which() == 1);
  StopStrings none;
  CHECK(push(none, "text") == "text");
  CHECK(finish(none) == "");
  CHECK_FALSE(none.stopped());
}

TEST_CASE("stop strings: whole code points are emitted", "[stop]") {
  const std::vector<std::string> strings = {"\xC3\xA9t\xC3\xA9"};
  auto stop = *StopStrings::create(strings);
  CHECK(push(stop, "un \xC3\xA9") == "un ");
  CHECK(push(stop, "t\xC3\xA8") == "\xC3\xA9t\xC3\xA8");
  CHECK(push(stop, "\xC3\xA9t") == "");
  CHECK(finish(stop) == "\xC3\xA9t");
}

TEST_CASE("stop strings: what is refused", "[stop]") {
  const auto failure = [](std::vector<std::string> strings) {
    const auto result = StopStrings::create(strings);
    REQUIRE_FALSE(result.ok());
    return std::pair(result.status().code(), std::string(result.status().message()));
  };
  CHECK(failure({"a", ""}) == std::pair(Errc::kInvalidArgument, std::string("stop string 1 is empty")));
  CHECK(failure({"\xC3"}) == std::pair(Errc::kInvalidArgument, std::string("stop string 0 is not valid UTF-8")));
  CHECK(failure(std::vector<std::string>(257, "a")) ==
        std::pair(Errc::kLimitExceeded, std::string("257 stop strings, at most 256")));
  CHECK(failure({std::string(65000, 'a'), std::string(600, 'b')}) ==
        std::pair(Errc::kLimitExceeded, std::string("the stop strings have more than 65536 bytes in all")));
  CHECK(StopStrings::create(std::vector<std::string>{}).ok());
}

TEST_CASE("stop strings: repetitive text takes linear time", "[stop]") {
  auto stop = *StopStrings::create(std::vector<std::string>{std::string(30000, 'a') + "b"});
  std::size_t emitted = 0;
  const std::string piece(1000, 'a');
  for (int i = 0; i < 2000; ++i) emitted += push(stop, piece).size();  // 2 MB: a quadratic search would take minutes
  CHECK(emitted == 2'000'000 - 30'000);
}
