// Runs a program on the reference backend: finds the memory of values and weights, checks the batch, and calls ops.hpp
// for the ranges of rows, columns or heads into which an op is divided among tasks. Private to the backend.
#pragma once

#include <corbel/backends/ref/ops.hpp>
#include <corbel/backends/ref/ops_experts.hpp>
#include <corbel/backends/ref/ref_backend.hpp>
#include <corbel/context.hpp>
#include <corbel/hal/backend.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

CORBEL_NAMESPACE_BEGIN
namespace ref {

/// What a run works on, as plain pointers.
struct RunMemory {
  const hal::Program* program = nullptr;
  const RefBackend::Weight* weights = nullptr;
  const hal::ArenaPlan* arena_plan = nullptr;
  std::byte* arena = nullptr;
  std::byte* workspace = nullptr;
  const hal::KvLayout* kv_layout = nullptr;
  std::byte* kv = nullptr;
  std::uint64_t kv_bytes = 0;
};

/// How the workspace is divided: first the transposed rows of a linear's input, then one piece per task. Linears and
/// attention use it in turn.
struct Workspace {
  static constexpr std::uint64_t kWeightRows =
      16;  // dequantized together: with a tile of rows they fit in a second-level cache

  std::uint64_t tile_bytes = 0;
  std::uint64_t task_bytes = 0;

  Workspace(const hal::Program& program, const hal::BatchLimits& limits) noexcept {
    const std::uint64_t row_tiles = (std::uint64_t{limits.max_rows} + kTileRows - 1) / kTileRows;
    const std::uint64_t positions = std::uint64_t{limits.max_blocks} * 64;  // 64: the largest block
    for (const hal::Op& op : program.ops) {
      if (op.kind == hal::OpKind::kLinear || op.kind == hal::OpKind::kGroupedLinear ||
          op.kind == hal::OpKind::kExpertLinear) {
        const std::uint64_t cols = program.values[static_cast<std::size_t>(op.in[0])].width;
        tile_bytes = std::max(tile_bytes, row_tiles * kTileRows * cols * sizeof(double));
        task_bytes = std::max(task_bytes, kWeightRows * cols * sizeof(float));
      } else if (op.kind == hal::OpKind::kAttention) {
        const std::uint64_t dim = op.attention.head_dim;
        const std::uint64_t widest = std::max<std::uint64_t>(dim, op.attention.value_width());
        task_bytes = std::max(task_bytes, (positions + dim + widest) * sizeof(double) + widest * sizeof(float));
      } else if (op.kind == hal::OpKind::kRoute) {
        task_bytes = std::max(task_bytes, RouteScratch::bytes(op.route));
      } else if (op.kind == hal::OpKind::kPermute || op.kind == hal::OpKind::kEmbedPosition) {
        const std::uint64_t cols = program.values[static_cast<std::size_t>(op.in[0])].width;
        task_bytes = std::max(task_bytes, cols * sizeof(float));
      }
    }
    tile_bytes = (tile_bytes + 63) / 64 * 64;
    task_bytes = (task_bytes + 63) / 64 * 64;
  }
};

class Runner {
 public:
  Runner(const Context& context, const RunMemory& memory, const hal::BatchView& batch,
         const hal::BatchLimits& limits) noexcept
      : context_(context),
        memory_(memory),
        batch_(batch),
        limits_(limits),
        workspace_(*memory.program, limits),
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
  void route(const hal::Op& op) const noexcept;
  void expert_linear(const hal::Op& op) const noexcept;
  void expert_sum(const hal::Op& op) const noexcept;
  void permute(const hal::Op& op) const noexcept;
  void round_activations(const hal::Op& op) const noexcept;
  void rope(const hal::Op& op) const noexcept;
  void kv_append(const hal::Op& op) const noexcept;
  void attention(const hal::Op& op) const noexcept;
  void elementwise(const hal::Op& op) const noexcept;
  void select_rows(const hal::Op& op) const noexcept;

  Status check_row(std::size_t r) const;
  Status check_table(std::size_t r, std::size_t first_visible) const;

  Matrix matrix(hal::ValueId id) const noexcept {
    const hal::Value& value = memory_.program->values[static_cast<std::size_t>(id)];
    const hal::ArenaPlan::Slot& slot = memory_.arena_plan->slots[static_cast<std::size_t>(id)];
    const std::size_t rows =
        value.rows == hal::Rows::kAll ? num_rows_ : static_cast<std::size_t>(batch_.header->num_wanted);
    return {reinterpret_cast<float*>(memory_.arena + slot.offset), rows, value.width, slot.stride};
  }
  const RefBackend::Weight& weight(hal::WeightId id) const noexcept {
    return memory_.weights[static_cast<std::size_t>(id)];
  }
  const float* vector_or_null(hal::WeightId id) const noexcept {
    return id == hal::kNone ? nullptr : weight(id).vector();
  }
  std::size_t position(std::size_t r) const noexcept { return static_cast<std::size_t>(batch_.positions[r]); }
  KvPlanes planes(std::int32_t layer, std::size_t r) const noexcept;
  std::byte* task_memory(std::size_t task) const noexcept {
    return memory_.workspace + workspace_.tile_bytes + task * workspace_.task_bytes;
  }

  /// Calls body(task, begin, end) for consecutive ranges of [0, count), at most one per thread, each a multiple of
  /// `step` long but the last.
  template <class Body>
  void divide(std::size_t count, std::size_t step, const Body& body) const noexcept {
    const std::size_t steps = (count + step - 1) / step;
    const std::size_t tasks = std::min(context_.concurrency(), steps);
    struct Argument {
      const Body* body;
      std::size_t count, step, steps, tasks;
    } argument = {&body, count, step, steps, tasks};
    context_.run(
        tasks,
        [](void* opaque, std::size_t task) noexcept {
          const Argument& a = *static_cast<const Argument*>(opaque);
          const std::size_t begin = a.steps * task / a.tasks * a.step;
          const std::size_t end = std::min(a.steps * (task + 1) / a.tasks * a.step, a.count);
          (*a.body)(task, begin, end);
        },
        &argument);
  }
  /// Calls body(r) for every row.
  template <class Body>
  void each_row(std::size_t rows, const Body& body) const noexcept {
    divide(rows, 1, [&](std::size_t, std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) body(r);
    });
  }

  const Context& context_;
  const RunMemory& memory_;
  const hal::BatchView& batch_;
  const hal::BatchLimits& limits_;
  Workspace workspace_;
  std::size_t num_rows_;
};

}  // namespace ref
CORBEL_NAMESPACE_END
