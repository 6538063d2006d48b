// Target gguf_model: a whole model file, weights included. What loads computes two tokens, whose ids are in range.
#include <corbel/batch.hpp>
#include <corbel/kv_cache.hpp>
#include <corbel/model.hpp>
#include <corbel/plan.hpp>
#include <corbel/sampler.hpp>

#include "fuzz/fuzz.hpp"
#include "fuzz/model_checks.hpp"
#include "fuzz/mutator.hpp"

CORBEL_FUZZ_MUTATOR(gguf)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const corbel::Context context({.threads = 1, .memory_budget = 32u << 20});
  const auto checkpoint =
      corbel::Checkpoint::from_memory(corbel_fuzz::bytes_of(data, size), context, {}, "x.gguf");
  if (checkpoint.ok()) corbel_fuzz::check_model(*checkpoint, context);
  return 0;
}
