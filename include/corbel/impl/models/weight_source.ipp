// Definitions of models/weight_source.hpp.
#pragma once

#include <corbel/models/weight_source.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

using hal::ByteSource;
using hal::WeightPart;

inline Status out_of_range() { return Status(Errc::kInternal, "weight read out of range"); }

/// The bytes of one tensor of a checkpoint.
class TensorSource final : public hal::ByteSource {
 public:
  TensorSource(Checkpoint checkpoint, const TensorInfo& tensor) : checkpoint_(std::move(checkpoint)), tensor_(tensor) {}
  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    return checkpoint_.read(tensor_, offset, out);
  }
  std::span<const std::byte> bytes() const noexcept override { return checkpoint_.bytes(tensor_); }

 private:
  Checkpoint checkpoint_;
  const TensorInfo& tensor_;  // lives in the checkpoint's shared state
};

class PickedRows final : public ByteSource {
 public:
  PickedRows(std::shared_ptr<const ByteSource> inner, std::uint64_t row_bytes, std::vector<RowRange> ranges)
      : inner_(std::move(inner)), row_bytes_(row_bytes), ranges_(std::move(ranges)) {
    starts_.push_back(0);
    for (const RowRange& range : ranges_) starts_.push_back(starts_.back() + range.count);
  }

  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const std::uint64_t row = offset / row_bytes_, within = offset % row_bytes_;
      const auto next = std::upper_bound(starts_.begin(), starts_.end(), row);
      if (next == starts_.end()) return out_of_range();
      const std::size_t index = static_cast<std::size_t>(next - starts_.begin()) - 1;
      const RowRange& range = ranges_[index];
      const std::uint64_t in_range = row - starts_[index];
      const std::uint64_t rows = range.step == 1 ? range.count - in_range : 1;
      const std::size_t bytes =
          static_cast<std::size_t>(std::min<std::uint64_t>(rows * row_bytes_ - within, out.size()));
      CORBEL_RETURN_IF_ERROR(
          inner_->read((range.begin + in_range * range.step) * row_bytes_ + within, out.first(bytes)));
      out = out.subspan(bytes);
      offset += bytes;
    }
    return {};
  }
  std::span<const std::byte> bytes() const noexcept override {
    const std::span<const std::byte> all = inner_->bytes();
    if (all.empty() || ranges_.size() != 1 || ranges_[0].step != 1) return {};
    return all.subspan(static_cast<std::size_t>(ranges_[0].begin * row_bytes_),
                       static_cast<std::size_t>(ranges_[0].count * row_bytes_));
  }

 private:
  std::shared_ptr<const ByteSource> inner_;
  std::uint64_t row_bytes_;
  std::vector<RowRange> ranges_;
  std::vector<std::uint64_t> starts_;  // row of the result at which each range begins, and the end
};

class StackedRows final : public ByteSource {
 public:
  explicit StackedRows(const std::vector<WeightPart>& parts) {
    starts_.push_back(0);
    for (const WeightPart& part : parts) {
      sources_.push_back(part.source);
      starts_.push_back(starts_.back() + part.rows * part.row_bytes());
    }
  }
  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const auto next = std::upper_bound(starts_.begin(), starts_.end(), offset);
      if (next == starts_.end()) return out_of_range();
      const std::size_t index = static_cast<std::size_t>(next - starts_.begin()) - 1;
      const std::size_t bytes = static_cast<std::size_t>(std::min<std::uint64_t>(*next - offset, out.size()));
      CORBEL_RETURN_IF_ERROR(sources_[index]->read(offset - starts_[index], out.first(bytes)));
      out = out.subspan(bytes);
      offset += bytes;
    }
    return {};
  }

 private:
  std::vector<std::shared_ptr<const ByteSource>> sources_;
  std::vector<std::uint64_t> starts_;
};

