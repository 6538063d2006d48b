// From stored rows to packed groups, and back. Layouts of the stored blocks: facts of the GGUF specification. Private
// to the backend.
#pragma once

#include <corbel/backends/cpu/packed.hpp>
#include <corbel/config.hpp>
#include <corbel/detail/compiler.hpp>
#include <corbel/dtype.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace cpu {

inline constexpr std::size_t kMaxBlockElements = 256;

/// One stored block as codes, scales and minima: value i is scales[i / g] * (codes[i] - zero) or scales[i / g] *
/// codes[i] + minima[i / g], g being the format's scale_columns.
struct UnpackedBlock {
  std::uint8_t codes[kMaxBlockElements];
  float scales[kMaxBlockElements / 16];
  float minima[kMaxBlockElements / 16];
};

/// A stored block, read without alignment, little-endian.
class StoredBlock {
 public:
  explicit StoredBlock(const std::byte* bytes) noexcept : bytes_(bytes) {}
  std::uint32_t u8(std::size_t at) const noexcept { return std::to_integer<std::uint32_t>(bytes_[at]); }
  std::uint32_t u32(std::size_t at) const noexcept {
    return u8(at) | u8(at + 1) << 8 | u8(at + 2) << 16 | u8(at + 3) << 24;
  }
  float f16(std::size_t at) const noexcept { return f16_to_f32(static_cast<std::uint16_t>(u8(at) | u8(at + 1) << 8)); }
  float small(std::size_t at) const noexcept { return static_cast<float>(static_cast<std::int8_t>(u8(at))); }

 private:
  const std::byte* bytes_;
};

inline float to_float(std::uint32_t code) noexcept { return static_cast<float>(static_cast<std::int32_t>(code)); }

/// Q4_0, Q4_1, Q5_0, Q5_1: scale, perhaps minimum, perhaps 32 fifth bits, 32 x 4 bits with the low halves first.
inline void unpack_32(StoredBlock in, bool has_minimum, bool has_fifth_bits, UnpackedBlock& out) noexcept {
  out.scales[0] = in.f16(0);
  std::size_t at = 2;
  if (has_minimum) {
    out.minima[0] = in.f16(at);
    at += 2;
  }
  std::uint32_t fifth = 0;
  if (has_fifth_bits) {
    fifth = in.u32(at);
    at += 4;
  }
  for (std::size_t i = 0; i < 16; ++i) {
    const std::uint32_t pair = in.u8(at + i);
    out.codes[i] = static_cast<std::uint8_t>((pair & 15u) | (fifth >> i & 1u) << 4);
    out.codes[i + 16] = static_cast<std::uint8_t>(pair >> 4 | (fifth >> (i + 16) & 1u) << 4);
  }
}

/// Q4_K and Q5_K: d, dmin, 8 pairs of 6-bit scale and minimum in 12 bytes, perhaps 256 fifth bits, 256 x 4 bits.
/// Products with d are exact in float32.
inline void unpack_k(StoredBlock in, bool has_fifth_bits, UnpackedBlock& out) noexcept {
  const float d = in.f16(0), dmin = in.f16(2);
  for (std::size_t group = 0; group < 8; ++group) {
    std::uint32_t scale, minimum;
    if (group < 4) {
      scale = in.u8(4 + group) & 63u;
      minimum = in.u8(8 + group) & 63u;
    } else {
      scale = (in.u8(8 + group) & 15u) | in.u8(group) >> 6 << 4;
      minimum = in.u8(8 + group) >> 4 | in.u8(4 + group) >> 6 << 4;
    }
    out.scales[group] = d * to_float(scale);
    out.minima[group] = -(dmin * to_float(minimum));
    const std::size_t codes = (has_fifth_bits ? 48u : 16u) + group / 2 * 32;
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t fifth = has_fifth_bits ? in.u8(16 + i) >> group & 1u : 0u;
      out.codes[group * 32 + i] = static_cast<std::uint8_t>((in.u8(codes + i) >> (group % 2 * 4) & 15u) | fifth << 4);
    }
  }
}

