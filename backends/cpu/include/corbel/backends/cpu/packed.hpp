// How the CPU backend keeps a weight: groups of 16 rows (output features), each a stream of records of 32 columns.
//
// A record of a quantized type holds, for its 16 rows, 32 unsigned codes each and then the scales and minima. Columns
// 4 * q to 4 * q + 3 of all rows are quad q; in a line of 64 bytes, byte 4 * row + i is of column 4 * q + i:
//   8-bit codes   8 lines, one a quad.
//   4-bit codes   4 lines of two quads: 2 * j in the low half of each byte of line j, 2 * j + 1 in the high half.
//   Perhaps
//                 positions in a codebook.
//   2-bit codes   2 lines of four quads, from the low bits up.
//   high bits     of codes of 3, 5 or 6 bits, above the 2 or 4 low ones: one bit of eight quads, or two bits of four.
//   scales        [32 / group][16], float16 as in the file; or float32 where the file's scale is a product; or int8
//                 where it is the product of a small integer and a float16 of 256 columns
//   minima        the same, for types that have one
// so that one line is the operand of a dot instruction that multiplies four bytes per 32-bit lane. Eight records with
// int8 scales follow a header of the 16 rows' float16 factors, and negated ones of the minima. The value of a code q is
// scale * q + minimum, or scale * (q - zero), and equals the reference dequantization bit for bit. A record of a plain
// type is one column: 16 values. Rows past the end of a matrix are zeros.
//
// Small floats (FloatCode) meet activations that are not quantized, as plain types do. Their records of 32 columns
// begin with 16 float32 scales; then E4M3 has one line of 16 bytes per column, NF4 one per two columns, the first of
// them in the low halves. The value is (value of the code) * scale.
#pragma once

#include <corbel/config.hpp>
#include <corbel/dtype.hpp>

#include <cstddef>
#include <cstdint>

CORBEL_NAMESPACE_BEGIN
namespace cpu {

inline constexpr std::size_t kGroupRows = 16;     ///< rows of a group: the lanes of the kernels
inline constexpr std::size_t kBlockColumns = 32;  ///< columns of a record, and of one scale of quantized activations
inline constexpr std::size_t kNestColumns = 256;  ///< columns of a header and its records

/// What 4-bit codes stand for where they are not the integers themselves: positions in a table of 16.
enum class Codebook : std::uint8_t { kNone, kE2M1, kIQ4 };

/// Small floats that are kept as codes and multiplied as float32.
enum class FloatCode : std::uint8_t { kNone, kE4M3, kNF4 };

/// One row of the table of packed forms.
struct PackedFormat {
  int code_bits = 0;              ///< 2, 4 or 8, without the high bits; 0 for plain types
  int max_code = 0;               ///< the largest code; bounds sums in 16-bit lanes
  int zero_shift = 0;             ///< zero = 1 << zero_shift; 0: none
  std::size_t scale_columns = 0;  ///< columns that share a scale: 16 or 32
  std::size_t scale_bytes = 0;    ///< 1, 2 or 4
  bool has_minimum = false;
  DType plain = DType::kF32;  ///< of plain types: the float that holds each value exactly (64 bits: to the nearest)
  Codebook codebook = Codebook::kNone;  ///< max_code and zero_shift are those of what is looked up
  bool bf16_scales = false;             ///< scales of 2 bytes are bfloat16, not float16
  FloatCode float_code = FloatCode::kNone;
  int high_bits = 0;  ///< 0, 1 or 2

