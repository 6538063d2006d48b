// Passes: rewrite a textbook program into a faster one with the same results (logits within 1e-5), each with its own
// switch.
#pragma once

#include <corbel/config.hpp>
#include <corbel/hal/program.hpp>

#include <cstdint>
#include <string>

CORBEL_NAMESPACE_BEGIN
namespace graph {

/// Which passes run; each lowers one count that summary() reports.
struct PassOptions {
  bool fold_constants = true;  ///< constant factors move into the op that reads or makes the value: fewer ops
  bool merge_linears = true;   ///< linears of one input (Q, K, V; gate, up) become one with stacked weights: fewer ops
  bool drop_dead_rows =
      true;  ///< rows are selected before the last layer's feed-forward and the head: fewer rows at the head
  bool reuse_memory = true;  ///< values that never live at the same time share memory: a smaller arena
};

/// Factors of kScale ops move into kEmbed and kAttention.
CORBEL_API void fold_constants(hal::Program& program);
/// Linears of the same input become one; their outputs become views of its output.
CORBEL_API void merge_linears(hal::Program& program);
/// Moves kSelectRows up through every op that works on rows alone, to just after the last op that needs all rows.
CORBEL_API void drop_dead_rows(hal::Program& program);
/// Runs the passes that are switched on, in the order of PassOptions.
CORBEL_API void run_passes(hal::Program& program, const PassOptions& options);

/// Places all values for up to max_rows rows (Rows::kAll) and max_wanted rows (Rows::kWanted). With `reuse`, values
/// whose live ranges do not meet share memory. The result does not depend on anything else.
CORBEL_API hal::ArenaPlan plan_arena(const hal::Program& program, std::uint32_t max_rows, std::uint32_t max_wanted,
                                     bool reuse = true);

/// The program as text, one op a line, with shapes and source tensors.
CORBEL_API std::string dump(const hal::Program& program);

}  // namespace graph
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/graph/passes.ipp>
#endif
