// Packs a weight in parallel pieces: each worker reads some groups of rows, checks them and writes them in their packed
// form. Private to the backend.
#pragma once

#include <corbel/backends/cpu/cpu_backend.hpp>
#include <corbel/backends/cpu/pack.hpp>
#include <corbel/context.hpp>
#include <corbel/detail/checked.hpp>
#include <corbel/detail/digest.hpp>
#include <corbel/hal/weights.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>
#if CORBEL_HAS_EXCEPTIONS
#include <exception>
#endif

CORBEL_NAMESPACE_BEGIN
namespace cpu {

/// Bytes of a part when packed; nothing where that does not fit in 64 bits.
inline std::optional<std::uint64_t> packed_bytes(const hal::WeightPart& part, bool vector) noexcept {
  if (vector) {
    const std::optional<std::uint64_t> elements = detail::checked_mul(part.rows, part.cols);
    return elements ? detail::checked_mul(*elements, sizeof(float)) : std::nullopt;
  }
  // At most 4 bytes a value: one check covers the products inside group_bytes.
  const std::optional<std::uint64_t> rows = detail::checked_align(part.rows, kGroupRows);
  const std::optional<std::uint64_t> elements = rows ? detail::checked_mul(*rows, part.cols) : std::nullopt;
  if (!elements || !detail::checked_mul(*elements, 8)) return std::nullopt;
  return *rows / kGroupRows * group_bytes(part.dtype, part.cols);
}

inline std::optional<std::uint64_t> packed_bytes(const hal::WeightSpec& spec) noexcept {
  std::optional<std::uint64_t> sum = 0;
  for (const hal::WeightPart& part : spec.parts) {
    const std::optional<std::uint64_t> bytes = packed_bytes(part, (spec.uses & hal::kUseVector) != 0);
    sum = sum && bytes ? detail::checked_add(*sum, *bytes) : std::nullopt;
  }
  return sum;
}

inline Status check_part(const hal::WeightPart& part, const hal::WeightSpec& spec) {
  const DTypeTraits& type = traits(part.dtype);
  if (part.cols % type.block_elements != 0) {
    return Status(Errc::kUnsupported,
                  fmt::format("tensor '{}': rows of {} elements are not whole blocks of {} ({} elements)", part.name,
                              part.cols, type.name, type.block_elements));
  }
  if ((spec.uses & hal::kUseVector) == 0 && part.cols != spec.cols()) {
    return Status(Errc::kShapeMismatch, fmt::format("tensor '{}': {} columns, expected {} as in '{}'", part.name,
                                                    part.cols, spec.cols(), spec.parts.front().name));
  }
  if (!part.source) return Status(Errc::kInternal, fmt::format("tensor '{}': no source", part.name));
  return {};
}

inline Status bad_block(const hal::WeightPart& part, std::uint64_t block) {
  return Status(Errc::kBadValue, fmt::format("tensor '{}': block {} holds a NaN or an infinity", part.name, block));
}

/// One part being packed by several workers.
class Packer {
 public:
  Packer(const Context& context, const hal::WeightPart& part, std::byte* groups) noexcept
      : context_(context), part_(part), groups_(groups) {}

  Status run() {
    if (part_.rows == 0 || part_.cols == 0) return {};
    row_bytes_ = part_.row_bytes();
    bytes_ = part_.source->bytes();
    // A piece is some groups of rows: large enough for file reads, and small enough to share a small weight out evenly.
    constexpr std::uint64_t kPieceBytes = 64 << 10;
    groups_per_piece_ = std::max<std::uint64_t>(1, kPieceBytes / (row_bytes_ * kGroupRows));
    const std::uint64_t num_groups = (part_.rows + kGroupRows - 1) / kGroupRows;
    num_pieces_ = (num_groups + groups_per_piece_ - 1) / groups_per_piece_;
    const std::size_t num_workers =
        static_cast<std::size_t>(std::min<std::uint64_t>(context_.concurrency(), num_pieces_));
    if (bytes_.empty()) {
      piece_bytes_ = groups_per_piece_ * kGroupRows * row_bytes_;
      CORBEL_ASSIGN_OR_RETURN(scratch_, context_.allocate(piece_bytes_ * num_workers, "reading " + part_.name));
    }
    workers_.resize(num_workers);
    context_.run(
        num_workers, [](void* self, std::size_t index) noexcept { static_cast<Packer*>(self)->work(index); }, this);

    // The first failure in the order of the rows, whoever met it.
    Worker* first = nullptr;
    for (Worker& worker : workers_)
      if (worker.failed && (first == nullptr || worker.piece < first->piece)) first = &worker;
    if (first == nullptr) return {};
#if CORBEL_HAS_EXCEPTIONS
    if (first->exception) std::rethrow_exception(std::exchange(first->exception, nullptr));
#endif
    return first->status.ok() ? bad_block(part_, first->block) : std::move(first->status);
  }

