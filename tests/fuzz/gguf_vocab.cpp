// Target gguf_vocab: the vocabulary of a GGUF file. What loads encodes and decodes any text without leaving its range.
#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/tokenizer.hpp>

#include "fuzz/fuzz.hpp"
#include "fuzz/mutator.hpp"
#include "fuzz/tokenizer_checks.hpp"

CORBEL_FUZZ_MUTATOR(gguf)

using namespace corbel;
using namespace corbel_fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Context context({.threads = 1});
  const AllocationBound bound(parse_bound(size));
  const Result<Checkpoint> checkpoint = Checkpoint::from_memory(bytes_of(data, size), context, {}, "x.gguf");
  if (!checkpoint.ok()) return 0;
  const Result<Tokenizer> tokenizer = Tokenizer::from_checkpoint(*checkpoint);
  check_status(tokenizer.status());
  if (tokenizer.ok()) check_tokenizer(*tokenizer);
  return 0;
}
