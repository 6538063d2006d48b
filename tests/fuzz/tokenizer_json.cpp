// Target tokenizer_json: a tokenizer.json of any kind. What loads encodes and decodes any text without leaving its range.
#include <corbel/tokenizer.hpp>

#include "fuzz/fuzz.hpp"
#include "fuzz/mutator.hpp"
#include "fuzz/tokenizer_checks.hpp"

CORBEL_FUZZ_MUTATOR(json)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto tokenizer = [&] {
    const corbel_fuzz::AllocationBound bound(corbel_fuzz::parse_bound(size));
    corbel::TokenizerDocuments documents;
    documents.tokenizer_json = corbel_fuzz::text_of(data, size);
    documents.tokenizer_config = R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": true})";
    return corbel::Tokenizer::from_documents(documents);
  }();
  corbel_fuzz::check_status(tokenizer.status());
  if (tokenizer.ok()) corbel_fuzz::check_tokenizer(*tokenizer);
  return 0;
}
