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
  kQ6_K
};

/// One row of the trait table: everything that reading a type takes. A new type is a new row.
struct DTypeTraits {
  DType dtype;
  const char* name;              ///< as files and users write it: "Q4_K"
  std::uint32_t ggml_id;         ///< the number in GGUF files
  std::uint32_t block_elements;  ///< values per block; 1 for plain types
  std::uint32_t block_bytes;     ///< bytes per block
  /// Dequantizes `num_blocks` blocks to float32, bit for bit as the reference does. `in` needs no alignment.
  void (*dequantize)(const std::byte* in, float* out, std::size_t num_blocks);
  /// Index of the first block in `in` with a NaN or infinite scale (for plain types: value), or num_blocks.
  std::size_t (*first_non_finite)(const std::byte* in, std::size_t num_blocks);
};

/// The traits of a type. Static storage; never fails for a value of DType. Thread-safe.
CORBEL_API const DTypeTraits& traits(DType dtype) noexcept;
/// All rows, in the order of DType.
CORBEL_API std::span<const DTypeTraits> all_dtypes() noexcept;
/// The row with this GGUF number, or nullptr.
CORBEL_API const DTypeTraits* find_dtype_by_ggml_id(std::uint32_t id) noexcept;
/// The row with this name (exact case), or nullptr.
CORBEL_API const DTypeTraits* find_dtype_by_name(std::string_view name) noexcept;

/// Conversions, exact and with round-to-nearest-even; NaN stays NaN.
CORBEL_API float f16_to_f32(std::uint16_t bits) noexcept;
CORBEL_API std::uint16_t f32_to_f16(float value) noexcept;
CORBEL_API float bf16_to_f32(std::uint16_t bits) noexcept;
CORBEL_API std::uint16_t f32_to_bf16(float value) noexcept;

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/dtype.ipp>
#endif
