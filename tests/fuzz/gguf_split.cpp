// Target gguf_split: the parts of a split GGUF file in one input, opened from each of them and from the folder. Whatever
// opens has the bytes of its files.
#include <corbel/checkpoint/checkpoint.hpp>

#include "fuzz/fuzz.hpp"
#include "fuzz/memory_folder.hpp"
#include "fuzz/mutator.hpp"

CORBEL_FUZZ_MUTATOR(archive)

using namespace corbel;
using namespace corbel_fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Context context({.threads = 1});
  const std::vector<ArchiveFile> files = read_archive(text_of(data, size), 8);
  const auto folder = std::make_shared<const MemoryFolder>(files, size % 2 == 0 ? std::size_t{4093} : std::size_t{61});
  std::vector<std::string> starts = {""};
  for (const auto& [name, content] : folder->files()) starts.push_back(name);
  std::size_t tensors = 0;
  for (const std::string& start : starts) {
    const auto checkpoint = [&] {
      const AllocationBound bound(parse_bound(folder->bytes()));
      return Checkpoint::from_folder(folder, context, {}, "x", start);
    }();
    check_status(checkpoint.status());
    if (!checkpoint.ok()) continue;
    check_tensor_bytes(*checkpoint, *folder);
    // Every part of a split file opens the same model.
    if (checkpoint->files().size() < 2 || checkpoint->format() != CheckpointFormat::kGguf) continue;
    if (tensors == 0) tensors = checkpoint->tensors().size() + 1;
    FUZZ_CHECK(folder->files().size() != checkpoint->files().size() || checkpoint->tensors().size() + 1 == tensors, start);
  }
  return 0;
}
