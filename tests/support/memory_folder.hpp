// A folder of files that exist in memory only.
#pragma once

#include <corbel/checkpoint/file.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace corbel_test {

/// Answers every read with at most `step` bytes.
class MemoryFile : public corbel::FileReader {
 public:
  MemoryFile(std::shared_ptr<const std::string> bytes, std::size_t step) : bytes_(std::move(bytes)), step_(step) {}
  std::uint64_t size() const noexcept override { return bytes_->size(); }
  corbel::Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (out.empty() || offset >= bytes_->size())
      return corbel::Status(corbel::Errc::kInternal, "read outside the file");
    const std::size_t count = std::min({out.size(), step_, bytes_->size() - static_cast<std::size_t>(offset)});
    std::memcpy(out.data(), bytes_->data() + offset, count);
    return count;
  }

 private:
  std::shared_ptr<const std::string> bytes_;
  std::size_t step_;
};

using Files = std::map<std::string, std::string>;

class MemoryFolder : public corbel::FolderReader {
 public:
  explicit MemoryFolder(Files files, std::size_t step = std::size_t{1} << 20) : step_(step) {
    for (auto& [name, bytes] : files) files_[name] = std::make_shared<const std::string>(std::move(bytes));
  }
  corbel::Result<std::vector<std::string>> list() const override {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : files_) names.push_back(name);
    return names;
  }
  corbel::Result<std::shared_ptr<const corbel::FileReader>> open(const std::string& name) const override {
    const auto found = files_.find(name);
    if (found == files_.end()) return corbel::Status(corbel::Errc::kIoOpen, "cannot open: no such file");
    return std::shared_ptr<const corbel::FileReader>(std::make_shared<MemoryFile>(found->second, step_));
  }
  std::size_t total_bytes() const {
    std::size_t sum = 0;
    for (const auto& [name, bytes] : files_) sum += bytes->size();
    return sum;
  }

 private:
  std::map<std::string, std::shared_ptr<const std::string>> files_;
  std::size_t step_;
};

}  // namespace corbel_test
