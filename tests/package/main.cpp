// The second translation unit of the consumer: it includes the library too, prints, and has the exit code.
#include <corbel/corbel.hpp>

#include <cstdio>
#include <string>

#include "consumer.hpp"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  bool ok = true;
  for (int i = 1; i < argc; ++i) {
    const std::string line = consume(argv[i]);
    std::printf("%s\n", line.c_str());
    ok = ok && line.rfind("error", 0) != 0;
  }
  const corbel::Context
      context;  // both translation units have their copies of inline functions, and one of each remains
  const bool missing_is_told = !corbel::Model<>::load("no such file", context).ok();
  return ok && missing_is_told ? 0 : 1;
}
