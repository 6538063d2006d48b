// Definitions of models/weight_reader.hpp.
#pragma once

#include <corbel/impl/models/tensor_rules.ipp>
#include <corbel/models/weight_reader.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

// What a scheme's scale makes weights of.
inline bool is_integer(DType dtype) noexcept {
  constexpr DType kIntegers[] = {DType::kI8,  DType::kI16, DType::kI32, DType::kI64, DType::kU8,
                                 DType::kU16, DType::kU32, DType::kU64, DType::kBool};
  return std::find(std::begin(kIntegers), std::end(kIntegers), dtype) != std::end(kIntegers);
}

}  // namespace detail

CORBEL_INLINE TensorFinder::TensorFinder(const Checkpoint& checkpoint, const Architecture& family)
    : checkpoint_(checkpoint), family_(family), hf_(checkpoint.format() == CheckpointFormat::kSafetensors) {
  if (!hf_) return;
  // The same model is saved with and without the names of the modules around it. The embedding shows which.
  constexpr const char* kRoots[] = {"model.", "transformer.",          "gpt_neox.",
                                    "",       "language_model.model.", "model.language_model."};
  root_ = kRoots[0];
  for (const char* root : kRoots) {
    const detail::FoundRule found = detail::find_rule(family.names, "token_embd.weight");
    if (checkpoint.find_tensor(fmt::format("{}{}.weight", root, found.rule->name)) == nullptr) continue;
    root_ = root;
    break;
  }
}

CORBEL_INLINE bool TensorFinder::knows(std::string_view canonical) const {
  return !hf_ || !translate(canonical).empty();
}

CORBEL_INLINE std::string TensorFinder::name_of(std::string_view canonical) const {
  if (!hf_) return std::string(canonical);
  const std::string name = translate(canonical);
  return name.empty() ? std::string(canonical) : name;
}

CORBEL_INLINE std::string TensorFinder::translate(std::string_view canonical) const {
  std::string prefix = root_;
  std::string_view part = canonical;
  if (part.substr(0, 4) == "blk.") {
    const std::size_t dot = part.find('.', 4);
    prefix += fmt::format("{}{}.", family_.names->layers, part.substr(4, dot - 4));
    part.remove_prefix(dot + 1);
  } else if (part == "output.weight" || part == "output.bias") {
    // The head stands beside the model; of models that also see or hear, beside the language model.
    prefix = root_ == "language_model.model." ? "language_model." : "";
  }
  const auto name = [&](const detail::FoundRule& found) {
    return prefix + found.rule->name + std::string(found.whole ? "" : part.substr(part.rfind('.')));
  };
  const detail::FoundRule found = detail::find_rule(family_.names, part, [&](const detail::FoundRule& rule) {
    return checkpoint_.find_tensor(detail::numbered(name(rule), 0)) != nullptr;
  });
  return found.rule == nullptr ? std::string() : name(found);
}

CORBEL_INLINE WeightReader::WeightReader(const Checkpoint& checkpoint, const Architecture& family)
    : checkpoint_(checkpoint), finder_(checkpoint_, family), transposed_(finder_.is_hf() && family.transposed) {
  if (!finder_.is_hf()) return;
  Result<std::optional<QuantizedCheckpoint>> opened = QuantizedCheckpoint::open(checkpoint_);
  if (opened.ok()) {
    quantized_ = std::move(*opened);
  } else {
    fail(opened.status());
  }
}

CORBEL_INLINE bool WeightReader::has(std::string_view name) const {
  if (!finder_.knows(name)) return false;
  if (checkpoint_.find_tensor(detail::numbered(finder_.name_of(name), 0)) != nullptr) return true;
  constexpr std::string_view kSuffix = ".weight";
  return name.size() > kSuffix.size() && name.substr(name.size() - kSuffix.size()) == kSuffix &&
         has_quantized(name.substr(0, name.size() - kSuffix.size()));
}

CORBEL_INLINE bool WeightReader::has_quantized(std::string_view name) const {
  if (!quantized_) return false;
  const std::string weight = std::string(name) + ".weight";
  return finder_.knows(weight) && quantized_->has(detail::module_of(detail::numbered(finder_.name_of(weight), 0)));
}

CORBEL_INLINE StoredTensor WeightReader::quantized(const std::string& module, std::uint64_t rows, std::uint64_t cols) {
  if (!ok()) return {};
  Result<StoredTensor> linear = quantized_->linear(module, rows, cols);
  if (linear.ok()) return *std::move(linear);
  fail(linear.status());
  return {};
}

CORBEL_INLINE const TensorInfo* WeightReader::require(const std::string& name) {
  if (!ok()) return nullptr;
  const TensorInfo* tensor = checkpoint_.find_tensor(name);
  if (tensor == nullptr) fail(Status(Errc::kMissingTensor, fmt::format("tensor {} is missing", name)));
  return tensor;
}