inline void unpack_q2_k(StoredBlock in, UnpackedBlock& out) noexcept {
  const float d = in.f16(80), dmin = in.f16(82);
  for (std::size_t group = 0; group < 16; ++group) {
    out.scales[group] = d * to_float(in.u8(group) & 15u);
    out.minima[group] = -(dmin * to_float(in.u8(group) >> 4));
    const std::size_t codes = 16 + group / 8 * 32 + group % 2 * 16;
    for (std::size_t i = 0; i < 16; ++i)
      out.codes[group * 16 + i] = static_cast<std::uint8_t>(in.u8(codes + i) >> (group % 8 / 2 * 2) & 3u);
  }
}

inline void unpack_q3_k(StoredBlock in, UnpackedBlock& out) noexcept {
  const float d = in.f16(108);
  for (std::size_t group = 0; group < 16; ++group) {
    const std::uint32_t low = group < 8 ? in.u8(96 + group) & 15u : in.u8(96 + group - 8) >> 4;
    const std::uint32_t high = in.u8(104 + group % 4) >> (group / 4 * 2) & 3u;
    out.scales[group] = d * static_cast<float>(static_cast<std::int32_t>(low | high << 4) - 32);
    const std::size_t lane = group % 2 * 16;
    const std::size_t codes = 32 + group / 8 * 32 + lane;
    for (std::size_t i = 0; i < 16; ++i) {
      const std::uint32_t third = in.u8(lane + i) >> (group / 2) & 1u;
      out.codes[group * 16 + i] =
          static_cast<std::uint8_t>((in.u8(codes + i) >> (group % 8 / 2 * 2) & 3u) | third << 2);
    }
  }
}

inline void unpack_q6_k(StoredBlock in, UnpackedBlock& out) noexcept {
  const float d = in.f16(208);
  for (std::size_t group = 0; group < 16; ++group) out.scales[group] = d * in.small(192 + group);
  for (std::size_t row = 0; row < 8; ++row) {  // 32 codes each
    const std::size_t low = row / 4 * 64 + row % 2 * 32;
    const std::size_t high = 128 + row / 4 * 32;
    for (std::size_t i = 0; i < 32; ++i) {
      out.codes[row * 32 + i] = static_cast<std::uint8_t>((in.u8(low + i) >> (row % 4 / 2 * 4) & 15u) |
                                                          (in.u8(high + i) >> (row % 4 * 2) & 3u) << 4);
    }
  }
}

/// Unpacks one stored block of a quantized type.
inline void unpack_block(DType dtype, const std::byte* bytes, UnpackedBlock& out) noexcept {
  const StoredBlock in(bytes);
  switch (dtype) {
    case DType::kQ4_0:
      return unpack_32(in, false, false, out);
    case DType::kQ4_1:
      return unpack_32(in, true, false, out);
    case DType::kQ5_0:
      return unpack_32(in, false, true, out);
    case DType::kQ5_1:
      return unpack_32(in, true, true, out);
    case DType::kQ8_0:
      out.scales[0] = in.f16(0);
      for (std::size_t i = 0; i < 32; ++i) out.codes[i] = static_cast<std::uint8_t>(in.u8(2 + i) ^ 0x80u);
      return;
    case DType::kQ2_K:
      return unpack_q2_k(in, out);
    case DType::kQ3_K:
      return unpack_q3_k(in, out);
    case DType::kQ4_K:
      return unpack_k(in, false, out);
    case DType::kQ5_K:
      return unpack_k(in, true, out);
    case DType::kQ6_K:
      return unpack_q6_k(in, out);
    default:
      return;
  }
}

