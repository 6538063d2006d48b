// One step's input as a device-readable struct of arrays: rows, positions, sequences, block tables.
//
// The host writes it into one contiguous piece of memory, laid out by a BatchLayout that depends only on capacities,
// and uploads that piece: everything that varies from step to step is in it, so a recorded step can be replayed.
#pragma once

#include <corbel/config.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

CORBEL_NAMESPACE_BEGIN
namespace hal {

/// What a row is: part of a prompt, or a generated token that is fed back. Backends with two arithmetics choose by it,
/// never by the batch's shape.
enum class Role : std::uint8_t { kPrompt, kGenerated };

/// Capacities.
struct BatchLimits {
  std::uint32_t max_rows = 0;
  std::uint32_t max_wanted = 0;
  std::uint32_t max_sequences = 0;
  std::uint32_t max_blocks = 0;  ///< per sequence
  std::uint32_t num_frequencies = 0;
};

/// An entry of a block table: the block of the pool, and the absolute position of its first token.
struct BlockEntry {
  std::int32_t block = -1;
  std::int32_t first_position = 0;
};

struct BatchHeader {
  std::int32_t num_rows = 0;
  std::int32_t num_wanted = 0;
  std::int32_t num_sequences = 0;
};

/// Byte offsets of the arrays, each a multiple of 64.
struct BatchLayout {
  BatchLimits limits;
  std::uint64_t tokens = 0;     ///< int32 [max_rows]
  std::uint64_t positions = 0;  ///< int32 [max_rows]; rows of one sequence are in rising position order
  std::uint64_t slots = 0;      ///< int32 [max_rows], the row's sequence in this batch
  std::uint64_t roles = 0;      ///< Role [max_rows]
  std::uint64_t wanted = 0;     ///< int32 [max_wanted], rows whose outputs are wanted, rising
  std::uint64_t tables = 0;     ///< BlockEntry [max_sequences][max_blocks]; entry p / block_tokens holds position p
  /// float32 [max_sequences][num_frequencies]: inverse rope frequencies that depend on the length for which a sequence
  /// is meant; the same in every step of a sequence
  std::uint64_t frequencies = 0;
  std::uint64_t bytes = 0;
};

inline BatchLayout make_batch_layout(const BatchLimits& limits) noexcept {
  BatchLayout layout;
  layout.limits = limits;
  std::uint64_t end = 64;  // the header
  const auto place = [&](std::uint64_t count, std::uint64_t size) {
    const std::uint64_t offset = end;
    end = (end + count * size + 63) / 64 * 64;
    return offset;
  };
  layout.tokens = place(limits.max_rows, 4);
  layout.positions = place(limits.max_rows, 4);
  layout.slots = place(limits.max_rows, 4);
  layout.roles = place(limits.max_rows, 1);
  layout.wanted = place(limits.max_wanted, 4);
  layout.tables = place(std::uint64_t{limits.max_sequences} * limits.max_blocks, sizeof(BlockEntry));
  layout.frequencies = place(std::uint64_t{limits.max_sequences} * limits.num_frequencies, 4);
  layout.bytes = end;
  return layout;
}

/// The arrays of a batch at an address where they can be read or written.
template <class Byte>
struct BasicBatchView {
  template <class T>
  using Pointer = std::conditional_t<std::is_const_v<Byte>, const T*, T*>;
  Pointer<BatchHeader> header;
  Pointer<std::int32_t> tokens, positions, slots;
  Pointer<Role> roles;
  Pointer<std::int32_t> wanted;
  Pointer<BlockEntry> tables;
  Pointer<float> frequencies;
  std::uint32_t max_blocks;
  std::uint32_t num_frequencies;

  BasicBatchView(Byte* memory, const BatchLayout& layout) noexcept
      : header(reinterpret_cast<Pointer<BatchHeader>>(memory)),
        tokens(reinterpret_cast<Pointer<std::int32_t>>(memory + layout.tokens)),
        positions(reinterpret_cast<Pointer<std::int32_t>>(memory + layout.positions)),
        slots(reinterpret_cast<Pointer<std::int32_t>>(memory + layout.slots)),
        roles(reinterpret_cast<Pointer<Role>>(memory + layout.roles)),
        wanted(reinterpret_cast<Pointer<std::int32_t>>(memory + layout.wanted)),
        tables(reinterpret_cast<Pointer<BlockEntry>>(memory + layout.tables)),
        frequencies(reinterpret_cast<Pointer<float>>(memory + layout.frequencies)),
        max_blocks(layout.limits.max_blocks),
        num_frequencies(layout.limits.num_frequencies) {}

  Pointer<float> frequencies_of(std::int32_t slot) const noexcept {
    return frequencies + std::size_t(slot) * num_frequencies;
  }
  Pointer<BlockEntry> table(std::int32_t slot) const noexcept { return tables + std::size_t(slot) * max_blocks; }
};
using BatchView = BasicBatchView<const std::byte>;
using MutableBatchView = BasicBatchView<std::byte>;

}  // namespace hal
CORBEL_NAMESPACE_END
