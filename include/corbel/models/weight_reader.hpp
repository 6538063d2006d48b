// TensorFinder and WeightReader: the tensors of a checkpoint under their canonical names (those of GGUF), whatever the
// container calls them, checked against the shapes that the model's numbers ask for.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/models/architecture.hpp>
#include <corbel/models/quantized_linear.hpp>
#include <corbel/models/weight_source.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// Translates names. Cheap to copy; does not outlive the checkpoint.
class CORBEL_API TensorFinder {
 public:
  TensorFinder(const Checkpoint& checkpoint, const Architecture& family);

  bool is_hf() const noexcept { return hf_; }
  /// What the checkpoint calls a canonical tensor: "blk.3.attn_q.weight". May contain "{}": a tensor per expert or
  /// head. Of a name that the family does not have: the name itself.
  std::string name_of(std::string_view canonical) const;
  /// Whether the family's names have this one at all.
  bool knows(std::string_view canonical) const;
  /// The tensor, or nullptr. Not for names with "{}".
  const TensorInfo* find(std::string_view canonical) const { return checkpoint_.find_tensor(name_of(canonical)); }

 private:
  std::string translate(std::string_view canonical) const;

  const Checkpoint& checkpoint_;
  const Architecture& family_;
  bool hf_;
  std::string root_;  // before the embedding's name and the layers'
};

/// Reads tensors as parts of weights. The first failure is kept in status(); later calls then answer an empty tensor.
/// Errors: missing_tensor, shape_mismatch, unsupported, naming the tensor.
class CORBEL_API WeightReader {
 public:
  WeightReader(const Checkpoint& checkpoint, const Architecture& family);
  WeightReader(const WeightReader&) = delete;
  WeightReader& operator=(const WeightReader&) = delete;

  const Status& status() const noexcept { return status_; }
  bool ok() const noexcept { return status_.ok(); }
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  bool is_hf() const noexcept { return finder_.is_hf(); }
  const TensorFinder& finder() const noexcept { return finder_; }
  /// Whether the checkpoint has the tensor `name` (with ".weight" or ".bias"), or one for number 0 where there are
  /// many.
  bool has(std::string_view name) const;
  /// Whether `name` (without suffix) is a linear that the checkpoint stores quantized.
  bool has_quantized(std::string_view name) const;

  /// `name`.weight as a matrix [rows, cols] in the textbook's orientation.
  StoredTensor matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols);
  /// A vector (name with its suffix) of `elements`, of any shape.
  StoredTensor vector(const std::string& name, std::uint64_t elements);
  /// `count` matrices [rows, cols], one above the other: `name`.weight as one tensor of three dimensions, or one tensor
  /// for each.
  StoredTensor stacked(const std::string& name, std::uint64_t count, std::uint64_t rows, std::uint64_t cols);
  /// The same of a tensor that a Hugging Face folder stores for all experts together, [count, rows, cols] or, where
  /// `turned`, [count, cols, rows]; or of a quantized one.
  StoredTensor stacked_pair(const std::string& name, std::uint64_t count, std::uint64_t rows, std::uint64_t cols,
                            bool turned);
  /// A vector of `count` * `each` elements, as one tensor or as `count` of them.
  StoredTensor stacked_vector(const std::string& name, std::uint64_t count, std::uint64_t each);

 private:
  StoredTensor plain(const std::string& name, const std::vector<std::uint64_t>& shape, std::uint64_t rows,
                     std::uint64_t cols, bool vector);
  StoredTensor named_matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols);
  StoredTensor quantized(const std::string& module, std::uint64_t rows, std::uint64_t cols);
  const TensorInfo* require(const std::string& name);

  Checkpoint checkpoint_;
  TensorFinder finder_;
  bool transposed_;
  std::optional<QuantizedCheckpoint> quantized_;
  Status status_;
};

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/weight_reader.ipp>
#endif
