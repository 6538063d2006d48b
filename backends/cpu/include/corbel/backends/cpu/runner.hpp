// Runs a program on the CPU backend: finds the memory of values and weights, checks the batch, and divides each op into
// tasks for the kernels. Private to the backend.
#pragma once

#include <corbel/backends/cpu/cpu_backend.hpp>
#include <corbel/backends/cpu/kernel_table.hpp>
#include <corbel/backends/cpu/scalar_rows.hpp>
#include <corbel/backends/cpu/tile_table.hpp>
#include <corbel/backends/cpu/tuning.hpp>
#include <corbel/context.hpp>
#include <corbel/hal/backend.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

CORBEL_NAMESPACE_BEGIN
namespace cpu {

/// What a run works on, as plain pointers.
struct RunMemory {
  const hal::Program* program = nullptr;
  const CpuBackend::Weight* weights = nullptr;
  const hal::ArenaPlan* arena_plan = nullptr;
  std::byte* arena = nullptr;
  std::byte* workspace = nullptr;
  const hal::KvLayout* kv_layout = nullptr;
  std::byte* kv = nullptr;
  std::uint64_t kv_bytes = 0;
};

/// Rows of float32 that lie `stride` elements apart.
struct Matrix {
  float* data = nullptr;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t stride = 0;

  float* row(std::size_t r) const noexcept { return data + r * stride; }
};

/// Where an expert linear keeps what it needs, in bytes from the start of the workspace; quantized activations come
/// first.
struct ExpertWorkspace {
  std::uint64_t slots = 0;  ///< LinearRow [rows * top_k]
  std::uint64_t ends = 0;   ///< uint32 [2 * experts + 2]
  std::uint64_t bytes = 0;

  ExpertWorkspace(std::uint64_t rows, std::uint64_t in_cols, const hal::RouteSpec& route) noexcept {
    slots = rows * (in_cols / kBlockColumns) * sizeof(ActivationBlock);
    ends = slots + rows * route.top_k * sizeof(LinearRow);
    bytes = (ends + (std::uint64_t{route.experts} * 2 + 2) * sizeof(std::uint32_t) + 63) / 64 * 64;
  }
};

/// Rows of one expert that a task tiles at a time, of `k` columns.
inline std::size_t tiled_expert_rows(std::size_t k) noexcept {
  constexpr std::size_t kBytes = 512 << 10;
  return std::clamp<std::size_t>(kBytes / (tile_steps(k) * 64 + 1) / 16 * 16, 16, kMaxTiledRows);
}

/// Where a linear on tiles keeps what it needs, in bytes from the start of the workspace.
struct TileWorkspace {
  std::uint64_t rows = 0;           ///< LinearRow [rows]: those on tiles, then the others
  std::uint64_t activations = 0;    ///< those on tiles as tiles, group by group; then ActivationBlock of the others
  std::uint64_t scratch = 0;        ///< of each worker
  std::uint64_t scratch_bytes = 0;  ///< of one
  std::uint64_t bytes = 0;

  /// For `groups` inputs of `k` columns each, and as many workers as threads.
  TileWorkspace(std::uint64_t num_rows, std::uint64_t groups, std::uint64_t k, std::uint64_t threads) noexcept {
    activations = (num_rows * sizeof(LinearRow) + 63) / 64 * 64;
    scratch = activations + (num_rows + kTileBlockRows - 1) * groups * tile_steps(static_cast<std::size_t>(k)) * 64;
    scratch_bytes = tile_scratch_bytes(static_cast<std::size_t>(k));
    bytes = scratch + threads * scratch_bytes;
  }
};

/// Neighbouring rows of one sequence.
struct AttentionRun {
  std::uint32_t first = 0;
  std::uint32_t rows = 0;
};

/// Where attention keeps what it needs, in bytes from the start of the workspace. A record is what one chunk, computed
/// apart, gives to one query.
struct AttentionWorkspace {
  std::uint64_t runs = 0;     ///< AttentionRun [rows]
  std::uint64_t outputs = 0;  ///< float [rows * heads * value_width], of the chunk at hand
  std::uint64_t vectors = 0;  ///< float [max(rows * heads, num_records) * head_dim]
  std::uint64_t records = 0;  ///< float [num_records * record_elements()]
  std::uint64_t num_records = 0;
  std::uint64_t bytes = 0;

