// A folder in memory, made from an archive, that stops the fuzzer where a name is opened that no model may name.
#pragma once

#include <corbel/checkpoint/file.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzz.hpp"
#include "fuzz/mutator.hpp"

namespace corbel_fuzz {

class MemoryFolder final : public corbel::FolderReader {
 public:
  /// Files whose names are no plain names are left out, the last of equal names counts. Reads give `piece` bytes at most.
  MemoryFolder(const std::vector<ArchiveFile>& files, std::size_t piece) : piece_(piece) {
    for (const ArchiveFile& file : files)
      if (is_inside(file.name)) files_[file.name] = file.content;
  }
  corbel::Result<std::vector<std::string>> list() const override {
    std::vector<std::string> names;
    for (const auto& [name, content] : files_) names.push_back(name);
    return names;
  }
  corbel::Result<std::shared_ptr<const corbel::FileReader>> open(const std::string& name) const override {
    FUZZ_CHECK(is_inside(name), name);
    const auto found = files_.find(name);
    if (found == files_.end()) return corbel::Status(corbel::Errc::kIoOpen, "no such file");
    return std::shared_ptr<const corbel::FileReader>(
        std::make_shared<const PieceReader>(corbel_test::bytes_of(found->second), piece_));
  }
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& [name, content] : files_) sum += content.size() + name.size();
    return sum;
  }
  const std::map<std::string, std::string>& files() const { return files_; }

 private:
  // A plain name, or one in the only folder below that models have.
  static bool is_inside(std::string_view name) {
    static constexpr std::string_view kBelow = "additional_chat_templates/";
    if (name.substr(0, kBelow.size()) == kBelow) name.remove_prefix(kBelow.size());
    return !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
           name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
  }
  std::map<std::string, std::string> files_;
  std::size_t piece_;
};

/// Reads every tensor of the checkpoint and compares it with the bytes of its file.
inline void check_tensor_bytes(const corbel::Checkpoint& checkpoint, const MemoryFolder& folder) {
  for (const corbel::TensorInfo& tensor : checkpoint.tensors()) {
    FUZZ_CHECK(tensor.file < checkpoint.files().size(), tensor.name);
    const auto file = folder.files().find(checkpoint.files()[tensor.file].name);
    FUZZ_CHECK(file != folder.files().end(), tensor.name);
    FUZZ_CHECK(tensor.offset <= file->second.size() && tensor.bytes <= file->second.size() - tensor.offset, tensor.name);
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
    const corbel::Status status = checkpoint.read(tensor, 0, bytes);
    if (!tensor.supported) {
      FUZZ_CHECK(status.code() == corbel::Errc::kUnsupported, status.message());
      continue;
    }
    FUZZ_CHECK(status.ok(), status.message());
    const auto expected = corbel_test::bytes_of(file->second).subspan(static_cast<std::size_t>(tensor.offset), bytes.size());
    FUZZ_CHECK(std::equal(bytes.begin(), bytes.end(), expected.begin()), tensor.name);
  }
}

}  // namespace corbel_fuzz
