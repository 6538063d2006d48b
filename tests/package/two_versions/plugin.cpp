// A shared object with its own copy of the library inside.
#include "../consumer.hpp"

#define PLUGIN_API extern "C" __attribute__((visibility("default")))

/// Writes a zero-terminated line of at most `size` bytes.
PLUGIN_API void plugin_run(const char* model_path, char* line, unsigned long size) {
  const std::string text = consume(model_path);
  const unsigned long count = text.size() < size - 1 ? text.size() : size - 1;
  text.copy(line, count);
  line[count] = 0;
}
PLUGIN_API const char* plugin_version() { return consumed_version(); }