  static std::uint64_t record_elements(const hal::AttentionSpec& spec) noexcept {
    return kChunkHeader + (spec.value_width() + 15) / 16 * 16;
  }

  AttentionWorkspace(const hal::AttentionSpec& spec, const hal::BatchLimits& limits) noexcept {
    constexpr std::uint64_t kRows = 8;  // more rows make tasks enough; a few fit here in any context
    constexpr std::uint64_t kMaxBlockTokens = 64;
    const auto aligned = [](std::uint64_t offset) { return (offset + 63) / 64 * 64; };
    const std::uint64_t positions = std::uint64_t{limits.max_blocks} * kMaxBlockTokens;
    const auto last = static_cast<std::int32_t>(std::min<std::uint64_t>(positions, INT32_MAX));
    const std::uint64_t queries = std::uint64_t{limits.max_rows} * spec.heads;
    num_records = kRows * spec.heads * (static_cast<std::uint64_t>(attention_chunk(last)) + 1);
    outputs = aligned(limits.max_rows * sizeof(AttentionRun));
    vectors = aligned(outputs + queries * spec.value_width() * sizeof(float));
    records = aligned(vectors + std::max(queries, num_records) * spec.head_dim * sizeof(float));
    bytes = records + num_records * record_elements(spec) * sizeof(float);
  }
};

/// The workspace serves one op at a time: quantized activations of a linear's input, the sorted slots of experts,
/// chunks of attention, scratch of routing. `tile_threads` work on tiles at a time, 0 where there are none.
inline std::uint64_t workspace_bytes(const hal::Program& program, const hal::BatchLimits& limits,
                                     std::size_t tile_threads) noexcept {
  std::uint64_t bytes = 0;
  for (const hal::Op& op : program.ops) {
    if (op.in[0] == hal::kNone) continue;
    const hal::Value& in = program.values[static_cast<std::size_t>(op.in[0])];
    const std::uint64_t rows = in.rows == hal::Rows::kAll ? limits.max_rows : limits.max_wanted;
    std::uint64_t own = 0;
    if (op.kind == hal::OpKind::kLinear || op.kind == hal::OpKind::kGroupedLinear) {
      own = rows * (in.width / kBlockColumns) * sizeof(ActivationBlock);
      const std::uint32_t groups = op.kind == hal::OpKind::kLinear ? 1 : op.groups;
      if (tile_threads != 0 && rows != 0)
        own = std::max(own, TileWorkspace(rows, groups, in.width / groups, tile_threads).bytes);
    } else if (op.kind == hal::OpKind::kExpertLinear) {
      own = ExpertWorkspace(rows, in.width, op.route).bytes;
      const auto k = static_cast<std::size_t>(program.weights[static_cast<std::size_t>(op.weight)].cols());
      own += tile_threads * (tile_scratch_bytes(k) + tiled_elements(tiled_expert_rows(k), k) * sizeof(std::uint16_t));
    } else if (op.kind == hal::OpKind::kAttention) {
      own = AttentionWorkspace(op.attention, limits).bytes;
    } else if (op.kind == hal::OpKind::kRoute) {
      own = rows * RouteScratch::bytes(op.route);
    }
    bytes = std::max(bytes, own);
  }
  return bytes;
}

/// Whether activations are rounded as a checkpoint's scheme says. What bfloat16 changes in front of such a step would
/// come out of it as other codes, so these programs have no linears on tiles.
inline bool rounds_activations(const hal::Program& program) noexcept {
  return std::any_of(program.ops.begin(), program.ops.end(),
                     [](const hal::Op& op) { return op.kind == hal::OpKind::kRoundActivations; });
}

class Runner {
 public:
  Runner(const Context& context, const KernelTable& kernels, const TileTable* tiles, const RunMemory& memory,
         const hal::BatchView& batch, const hal::BatchLimits& limits) noexcept
      : context_(context),
        kernels_(kernels),
        tiles_(rounds_activations(*memory.program) ? nullptr : tiles),
        memory_(memory),
        batch_(batch),
        limits_(limits),
        tuning_(tuning_of(context)),
        num_rows_(static_cast<std::size_t>(std::max(batch.header->num_rows, 0))) {}

