// What a backend gets to prepare weights from, and what it says of them.
#pragma once

#include <corbel/config.hpp>
#include <corbel/dtype.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace hal {

/// The stored bytes of one tensor, readable in pieces. Thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills `out` from byte `offset` on.
  virtual Status read(std::uint64_t offset, std::span<std::byte> out) const = 0;
  /// All bytes where they are in memory already, else empty; saves the copy.
  virtual std::span<const std::byte> bytes() const noexcept { return {}; }
};

/// One stored tensor [rows, cols]: row-major, each row `cols / block_elements` blocks of `dtype`.
struct WeightPart {
  std::string name;  ///< as in the checkpoint
  DType dtype = DType::kF32;
  std::uint64_t rows = 0;  ///< output features; vocabulary entries of an embedding; 1 for a vector
  std::uint64_t cols = 0;  ///< input features; elements of a vector
  std::shared_ptr<const ByteSource> source;

  std::uint64_t row_bytes() const noexcept { return cols / traits(dtype).block_elements * traits(dtype).block_bytes; }
};

/// How ops use a weight; a tied embedding has two uses.
enum WeightUse : std::uint8_t { kUseLinear = 1, kUseEmbedding = 2, kUseVector = 4 };

/// A weight of the program: one or several tensors stacked along their rows (a merged linear), of possibly different
/// types. A vector (kUseVector) with several parts is their concatenation: elements() values.
struct WeightSpec {
  std::vector<WeightPart> parts;
  std::uint8_t uses = 0;  ///< WeightUse flags

  std::uint64_t rows() const noexcept {
    std::uint64_t sum = 0;
    for (const WeightPart& part : parts) sum += part.rows;
    return sum;
  }
  std::uint64_t elements() const noexcept {
    std::uint64_t sum = 0;
    for (const WeightPart& part : parts) sum += part.rows * part.cols;
    return sum;
  }
  std::uint64_t cols() const noexcept { return parts.empty() ? 0 : parts.front().cols; }
};

}  // namespace hal
CORBEL_NAMESPACE_END