  bool operator==(const PackedFormat&) const = default;
  constexpr bool quantized() const noexcept { return code_bits != 0; }
  constexpr bool coded() const noexcept { return float_code != FloatCode::kNone; }
  constexpr std::int32_t zero() const noexcept { return zero_shift == 0 ? 0 : 1 << zero_shift; }
  constexpr bool nested() const noexcept { return scale_bytes == 1; }
  constexpr std::size_t low_bytes() const noexcept {
    return kGroupRows * kBlockColumns * static_cast<std::size_t>(code_bits) / 8;
  }
  constexpr std::size_t code_bytes() const noexcept {
    return kGroupRows * kBlockColumns * static_cast<std::size_t>(code_bits + high_bits) / 8;
  }
  constexpr std::size_t header_bytes() const noexcept {
    return nested() ? kGroupRows * sizeof(std::uint16_t) * (has_minimum ? 2 : 1) : 0;
  }
  constexpr std::size_t scales_bytes() const noexcept {
    return kGroupRows * (kBlockColumns / scale_columns) * scale_bytes;
  }
  constexpr std::size_t record_bytes() const noexcept {
    if (coded()) return kGroupRows * (sizeof(float) + kBlockColumns / (float_code == FloatCode::kNF4 ? 2 : 1));
    return code_bytes() + scales_bytes() * (has_minimum ? 2 : 1);
  }
};

constexpr PackedFormat plain_format(DType held_as) noexcept {
  PackedFormat format;
  format.plain = held_as;
  return format;
}

constexpr PackedFormat coded_format(FloatCode code) noexcept {
  PackedFormat format;
  format.float_code = code;
  return format;
}

/// Codes of low and high bits; scales of 1 byte are integers.
constexpr PackedFormat split_format(int low_bits, int high_bits, int zero_shift, std::size_t scale_columns,
                                    std::size_t scale_bytes, bool has_minimum) noexcept {
  PackedFormat format = {low_bits,   (1 << (low_bits + high_bits)) - 1, zero_shift, scale_columns, scale_bytes,
                         has_minimum};
  format.high_bits = high_bits;
  return format;
}

constexpr PackedFormat codebook_format(Codebook codebook, std::size_t scale_columns, std::size_t scale_bytes,
                                       bool bf16_scales = false) noexcept {
  PackedFormat format = codebook == Codebook::kE2M1 ? PackedFormat{4, 28, 4, scale_columns, scale_bytes, false}
                                                    : PackedFormat{4, 255, 7, scale_columns, scale_bytes, false};
  format.codebook = codebook;
  format.bf16_scales = bf16_scales;
  return format;
}

/// The 16 integers of a codebook, zero added: what the kernels look up.
struct CodebookTable {
  alignas(16) std::uint8_t codes[16];
};
constexpr CodebookTable codebook_table(const PackedFormat& format) noexcept {
  // Twice the values of E2M1; those of IQ4_NL. Facts of their definitions.
  constexpr int kE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  constexpr int kIQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  CodebookTable table = {};
  for (int i = 0; i < 16; ++i)
    table.codes[i] =
        static_cast<std::uint8_t>((format.codebook == Codebook::kE2M1 ? kE2M1[i] : kIQ4[i]) + format.zero());
  return table;
}

/// The packed form of each type.
constexpr PackedFormat packed_format(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
    case DType::kI64:
    case DType::kI32:
    case DType::kI16:
    case DType::kU64:
    case DType::kU32:
    case DType::kU16:
      return plain_format(DType::kF32);
    case DType::kGroupF8:
      return coded_format(FloatCode::kE4M3);
    case DType::kGroupNF4:
      return coded_format(FloatCode::kNF4);
    case DType::kF16:
      return plain_format(DType::kF16);
    case DType::kBF16:
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
    case DType::kF8_E4M3:
    case DType::kF8_E5M2:
    case DType::kF8_E8M0:
    case DType::kF6_E2M3:
    case DType::kF6_E3M2:
    case DType::kF4:
      return plain_format(DType::kBF16);
    case DType::kQ4_0:
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kQ1_0:
    case DType::kQ2_0:
      return {4, 15, 3, 32, 2, false};
    case DType::kQ4_1:
      return {4, 15, 0, 32, 2, true};
    case DType::kQ5_0:
      return split_format(4, 1, 4, 32, 2, false);
    case DType::kQ5_1:
      return split_format(4, 1, 0, 32, 2, true);
    case DType::kQ8_0:
    case DType::kQ8_1:
      return {8, 255, 7, 32, 2, false};
    case DType::kQ2_K:
      return split_format(2, 0, 0, 16, 1, true);
    case DType::kQ3_K:
      return split_format(2, 1, 2, 16, 1, false);
    case DType::kQ4_K:
      return split_format(4, 0, 0, 32, 1, true);
    case DType::kQ5_K:
      return split_format(4, 1, 0, 32, 1, true);
    case DType::kQ6_K:
      return split_format(4, 2, 5, 16, 1, false);
    case DType::kGroupI4:
      return {4, 15, 3, 32, 4, false};
    case DType::kGroupU4:
      return {4, 15, 0, 32, 4, true};
    case DType::kGroupU8:
      return {8, 255, 7, 32, 4, true};
    case DType::kQ8_K:
    case DType::kGroupI8:
      return {8, 255, 7, 32, 4, false};
    case DType::kIQ4_NL:
      return codebook_format(Codebook::kIQ4, 32, 2);
    case DType::kIQ4_XS:
      return codebook_format(Codebook::kIQ4, 32, 4);
    case DType::kMXFP4:  // scales are powers of two
      return codebook_format(Codebook::kE2M1, 32, 2, true);
    case DType::kNVFP4:
      return codebook_format(Codebook::kE2M1, 16, 2);
    case DType::kGroupE2M1:
      return codebook_format(Codebook::kE2M1, 16, 4);
    case DType::kIQ1_S:
    case DType::kIQ2_XXS:
    case DType::kIQ3_XXS:
    case DType::kIQ3_S:
      return {8, 127, 6, 32, 4, false};
    case DType::kIQ1_M:
    case DType::kIQ2_XS:
    case DType::kIQ2_S:
      return {8, 127, 6, 16, 4, false};
  }
  return {};
}