  /// Errc::kInternal where the batch contradicts its layout, the embedding or the cache.
  Status check() const;
  void run() const noexcept {
    for (const hal::Op& op : memory_.program->ops) run(op);
  }

 private:
  void run(const hal::Op& op) const noexcept;
  void embed(const hal::Op& op) const noexcept;
  void embed_position(const hal::Op& op) const noexcept;
  void rope_table(const hal::Op& op) const noexcept;
  void norm(const hal::Op& op) const noexcept;
  void linear(const hal::Op& op) const noexcept;
  void grouped_linear(const hal::Op& op) const noexcept;
  void rope(const hal::Op& op) const noexcept;
  void kv_append(const hal::Op& op) const noexcept;
  void attention(const hal::Op& op) const noexcept;
  void elementwise(const hal::Op& op) const noexcept;
  void permute(const hal::Op& op) const noexcept;
  void round_activations(const hal::Op& op) const noexcept;
  void route(const hal::Op& op) const noexcept;
  void expert_linear(const hal::Op& op) const noexcept;
  void expert_sum(const hal::Op& op) const noexcept;
  void select_rows(const hal::Op& op) const noexcept;

  /// Quantizes all rows of a value, where the weight has quantized segments: a block for each 32 columns. `tiled`: but
  /// those of prompts.
  void quantize_rows(hal::ValueId id, const CpuBackend::Weight& w, ActivationBlock* blocks,
                     bool tiled = false) const noexcept;
  /// How a row of a value is quantized.
  struct Quantization {
    bool exact = false;  ///< in steps that the value is known to consist of
    std::size_t group = 0;
    float step = 0;
  };
  Quantization quantization(hal::ValueId id) const noexcept;

  // ---- tiles: which arithmetic a row gets depends on its role, the weight's type and the program alone
  bool is_prompt(hal::ValueId id, std::size_t r) const noexcept {
    const bool all = memory_.program->values[static_cast<std::size_t>(id)].rows == hal::Rows::kAll;
    return batch_.roles[all ? static_cast<std::int32_t>(r) : batch_.wanted[r]] != hal::Role::kGenerated;
  }
  /// Whether an op's rows of prompts are multiplied on tiles, and there are any.
  bool uses_tiles(const hal::Op& op) const noexcept;
  /// kLinear (groups 1) and kGroupedLinear.
  void tiled_linear(const hal::Op& op, std::size_t groups) const noexcept;
  /// As linear_columns(), on tiles. Of `tiled` what says where the weights are need not be set; `plain` has the same
  /// rows for segments of types that have no tiles.
  void tiled_columns(const CpuBackend::Weight& w, std::size_t begin, std::size_t end, TileLinearArgs tiled,
                     const LinearArgs& plain) const noexcept;
  /// Calls body(i, worker) for i in [0, num_tasks): no two calls with one number of a worker, below the context's
  /// concurrency, run at a time.
  template <class Body>
  void worker_tasks(std::size_t num_tasks, const Body& body) const noexcept {
    std::atomic<std::size_t> next{0};
    tasks(std::min(num_tasks, context_.concurrency()), [&](std::size_t worker) {
      for (std::size_t i = 0; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_tasks;) body(i, worker);
    });
  }

  /// Runs the kernels for rows [begin, end) of the weight, whose segments they may cross. Of `args` out and bias are
  /// those of `begin`; the members that say where the weights are need not be set.
  void linear_columns(const CpuBackend::Weight& w, std::size_t begin, std::size_t end, LinearArgs args) const noexcept;

  Status check_ops() const;
  Status check_table(std::size_t r, std::size_t first_position) const;

