// From stored rows to packed groups, and back. The stored blocks come as integers and scales from the trait table.
// Private to the backend.
#pragma once

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
inline float read_scale(const PackedFormat& format, const std::byte* from) noexcept {
  if (format.scale_bytes == 2) {
    std::uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return format.bf16_scales ? bf16_to_f32(half) : f16_to_f32(half);
  }
  float value;
  std::memcpy(&value, from, sizeof value);
  return value;
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
  if constexpr (kFormat.code_bits == 8) {
    for (std::size_t quad = 0; quad < 8; ++quad) std::memcpy(record + quad * 64 + lane * 4, &quads[quad], 4);
  } else {  // four codes of 4 bits each in the low halves, four in the high ones
    for (std::size_t quad = 0; quad < 8; quad += 2) {
      const std::uint32_t pair = quads[quad] | quads[quad + 1] << 4;
      std::memcpy(record + quad / 2 * 64 + lane * 4, &pair, 4);
    }
  }
  std::byte* scales = record + kFormat.code_bytes();
  for (std::size_t s = 0; s < kBlockColumns / kFormat.scale_columns; ++s) {
    const std::size_t at = (s * kGroupRows + lane) * kFormat.scale_bytes;
    const std::size_t source = first / kFormat.scale_columns + s;
    write_scale<kType>(scales + at, block.scales[source]);
    if constexpr (kFormat.has_minimum) write_scale<kType>(scales + kFormat.scales_bytes() + at, block.minima[source]);
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
        write_record<kType>(block, i, lane, group + (k + i) / kBlockColumns * kFormat.record_bytes());
    }
  }
}

using PackBlocks = void (*)(const DTypeTraits&, const std::byte*, std::size_t, std::size_t, std::size_t, std::byte*);

template <DType kType>
constexpr PackBlocks block_packer() noexcept {
  if constexpr (packed_format(kType).quantized()) {
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
  for (std::size_t k = 0; k < columns; ++k) {
    const std::byte* record = group + k / kBlockColumns * format.record_bytes();
    const std::size_t column = k % kBlockColumns, quad = column / 4;
    std::uint32_t code;
    if (format.code_bits == 8) {
      code = std::to_integer<std::uint32_t>(record[quad * 64 + lane * 4 + column % 4]);
    } else {
      code = std::to_integer<std::uint32_t>(record[quad / 2 * 64 + lane * 4 + column % 4]) >> (quad % 2 * 4) & 15u;
    }
    if (format.codebook != Codebook::kNone) code = table.codes[code];
    const std::size_t at =
        format.code_bytes() + (column / format.scale_columns * kGroupRows + lane) * format.scale_bytes;
    const float value =
        read_scale(format, record + at) * static_cast<float>(static_cast<std::int32_t>(code) - format.zero());
    out[k] = format.has_minimum ? value + read_scale(format, record + at + format.scales_bytes()) : value;
  }
}

}  // namespace cpu
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
