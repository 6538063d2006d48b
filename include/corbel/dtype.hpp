// Element types of tensors, and one trait row per type.
//
// A quantized type stores blocks: `block_elements` consecutive values of a row in `block_bytes` bytes. Layouts and
// numbers are those of the GGUF specification and of the reference dequantization in the gguf package (facts only).
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

CORBEL_NAMESPACE_BEGIN

/// The element type of a tensor.
enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ8_1,
  kQ8_K,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kIQ4_NL,
  kIQ4_XS,
  kTQ1_0,
  kTQ2_0,
  kMXFP4,
  kNVFP4,
  kQ1_0,
  kQ2_0,
  kF64,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kF8_E4M3,
  kF8_E5M2,
  kF8_E8M0,
  kF6_E2M3,
  kF6_E3M2,
  kF4,
  // Not in files: blocks that models/quantized_linear.hpp makes.
  kGroupI4,
  kGroupU4,
  kGroupI8,
  kGroupU8,
  kGroupF8,
  kGroupE2M1,
  kGroupNF4
};

/// How many types there are.
inline constexpr std::size_t kNumDTypes = static_cast<std::size_t>(DType::kGroupNF4) + 1;
/// The number of a type that GGUF files do not have.
inline constexpr std::uint32_t kNoGgmlId = 0xFFFFFFFFu;

/// A block of a quantized type as small integers: value i is scales[i / group] * codes[i], and plus minima[i / group]
/// where the type has minima, group being DTypeTraits::scale_elements. Each operation is rounded to float32; the result
/// is that of `dequantize`, to the bit (but for the sign of zeros). Q2_K to Q6_K say of what their scales and minima
/// are products: scales[g] = scale * scale_codes[g], minima[g] = minimum * minimum_codes[g].
struct IntegerBlock {
  std::int8_t codes[256];
  float scales[16];
  float minima[16];
  float scale;
  float minimum;
  std::int8_t scale_codes[16];
  std::int8_t minimum_codes[16];
};

/// What a type is called, and the size of its blocks.
struct GgmlType {
  const char* name;              ///< as files and users write it: "Q4_K"
  std::uint32_t block_elements;  ///< values per block; 1 for plain types of whole bytes; 0 for a type that is no more
  std::uint32_t block_bytes;     ///< bytes per block
};

/// One row of the trait table: everything that reading a type takes. A new type is a new row.
struct DTypeTraits : GgmlType {
  DType dtype;
  std::uint32_t ggml_id;  ///< the number in GGUF files, or kNoGgmlId
  bool in_safetensors;    ///< safetensors files know this type, under this name
  /// Dequantizes `num_blocks` blocks to float32, bit for bit as the reference does. `in` needs no alignment.
  void (*dequantize)(const std::byte* in, float* out, std::size_t num_blocks);
  /// Index of the first block in `in` with a NaN or infinite scale (for plain types: value), or num_blocks.
  std::size_t (*first_non_finite)(const std::byte* in, std::size_t num_blocks);
  std::uint32_t scale_elements;  ///< quantized types: values that share a scale, 16 or 32; plain types: 0
  bool has_minimum;              ///< values are scale * code + minimum
  /// Quantized types: the integers of one block. nullptr for plain types.
  void (*unpack)(const std::byte* block, IntegerBlock& out) noexcept;
  /// Writes `num_blocks` blocks of float32 values, or nullptr where this library only reads the type. Plain types round
  /// to nearest even. Quantized types search for a small sum of squared errors, in a fixed order of exactly rounded
  /// operations, so that the bytes are the same everywhere; a NaN counts as 0, an infinity as the largest finite value
  /// of its sign, and a scale that does not fit in f16 becomes 65504: what is written is always finite.
  void (*encode)(const float* in, std::byte* out, std::size_t num_blocks);
};

/// The traits of a type. Static storage; never fails for a value of DType. Thread-safe.
CORBEL_API const DTypeTraits& traits(DType dtype) noexcept;
/// All rows, in the order of DType.
CORBEL_API std::span<const DTypeTraits> all_dtypes() noexcept;
/// The row with this GGUF number, or nullptr.
CORBEL_API const DTypeTraits* find_dtype_by_ggml_id(std::uint32_t id) noexcept;
/// The row with this name (exact case), or nullptr.
CORBEL_API const DTypeTraits* find_dtype_by_name(std::string_view name) noexcept;
/// The row of a "dtype" of a safetensors header, or nullptr where this library has no such type ("C64").
CORBEL_API const DTypeTraits* find_dtype_by_safetensors_name(std::string_view name) noexcept;

/// Conversions, exact and with round-to-nearest-even; NaN stays NaN.
CORBEL_API float f16_to_f32(std::uint16_t bits) noexcept;
CORBEL_API std::uint16_t f32_to_f16(float value) noexcept;
CORBEL_API float bf16_to_f32(std::uint16_t bits) noexcept;
CORBEL_API std::uint16_t f32_to_bf16(float value) noexcept;

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/dtype.ipp>
#endif
