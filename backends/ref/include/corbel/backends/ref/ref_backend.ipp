// Definitions of ref_backend.hpp: memory, weights, copies. runner.ipp runs programs, ops.hpp holds the arithmetic.
#pragma once

#include <corbel/backends/ref/ref_backend.hpp>
#include <corbel/backends/ref/runner.ipp>
#include <corbel/detail/checked.hpp>
#include <corbel/detail/fp_environment.hpp>
#include <corbel/detail/guard.hpp>

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <optional>

CORBEL_NAMESPACE_BEGIN

static_assert(hal::Backend<RefBackend>);

namespace ref {

/// Bytes that a part takes in memory; nothing where that does not fit in 64 bits.
inline std::optional<std::uint64_t> part_bytes(const hal::WeightPart& part, bool vector) noexcept {
  const std::optional<std::uint64_t> row =
      vector ? detail::checked_mul(part.cols, sizeof(float))
             : detail::checked_mul(part.cols / traits(part.dtype).block_elements, traits(part.dtype).block_bytes);
  return row ? detail::checked_mul(*row, part.rows) : std::nullopt;
}

inline std::optional<std::uint64_t> total_bytes(const hal::WeightSpec& spec) noexcept {
  std::optional<std::uint64_t> sum = 0;
  for (const hal::WeightPart& part : spec.parts) {
    const std::optional<std::uint64_t> bytes = part_bytes(part, (spec.uses & hal::kUseVector) != 0);
    sum = sum && bytes ? detail::checked_add(*sum, *bytes) : std::nullopt;
  }
  return sum;
}

inline Status check_part(const hal::WeightPart& part, const hal::WeightSpec& spec) {
  if (part.cols % traits(part.dtype).block_elements != 0) {
    return Status(Errc::kUnsupported,
                  fmt::format("tensor '{}': rows of {} elements are not whole blocks of {} ({} elements)", part.name,
                              part.cols, traits(part.dtype).name, traits(part.dtype).block_elements));
  }
  if ((spec.uses & hal::kUseVector) == 0 && part.cols != spec.cols()) {
    return Status(Errc::kShapeMismatch, fmt::format("tensor '{}': {} columns, expected {} as in '{}'", part.name,
                                                    part.cols, spec.cols(), spec.parts.front().name));
  }
  if (!part.source) return Status(Errc::kInternal, fmt::format("tensor '{}': no source", part.name));
  return {};
}

/// Calls use(bytes, first block, blocks) for the stored blocks of a part, in pieces of at most `piece.size()` bytes,
/// checked for NaN and infinity. Each piece is read to where `place(first block)` says.
template <class Place, class Use>
Status read_part(const hal::WeightPart& part, std::uint64_t piece_bytes, const Place& place, const Use& use) {
  const DTypeTraits& type = traits(part.dtype);
  const std::uint64_t blocks = part.rows * (part.cols / type.block_elements);
  const std::uint64_t step = std::max<std::uint64_t>(piece_bytes / type.block_bytes, 1);
  for (std::uint64_t first = 0; first < blocks; first += step) {
    const std::size_t count = static_cast<std::size_t>(std::min(step, blocks - first));
    std::byte* bytes = place(first);
    CORBEL_RETURN_IF_ERROR(part.source->read(first * type.block_bytes, {bytes, count * type.block_bytes}));
    if (const std::size_t bad = type.first_non_finite(bytes, count); bad != count) {
      return Status(Errc::kBadValue, fmt::format("tensor '{}': block {} of {} holds a NaN or an infinity", part.name,
                                                 first + bad, blocks));
    }
    use(bytes, first, count);
  }
  return {};
}

}  // namespace ref

CORBEL_INLINE void RefBackend::Weight::read_row(std::uint64_t index, float* out) const noexcept {
  const Part* part = parts_.data();
  for (; index >= part->rows; ++part) index -= part->rows;
  part->traits->dequantize(memory_.data() + part->offset + index * part->row_bytes, out,
                           static_cast<std::size_t>(cols_ / part->traits->block_elements));
}

CORBEL_INLINE Result<RefBackend> RefBackend::create(const Context& context) { return RefBackend(context); }

