// Two versions of the library in one process, their symbols in one global scope: both give their own version and the
// same line, also after the other was closed. Usage: host MODEL FIRST.so FIRST_VERSION SECOND.so SECOND_VERSION
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <thread>

namespace {

struct Plugin {
  void* handle = nullptr;
  void (*run)(const char*, char*, unsigned long) = nullptr;
  const char* (*version)() = nullptr;
};

bool open(const char* path, Plugin& plugin) {
  plugin.handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (plugin.handle == nullptr) {
    std::printf("%s\n", dlerror());
    return false;
  }
  plugin.run = reinterpret_cast<decltype(plugin.run)>(dlsym(plugin.handle, "plugin_run"));
  plugin.version = reinterpret_cast<decltype(plugin.version)>(dlsym(plugin.handle, "plugin_version"));
  return plugin.run != nullptr && plugin.version != nullptr;
}

std::string line_of(const Plugin& plugin, const char* model) {
  char line[1024];
  plugin.run(model, line, sizeof(line));
  return line;
}

int failures = 0;
void check(bool ok, const char* what) {
  if (ok) return;
  std::printf("failed: %s\n", what);
  ++failures;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  Plugin first, second;
  if (!open(argv[2], first) || !open(argv[4], second)) return 1;
  check(std::strcmp(first.version(), argv[3]) == 0, "the first copy tells its version");
  check(std::strcmp(second.version(), argv[5]) == 0, "the second copy tells its version");
  std::string one, two;
  std::thread at_the_same_time([&] { one = line_of(first, argv[1]); });
  two = line_of(second, argv[1]);
  at_the_same_time.join();
  std::printf("%s\n", one.c_str());
  check(one.rfind("error", 0) != 0, "the first copy works");
  check(one == two, "both copies give the same line");

  check(dlclose(first.handle) == 0, "the first copy closes");
  check(dlopen(argv[2], RTLD_NOW | RTLD_NOLOAD) == nullptr, "the first copy is gone from the process");
  check(line_of(second, argv[1]) == two, "the second copy works without the first");
  check(dlclose(second.handle) == 0, "the second copy closes");
  check(open(argv[2], first) && line_of(first, argv[1]) == one, "the first copy can be loaded again");
  return failures == 0 ? 0 : 1;
}
