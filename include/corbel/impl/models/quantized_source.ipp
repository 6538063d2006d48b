// The rows of a quantized linear, made from the stored words when a backend asks for them. One class serves all
// schemes: they differ in where a code lies, in what a code is worth, and in which weights share a scale.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/detail/compiler.hpp>
#include <corbel/dtype.hpp>
#include <corbel/hal/weights.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

CORBEL_EXACT_FP_BEGIN

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

/// Where the code of output feature o and input feature i lies. b is the number of bits; a stream is little-endian:
/// element n occupies bits [n * b, (n + 1) * b) of the words one after the other.
enum class CodePlace : std::uint8_t {
  kColumnStreams,  ///< words [in * b / 32, out]: column o is a stream along i
  kRowStreams,     ///< words [out, ceil(in * b / 32)]: row o is a stream along i
  kAwqWords,       ///< words [in, out / 8]: 8 outputs in the order 0 2 4 6 1 3 5 7
  kSignedBytes,    ///< int8 [out, in]: code = value + 128
  kBytes,          ///< bytes [out, in]
  kLowNibbles,     ///< bytes [out, in / 2]: the even input in the low half
  kHighNibbles,    ///< bytes [out * in / 2]: the even element in the high half
};

/// What a code is worth before its scale.
enum class CodeValue : std::uint8_t { kInteger, kTable };

/// Everything about a quantized linear, gathered before its big tensors are read.
struct QuantLayout {
  std::string module;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  DType dtype = DType::kF32;  ///< of the rows that come out
  CodePlace place = CodePlace::kRowStreams;
  CodeValue value = CodeValue::kInteger;
  std::uint32_t bits = 4;
  std::array<float, 256> table = {};  ///< for kTable
  std::int32_t fixed_zero = 0;        ///< for kInteger without zeros

  std::vector<std::uint32_t> permutation;  ///< column c of the rows is input permutation[c]; empty: in order
  std::vector<std::uint32_t> groups;       ///< of each input feature: column of the grid of scales; empty: see below
  std::uint64_t group_size = 0;            ///< inputs that share a column of the grid; 0: all
  std::uint64_t num_groups = 1;            ///< columns of that grid
  std::uint64_t scale_rows = 1;            ///< rows of that grid
  std::uint64_t rows_per_scale = 0;        ///< output features that share a row of it; 0: all
  std::uint64_t flat_block = 0;            ///< not 0: scale number (o * cols + i) / flat_block instead

  std::uint64_t group_of(std::uint64_t input) const noexcept {
    if (!groups.empty()) return groups[static_cast<std::size_t>(input)];
    return group_size == 0 ? 0 : input / group_size;
  }

  const TensorInfo* codes = nullptr;
  /// Fill the grids from tensors of the checkpoint; the second one where there are zero points.
  std::function<Result<std::vector<float>>(const Checkpoint&)> scales;
  std::function<Result<std::vector<std::int16_t>>(const Checkpoint&)> zeros;
};

/// Element `index` of a stream of `bits`-bit codes in words that lie `stride` words apart.
inline std::uint32_t stream_code(const std::byte* words, std::uint64_t stride, std::uint32_t bits,
                                 std::uint64_t index) noexcept {
  const auto word = [&](std::uint64_t n) {
    const std::byte* at = words + n * stride * 4;
    return std::to_integer<std::uint32_t>(at[0]) | std::to_integer<std::uint32_t>(at[1]) << 8 |
           std::to_integer<std::uint32_t>(at[2]) << 16 | std::to_integer<std::uint32_t>(at[3]) << 24;
  };
  const std::uint64_t bit = index * bits;
  const auto shift = static_cast<std::uint32_t>(bit % 32);
  std::uint32_t code = word(bit / 32) >> shift;
  if (shift + bits > 32) code |= word(bit / 32 + 1) << (32 - shift);
  return code & ((1u << bits) - 1);
}

/// The place of output o among the 8 of its word in AWQ's order.
inline std::uint32_t awq_nibble(std::uint64_t o) noexcept { return static_cast<std::uint32_t>(o % 2 * 4 + o % 8 / 2); }

/// Values of a block of a kGroup... type that share a scale.
constexpr std::size_t scale_elements(DType dtype) noexcept { return dtype == DType::kGroupE2M1 ? 16 : 32; }