/// A source whose bytes are computed as a whole at the first read and kept until the source goes. Thread-safe.
class ComputedSource : public ByteSource {
 public:
  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!computed_) {
      CORBEL_RETURN_IF_ERROR(compute(bytes_));
      computed_ = true;
    }
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) return out_of_range();
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }

 private:
  virtual Status compute(std::vector<std::byte>& bytes) const = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::byte> bytes_;
  mutable bool computed_ = false;
};

class TransposedRows final : public ComputedSource {
 public:
  TransposedRows(WeightPart part, std::uint64_t batch) : part_(std::move(part)), batch_(batch) {}

 private:
  Status compute(std::vector<std::byte>& bytes) const override {
    const DTypeTraits& type = traits(part_.dtype);
    const bool plain = type.block_elements == 1;
    const std::size_t element = plain ? type.block_bytes : sizeof(float);
    const std::size_t rows = static_cast<std::size_t>(part_.rows / batch_), cols = static_cast<std::size_t>(part_.cols);
    const std::size_t row_bytes = static_cast<std::size_t>(part_.row_bytes());
    bytes.resize(rows * cols * element * static_cast<std::size_t>(batch_));
    std::vector<std::byte> stored(row_bytes);
    std::vector<float> values(plain ? 0 : cols);
    for (std::size_t b = 0; b < batch_; ++b) {
      std::byte* matrix = bytes.data() + b * rows * cols * element;
      for (std::size_t r = 0; r < rows; ++r) {
        CORBEL_RETURN_IF_ERROR(part_.source->read((b * rows + r) * row_bytes, stored));
        const std::byte* from = stored.data();
        if (!plain) {
          type.dequantize(stored.data(), values.data(), cols / type.block_elements);
          from = reinterpret_cast<const std::byte*>(values.data());
        }
        for (std::size_t c = 0; c < cols; ++c)
          std::memcpy(matrix + (c * rows + r) * element, from + c * element, element);
      }
    }
    return {};
  }

  WeightPart part_;
  std::uint64_t batch_;
};

class MappedVector final : public ComputedSource {
 public:
  MappedVector(WeightPart part, float (*change)(float)) : part_(std::move(part)), change_(change) {}

 private:
  Status compute(std::vector<std::byte>& bytes) const override {
    const DTypeTraits& type = traits(part_.dtype);
    const std::size_t count = static_cast<std::size_t>(part_.rows * part_.cols);
    std::vector<std::byte> stored(count * type.block_bytes);
    CORBEL_RETURN_IF_ERROR(part_.source->read(0, stored));
    bytes.resize(count * sizeof(float));
    std::vector<float> values(count);
    type.dequantize(stored.data(), values.data(), count);
    for (float& value : values) value = change_(value);
    if (count != 0) std::memcpy(bytes.data(), values.data(), bytes.size());
    return {};
  }

  WeightPart part_;
  float (*change_)(float);
};

class ConstantSource final : public ByteSource {
 public:
  explicit ConstantSource(std::vector<float> values) : values_(std::move(values)) {}
  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    const std::span<const std::byte> all = bytes();
    if (offset > all.size() || out.size() > all.size() - offset) return out_of_range();
    if (!out.empty()) std::memcpy(out.data(), all.data() + offset, out.size());
    return {};
  }
  std::span<const std::byte> bytes() const noexcept override { return std::as_bytes(std::span<const float>(values_)); }

 private:
  std::vector<float> values_;
};

class ObservedSource final : public ByteSource {
 public:
  ObservedSource(std::shared_ptr<const ByteSource> inner, std::shared_ptr<const ReadObserver> observer)
      : inner_(std::move(inner)), observer_(std::move(observer)) {}
  // bytes() stays empty: everything goes through read(), so that progress is seen and a load can be stopped.
  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    CORBEL_RETURN_IF_ERROR(inner_->read(offset, out));
    if (!(*observer_)(out.size())) return Status(Errc::kCancelled, "loading was stopped by the progress callback");
    return {};
  }

 private:
  std::shared_ptr<const ByteSource> inner_;
  std::shared_ptr<const ReadObserver> observer_;
};

}  // namespace detail

