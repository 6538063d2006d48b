// Reads every #include of the library and fails on one that points to the right in the order of the layers
// (docs/design.md, "The tree"). Also: sources are ASCII, end with a newline, and say in their first line what they are
// for.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace fs = std::filesystem;

namespace {

// Leftmost first; a name ending in '/' is a folder. A file may include files of its own layer and of those above it in
// this list.
const std::vector<std::vector<std::string>> kLayers = {
    {"version", "config", "detail/", "error"},
    {"dtype", "dtype/", "tensor", "context", "build_info"},
    {"hal/"},
    {"graph/"},
    {"checkpoint/", "text/"},
    {"models/"},
    {"cache/"},
    {"backends"},
    {"model", "any_model", "plan", "batch", "kv_cache", "sampler", "sampling/", "tokenizer", "chat"},
    {"conversation", "generate"},
    {"engine", "engine/", "quant/", "parallel/"},
    {"corbel"},
};

// Layer of a path below include/corbel, "impl/" dropped and without extension; -1: not in the list.
int layer_of(std::string path) {
  if (path.rfind("impl/", 0) == 0) path.erase(0, 5);
  path.erase(path.rfind('.'));
  for (std::size_t layer = 0; layer < kLayers.size(); ++layer) {
    for (const std::string& name : kLayers[layer]) {
      if (name.back() == '/' ? path.rfind(name, 0) == 0 : path == name) return static_cast<int>(layer);
    }
  }
  return -1;
}

bool is_backend(std::string_view path) { return path.rfind("backends/", 0) == 0; }
std::string backend_of(const std::string& path) { return path.substr(0, path.find('/', 9)); }

// Empty, or why `from` (path below corbel/) must not include `to`.
std::string complaint(const std::string& from, const std::string& to) {
  const int hal_and_graph = layer_of("graph/x.hpp");
  if (is_backend(from)) {
    if (is_backend(to)) return backend_of(from) == backend_of(to) ? "" : "a backend knows no other backend";
    const int layer = layer_of(to);
    return layer >= 0 && layer <= hal_and_graph ? "" : "a backend knows hal, graph and what is left of them";
  }
  const int layer = layer_of(from);
  if (layer < 0) return "is in no layer";
  if (is_backend(to)) return layer == layer_of("backends.hpp") ? "" : "only backends.hpp knows the backends";
  if (layer_of(to) < 0) return "includes what is in no layer";
  return layer_of(to) <= layer ? "" : "points to the right";
}

struct Source {
  std::string name;  // below corbel/
  std::vector<std::string> lines;
};

std::vector<std::string> lines_of(const fs::path& path) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<Source> library_sources() {
  const fs::path root = fs::path(CORBEL_TEST_SOURCE_DIR).parent_path();
  std::vector<Source> sources;
  for (const char* folder : {"include", "backends/ref/include", "backends/cpu/include"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder / "corbel")) {
      if (!entry.is_regular_file()) continue;
      sources.push_back(
          {fs::relative(entry.path(), root / folder / "corbel").generic_string(), lines_of(entry.path())});
    }
  }
  return sources;
}

// The file below corbel/ that a line includes; empty where it includes none.
std::string included(const std::string& line) {
  const std::size_t start = line.find("<corbel/");
  const std::size_t end = line.find('>', start == line.npos ? 0 : start);
  if (line.find("#include") == line.npos || start == line.npos || end == line.npos) return {};
  return line.substr(start + 8, end - start - 8);
}

}  // namespace

TEST_CASE("no include points to the right in the order of the layers") {
  std::size_t arrows = 0;
  std::string broken;
  for (const Source& source : library_sources()) {
    for (const std::string& line : source.lines) {
      const std::string to = included(line);
      if (to.empty()) continue;
      ++arrows;
      if (const std::string why = complaint(source.name, to); !why.empty())
        broken += source.name + " -> " + to + ": " + why + "\n";
    }
  }
  CHECK(broken == "");
  CHECK(arrows > 100);
}

TEST_CASE("the layer check finds what it looks for") {
  CHECK(complaint("hal/backend.hpp", "context.hpp") == "");
  CHECK(complaint("impl/hal/program.ipp", "hal/program.hpp") == "");
  CHECK(complaint("hal/backend.hpp", "graph/builder.hpp") == "points to the right");
  CHECK(complaint("impl/context.ipp", "model.hpp") == "points to the right");
  CHECK(complaint("detail/guard.hpp", "context.hpp") == "points to the right");
  CHECK(complaint("backends/cpu/cpu_backend.hpp", "graph/passes.hpp") == "");
  CHECK(complaint("backends/cpu/cpu_backend.hpp", "checkpoint/json.hpp") != "");
  CHECK(complaint("backends/cpu/cpu_backend.hpp", "backends/ref/ops.hpp") != "");
  CHECK(complaint("model.hpp", "backends/ref/ops.hpp") != "");
  CHECK(complaint("backends.hpp", "backends/ref/ops.hpp") == "");
  CHECK(complaint("model.hpp", "backends.hpp") == "");
  CHECK(complaint("somewhere/new.hpp", "config.hpp") == "is in no layer");
  CHECK(included("#include <corbel/hal/backend.hpp>") == "hal/backend.hpp");
  CHECK(included("  #include <vector>") == "");
}

TEST_CASE("library sources are ASCII and begin with what they are for") {
  std::string broken;
  for (const Source& source : library_sources()) {
    if (source.lines.empty() || source.lines.front().rfind("// ", 0) != 0)
      broken += source.name + ": no first comment\n";
    for (std::size_t i = 0; i < source.lines.size(); ++i) {
      const std::string& line = source.lines[i];
      const auto bad = [](char c) { return static_cast<unsigned char>(c) >= 0x7f || (c < ' ' && c != '\t'); };
      if (std::any_of(line.begin(), line.end(), bad))
        broken += source.name + ":" + std::to_string(i + 1) + ": not ASCII\n";
    }
  }
  CHECK(broken == "");
}

TEST_CASE("every public header is in the umbrella") {
  const fs::path include = fs::path(CORBEL_TEST_SOURCE_DIR).parent_path() / "include/corbel";
  const std::vector<std::string> lines = lines_of(include / "corbel.hpp");
  std::string missing;
  for (const auto& entry : fs::directory_iterator(include)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == "corbel.hpp") continue;
    if (std::find(lines.begin(), lines.end(), "#include <corbel/" + name + ">") == lines.end()) missing += name + "\n";
  }
  CHECK(missing == "");
}
