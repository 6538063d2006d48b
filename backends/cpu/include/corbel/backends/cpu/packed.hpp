// How the CPU backend keeps a weight: groups of 16 rows (output features), each a stream of records of 32 columns.
//
// A record of a quantized type holds, for its 16 rows, 32 unsigned codes each and then the scales and minima:
//   4-bit codes   4 lines of 64 bytes. Line j, byte 4 * row + i: column 8 * j + i in the low half, 8 * j + 4 + i in the
//   high half. 8-bit codes   8 lines of 64 bytes. Line j, byte 4 * row + i: column 4 * j + i. scales        [32 /
//   group][16], float16 as in the file, or float32 where the file's scale is a product minima        the same, for
//   types that have one
// so that one line is the operand of a dot instruction that multiplies four bytes per 32-bit lane. The value of a code
// q is scale * q + minimum, or scale * (q - zero), and equals the reference dequantization bit for bit. A record of a
// plain type is one column: 16 values. Rows past the end of a matrix are zeros.
#pragma once

#include <corbel/config.hpp>
#include <corbel/dtype.hpp>

#include <cstddef>
#include <cstdint>

CORBEL_NAMESPACE_BEGIN
namespace cpu {

inline constexpr std::size_t kGroupRows = 16;     ///< rows of a group: the lanes of the kernels
inline constexpr std::size_t kBlockColumns = 32;  ///< columns of a record, and of one scale of quantized activations

/// One row of the table of packed forms.
struct PackedFormat {
  int code_bits = 0;              ///< 4 or 8; 0 for plain types
  int max_code = 0;               ///< the largest code; bounds sums in 16-bit lanes
  int zero_shift = 0;             ///< zero = 1 << zero_shift, for types without minimum
  std::size_t scale_columns = 0;  ///< columns that share a scale: 16 or 32
  std::size_t scale_bytes = 0;    ///< 2 or 4
  bool has_minimum = false;

  constexpr bool quantized() const noexcept { return code_bits != 0; }
  constexpr std::size_t code_bytes() const noexcept {
    return kGroupRows * kBlockColumns * static_cast<std::size_t>(code_bits) / 8;
  }
  constexpr std::size_t scales_bytes() const noexcept {
    return kGroupRows * (kBlockColumns / scale_columns) * scale_bytes;
  }
  constexpr std::size_t record_bytes() const noexcept { return code_bytes() + scales_bytes() * (has_minimum ? 2 : 1); }
};

constexpr PackedFormat packed_format(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return {};
    case DType::kQ4_0:
      return {4, 15, 3, 32, 2, false};
    case DType::kQ4_1:
      return {4, 15, 0, 32, 2, true};
    case DType::kQ5_0:
      return {8, 31, 4, 32, 2, false};
    case DType::kQ5_1:
      return {8, 31, 0, 32, 2, true};
    case DType::kQ8_0:
      return {8, 255, 7, 32, 2, false};
    case DType::kQ2_K:
      return {4, 3, 0, 16, 4, true};
    case DType::kQ3_K:
      return {4, 7, 2, 16, 4, false};
    case DType::kQ4_K:
      return {4, 15, 0, 32, 4, true};
    case DType::kQ5_K:
      return {8, 31, 0, 32, 4, true};
    case DType::kQ6_K:
      return {8, 63, 5, 16, 4, false};
  }
  return {};
}

/// Bytes of one value of a plain type.
constexpr std::size_t plain_bytes(DType dtype) noexcept { return dtype == DType::kF32 ? 4 : 2; }

/// Bytes of one group of 16 rows.
constexpr std::uint64_t group_bytes(DType dtype, std::uint64_t columns) noexcept {
  const PackedFormat format = packed_format(dtype);
  return format.quantized() ? columns / kBlockColumns * format.record_bytes()
                            : columns * kGroupRows * plain_bytes(dtype);
}

/// 32 activations of a row, quantized: value = scale * code. Also what types with minima or zero points need of them.
struct ActivationBlock {
  std::int8_t codes[kBlockColumns];
  float scale;
  std::int32_t sums[2];  ///< of the codes, one per 16 columns
  float scaled_sums[2];  ///< scale * sum of the codes, one per 16 columns
  std::int32_t sum;      ///< of all codes
  float scaled_sum;      ///< scale * sum
  std::int32_t padding;
};
static_assert(sizeof(ActivationBlock) == 64);

}  // namespace cpu
CORBEL_NAMESPACE_END