/// The source of the rows. Reads its tensors once, at the first read.
class QuantizedSource final : public hal::ByteSource {
 public:
  using Observer = std::shared_ptr<const std::function<bool(std::uint64_t)>>;
  QuantizedSource(Checkpoint checkpoint, QuantLayout layout, Observer observer)
      : checkpoint_(std::move(checkpoint)), layout_(std::move(layout)), observer_(std::move(observer)) {
    const DTypeTraits& type = traits(layout_.dtype);
    row_bytes_ = layout_.cols / type.block_elements * type.block_bytes;
  }

  Status read(std::uint64_t offset, std::span<std::byte> out) const override {
    CORBEL_RETURN_IF_ERROR(load());
    const std::uint64_t bytes = layout_.rows * row_bytes_;
    if (offset > bytes || out.size() > bytes - offset) return Status(Errc::kInternal, "weight read out of range");
    Scratch scratch;
    std::vector<std::byte> partial;
    for (std::size_t done = 0; done < out.size();) {
      const std::uint64_t row = (offset + done) / row_bytes_, skip = (offset + done) % row_bytes_;
      const std::size_t left = out.size() - done;
      if (skip == 0 && left >= row_bytes_) {
        const std::uint64_t count = std::min<std::uint64_t>(left / row_bytes_, kRowsAtOnce);
        write_rows(row, static_cast<std::size_t>(count), out.data() + done, scratch);
        done += static_cast<std::size_t>(count * row_bytes_);
        continue;
      }
      partial.resize(static_cast<std::size_t>(row_bytes_));
      write_rows(row, 1, partial.data(), scratch);
      const std::size_t count = std::min(left, static_cast<std::size_t>(row_bytes_ - skip));
      std::memcpy(out.data() + done, partial.data() + skip, count);
      done += count;
    }
    if (observer_ && !(*observer_)(out.size()))
      return Status(Errc::kCancelled, "loading was stopped by the progress callback");
    return {};
  }

 private:
  static constexpr std::size_t kRowsAtOnce = 16;
  struct Scratch {
    std::vector<std::uint8_t> codes;
  };

