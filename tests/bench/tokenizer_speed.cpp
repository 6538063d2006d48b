// Encodes and decodes a text when asked on its standard input, and says how long the thread worked on it:
//
//   tokenizer_speed MODEL TEXT          MODEL: a GGUF file, or a tokenizer.json
//
// A line "encode", "lines", "decode" or "load" gives "SECONDS COUNT" (CPU time of the thread, ids; for "lines" the text
// is encoded line by line). compare_tokenizers.py drives it; ctest does not run it.
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/context.hpp>
#include <corbel/tokenizer.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace {

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::string read_file(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

corbel::Tokenizer load(const std::string& path) {
  if (path.size() > 5 && path.substr(path.size() - 5) == ".json") {
    const std::string text = read_file(path.c_str());
    corbel::TokenizerDocuments documents;
    documents.tokenizer_json = text;
    return corbel::Tokenizer::from_documents(documents).value();
  }
  corbel::Context context;
  return corbel::Tokenizer::from_checkpoint(corbel::Checkpoint::open(path, context).value()).value();
}

}  // namespace

int main(int count, char** values) {
  if (count != 3) return 2;
  const std::string path = values[1];
  const std::string text = read_file(values[2]);
  const corbel::Tokenizer tokenizer = load(path);
  const std::vector<corbel::TokenId> ids = tokenizer.encode(text).value();
  for (std::string command; std::getline(std::cin, command);) {
    std::size_t result = 0;
    const double begin = thread_seconds();
    if (command == "encode") {
      result = tokenizer.encode(text).value().size();
    } else if (command == "lines") {
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
        result += tokenizer.encode(std::string_view(text).substr(at, end - at)).value().size();
        at = end;
      }
    } else if (command == "decode") {
      result = tokenizer.decode(ids).value().size();
    } else if (command == "load") {
      result = load(path).size();
    }
    std::printf("%.9f %zu\n", thread_seconds() - begin, result);
    std::fflush(stdout);
  }
}