inline void write_scale(const PackedFormat& format, std::byte* to, float value) noexcept {
  if (format.scale_bytes == 2) {
    const std::uint16_t half = f32_to_f16(value);  // came from f16: exact
    std::memcpy(to, &half, sizeof half);
  } else {
    std::memcpy(to, &value, sizeof value);
  }
}
inline float read_scale(const PackedFormat& format, const std::byte* from) noexcept {
  if (format.scale_bytes == 2) {
    std::uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return f16_to_f32(half);
  }
  float value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Columns [first, first + 32) of an unpacked block into the record of their columns, as row `lane`.
inline void write_record(const PackedFormat& format, const UnpackedBlock& block, std::size_t first, std::size_t lane,
                         std::byte* record) noexcept {
  const std::uint8_t* codes = block.codes + first;
  for (std::size_t quad = 0; quad < 8; ++quad) {
    for (std::size_t i = 0; i < 4; ++i) {
      const std::uint8_t code = codes[quad * 4 + i];
      if (format.code_bits == 8) {
        record[quad * 64 + lane * 4 + i] = std::byte{code};
      } else if (quad % 2 == 0) {
        record[quad / 2 * 64 + lane * 4 + i] =
            std::byte{static_cast<std::uint8_t>(code | codes[quad * 4 + 4 + i] << 4)};
      }
    }
  }
  std::byte* scales = record + format.code_bytes();
  for (std::size_t s = 0; s < kBlockColumns / format.scale_columns; ++s) {
    const std::size_t at = (s * kGroupRows + lane) * format.scale_bytes;
    const std::size_t source = first / format.scale_columns + s;
    write_scale(format, scales + at, block.scales[source]);
    if (format.has_minimum) write_scale(format, scales + format.scales_bytes() + at, block.minima[source]);
  }
}

/// Packs `num_rows` (at most 16) stored rows, `row_bytes` apart, into one group.
inline void pack_group(DType dtype, const std::byte* rows, std::size_t num_rows, std::size_t row_bytes,
                       std::size_t columns, std::byte* group) noexcept {
  const PackedFormat format = packed_format(dtype);
  if (num_rows < kGroupRows) std::memset(group, 0, group_bytes(dtype, columns));
  if (!format.quantized()) {
    const std::size_t bytes = plain_bytes(dtype);
    for (std::size_t lane = 0; lane < num_rows; ++lane)
      for (std::size_t k = 0; k < columns; ++k)
        std::memcpy(group + (k * kGroupRows + lane) * bytes, rows + lane * row_bytes + k * bytes, bytes);
    return;
  }
  const DTypeTraits& type = traits(dtype);
  UnpackedBlock block;
  for (std::size_t lane = 0; lane < num_rows; ++lane) {
    const std::byte* stored = rows + lane * row_bytes;
    for (std::size_t k = 0; k < columns; k += type.block_elements, stored += type.block_bytes) {
      unpack_block(dtype, stored, block);
      for (std::size_t i = 0; i < type.block_elements; i += kBlockColumns)
        write_record(format, block, i, lane, group + (k + i) / kBlockColumns * format.record_bytes());
    }
  }
}

/// Dequantizes row `lane` of a group into out [columns].
inline void read_packed_row(DType dtype, const std::byte* group, std::size_t lane, std::size_t columns,
                            float* out) noexcept {
  const PackedFormat format = packed_format(dtype);
  if (!format.quantized()) {
    const std::size_t bytes = plain_bytes(dtype);
    for (std::size_t k = 0; k < columns; ++k)
      traits(dtype).dequantize(group + (k * kGroupRows + lane) * bytes, out + k, 1);
    return;
  }
  const std::int32_t zero = format.has_minimum ? 0 : 1 << format.zero_shift;
  for (std::size_t k = 0; k < columns; ++k) {
    const std::byte* record = group + k / kBlockColumns * format.record_bytes();
    const std::size_t column = k % kBlockColumns, quad = column / 4;
    std::uint32_t code;
    if (format.code_bits == 8) {
      code = std::to_integer<std::uint32_t>(record[quad * 64 + lane * 4 + column % 4]);
    } else {
      code = std::to_integer<std::uint32_t>(record[quad / 2 * 64 + lane * 4 + column % 4]) >> (quad % 2 * 4) & 15u;
    }
    const std::size_t at =
        format.code_bytes() + (column / format.scale_columns * kGroupRows + lane) * format.scale_bytes;
    const float value = read_scale(format, record + at) * static_cast<float>(static_cast<std::int32_t>(code) - zero);
    out[k] = format.has_minimum ? value + read_scale(format, record + at + format.scales_bytes()) : value;
  }
}

}  // namespace cpu
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