  Status load() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (loaded_) return {};
    codes_ = checkpoint_.bytes(*layout_.codes);
    if (codes_.empty()) {
      owned_.resize(static_cast<std::size_t>(layout_.codes->bytes));
      CORBEL_RETURN_IF_ERROR(checkpoint_.read(*layout_.codes, 0, owned_));
      codes_ = owned_;
    }
    CORBEL_ASSIGN_OR_RETURN(scales_, layout_.scales(checkpoint_));
    if (layout_.zeros) {
      CORBEL_ASSIGN_OR_RETURN(zeros_, layout_.zeros(checkpoint_));
    }
    loaded_ = true;
    return {};
  }

  /// Codes of rows [first, first + count), inputs in stored order, [count, cols].
  void read_codes(std::uint64_t first, std::size_t count, std::uint8_t* out) const noexcept {
    const auto cols = static_cast<std::size_t>(layout_.cols);
    const std::uint32_t bits = layout_.bits;
    const std::byte* bytes = codes_.data();
    const auto byte_at = [&](std::uint64_t n) { return std::to_integer<std::uint8_t>(bytes[n]); };
    switch (layout_.place) {
      case CodePlace::kColumnStreams:
        for (std::size_t i = 0; i < cols; ++i)
          for (std::size_t r = 0; r < count; ++r)
            out[r * cols + i] = static_cast<std::uint8_t>(stream_code(bytes + (first + r) * 4, layout_.rows, bits, i));
        return;
      case CodePlace::kRowStreams: {
        const std::uint64_t words = layout_.codes->bytes / 4 / layout_.rows;
        for (std::size_t r = 0; r < count; ++r)
          for (std::size_t i = 0; i < cols; ++i)
            out[r * cols + i] = static_cast<std::uint8_t>(stream_code(bytes + (first + r) * words * 4, 1, bits, i));
        return;
      }
      case CodePlace::kAwqWords: {
        const std::uint64_t words = layout_.rows / 8;
        for (std::size_t i = 0; i < cols; ++i)
          for (std::size_t r = 0; r < count; ++r) {
            const std::uint64_t o = first + r;
            out[r * cols + i] =
                static_cast<std::uint8_t>(stream_code(bytes + (i * words + o / 8) * 4, 1, 4, awq_nibble(o)));
          }
        return;
      }
      case CodePlace::kSignedBytes:
        for (std::size_t n = 0; n < count * cols; ++n)
          out[n] = static_cast<std::uint8_t>(std::uint32_t{byte_at(first * layout_.cols + n)} ^ 0x80u);
        return;
      case CodePlace::kBytes:
        for (std::size_t n = 0; n < count * cols; ++n) out[n] = byte_at(first * layout_.cols + n);
        return;
      case CodePlace::kLowNibbles:
      case CodePlace::kHighNibbles: {
        const std::uint64_t odd = layout_.place == CodePlace::kLowNibbles ? 1 : 0;
        for (std::size_t n = 0; n < count * cols; ++n) {
          const std::uint64_t element = first * layout_.cols + n;
          const std::uint32_t shift = element % 2 == odd ? 4 : 0;
          out[n] = static_cast<std::uint8_t>(std::uint32_t{byte_at(element / 2)} >> shift & 15u);
        }
        return;
      }
    }
  }

  std::size_t grid_index(std::uint64_t o, std::uint64_t input) const noexcept {
    if (layout_.flat_block != 0) return static_cast<std::size_t>((o * layout_.cols + input) / layout_.flat_block);
    const std::uint64_t row = layout_.rows_per_scale == 0 ? 0 : o / layout_.rows_per_scale;
    return static_cast<std::size_t>(row * layout_.num_groups + layout_.group_of(input));
  }
  std::int32_t zero_at(std::size_t index) const noexcept { return zeros_.empty() ? layout_.fixed_zero : zeros_[index]; }
  std::size_t input_of(std::size_t column) const noexcept {
    return layout_.permutation.empty() ? column : layout_.permutation[column];
  }

  void write_rows(std::uint64_t first, std::size_t count, std::byte* out, Scratch& scratch) const {
    const auto cols = static_cast<std::size_t>(layout_.cols);
    scratch.codes.resize(count * cols);
    read_codes(first, count, scratch.codes.data());
    for (std::size_t r = 0; r < count; ++r)
      write_row(first + r, scratch.codes.data() + r * cols, out + r * static_cast<std::size_t>(row_bytes_));
  }

  void write_row(std::uint64_t o, const std::uint8_t* codes, std::byte* out) const noexcept {
    const auto cols = static_cast<std::size_t>(layout_.cols);
    const DTypeTraits& type = traits(layout_.dtype);
    if (layout_.dtype == DType::kF32) {
      for (std::size_t i = 0; i < cols; ++i, out += sizeof(float)) {
        const std::size_t index = grid_index(o, i);
        const float value = layout_.value == CodeValue::kInteger
                                ? static_cast<float>(static_cast<std::int32_t>(codes[i]) - zero_at(index))
                                : layout_.table[codes[i]];
        const float scaled = value * scales_[index];
        std::memcpy(out, &scaled, sizeof scaled);
      }
      return;
    }
    const std::size_t width = type.block_elements;
    const bool nibbles = type.block_bytes < width;
    for (std::size_t first = 0; first < cols; first += width, out += type.block_bytes) {
      std::byte* packed = out;
      for (std::size_t s = 0; s < width; s += scale_elements(layout_.dtype), packed += sizeof(float))
        std::memcpy(packed, &scales_[grid_index(o, input_of(first + s))], sizeof(float));
      if (layout_.dtype == DType::kGroupU4 || layout_.dtype == DType::kGroupU8) {
        const auto zero = static_cast<std::int16_t>(zero_at(grid_index(o, input_of(first))));
        std::memcpy(packed, &zero, sizeof zero);
        packed += sizeof zero;
      }
      // Signed blocks hold code - zero: 4 bits as that plus 8, 8 bits as int8.
      const std::int32_t shift = layout_.dtype == DType::kGroupI4   ? 8 - layout_.fixed_zero
                                 : layout_.dtype == DType::kGroupI8 ? -layout_.fixed_zero
                                                                    : 0;
      const auto code_of = [&](std::size_t column) {
        return static_cast<std::uint32_t>(static_cast<std::int32_t>(codes[input_of(column)]) + shift);
      };
      const std::size_t half = width / 2;
      for (std::size_t i = 0; i < (nibbles ? half : width); ++i) {
        const std::uint32_t low = code_of(first + i);
        packed[i] = static_cast<std::byte>(nibbles ? (low & 15u) | code_of(first + half + i) << 4 : low);
      }
    }
  }

  Checkpoint checkpoint_;
  QuantLayout layout_;
  Observer observer_;
  std::uint64_t row_bytes_ = 0;
  mutable std::mutex mutex_;
  mutable bool loaded_ = false;
  mutable std::vector<std::byte> owned_;
  mutable std::span<const std::byte> codes_;
  mutable std::vector<float> scales_;
  mutable std::vector<std::int16_t> zeros_;
};

}  // namespace detail
}  // namespace models
CORBEL_NAMESPACE_END

CORBEL_EXACT_FP_END
