// Stored matrices and what a loader does to them before a backend sees them: rows picked and reordered, transposed,
// values changed. Everything is read in pieces when the backend asks.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/dtype.hpp>
#include <corbel/error.hpp>
#include <corbel/hal/program.hpp>
#include <corbel/hal/weights.hpp>
#include <corbel/models/quantized_linear.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// Sees every read of weight bytes; false stops the load with Errc::kCancelled. May be called from any thread.
using ReadObserver = std::function<bool(std::uint64_t bytes)>;

/// `count` rows from row `begin` on, `step` apart.
struct RowRange {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
  std::uint64_t step = 1;
};

/// A tensor of the checkpoint as a matrix of as many elements; its type must be supported.
CORBEL_API StoredTensor stored_tensor(const Checkpoint& checkpoint, const TensorInfo& tensor, std::uint64_t rows,
                                      std::uint64_t cols);
/// Rows [first, first + count) in float32, columns in the order of the inputs, into out [count, cols]. The rows lie
/// within the part; the errors of its source.
CORBEL_API Status read_rows(const StoredTensor& stored, std::uint64_t first, std::uint64_t count, float* out);
/// Fills `out` with `count` rows of a tensor from row `first` on, in float32, row-major.
using RowReader = std::function<Status(std::uint64_t first, std::uint64_t count, float* out)>;
/// read_rows() of the matrix, which it keeps.
CORBEL_API RowReader rows_of(StoredTensor stored);
/// The rows of the ranges, one range after the other. The ranges lie within the part.
CORBEL_API hal::WeightPart pick_rows(const hal::WeightPart& part, const std::vector<RowRange>& ranges);
/// Parts of one type and number of columns, one above the other.
CORBEL_API hal::WeightPart stack_rows(const std::vector<hal::WeightPart>& parts);
/// `batch` matrices [rows / batch, cols], one above the other, each transposed. Of a type with one value per block the
/// values stay as they are stored; of others they become float32.
CORBEL_API hal::WeightPart transpose(const hal::WeightPart& part, std::uint64_t batch);
/// The elements of a vector (a part with any shape and one value per block), each changed, in float32.
CORBEL_API hal::WeightPart map_vector(const hal::WeightPart& part, float (*change)(float));
/// The same bytes with another shape; rows * cols stays.
CORBEL_API hal::WeightPart reshape(hal::WeightPart part, std::uint64_t rows, std::uint64_t cols);
/// Constants that the library computed, as a vector.
CORBEL_API hal::WeightPart constant_vector(std::string name, std::vector<float> values);
/// The part with an observer of its reads (none: the part as it is).
CORBEL_API hal::WeightPart observed(hal::WeightPart part, std::shared_ptr<const ReadObserver> observer);

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/weight_source.ipp>
#endif
