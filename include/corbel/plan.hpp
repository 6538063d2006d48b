// plan_memory: what loading a checkpoint and running it would take, before anything is loaded.
//
//   auto checkpoint = corbel::Checkpoint::open("model.gguf", context).value();
//   corbel::MemoryPlan plan = corbel::plan_memory<>(checkpoint, context, {.cache = {.max_tokens = 4096}}).value();
//   if (plan.total() > budget) ...
#pragma once

#include <corbel/batch.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/kv_cache.hpp>
#include <corbel/model.hpp>

#include <cstdint>

CORBEL_NAMESPACE_BEGIN

/// Bytes per kind. Small objects (the program, lists of names) are not counted; they are far below one percent.
struct MemoryPlan {
  std::uint64_t weights = 0;     ///< prepared weights
  std::uint64_t vocabulary = 0;  ///< the tokenizer
  std::uint64_t kv_cache = 0;    ///< all blocks of the cache
  std::uint64_t arena = 0;       ///< values of one batch
  std::uint64_t workspace = 0;   ///< the backend's scratch for one batch
  std::uint64_t staging = 0;     ///< batch arrays on both sides, logits on the host
  std::uint64_t total() const noexcept { return weights + vocabulary + kv_cache + arena + workspace + staging; }
};

struct PlanOptions {
  KVCacheOptions cache = {};
  BatchOptions batch = {};
  graph::PassOptions passes = {};
};

/// The plan of Model<B>::load, KVCache<B>::create and one Batch<B>::create with these options. Reads the head of the
/// file and small constants only. The same errors as these for a file that could not be loaded (but not those that need
/// the weights). Thread-safe.
template <hal::Backend B = DefaultBackend>
Result<MemoryPlan> plan_memory(const Checkpoint& checkpoint, const Context& context, const PlanOptions& options = {}) {
  return detail::guard([&]() -> Result<MemoryPlan> {
    CORBEL_ASSIGN_OR_RETURN(const models::ModelSpec spec, models::read_model_spec(checkpoint));
    CORBEL_RETURN_IF_ERROR(read_generation_defaults(checkpoint).status());
    Tokenizer tokenizer;
    if (detail::has_tokenizer(checkpoint)) {
      CORBEL_ASSIGN_OR_RETURN(tokenizer, Tokenizer::from_checkpoint(checkpoint));
    }
    CORBEL_ASSIGN_OR_RETURN(const B backend, B::create(context));
    CORBEL_ASSIGN_OR_RETURN(hal::Program program, models::build_program(checkpoint, spec));
    graph::run_passes(program, options.passes);

    MemoryPlan plan;
    for (const hal::WeightSpec& weight : program.weights) plan.weights += backend.weight_bytes(weight);
    plan.vocabulary = tokenizer.memory_bytes();
    const std::uint64_t block_tokens = options.cache.block_tokens;
    if (block_tokens == 0) return Status(Errc::kInvalidArgument, "block_tokens: 0 is not 16, 32 or 64");
    const std::uint64_t blocks = (options.cache.max_tokens + block_tokens - 1) / block_tokens;
    plan.kv_cache =
        blocks * backend.kv_layout({program.kv_layers, options.cache.block_tokens, options.cache.type}).block_bytes;
    const std::uint64_t positions = std::min<std::uint64_t>(spec.context_length, blocks * block_tokens);
    const hal::BatchLimits limits = {options.batch.max_rows, options.batch.max_wanted, options.batch.max_sequences,
                                     static_cast<std::uint32_t>((positions + block_tokens - 1) / block_tokens),
                                     models::num_length_frequencies(spec)};
    plan.arena = graph::plan_arena(program, limits.max_rows, limits.max_wanted, options.passes.reuse_memory).bytes;
    plan.workspace = backend.workspace_bytes(program, limits);
    plan.staging =
        2 * hal::make_batch_layout(limits).bytes + std::uint64_t{limits.max_wanted} * spec.vocab * sizeof(float);
    return plan;
  });
}

CORBEL_NAMESPACE_END