CORBEL_INLINE StoredTensor WeightReader::plain(const std::string& name, const std::vector<std::uint64_t>& shape,
                                               std::uint64_t rows, std::uint64_t cols, bool vector) {
  const TensorInfo* tensor = require(name);
  if (tensor == nullptr) return {};
  if (vector ? tensor->num_elements() != rows * cols : tensor->shape != shape) {
    fail(Status(Errc::kShapeMismatch, fmt::format("tensor {}: shape [{}], expected [{}]", name,
                                                  fmt::join(tensor->shape, ", "), fmt::join(shape, ", "))));
    return {};
  }
  if (!tensor->supported) {
    fail(Status(Errc::kUnsupported, fmt::format("tensor {}: type {} is not supported", name, tensor->type_name)));
    return {};
  }
  if (detail::is_integer(tensor->dtype)) {
    fail(Status(Errc::kUnsupported,
                fmt::format("tensor {}: type {}: integers without a scale are no weights", name, tensor->type_name)));
    return {};
  }
  if (vector && traits(tensor->dtype).block_elements != 1) {
    fail(Status(Errc::kUnsupported, fmt::format("tensor {}: a vector of type {}", name, traits(tensor->dtype).name)));
    return {};
  }
  return stored_tensor(checkpoint_, *tensor, rows, cols);
}

CORBEL_INLINE StoredTensor WeightReader::named_matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
  if (quantized_ && quantized_->has(detail::module_of(name))) return quantized(detail::module_of(name), rows, cols);
  if (!transposed_) return plain(name, {rows, cols}, rows, cols, false);
  StoredTensor stored = plain(name, {cols, rows}, cols, rows, false);
  if (ok()) stored.part = transpose(stored.part, 1);
  return stored;
}

CORBEL_INLINE StoredTensor WeightReader::matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
  const bool embedding = name == "token_embd" || name == "position_embd" || name == "output";  // never transposed
  const std::string stored_name = finder_.name_of(name + ".weight");
  const std::string module = detail::module_of(stored_name);
  if (quantized_ && quantized_->has(module)) return quantized(module, rows, cols);
  return embedding ? plain(stored_name, {rows, cols}, rows, cols, false) : named_matrix(stored_name, rows, cols);
}

CORBEL_INLINE StoredTensor WeightReader::vector(const std::string& name, std::uint64_t elements) {
  return plain(finder_.name_of(name), {elements}, 1, elements, true);
}

CORBEL_INLINE StoredTensor WeightReader::stacked(const std::string& name, std::uint64_t count, std::uint64_t rows,
                                                 std::uint64_t cols) {
  std::string pattern = finder_.name_of(name + ".weight");
  constexpr std::string_view kStacked = "_exps";
  if (!is_hf() && name.ends_with(kStacked) && checkpoint_.find_tensor(pattern) == nullptr) {
    // Old GGUF files have a tensor for each expert.
    const std::string single = name.substr(0, name.size() - kStacked.size()) + ".{}.weight";
    if (checkpoint_.find_tensor(detail::numbered(single, 0)) != nullptr) pattern = single;
  }
  if (pattern.find("{}") == std::string::npos) return plain(pattern, {count, rows, cols}, count * rows, cols, false);
  std::vector<hal::WeightPart> parts;
  StoredTensor result;
  for (std::uint64_t i = 0; i < count && ok(); ++i) {
    StoredTensor one = named_matrix(detail::numbered(pattern, i), rows, cols);
    if (i != 0 && ok() && (one.part.dtype != parts.front().dtype || one.permutation != result.permutation))
      fail(Status(Errc::kUnsupported,
                  fmt::format("tensor {}: stored in another way than that of expert 0", one.part.name)));
    if (i != 0 && one.rounding != result.rounding) result.unsupported_rounding = "another scale for each expert";
    parts.push_back(one.part);
    if (i == 0) result = std::move(one);
  }
  if (ok()) result.part = stack_rows(parts);
  return result;
}

CORBEL_INLINE StoredTensor WeightReader::stacked_pair(const std::string& name, std::uint64_t count, std::uint64_t rows,
                                                      std::uint64_t cols, bool turned) {
  const std::string stored_name = finder_.name_of(name + ".weight");
  if (quantized_ && quantized_->has(detail::module_of(stored_name)))
    return quantized(detail::module_of(stored_name), count * rows, cols);
  if (!turned) return plain(stored_name, {count, rows, cols}, count * rows, cols, false);
  StoredTensor stored = plain(stored_name, {count, cols, rows}, count * cols, rows, false);
  if (ok()) stored.part = transpose(stored.part, count);
  return stored;
}

CORBEL_INLINE StoredTensor WeightReader::stacked_vector(const std::string& name, std::uint64_t count,
                                                        std::uint64_t each) {
  const std::string pattern = finder_.name_of(name);
  if (pattern.find("{}") == std::string::npos) return plain(pattern, {count * each}, 1, count * each, true);
  std::vector<hal::WeightPart> parts;
  for (std::uint64_t i = 0; i < count && ok(); ++i)
    parts.push_back(plain(detail::numbered(pattern, i), {each}, 1, each, true).part);
  StoredTensor result;
  if (!ok()) return result;
  for (const hal::WeightPart& part : parts)
    if (part.dtype != parts.front().dtype) {
      fail(Status(Errc::kUnsupported, fmt::format("tensor {}: another type than that of number 0", part.name)));
      return result;
    }
  result.part = reshape(stack_rows(parts), 1, count * each);
  return result;
}

}  // namespace models
CORBEL_NAMESPACE_END