  Matrix matrix(hal::ValueId id) const noexcept {
    const hal::Value& value = memory_.program->values[static_cast<std::size_t>(id)];
    const hal::ArenaPlan::Slot& slot = memory_.arena_plan->slots[static_cast<std::size_t>(id)];
    const std::size_t rows =
        value.rows == hal::Rows::kAll ? num_rows_ : static_cast<std::size_t>(batch_.header->num_wanted);
    return {reinterpret_cast<float*>(memory_.arena + slot.offset), rows, value.width, slot.stride};
  }
  const CpuBackend::Weight& weight(hal::WeightId id) const noexcept {
    return memory_.weights[static_cast<std::size_t>(id)];
  }
  const float* vector_or_null(hal::WeightId id) const noexcept {
    return id == hal::kNone ? nullptr : weight(id).vector();
  }
  std::size_t position(std::size_t r) const noexcept { return static_cast<std::size_t>(batch_.positions[r]); }
  std::size_t first_visible(const hal::AttentionSpec& spec, std::size_t r) const noexcept {
    const std::size_t end = position(r) + 1;
    return spec.window != 0 && end > spec.window ? end - spec.window : 0;
  }

  /// How many of `rows` rows of `num_blocks` blocks a task passes over at a time, all passes alike: they stay in a
  /// second-level cache beside the task's weights, but are enough to be worth panels.
  static std::size_t rows_at_once(std::size_t rows, std::size_t num_blocks) noexcept {
    constexpr std::size_t kBytes = 384 << 10, kLeast = 48;
    const std::size_t most =
        std::clamp<std::size_t>(kBytes / (num_blocks * sizeof(ActivationBlock) + 1), kLeast, kLinearRows);
    const std::size_t passes = std::max<std::size_t>((rows + most - 1) / most, 1);
    return (rows + passes - 1) / passes;
  }
  /// How many groups of a weight a task of a linear should have a multiple of, where it passes over `rows` at a time.
  std::size_t groups_together(std::size_t rows) const noexcept {
    return rows >= kernels_.rows_for_panels ? kernels_.panel_groups : 1;
  }
  /// How a linear reads weights. They are asked for ahead by the first pass over rows; later ones find them in a cache.
  void set_reading(LinearArgs& args, bool first_pass) const noexcept {
    args.prefetch_distance = first_pass ? tuning_.prefetch_distance : 0;
    args.streams = tuning_.streams;
  }
  /// Into how many tasks a linear is divided that has `pieces` pieces of columns and `size` multiplications. A task has
  /// some microseconds' worth of them, and long enough a stretch of weights for the hardware prefetcher.
  std::size_t count_linear_tasks(std::size_t size, std::size_t pieces) const noexcept {
    constexpr std::size_t kTasksPerThread = 8;
    constexpr std::size_t kTaskSize = 1 << 17;
    const std::size_t threads = context_.concurrency();
    if (threads == 1 || size < kTaskSize) return 1;
    return std::min(pieces, std::clamp(size / kTaskSize, threads, threads * kTasksPerThread));
  }

  /// Calls body(i) for i in [0, num_tasks) on the context's threads.
  template <class Body>
  void tasks(std::size_t num_tasks, const Body& body) const noexcept {
    if (num_tasks == 1) return body(0);
    context_.run(
        num_tasks, [](void* argument, std::size_t index) noexcept { (*static_cast<const Body*>(argument))(index); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }
  /// Calls body(begin, end) for consecutive ranges of [0, count): one where the whole is less than a parallel region is
  /// worth, else several per thread, so that a thread that loses its core does not keep the others waiting. `cost` is
  /// that of one item, in float operations or so.
  template <class Body>
  void divide(std::size_t count, std::size_t cost, const Body& body) const noexcept {
    constexpr std::size_t kTasksPerThread = 4;
    if (count == 0) return;
    const std::size_t threads = context_.concurrency();
    const std::size_t num_tasks =
        threads == 1 || count * cost < tuning_.region_cost ? 1 : std::min(count, threads * kTasksPerThread);
    tasks(num_tasks, [&](std::size_t i) { body(count * i / num_tasks, count * (i + 1) / num_tasks); });
  }
  /// Calls body(r) for every row.
  template <class Body>
  void each_row(std::size_t rows, std::size_t cost, const Body& body) const noexcept {
    divide(rows, cost, [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) body(r);
    });
  }

  const Context& context_;
  const KernelTable& kernels_;
  const TileTable* tiles_;
  const RunMemory& memory_;
  const hal::BatchView& batch_;
  const hal::BatchLimits& limits_;
  const Tuning tuning_;
  std::size_t num_rows_;
};

}  // namespace cpu
CORBEL_NAMESPACE_END
