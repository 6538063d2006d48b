// From stored rows to packed groups, and back. The stored blocks come as integers and scales from the trait table.
// Private to the backend.
#pragma once

#include <corbel/backends/cpu/pack_direct.hpp>
#include <corbel/backends/cpu/packed.hpp>
#include <corbel/config.hpp>
#include <corbel/detail/compiler.hpp>
#include <corbel/dtype.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace cpu {

inline constexpr std::size_t kMaxPlainElements = 4;  ///< of a block of a plain type

/// The 16 bits of a finite value that came from a float16: nothing is rounded.
inline std::uint16_t exact_half(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude < 0x38800000u) return f32_to_f16(value);  // subnormal
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | (magnitude - 0x38000000u) >> 13);
}

template <DType kType>
void write_scale(std::byte* to, float value) noexcept {
  constexpr PackedFormat kFormat = packed_format(kType);
  if constexpr (kFormat.scale_bytes == 2) {
    const std::uint16_t half = kFormat.bf16_scales ? f32_to_bf16(value) : exact_half(value);
    std::memcpy(to, &half, sizeof half);
  } else {
    std::memcpy(to, &value, sizeof value);
  }
}
/// `factor` belongs to scales that are integers.
inline float read_scale(const PackedFormat& format, const std::byte* from, float factor) noexcept {
  if (format.nested()) return factor * static_cast<float>(static_cast<std::int8_t>(*from));
  if (format.scale_bytes == 2) {
    std::uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return format.bf16_scales ? bf16_to_f32(half) : f16_to_f32(half);
  }
  float value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// kBits bits from bit `from` on of each code of 8 quads; lines begin at `to`.
template <std::size_t kBits>
void write_plane(const std::uint32_t* quads, std::size_t from, std::byte* to) noexcept {
  constexpr std::uint32_t kMask = 0x01010101u * ((1u << kBits) - 1);
  constexpr std::size_t kPerLine = 8 / kBits;
  for (std::size_t line = 0; line < kBits; ++line) {
    std::uint32_t word = 0;
    for (std::size_t i = 0; i < kPerLine; ++i) word |= (quads[line * kPerLine + i] >> from & kMask) << (i * kBits);
    std::memcpy(to + line * 64, &word, sizeof word);
  }
}

/// Columns [first, first + 32) of an unpacked block into the record of their columns, as row `lane`.
template <DType kType>
void write_record(const IntegerBlock& block, std::size_t first, std::size_t lane, std::byte* record) noexcept {
  constexpr PackedFormat kFormat = packed_format(kType);
  // Four codes at a time: they stay together, and words are fast without a vectorizing compiler.
  std::uint32_t quads[kBlockColumns / 4];
  if constexpr (kFormat.codebook != Codebook::kNone) {
    constexpr CodebookTable kTable = codebook_table(kFormat);
    std::uint8_t codes[kBlockColumns];
    for (std::size_t i = 0; i < kBlockColumns; ++i) {
      const auto code = static_cast<std::uint8_t>(block.codes[first + i] + kFormat.zero());
      codes[i] = static_cast<std::uint8_t>(std::find(kTable.codes, kTable.codes + 15, code) - kTable.codes);
    }
    std::memcpy(quads, codes, sizeof quads);
  } else {
    std::memcpy(quads, block.codes + first, sizeof quads);
    constexpr std::uint32_t kZeros = static_cast<std::uint32_t>(kFormat.zero() & 0xff) * 0x01010101u;
    for (std::uint32_t& quad : quads)  // adds the zero to each byte, without carries between them
      quad = ((quad & 0x7f7f7f7fu) + (kZeros & 0x7f7f7f7fu)) ^ ((quad ^ kZeros) & 0x80808080u);
  }
  constexpr std::size_t kLow = static_cast<std::size_t>(kFormat.code_bits);
  write_plane<kLow>(quads, 0, record + lane * 4);
  if constexpr (kFormat.high_bits != 0)
    write_plane<static_cast<std::size_t>(kFormat.high_bits)>(quads, kLow, record + kFormat.low_bytes() + lane * 4);
  std::byte* scales = record + kFormat.code_bytes();
  for (std::size_t s = 0; s < kBlockColumns / kFormat.scale_columns; ++s) {
    const std::size_t at = (s * kGroupRows + lane) * kFormat.scale_bytes;
    const std::size_t source = first / kFormat.scale_columns + s;
    std::byte* minima = scales + kFormat.scales_bytes();
    if constexpr (kFormat.nested()) {
      std::memcpy(scales + at, &block.scale_codes[source], 1);
      if constexpr (kFormat.has_minimum) std::memcpy(minima + at, &block.minimum_codes[source], 1);
    } else {
      write_scale<kType>(scales + at, block.scales[source]);
      if constexpr (kFormat.has_minimum) write_scale<kType>(minima + at, block.minima[source]);
    }
  }
}

/// Rows of a quantized type into one group: kType is the first type that is packed as `type` is.
template <DType kType>
void pack_blocks(const DTypeTraits& type, const std::byte* rows, std::size_t num_rows, std::size_t row_bytes,
                 std::size_t columns, std::byte* group) noexcept {
  constexpr PackedFormat kFormat = packed_format(kType);
  IntegerBlock block;
  for (std::size_t lane = 0; lane < num_rows; ++lane) {
    const std::byte* stored = rows + lane * row_bytes;
    for (std::size_t k = 0; k < columns; k += type.block_elements, stored += type.block_bytes) {
      type.unpack(stored, block);
      for (std::size_t i = 0; i < type.block_elements; i += kBlockColumns)
        write_record<kType>(block, i, lane, group + record_offset(kFormat, k + i));
      if constexpr (kFormat.nested()) {
        std::byte* header = group + record_offset(kFormat, k) - kFormat.header_bytes() + lane * 2;
        const std::uint16_t scale = exact_half(block.scale), minimum = exact_half(block.minimum);
        std::memcpy(header, &scale, sizeof scale);
        if constexpr (kFormat.has_minimum) std::memcpy(header + kGroupRows * 2, &minimum, sizeof minimum);
      }
    }
  }
}

using PackBlocks = void (*)(const DTypeTraits&, const std::byte*, std::size_t, std::size_t, std::size_t, std::byte*);

template <DType kType>
constexpr PackBlocks block_packer() noexcept {
  if constexpr (Stored<kType>::kDirect) {
    return [](const DTypeTraits&, const std::byte* rows, std::size_t num_rows, std::size_t row_bytes,
              std::size_t columns, std::byte* group) { pack_direct<kType>(rows, num_rows, row_bytes, columns, group); };
  } else if constexpr (packed_format(kType).quantized()) {
    return &pack_blocks<kernel_type(kType)>;
  } else {
    return nullptr;
  }
}

template <std::size_t... kTypes>
constexpr std::array<PackBlocks, sizeof...(kTypes)> block_packers(std::index_sequence<kTypes...>) noexcept {
  return {block_packer<static_cast<DType>(kTypes)>()...};
}

/// For each type that is kept as codes and scales.
inline constexpr std::array<PackBlocks, kNumDTypes> kBlockPackers =
    block_packers(std::make_index_sequence<kNumDTypes>());

/// The values of a block of a plain type into consecutive columns of a group; `to` is the place of the first.
inline void write_plain(DType dtype, const std::byte* stored, std::byte* to) noexcept {
  const DTypeTraits& type = traits(dtype);
  const std::size_t bytes = plain_bytes(dtype);
  float values[kMaxPlainElements];
  type.dequantize(stored, values, 1);
  for (std::size_t i = 0; i < type.block_elements; ++i, to += kGroupRows * bytes) {
    const std::uint16_t half = f32_to_bf16(values[i]);
    std::memcpy(to, bytes == 2 ? static_cast<const void*>(&half) : &values[i], bytes);
  }
}

/// A block of 32 small floats (a float32 scale, then the codes) into its record, as row `lane`.
inline void write_coded(const PackedFormat& format, const std::byte* stored, std::size_t lane,
                        std::byte* record) noexcept {
  std::memcpy(record + lane * sizeof(float), stored, sizeof(float));
  const std::byte* codes = stored + sizeof(float);
  std::byte* to = record + kGroupRows * sizeof(float) + lane;
  if (format.float_code == FloatCode::kE4M3) {
    for (std::size_t k = 0; k < kBlockColumns; ++k) to[k * kGroupRows] = codes[k];
    return;
  }
  // Stored: code i in the low half and i + 16 in the high half of byte i.
  const auto code = [&](std::size_t k) { return k < 16 ? codes[k] & std::byte{15} : codes[k - 16] >> 4; };
  for (std::size_t k = 0; k < kBlockColumns; k += 2) to[k / 2 * kGroupRows] = code(k) | code(k + 1) << 4;
}

/// Values of plain types: record k holds column k of all rows. A line of memory of each row at a time, so that every
/// line is fetched once.
template <std::size_t Bytes>
void transpose(const std::byte* rows, std::size_t num_rows, std::size_t row_bytes, std::size_t columns,
               std::byte* group) noexcept {
  constexpr std::size_t kTile = 64 / Bytes;
  for (std::size_t first = 0; first < columns; first += kTile) {
    const std::size_t end = std::min(first + kTile, columns);
    for (std::size_t lane = 0; lane < num_rows; ++lane)
      for (std::size_t k = first; k < end; ++k)
        std::memcpy(group + (k * kGroupRows + lane) * Bytes, rows + lane * row_bytes + k * Bytes, Bytes);
  }
}

/// Packs `num_rows` (at most 16) stored rows, `row_bytes` apart, into one group.
inline void pack_group(DType dtype, const std::byte* rows, std::size_t num_rows, std::size_t row_bytes,
                       std::size_t columns, std::byte* group) noexcept {
  const PackedFormat format = packed_format(dtype);
  if (num_rows < kGroupRows) std::memset(group, 0, group_bytes(dtype, columns));
  const DTypeTraits& type = traits(dtype);
  if (format.coded()) {
    for (std::size_t lane = 0; lane < num_rows; ++lane)
      for (std::size_t block = 0; block < columns / kBlockColumns; ++block)
        write_coded(format, rows + lane * row_bytes + block * type.block_bytes, lane,
                    group + block * format.record_bytes());
    return;
  }
  if (!format.quantized()) {
    const std::size_t bytes = plain_bytes(dtype);
    if (format.plain == dtype)
      return bytes == 4 ? transpose<4>(rows, num_rows, row_bytes, columns, group)
                        : transpose<2>(rows, num_rows, row_bytes, columns, group);
    for (std::size_t lane = 0; lane < num_rows; ++lane) {
      const std::byte* stored = rows + lane * row_bytes;
      for (std::size_t k = 0; k < columns; k += type.block_elements, stored += type.block_bytes)
        write_plain(dtype, stored, group + (k * kGroupRows + lane) * bytes);
    }
    return;
  }
  kBlockPackers[static_cast<std::size_t>(dtype)](type, rows, num_rows, row_bytes, columns, group);
}

/// `bits` bits of the code of a column, which are those of write_plane.
inline std::uint32_t read_bits(const std::byte* plane, std::size_t bits, std::size_t lane,
                               std::size_t column) noexcept {
  const std::size_t quad = column / 4, per_line = 8 / bits;
  const auto byte = std::to_integer<std::uint32_t>(plane[quad / per_line * 64 + lane * 4 + column % 4]);
  return byte >> (quad % per_line * bits) & ((1u << bits) - 1);
}

/// Dequantizes row `lane` of a group into out [columns].
inline void read_packed_row(DType dtype, const std::byte* group, std::size_t lane, std::size_t columns,
                            float* out) noexcept {
  const PackedFormat format = packed_format(dtype);
  if (format.coded()) {
    std::byte stored[sizeof(float) + kBlockColumns] = {};
    for (std::size_t block = 0; block < columns / kBlockColumns; ++block) {
      const std::byte* record = group + block * format.record_bytes();
      std::memcpy(stored, record + lane * sizeof(float), sizeof(float));
      const std::byte* from = record + kGroupRows * sizeof(float) + lane;
      std::byte* codes = stored + sizeof(float);
      for (std::size_t k = 0; k < kBlockColumns; ++k) {
        if (format.float_code == FloatCode::kE4M3) {
          codes[k] = from[k * kGroupRows];
        } else {
          const std::byte code = from[k / 2 * kGroupRows] >> (k % 2 * 4) & std::byte{15};
          codes[k % 16] = k < 16 ? code : codes[k % 16] | code << 4;
        }
      }
      traits(dtype).dequantize(stored, out + block * kBlockColumns, 1);
    }
    return;
  }
  if (!format.quantized()) {
    const std::size_t bytes = plain_bytes(dtype);
    for (std::size_t k = 0; k < columns; ++k)
      traits(format.plain).dequantize(group + (k * kGroupRows + lane) * bytes, out + k, 1);
    return;
  }
  const CodebookTable table = codebook_table(format);
  const auto half = [](const std::byte* from) {
    std::uint16_t bits;
    std::memcpy(&bits, from, sizeof bits);
    return f16_to_f32(bits);
  };
  for (std::size_t k = 0; k < columns; ++k) {
    const std::byte* record = group + record_offset(format, k);
    const std::size_t column = k % kBlockColumns;
    std::uint32_t code = read_bits(record, static_cast<std::size_t>(format.code_bits), lane, column);
    if (format.high_bits != 0)
      code |= read_bits(record + format.low_bytes(), static_cast<std::size_t>(format.high_bits), lane, column)
              << format.code_bits;
    if (format.codebook != Codebook::kNone) code = table.codes[code];
    float scale = 0, minimum = 0;
    if (format.nested()) {
      const std::byte* header = group + record_offset(format, k / kNestColumns * kNestColumns) - format.header_bytes();
      scale = half(header + lane * 2);
      if (format.has_minimum) minimum = half(header + (kGroupRows + lane) * 2);
    }
    const std::byte* at =
        record + format.code_bytes() + (column / format.scale_columns * kGroupRows + lane) * format.scale_bytes;
    const float value =
        read_scale(format, at, scale) * static_cast<float>(static_cast<std::int32_t>(code) - format.zero());
    out[k] = format.has_minimum ? value + read_scale(format, at + format.scales_bytes(), minimum) : value;
  }
}

}  // namespace cpu
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