/// The type whose kernels serve `dtype`: the first one that is packed the same way.
constexpr DType kernel_type(DType dtype) noexcept {
  std::size_t first = 0;
  while (packed_format(static_cast<DType>(first)) != packed_format(dtype)) ++first;
  return static_cast<DType>(first);
}

/// Bytes of one value of a plain type in its packed form.
constexpr std::size_t plain_bytes(DType dtype) noexcept { return packed_format(dtype).plain == DType::kF32 ? 4 : 2; }

/// Bytes of one group of 16 rows.
constexpr std::uint64_t group_bytes(DType dtype, std::uint64_t columns) noexcept {
  const PackedFormat format = packed_format(dtype);
  return format.quantized() || format.coded()
             ? columns / kBlockColumns * format.record_bytes() + columns / kNestColumns * format.header_bytes()
             : columns * kGroupRows * plain_bytes(dtype);
}

/// Where the record of `column` begins in a group of a type that has records.
constexpr std::size_t record_offset(const PackedFormat& format, std::size_t column) noexcept {
  const std::size_t headers = format.nested() ? column / kNestColumns + 1 : 0;
  return column / kBlockColumns * format.record_bytes() + headers * format.header_bytes();
}

/// What an activation's code is multiplied by in ActivationBlock::offset: the largest zero point, negated.
inline constexpr std::int32_t kOffsetFactor = -128;

/// 32 activations of a row, quantized: value = scale * code. Also what types with minima or zero points need of them.
struct ActivationBlock {
  std::int8_t codes[kBlockColumns];
  float scale;
  float scaled_sum;         ///< scale * sum of the codes
  float scaled_sums[2];     ///< scale * sum of the codes, one per 16 columns
  std::int32_t offset;      ///< kOffsetFactor * sum of the codes
  std::int32_t offsets[2];  ///< kOffsetFactor * sum of the codes, one per 16 columns
  std::int32_t padding;
};
static_assert(sizeof(ActivationBlock) == 64);

}  // namespace cpu
CORBEL_NAMESPACE_END