CORBEL_INLINE hal::WeightPart pick_rows(const hal::WeightPart& part, const std::vector<RowRange>& ranges) {
  hal::WeightPart result = part;
  result.rows = 0;
  for (const RowRange& range : ranges) result.rows += range.count;
  result.source = std::make_shared<detail::PickedRows>(part.source, part.row_bytes(), ranges);
  return result;
}

CORBEL_INLINE hal::WeightPart stack_rows(const std::vector<hal::WeightPart>& parts) {
  hal::WeightPart result = parts.front();
  if (parts.size() == 1) return result;
  result.rows = 0;
  for (const hal::WeightPart& part : parts) result.rows += part.rows;
  result.source = std::make_shared<detail::StackedRows>(parts);
  return result;
}

CORBEL_INLINE hal::WeightPart transpose(const hal::WeightPart& part, std::uint64_t batch) {
  hal::WeightPart result = part;
  result.rows = part.cols * batch;
  result.cols = part.rows / batch;
  if (traits(part.dtype).block_elements != 1) result.dtype = DType::kF32;
  result.source = std::make_shared<detail::TransposedRows>(part, batch);
  return result;
}

CORBEL_INLINE StoredTensor stored_tensor(const Checkpoint& checkpoint, const TensorInfo& tensor, std::uint64_t rows,
                                         std::uint64_t cols) {
  StoredTensor stored;
  stored.part.name = tensor.name;
  stored.part.dtype = tensor.dtype;
  stored.part.rows = rows;
  stored.part.cols = cols;
  stored.part.source = std::make_shared<detail::TensorSource>(checkpoint, tensor);
  return stored;
}

CORBEL_INLINE Status read_rows(const StoredTensor& stored, std::uint64_t first, std::uint64_t count, float* out) {
  const hal::WeightPart& part = stored.part;
  const DTypeTraits& type = traits(part.dtype);
  const std::uint64_t begin = first * part.cols / type.block_elements;
  const auto blocks = static_cast<std::size_t>(count * part.cols / type.block_elements);
  std::vector<std::byte> bytes(blocks * type.block_bytes);
  CORBEL_RETURN_IF_ERROR(part.source->read(begin * type.block_bytes, bytes));
  type.dequantize(bytes.data(), out, blocks);
  const std::vector<std::uint32_t>& order = stored.permutation;
  if (order.empty()) return {};
  std::vector<float> row(order.size());
  for (std::uint64_t r = 0; r < count; ++r) {
    float* const values = out + r * part.cols;
    for (std::size_t c = 0; c < order.size(); ++c) row[order[c]] = values[c];
    std::copy(row.begin(), row.end(), values);
  }
  return {};
}

CORBEL_INLINE RowReader rows_of(StoredTensor stored) {
  return [shared = std::make_shared<const StoredTensor>(std::move(stored))](
             std::uint64_t first, std::uint64_t count, float* out) { return read_rows(*shared, first, count, out); };
}

CORBEL_INLINE hal::WeightPart map_vector(const hal::WeightPart& part, float (*change)(float)) {
  hal::WeightPart result = part;
  result.dtype = DType::kF32;
  result.source = std::make_shared<detail::MappedVector>(part, change);
  return result;
}

CORBEL_INLINE hal::WeightPart reshape(hal::WeightPart part, std::uint64_t rows, std::uint64_t cols) {
  part.rows = rows;
  part.cols = cols;
  return part;
}

CORBEL_INLINE hal::WeightPart constant_vector(std::string name, std::vector<float> values) {
  hal::WeightPart part;
  part.name = std::move(name);
  part.rows = 1;
  part.cols = values.size();
  part.source = std::make_shared<detail::ConstantSource>(std::move(values));
  return part;
}

CORBEL_INLINE hal::WeightPart observed(hal::WeightPart part, std::shared_ptr<const ReadObserver> observer) {
  if (observer) part.source = std::make_shared<detail::ObservedSource>(std::move(part.source), std::move(observer));
  return part;
}

}  // namespace models
CORBEL_NAMESPACE_END
