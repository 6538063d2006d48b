// Target hf_model: a Hugging Face folder as an archive: config, index, shards, tokenizer, templates. No name outside the
// folder is opened, and what loads computes.
#include <corbel/checkpoint/checkpoint.hpp>

#include "fuzz/fuzz.hpp"
#include "fuzz/memory_folder.hpp"
#include "fuzz/model_checks.hpp"
#include "fuzz/mutator.hpp"

CORBEL_FUZZ_MUTATOR(archive)

using namespace corbel;
using namespace corbel_fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Context context({.threads = 1, .memory_budget = 32u << 20});
  const std::vector<ArchiveFile> files = read_archive(text_of(data, size));
  const auto folder = std::make_shared<const MemoryFolder>(files, std::size_t{4093});
  const auto checkpoint = [&] {
    const AllocationBound bound(parse_bound(folder->bytes()));
    return Checkpoint::from_folder(folder, context, {}, "x");
  }();
  check_status(checkpoint.status());
  if (!checkpoint.ok()) return 0;
  check_tensor_bytes(*checkpoint, *folder);
  for (const std::string& name : checkpoint->documents()) {
    const auto text = checkpoint->document(name);
    FUZZ_CHECK(text.ok() && *text == folder->files().at(name), text.status().message());
    check_status(checkpoint->json_document(name).status());
  }
  FUZZ_CHECK(!checkpoint->document("../x").ok() && !checkpoint->document("/etc/passwd").ok(), "a document that is none");
  check_model(*checkpoint, context);
  return 0;
}
