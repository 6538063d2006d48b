// The ways to open a file: by path, mapped, from memory, and from a reader that answers with one byte at a time.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "support/gguf_builder.hpp"

namespace corbel_test {

/// A file with the given bytes in the folder for temporary files, removed at the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& bytes) {
    static std::atomic<int> next{0};
    path_ = (std::filesystem::temp_directory_path() /
             ("corbel-test-" + std::to_string(::getpid()) + "-" + std::to_string(next++) + ".gguf"))
                .string();
    write(bytes);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  void write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Answers every read with one byte.
class OneByteReader : public corbel::FileReader {
 public:
  explicit OneByteReader(std::string bytes) : bytes_(std::move(bytes)) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  corbel::Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (out.empty() || offset >= bytes_.size()) return corbel::Status(corbel::Errc::kInternal, "read outside the file");
    out[0] = static_cast<std::byte>(bytes_[offset]);
    return std::size_t{1};
  }

 private:
  std::string bytes_;
};

struct Source {
  std::string name;
  bool in_memory;
  std::function<corbel::Result<corbel::Checkpoint>(const corbel::Context&, corbel::OpenOptions)> open;
};

/// All sources of `file`, which is also at `path`. `file` must outlive what is opened.
inline std::vector<Source> sources(const std::string& file, const std::string& path) {
  using corbel::Checkpoint;
  using corbel::Context;
  using corbel::OpenOptions;
  return {
      {"memory", true,
       [&file](const Context& context, OpenOptions options) {
         return Checkpoint::from_memory(bytes_of(file), context, options, "file");
       }},
      {"path", false,
       [path](const Context& context, OpenOptions options) { return Checkpoint::open(path, context, options); }},
      {"mapped", true,
       [path](const Context& context, OpenOptions options) {
         options.map = true;
         return Checkpoint::open(path, context, options);
       }},
      {"one byte at a time", false,
       [&file](const Context& context, OpenOptions options) {
         return Checkpoint::from_reader(std::make_shared<OneByteReader>(file), context, options, "file");
       }},
  };
}

}  // namespace corbel_test