 private:
  struct Worker {
    bool failed = false;
    std::uint64_t piece = 0;
    std::uint64_t block = 0;
    Status status;  // of the source
#if CORBEL_HAS_EXCEPTIONS
    std::exception_ptr exception;  // of the host's own reader or progress callback
#endif
  };

  void work(std::size_t index) noexcept {
    Worker& worker = workers_[index];
    while (!failed_.load(std::memory_order_relaxed)) {
      worker.piece = next_.fetch_add(1, std::memory_order_relaxed);
      if (worker.piece >= num_pieces_) return;
      if (try_pack(worker, scratch_.data() + index * piece_bytes_)) continue;
      worker.failed = true;
      failed_.store(true, std::memory_order_relaxed);
      return;
    }
  }

  bool try_pack(Worker& worker, std::byte* scratch) noexcept {
#if CORBEL_HAS_EXCEPTIONS
    try {
      return pack(worker, scratch);
    } catch (...) {
      worker.exception = std::current_exception();
      return false;
    }
#else
    return pack(worker, scratch);
#endif
  }

  bool pack(Worker& worker, std::byte* scratch) {
    const std::uint64_t first_row = worker.piece * groups_per_piece_ * kGroupRows;
    const std::uint64_t num_rows = std::min(groups_per_piece_ * kGroupRows, part_.rows - first_row);
    const std::byte* rows = scratch;
    if (bytes_.empty()) {
      worker.status =
          part_.source->read(first_row * row_bytes_, {scratch, static_cast<std::size_t>(num_rows * row_bytes_)});
      if (!worker.status.ok()) return false;
    } else {
      rows = bytes_.data() + first_row * row_bytes_;
    }
    const DTypeTraits& type = traits(part_.dtype);
    const std::uint64_t blocks_per_row = part_.cols / type.block_elements;
    const auto num_blocks = static_cast<std::size_t>(num_rows * blocks_per_row);
    if (const std::size_t bad = type.first_non_finite(rows, num_blocks); bad != num_blocks) {
      worker.block = first_row * blocks_per_row + bad;
      return false;
    }
    const std::uint64_t stride = group_bytes(part_.dtype, part_.cols);
    for (std::uint64_t row = 0; row < num_rows; row += kGroupRows) {
      pack_group(part_.dtype, rows + row * row_bytes_,
                 static_cast<std::size_t>(std::min<std::uint64_t>(kGroupRows, num_rows - row)),
                 static_cast<std::size_t>(row_bytes_), static_cast<std::size_t>(part_.cols),
                 groups_ + (first_row + row) / kGroupRows * stride);
    }
    return true;
  }

  const Context& context_;
  const hal::WeightPart& part_;
  std::byte* const groups_;
  std::uint64_t row_bytes_ = 0;
  std::span<const std::byte> bytes_;
  std::uint64_t groups_per_piece_ = 0;
  std::uint64_t num_pieces_ = 0;
  std::uint64_t piece_bytes_ = 0;
  Allocation scratch_;
  std::vector<Worker> workers_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<bool> failed_{false};
};

/// Dequantizes a vector part into out [rows * cols].
inline Status read_vector(const Context& context, const hal::WeightPart& part, float* out) {
  const DTypeTraits& type = traits(part.dtype);
  const auto num_blocks = static_cast<std::size_t>(part.rows * (part.cols / type.block_elements));
  const std::size_t bytes = num_blocks * type.block_bytes;
  std::span<const std::byte> stored = part.source->bytes();
  Allocation scratch;
  if (stored.empty() && bytes != 0) {
    CORBEL_ASSIGN_OR_RETURN(scratch, context.allocate(bytes, "reading " + part.name));
    CORBEL_RETURN_IF_ERROR(part.source->read(0, {scratch.data(), bytes}));
    stored = {scratch.data(), bytes};
  }
  if (const std::size_t bad = type.first_non_finite(stored.data(), num_blocks); bad != num_blocks) {
    return bad_block(part, bad);
  }
  type.dequantize(stored.data(), out, num_blocks);
  return {};
}

/// A digest of what some made-up rows become when they are packed, so that nobody has to count a version up.
inline detail::Digest sample_of_layout(DType dtype) {
  constexpr std::size_t kColumns = kNestColumns;
  const DTypeTraits& type = traits(dtype);
  const std::size_t row_bytes = kColumns / type.block_elements * type.block_bytes;
  std::vector<std::byte> rows(row_bytes * kGroupRows);
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] = static_cast<std::byte>((i * 37 + i / 256 * 11 + 5) & 0x3f);  // as floats of any kind: finite
  std::vector<std::byte> packed(static_cast<std::size_t>(group_bytes(dtype, kColumns)));
  detail::DigestInput input;
  for (const std::size_t num_rows : {kGroupRows, kGroupRows - 5}) {
    pack_group(dtype, rows.data(), num_rows, row_bytes, kColumns, packed.data());
    input.add(detail::digest(packed));
  }
  return input.digest();
}

}  // namespace cpu
CORBEL_NAMESPACE_END