CORBEL_INLINE Result<RefBackend::Buffer> RefBackend::allocate(std::uint64_t bytes, std::string_view what) const {
  CORBEL_ASSIGN_OR_RETURN(Allocation memory, context_.allocate(bytes, what));
  Buffer buffer;
  buffer.memory_ = std::move(memory);
  return buffer;
}

CORBEL_INLINE std::uint64_t RefBackend::weight_bytes(const hal::WeightSpec& spec) const noexcept {
  return ref::total_bytes(spec).value_or(std::numeric_limits<std::uint64_t>::max());
}

CORBEL_INLINE Result<RefBackend::Weight> RefBackend::prepare(const hal::WeightSpec& spec) const {
  return detail::guard([&]() -> Result<Weight> {
    constexpr std::uint64_t kPieceBytes = 4u << 20;
    if (spec.parts.empty()) return Status(Errc::kInternal, "a weight without tensors");
    for (const hal::WeightPart& part : spec.parts) CORBEL_RETURN_IF_ERROR(ref::check_part(part, spec));
    const std::string& name = spec.parts.front().name;
    const std::optional<std::uint64_t> bytes = ref::total_bytes(spec);
    if (!bytes) return Status(Errc::kOverflow, fmt::format("tensor '{}': its bytes do not fit in 64 bits", name));
    CORBEL_ASSIGN_OR_RETURN(Allocation memory, context_.allocate(*bytes, name));

    Weight weight;
    weight.memory_ = std::move(memory);
    std::byte* next = weight.memory_.data();
    if ((spec.uses & hal::kUseVector) != 0) {
      weight.rows_ = 1;
      // Stored values take up to 8 bytes, twice what they take as float32; a block is less than 512 bytes.
      std::vector<std::byte> piece(static_cast<std::size_t>(std::min(kPieceBytes, 2 * *bytes) + 512));
      for (const hal::WeightPart& part : spec.parts) {
        const DTypeTraits& type = traits(part.dtype);
        CORBEL_RETURN_IF_ERROR(ref::read_part(
            part, kPieceBytes, [&](std::uint64_t) { return piece.data(); },
            [&](const std::byte* blocks, std::uint64_t, std::size_t count) {
              type.dequantize(blocks, reinterpret_cast<float*>(next), count);
              next += count * type.block_elements * sizeof(float);
            }));
        weight.cols_ += part.rows * part.cols;
      }
      return weight;
    }
    weight.cols_ = spec.cols();
    for (const hal::WeightPart& part : spec.parts) {
      const DTypeTraits& type = traits(part.dtype);
      CORBEL_RETURN_IF_ERROR(ref::read_part(
          part, kPieceBytes, [&](std::uint64_t first) { return next + first * type.block_bytes; },
          [](const std::byte*, std::uint64_t, std::size_t) {}));
      weight.parts_.push_back(
          {&type, part.rows, part.row_bytes(), static_cast<std::uint64_t>(next - weight.memory_.data())});
      weight.rows_ += part.rows;
      next += part.rows * part.row_bytes();
    }
    return weight;
  });
}

CORBEL_INLINE bool RefBackend::supports(const hal::Op& op, const hal::Program& program) const noexcept {
  const auto divides = [&](hal::ValueId id, std::uint32_t groups) {
    return groups != 0 && program.values[static_cast<std::size_t>(id)].width % groups == 0;
  };
  switch (op.kind) {
    case hal::OpKind::kNorm:
      return op.norm.group != 0;
    case hal::OpKind::kRope:
      return op.rope.rotary_dim % 2 == 0 && op.rope.rotary_dim <= op.rope.head_dim;
    case hal::OpKind::kAttention:
      return op.attention.kv_heads != 0 && op.attention.heads % op.attention.kv_heads == 0;
    case hal::OpKind::kGroupedLinear:
      return divides(op.in[0], op.groups) && divides(op.out, op.groups);
    case hal::OpKind::kJoin:
      return divides(op.in[0], op.groups) && divides(op.in[1], op.groups);
    case hal::OpKind::kPositionScale:
      return op.limit > 0;
    case hal::OpKind::kRoute:
      return op.route.top_k != 0 && op.route.top_k <= op.route.experts && op.route.groups != 0 &&
             op.route.experts % op.route.groups == 0 && op.route.top_groups <= op.route.groups &&
             op.route.top_k <= op.route.experts / op.route.groups * op.route.top_groups;
    default:
      return true;
  }
}

