// Where tests find data, and how they say that they skipped something.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace corbel_test {

/// Prints the line that tests/run.sh counts as one skipped test.
inline void skip(std::string_view name, std::string_view why) {
  std::printf("SKIPPED: %.*s (%.*s)\n", static_cast<int>(name.size()), name.data(), static_cast<int>(why.size()),
              why.data());
  std::fflush(stdout);
}

/// A file or folder of the test data that is not committed ($CORBEL_TEST_DATA); empty, after a skip line, where it is
/// not there.
inline std::string shared_data(std::string_view relative, std::string_view test_name) {
  const char* root = std::getenv("CORBEL_TEST_DATA");
  if (root == nullptr || *root == 0) {
    skip(test_name, "CORBEL_TEST_DATA is not set");
    return {};
  }
  std::string path = std::string(root) + "/" + std::string(relative);
  if (!std::filesystem::exists(path)) {
    skip(test_name, path + " is missing");
    return {};
  }
  return path;
}

inline std::string repeat(std::string_view text, std::size_t count) {
  std::string out;
  out.reserve(text.size() * count);
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

/// A file or folder below tests/data.
inline std::string test_data(std::string_view relative) {
  return std::string(CORBEL_TEST_SOURCE_DIR) + "/data/" + std::string(relative);
}

/// "smollm2" or "gemma3": the real model's file below $CORBEL_TEST_MODELS; empty, after a skip line, where it is not
/// there.
inline std::string real_model(std::string_view name, std::string_view test_name) {
  const char* root = std::getenv("CORBEL_TEST_MODELS");
  const std::string file = name == "smollm2" ? "SmolLM2-135M-Instruct.Q4_1.gguf" : "gemma-3-270m-q4_k_m.gguf";
  const std::string path = root == nullptr ? std::string() : std::string(root) + "/" + file;
  if (path.empty() || !std::filesystem::exists(path)) {
    skip(test_name, "the model " + file + " is not in CORBEL_TEST_MODELS");
    return {};
  }
  return path;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace corbel_test
