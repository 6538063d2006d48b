// Renders of published chat templates and of small snippets, compared with what Jinja2 and transformers gave.
#include <corbel/chat.hpp>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "support/support.hpp"

namespace {

using corbel::ChatTemplate;
using corbel::json::Value;

constexpr std::int64_t kReferenceNow = 1767312000;  // 2026-01-02 00:00:00 UTC

struct Count {
  std::size_t agreed = 0;
  std::size_t total = 0;
};

std::string text_of(const Value& object, std::string_view key) {
  const Value* value = object.find(key);
  return value == nullptr || !value->is_string() ? std::string() : std::string(value->as_string());
}

// Output equal to the byte; where the reference fails we fail, with the same text where the template itself raised it.
bool agrees(const Value& wanted, const corbel::Result<std::vector<corbel::PromptSegment>>& got) {
  const Value* output = wanted.find("output");
  if (output != nullptr && output->is_string()) return got.ok() && corbel::join(*got) == output->as_string();
  if (got.ok()) return false;
  return text_of(wanted, "error_type") != "raise_exception" ||
         corbel::raised_text(got.status()) == text_of(wanted, "error");
}

void compare(const Value& wanted, const std::string& source, const Value& variables, const std::string& name,
             Count& count) {
  const corbel::Result<ChatTemplate> chat = ChatTemplate::compile(source, "", "");
  const auto got = chat.ok() ? chat->render(variables, kReferenceNow)
                             : corbel::Result<std::vector<corbel::PromptSegment>>(chat.status());
  ++count.total;
  if (agrees(wanted, got)) {
    ++count.agreed;
    return;
  }
  INFO(name);
  INFO("wanted: " << text_of(wanted, "output") << text_of(wanted, "error"));
  INFO("got: " << (got.ok() ? corbel::join(*got) : std::string(got.status().message())));
  CHECK(false);
}

Count compare_lines(const std::string& path) {
  Count count;
  const std::string file = corbel_test::read_file(path);
  for (std::size_t begin = 0; begin < file.size();) {
    const std::size_t end = std::min(file.find('\n', begin), file.size());
    const auto line = corbel::json::parse(std::string_view(file).substr(begin, end - begin));
    begin = end + 1;
    REQUIRE(line.ok());
    const std::string source = text_of(*line, "template");
    REQUIRE(line->find("context") != nullptr);
    compare(*line, source, *line->find("context"), source, count);
  }
  return count;
}

}  // namespace

TEST_CASE("committed snippets render as in Jinja2", "[golden][template]") {
  const Count count = compare_lines(corbel_test::test_data("templates/features.jsonl"));
  std::printf("template snippets (committed): %zu of %zu\n", count.agreed, count.total);
  CHECK(count.total == 201);
  CHECK(count.agreed == count.total);
}

TEST_CASE("all reference snippets render as in Jinja2", "[golden][template]") {
  const std::string path = corbel_test::shared_data("templates/features.jsonl", "all reference snippets");
  if (path.empty()) return;
  const Count count = compare_lines(path);
  std::printf("template snippets (reference data): %zu of %zu\n", count.agreed, count.total);
  CHECK(count.total >= 201);
  CHECK(count.agreed == count.total);
}

TEST_CASE("CH-01, J16: published chat templates render as in transformers", "[golden][template]") {
  const std::string folder = corbel_test::shared_data("templates", "published chat templates");
  if (folder.empty()) return;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  Count all;
  for (std::filesystem::path path : files) {
    const std::string source = corbel_test::read_file(path.string());
    const auto renders = corbel::json::parse(corbel_test::read_file(path.replace_extension(".json").string()));
    REQUIRE(renders.ok());
    Count count;
    for (const Value& render : renders->items()) {
      compare(render, source, render, path.stem().string() + ", " + text_of(render, "name"), count);
    }
    std::printf("%-45s %zu of %zu renders\n", path.stem().string().c_str(), count.agreed, count.total);
    all.agreed += count.agreed;
    all.total += count.total;
  }
  CHECK(files.size() >= 25);
  CHECK(all.total >= 625);
  CHECK(all.agreed == all.total);
}