CORBEL_INLINE std::uint64_t RefBackend::workspace_bytes(const hal::Program& program,
                                                        const hal::BatchLimits& limits) const noexcept {
  const ref::Workspace workspace(program, limits);
  return workspace.tile_bytes + workspace.task_bytes * context_.concurrency();
}

CORBEL_INLINE Status RefBackend::upload(Stream&, Buffer& to, std::uint64_t offset, const void* from,
                                        std::uint64_t bytes) const {
  if (offset > to.bytes() || bytes > to.bytes() - offset) {
    return Status(Errc::kInternal, fmt::format("upload of {} bytes to byte {} of {}", bytes, offset, to.bytes()));
  }
  if (bytes != 0) std::memcpy(to.memory_.data() + offset, from, bytes);
  return {};
}

CORBEL_INLINE Status RefBackend::download(Stream&, const Buffer& from, std::uint64_t offset, void* to,
                                          std::uint64_t bytes) const {
  if (offset > from.bytes() || bytes > from.bytes() - offset) {
    return Status(Errc::kInternal, fmt::format("download of {} bytes from byte {} of {}", bytes, offset, from.bytes()));
  }
  if (bytes != 0) std::memcpy(to, from.memory_.data() + offset, bytes);
  return {};
}

CORBEL_INLINE Status RefBackend::copy_kv_block(Stream&, Buffer& kv, const hal::KvLayout& layout, std::int32_t from,
                                               std::int32_t to) const {
  const std::uint64_t blocks = layout.block_bytes == 0 ? 0 : kv.bytes() / layout.block_bytes;
  const auto exists = [&](std::int32_t block) { return block >= 0 && static_cast<std::uint64_t>(block) < blocks; };
  if (!exists(from) || !exists(to)) {
    return Status(Errc::kInternal, fmt::format("copy of cache block {} to {} of {}", from, to, blocks));
  }
  std::byte* pool = kv.memory_.data();
  std::memmove(pool + static_cast<std::uint64_t>(to) * layout.block_bytes,
               pool + static_cast<std::uint64_t>(from) * layout.block_bytes, layout.block_bytes);
  return {};
}

CORBEL_INLINE Status RefBackend::run(Stream&, const hal::Bindings<RefBackend>& b) const {
  return detail::guard([&]() -> Status {
    const detail::ScopedFpEnvironment environment;
    const auto data = [](const Buffer* buffer) { return buffer == nullptr ? nullptr : buffer->memory_.data(); };
    const hal::BatchLimits& limits = b.batch_layout->limits;
    const std::uint64_t scratch = workspace_bytes(*b.program, limits);
    if (scratch != 0 && (b.workspace == nullptr || b.workspace->bytes() < scratch)) {
      return Status(Errc::kInternal, fmt::format("workspace of {} bytes, {} needed",
                                                 b.workspace == nullptr ? 0 : b.workspace->bytes(), scratch));
    }
    ref::RunMemory memory;
    memory.program = b.program;
    memory.weights = b.weights.data();
    memory.arena_plan = b.arena_plan;
    memory.arena = data(b.arena);
    memory.workspace = data(b.workspace);
    memory.kv_layout = b.kv_layout;
    memory.kv = data(b.kv);
    memory.kv_bytes = b.kv == nullptr ? 0 : b.kv->bytes();
    const hal::BatchView batch(static_cast<const std::byte*>(data(b.batch)), *b.batch_layout);
    const ref::Runner runner(context_, memory, batch, limits);
    CORBEL_RETURN_IF_ERROR(runner.check());
    runner.run();
    return {};
  });
}

CORBEL_INLINE std::string RefBackend::describe() const {
  return fmt::format("ref: scalar double arithmetic, {} thread{}", context_.concurrency(),
                     context_.concurrency() == 1 ? "" : "s");
}

CORBEL_NAMESPACE_END
