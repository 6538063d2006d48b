// Definitions of models/quantized_linear.hpp: for each scheme, which tensors of a module mean what.
#pragma once

#include <corbel/detail/guard.hpp>
#include <corbel/impl/dtype/groups.ipp>
#include <corbel/impl/models/quantized_source.ipp>
#include <corbel/models/quantized_linear.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <utility>

CORBEL_EXACT_FP_BEGIN

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

/// The values of E2M1 (OCP Microscaling Formats 1.0).
inline constexpr std::array<float, 16> kE2m1Values = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                      -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/// Whether blocks of this type can hold the rows: all values under a scale of a block share it in the file too.
inline bool fits_blocks(const QuantLayout& layout, DType dtype) {
  const std::uint64_t width = scale_elements(dtype);
  if (layout.cols % traits(dtype).block_elements != 0) return false;
  if (layout.flat_block != 0) return layout.flat_block % width == 0;
  if (layout.groups.empty() && (layout.group_size == 0 || layout.group_size % width == 0)) return true;
  const auto group_of = [&](std::uint64_t column) {
    return layout.group_of(layout.permutation.empty() ? column : layout.permutation[static_cast<std::size_t>(column)]);
  };
  for (std::uint64_t c = 0; c < layout.cols; ++c)
    if (group_of(c) != group_of(c / width * width)) return false;
  return true;
}

/// The tensors of one module; the first failure is kept.
class ModuleReader {
 public:
  ModuleReader(const Checkpoint& checkpoint, const std::string& module) : checkpoint_(checkpoint), module_(module) {}

  const Status& status() const noexcept { return status_; }
  void fail(Errc code, std::string_view message) {
    if (status_.ok()) status_ = Status(code, message);
  }
  std::string name_of(std::string_view suffix) const { return module_ + std::string(suffix); }
  const TensorInfo* find(std::string_view suffix) const { return checkpoint_.find_tensor(name_of(suffix)); }

  /// A needed tensor of one of these types.
  const TensorInfo* tensor(std::string_view suffix, std::initializer_list<DType> types) {
    const TensorInfo* found = find(suffix);
    if (found == nullptr) {
      fail(Errc::kMissingTensor, fmt::format("tensor {} is missing", name_of(suffix)));
      return nullptr;
    }
    if (!found->supported || std::find(types.begin(), types.end(), found->dtype) == types.end()) {
      std::string expected;
      for (const DType type : types) expected += std::string(expected.empty() ? "" : ", ") + traits(type).name;
      fail(Errc::kTypeMismatch, fmt::format("tensor {}: type {}, expected {}", name_of(suffix),
                                            found->supported ? traits(found->dtype).name : found->type_name, expected));
      return nullptr;
    }
    return found;
  }
  /// The same, of this shape.
  const TensorInfo* tensor(std::string_view suffix, std::initializer_list<DType> types,
                           std::initializer_list<std::uint64_t> shape) {
    const TensorInfo* found = tensor(suffix, types);
    if (found == nullptr) return nullptr;
    if (!std::equal(shape.begin(), shape.end(), found->shape.begin(), found->shape.end())) {
      fail(Errc::kShapeMismatch, fmt::format("tensor {}: shape [{}], expected [{}]", found->name,
                                             fmt::join(found->shape, ", "), fmt::join(shape, ", ")));
      return nullptr;
    }
    return found;
  }
  /// The first of these that is there.
  std::string_view first_of(std::initializer_list<std::string_view> suffixes) const {
    for (const std::string_view suffix : suffixes)
      if (find(suffix) != nullptr) return suffix;
    return *suffixes.begin();
  }

  std::vector<float> floats(const TensorInfo* tensor) {
    if (tensor == nullptr || !status_.ok()) return {};
    Result<std::vector<float>> values = checkpoint_.read_f32(*tensor);
    if (values.ok()) return std::move(*values);
    fail(values.status().code(), values.status().message());
    return {};
  }
  std::vector<std::byte> bytes(const TensorInfo* tensor) {
    std::vector<std::byte> result;
    if (tensor == nullptr || !status_.ok()) return result;
    result.resize(static_cast<std::size_t>(tensor->bytes));
    if (Status read = checkpoint_.read(*tensor, 0, result); !read.ok()) {
      fail(read.code(), read.message());
      result.clear();
    }
    return result;
  }
  /// The elements of an I32 or I64 tensor.
  std::vector<std::int64_t> integers(const TensorInfo* tensor) {
    const std::vector<std::byte> raw = bytes(tensor);
    std::vector<std::int64_t> result;
    if (raw.empty()) return result;
    const std::size_t width = traits(tensor->dtype).block_bytes;
    for (std::size_t at = 0; at + width <= raw.size(); at += width) {
      if (width == 8) {
        std::int64_t value = 0;
        std::memcpy(&value, raw.data() + at, 8);
        result.push_back(value);
      } else {
        std::int32_t value = 0;
        std::memcpy(&value, raw.data() + at, 4);
        result.push_back(value);
      }
    }
    return result;
  }
  /// A tensor of one positive, finite number.
  float positive(std::string_view suffix) {
    const TensorInfo* found = tensor(suffix, {DType::kF32, DType::kF16, DType::kBF16});
    if (found != nullptr && found->num_elements() != 1)
      fail(Errc::kShapeMismatch,
           fmt::format("tensor {}: shape [{}], expected one element", found->name, fmt::join(found->shape, ", ")));
    const std::vector<float> values = floats(found);
    if (values.empty()) return 1;
    if (!(values[0] > 0 && values[0] <= std::numeric_limits<float>::max()))
      fail(Errc::kBadValue, fmt::format("tensor {}: {} is not a positive number", found->name, values[0]));
    return values[0];
  }

 private:
  const Checkpoint& checkpoint_;
  std::string module_;
  Status status_;
};

/// Builds the layout of one linear.
class LinearReader {
 public:
  LinearReader(const Checkpoint& checkpoint, const std::string& module, const QuantScheme& scheme, std::uint64_t rows,
               std::uint64_t cols)
      : tensors_(checkpoint, module), scheme_(scheme), rows_(rows), cols_(cols) {
    layout_.module = module;
    layout_.rows = rows;
    layout_.cols = cols;
    layout_.bits = scheme.bits;
    layout_.fixed_zero = 1 << (scheme.bits - 1);
  }

  Result<StoredTensor> run(const Checkpoint& checkpoint, QuantizedSource::Observer observer) {
    if (rows_ == 0 || cols_ == 0 || rows_ > (1ull << 40) / cols_) {
      tensors_.fail(Errc::kShapeMismatch,
                    fmt::format("module {}: no linear of [{}, {}]", layout_.module, rows_, cols_));
      return tensors_.status();
    }
    switch (scheme_.method) {
      case QuantMethod::kGptq:
        gptq();
        break;
      case QuantMethod::kAwq:
        awq();
        break;
      case QuantMethod::kCompressedTensors:
        compressed_tensors();
        break;
      case QuantMethod::kFp8:
      case QuantMethod::kFbgemmFp8:
        float8();
        break;
      case QuantMethod::kMxfp4:
        mxfp4_experts();
        break;
      case QuantMethod::kBitsAndBytes:
        bits_and_bytes();
        break;
    }
    if (!tensors_.status().ok()) return tensors_.status();
    rounding();
    if (!tensors_.status().ok()) return tensors_.status();

    if (layout_.value == CodeValue::kInteger) choose_integer_blocks(checkpoint);
    if (!tensors_.status().ok()) return tensors_.status();
    // Blocks where all values of a block share a scale, else float32 with the columns as they are.
    if (!fits_blocks(layout_, block_type_)) {
      block_type_ = DType::kF32;
      layout_.permutation.clear();
    }
    layout_.dtype = block_type_;
    result_.part.name = layout_.codes->name;
    result_.part.dtype = block_type_;
    result_.part.rows = rows_;
    result_.part.cols = cols_;
    result_.permutation = layout_.permutation;
    result_.part.source = std::make_shared<QuantizedSource>(checkpoint, std::move(layout_), std::move(observer));
    return std::move(result_);
  }

 private:
  static constexpr std::initializer_list<DType> kFloats = {DType::kF32, DType::kF16, DType::kBF16};

  std::uint64_t words(std::uint64_t elements) const noexcept { return (elements * scheme_.bits + 31) / 32; }
  bool ok() const noexcept { return tensors_.status().ok(); }

  /// Columns in groups of `size` (0: one group). Where it does not divide the columns the last group is shorter, if
  /// `ragged` allows it.
  void even_groups(std::uint64_t size, bool ragged) {
    if (size == 0 || size >= cols_) {
      if (size > cols_ && !ragged) group_error(size);
      return;
    }
    if (cols_ % size != 0 && !ragged) return group_error(size);
    layout_.num_groups = (cols_ + size - 1) / size;
    layout_.group_size = size;
  }
  void group_error(std::uint64_t size) {
    tensors_.fail(Errc::kShapeMismatch,
                  fmt::format("module {}: groups of {} do not divide {} input features", layout_.module, size, cols_));
  }

  /// The group of each input feature from a tensor. Columns are sorted by group, so that each group is contiguous.
  void group_index(std::string_view suffix) {
    const TensorInfo* tensor = tensors_.tensor(suffix, {DType::kI32, DType::kI64}, {cols_});
    const std::vector<std::int64_t> values = tensors_.integers(tensor);
    if (!ok()) return;
    if (scheme_.method == QuantMethod::kCompressedTensors &&
        std::all_of(values.begin(), values.end(), [](std::int64_t value) { return value == -1; }))
      return;
    std::vector<std::uint32_t> groups(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] < 0 || static_cast<std::uint64_t>(values[i]) >= layout_.num_groups)
        return tensors_.fail(Errc::kBadValue, fmt::format("tensor {}: element {} is {}, there are {} groups",
                                                          tensor->name, i, values[i], layout_.num_groups));
      groups[i] = static_cast<std::uint32_t>(values[i]);
    }
    layout_.groups = std::move(groups);
    if (std::is_sorted(layout_.groups.begin(), layout_.groups.end())) return;
    layout_.permutation.resize(layout_.groups.size());
    std::iota(layout_.permutation.begin(), layout_.permutation.end(), 0u);
    std::stable_sort(layout_.permutation.begin(), layout_.permutation.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return layout_.groups[a] < layout_.groups[b]; });
  }

  /// Scales stored as [rows, groups].
  void scales_by_row(const TensorInfo* tensor) {
    wide_scales_ = tensor->dtype == DType::kF32;
    layout_.scales = [tensor](const Checkpoint& checkpoint) { return checkpoint.read_f32(*tensor); };
  }
  /// Scales stored as [groups, rows].
  void scales_by_group(const TensorInfo* tensor) {
    wide_scales_ = tensor->dtype == DType::kF32;
    layout_.scales = [tensor, rows = rows_,
                      groups = layout_.num_groups](const Checkpoint& checkpoint) -> Result<std::vector<float>> {
      CORBEL_ASSIGN_OR_RETURN(const std::vector<float> stored, checkpoint.read_f32(*tensor));
      std::vector<float> values(stored.size());
      for (std::size_t o = 0; o < rows; ++o)
        for (std::size_t g = 0; g < groups; ++g) values[o * groups + g] = stored[g * rows + o];
      return values;
    };
  }
  /// Zero points: code(words, o, g) of each row and group, plus `offset`.
  template <class Code>
  void zeros(const TensorInfo* tensor, std::int32_t offset, Code code) {
    layout_.zeros = [tensor, rows = rows_, groups = layout_.num_groups, offset,
                     code](const Checkpoint& checkpoint) -> Result<std::vector<std::int16_t>> {
      std::vector<std::byte> stored(static_cast<std::size_t>(tensor->bytes));
      CORBEL_RETURN_IF_ERROR(checkpoint.read(*tensor, 0, stored));
      std::vector<std::int16_t> values(static_cast<std::size_t>(rows * groups));
      for (std::uint64_t o = 0; o < rows; ++o)
        for (std::uint64_t g = 0; g < groups; ++g)
          values[static_cast<std::size_t>(o * groups + g)] =
              static_cast<std::int16_t>(static_cast<std::int32_t>(code(stored.data(), o, g)) + offset);
      return values;
    };
  }

  /// Without zero points other than the middle of the codes signed blocks serve; products with zero points are exact
  /// for scales of 16 bits.
  void choose_integer_blocks(const Checkpoint& checkpoint) {
    const std::int32_t middle = 1 << (layout_.bits - 1);
    if (layout_.zeros && scheme_.symmetric) {
      const Result<std::vector<std::int16_t>> zeros = layout_.zeros(checkpoint);
      if (!zeros.ok()) return tensors_.fail(zeros.status().code(), zeros.status().message());
      if (std::all_of(zeros->begin(), zeros->end(), [&](std::int16_t zero) { return zero == middle; }))
        layout_.zeros = nullptr;
    }
    const bool small = layout_.bits <= 4;
    if (!layout_.zeros && layout_.fixed_zero == middle) {
      block_type_ = small ? DType::kGroupI4 : DType::kGroupI8;
    } else {
      block_type_ = wide_scales_ ? DType::kF32 : small ? DType::kGroupU4 : DType::kGroupU8;
    }
  }

  void gptq() {
    layout_.place = CodePlace::kColumnStreams;
    if (cols_ * scheme_.bits % 32 != 0 || rows_ * scheme_.bits % 32 != 0)
      return tensors_.fail(Errc::kShapeMismatch,
                           fmt::format("module {}: [{}, {}] in {} bits does not fill whole words of 32 bits",
                                       layout_.module, rows_, cols_, scheme_.bits));
    layout_.codes = tensors_.tensor(".qweight", {DType::kI32, DType::kU32}, {words(cols_), rows_});
    layout_.rows_per_scale = 1;
    even_groups(scheme_.group_size, true);
    const std::uint64_t groups = layout_.num_groups;
    const TensorInfo* scales = tensors_.tensor(".scales", kFloats, {groups, rows_});
    const TensorInfo* stored = tensors_.tensor(".qzeros", {DType::kI32, DType::kU32}, {groups, words(rows_)});
    if (ok() && tensors_.find(".g_idx") != nullptr) group_index(".g_idx");
    if (!ok()) return;
    scales_by_group(scales);
    zeros(stored, scheme_.zero_plus_one ? 1 : 0,
          [bits = scheme_.bits, words = words(rows_)](const std::byte* bytes, std::uint64_t o, std::uint64_t g) {
            return stream_code(bytes + g * words * 4, 1, bits, o);
          });
  }

  void awq() {
    const std::uint64_t inner = scheme_.rows_packed ? cols_ : rows_;
    if (inner % 8 != 0)
      return tensors_.fail(Errc::kShapeMismatch,
                           fmt::format("module {}: {} features do not fill whole words of 8", layout_.module, inner));
    layout_.rows_per_scale = 1;
    even_groups(scheme_.group_size, false);
    if (!ok()) return;
    const std::uint64_t groups = layout_.num_groups;
    if (scheme_.rows_packed) {
      layout_.place = CodePlace::kRowStreams;
      layout_.codes = tensors_.tensor(".qweight", {DType::kI32}, {rows_, cols_ / 8});
      const TensorInfo* stored = tensors_.tensor(".qzeros", {DType::kI32});
      const TensorInfo* scales = tensors_.tensor(".scales", kFloats);
      if (!ok()) return;
      // Rows of zeros and scales are padded to a multiple that the kernel likes.
      const std::uint64_t width = stored->shape.size() == 2 ? stored->shape[1] : 0;
      if (stored->shape.size() != 2 || stored->shape[0] != rows_ || width * 8 < groups)
        return tensors_.fail(Errc::kShapeMismatch,
                             fmt::format("tensor {}: shape [{}], expected [{}, {}] or wider", stored->name,
                                         fmt::join(stored->shape, ", "), rows_, (groups + 7) / 8));
      if (scales->shape.size() != 2 || scales->shape[0] != rows_ || scales->shape[1] < groups)
        return tensors_.fail(Errc::kShapeMismatch,
                             fmt::format("tensor {}: shape [{}], expected [{}, {}] or wider", scales->name,
                                         fmt::join(scales->shape, ", "), rows_, groups));
      wide_scales_ = scales->dtype == DType::kF32;
      layout_.scales = [scales, rows = rows_, groups](const Checkpoint& checkpoint) -> Result<std::vector<float>> {
        CORBEL_ASSIGN_OR_RETURN(const std::vector<float> all, checkpoint.read_f32(*scales));
        std::vector<float> values(static_cast<std::size_t>(rows * groups));
        for (std::size_t n = 0; n < values.size(); ++n)
          values[n] = all[static_cast<std::size_t>(n / groups * scales->shape[1] + n % groups)];
        return values;
      };
      zeros(stored, 0, [width](const std::byte* bytes, std::uint64_t o, std::uint64_t g) {
        return stream_code(bytes + o * width * 4, 1, 4, g);
      });
      return;
    }
    layout_.place = CodePlace::kAwqWords;
    layout_.codes = tensors_.tensor(".qweight", {DType::kI32, DType::kU32}, {cols_, rows_ / 8});
    const TensorInfo* scales = tensors_.tensor(".scales", kFloats, {groups, rows_});
    const bool has_zeros = !scheme_.symmetric || tensors_.find(".qzeros") != nullptr;
    const TensorInfo* stored =
        has_zeros ? tensors_.tensor(".qzeros", {DType::kI32, DType::kU32}, {groups, rows_ / 8}) : nullptr;
    if (!ok()) return;
    scales_by_group(scales);
    if (stored == nullptr) return;
    zeros(stored, 0, [words = rows_ / 8](const std::byte* bytes, std::uint64_t o, std::uint64_t g) {
      return stream_code(bytes + (g * words + o / 8) * 4, 1, 4, awq_nibble(o));
    });
  }

  void compressed_tensors() {
    if (tensors_.find(".weight_packed") == nullptr) {
      const TensorInfo* weight = tensors_.find(".weight");
      if (weight != nullptr && weight->supported && weight->dtype == DType::kF8_E4M3) return float8();
      return compressed_integers(false);
    }
    if (scheme_.is_float) return packed_float4();
    compressed_integers(true);
  }

  /// Scales of compressed-tensors: one; [rows, 1]; [rows, groups].
  const TensorInfo* compressed_scales() {
    const TensorInfo* scales = tensors_.tensor(".weight_scale", kFloats);
    if (scales == nullptr) return nullptr;
    if (scheme_.sharing == QuantSharing::kTensor) {
      if (scales->num_elements() != 1)
        tensors_.fail(Errc::kShapeMismatch, fmt::format("tensor {}: shape [{}], expected one element", scales->name,
                                                        fmt::join(scales->shape, ", ")));
    } else {
      layout_.rows_per_scale = 1;
      if (scheme_.sharing == QuantSharing::kGroup) even_groups(scheme_.group_size, false);
      const bool flat = layout_.num_groups == 1 && scales->shape.size() == 1 && scales->shape[0] == rows_;
      if (!flat && (scales->shape.size() != 2 || scales->shape[0] != rows_ || scales->shape[1] != layout_.num_groups))
        tensors_.fail(Errc::kShapeMismatch, fmt::format("tensor {}: shape [{}], expected [{}, {}]", scales->name,
                                                        fmt::join(scales->shape, ", "), rows_, layout_.num_groups));
    }
    return scales;
  }

  void compressed_integers(bool packed) {
    if (packed) {
      layout_.place = CodePlace::kRowStreams;
      const TensorInfo* shape = tensors_.tensor(".weight_shape", {DType::kI64, DType::kI32}, {2});
      const std::vector<std::int64_t> sizes = tensors_.integers(shape);
      if (ok() && (sizes[0] != static_cast<std::int64_t>(rows_) || sizes[1] != static_cast<std::int64_t>(cols_)))
        tensors_.fail(Errc::kShapeMismatch, fmt::format("tensor {}: [{}], expected [{}, {}]", shape->name,
                                                        fmt::join(sizes, ", "), rows_, cols_));
      layout_.codes = tensors_.tensor(".weight_packed", {DType::kI32}, {rows_, words(cols_)});
    } else {
      layout_.place = CodePlace::kSignedBytes;
      layout_.bits = 8;
      layout_.fixed_zero = 128;
      layout_.codes = tensors_.tensor(".weight", {DType::kI8}, {rows_, cols_});
    }
    const TensorInfo* scales = compressed_scales();
    if (!ok()) return;
    if (tensors_.find(".weight_g_idx") != nullptr) group_index(".weight_g_idx");
    scales_by_row(scales);
    if (scheme_.symmetric || !ok()) return;
    const bool by_tensor = scheme_.sharing == QuantSharing::kTensor;
    const std::uint64_t groups = layout_.num_groups;
    if (packed && !by_tensor) {
      const TensorInfo* stored = tensors_.tensor(".weight_zero_point", {DType::kI32}, {words(rows_), groups});
      if (stored == nullptr) return;
      zeros(stored, 0, [bits = scheme_.bits, groups](const std::byte* bytes, std::uint64_t o, std::uint64_t g) {
        return stream_code(bytes + g * 4, groups, bits, o);
      });
      return;
    }
    const TensorInfo* stored = tensors_.tensor(".weight_zero_point", {DType::kI8});
    if (stored == nullptr) return;
    if (stored->num_elements() != (by_tensor ? 1 : rows_ * groups))
      return tensors_.fail(Errc::kShapeMismatch,
                           fmt::format("tensor {}: shape [{}], expected [{}, {}]", stored->name,
                                       fmt::join(stored->shape, ", "), by_tensor ? 1 : rows_, groups));
    if (by_tensor) {
      const std::vector<float> zero = tensors_.floats(stored);
      if (!zero.empty()) layout_.fixed_zero += static_cast<std::int32_t>(zero[0]);
      return;
    }
    zeros(stored, layout_.fixed_zero, [groups](const std::byte* bytes, std::uint64_t o, std::uint64_t g) {
      return static_cast<std::int8_t>(bytes[o * groups + g]);
    });
  }

  /// NVFP4 (scales E4M3 per 16 and one for all) and MXFP4 (exponents per 32) of compressed-tensors.
  void packed_float4() {
    block_type_ = DType::kGroupE2M1;
    layout_.place = CodePlace::kLowNibbles;
    layout_.value = CodeValue::kTable;
    std::copy(kE2m1Values.begin(), kE2m1Values.end(), layout_.table.begin());
    if (cols_ % 2 != 0) return group_error(2);
    layout_.codes = tensors_.tensor(".weight_packed", {DType::kU8}, {rows_, cols_ / 2});
    layout_.rows_per_scale = 1;
    const TensorInfo* scales = tensors_.tensor(".weight_scale", {DType::kF8_E4M3, DType::kU8, DType::kF8_E8M0});
    if (scales == nullptr) return;
    even_groups(scheme_.group_size != 0 ? scheme_.group_size : scales->dtype == DType::kF8_E4M3 ? 16 : 32, false);
    scales = tensors_.tensor(".weight_scale", {scales->dtype}, {rows_, layout_.num_groups});
    if (!ok()) return;
    if (scales->dtype == DType::kF8_E4M3) {
      const float global = tensors_.positive(".weight_global_scale");
      layout_.scales = [scales, global](const Checkpoint& checkpoint) -> Result<std::vector<float>> {
        CORBEL_ASSIGN_OR_RETURN(std::vector<float> values, checkpoint.read_f32(*scales));
        for (float& value : values) value = value / global;
        return values;
      };
    } else {
      exponent_scales(scales);
    }
  }

  /// Scales 2^(byte - 127); 255 is NaN.
  void exponent_scales(const TensorInfo* scales) {
    layout_.scales = [scales](const Checkpoint& checkpoint) -> Result<std::vector<float>> {
      std::vector<std::byte> stored(static_cast<std::size_t>(scales->bytes));
      CORBEL_RETURN_IF_ERROR(checkpoint.read(*scales, 0, stored));
      std::vector<float> values(stored.size());
      for (std::size_t n = 0; n < values.size(); ++n) {
        const auto exponent = std::to_integer<std::uint32_t>(stored[n]);
        values[n] = exponent == 255 ? std::numeric_limits<float>::quiet_NaN()
                                    : std::bit_cast<float>(exponent == 0 ? 0x00400000u : exponent << 23);
      }
      return values;
    };
  }

  void mxfp4_experts() {
    block_type_ = DType::kGroupE2M1;
    layout_.place = CodePlace::kLowNibbles;
    layout_.value = CodeValue::kTable;
    std::copy(kE2m1Values.begin(), kE2m1Values.end(), layout_.table.begin());
    layout_.rows_per_scale = 1;
    even_groups(32, false);
    layout_.codes = tensors_.tensor("_blocks", {DType::kU8});
    const TensorInfo* scales = tensors_.tensor("_scales", {DType::kU8, DType::kF8_E8M0});
    if (!ok()) return;
    // [experts, rows of one, blocks, 16] and [experts, rows of one, blocks].
    const std::uint64_t blocks = layout_.num_groups;
    const auto shape_is = [&](const std::vector<std::uint64_t>& shape, std::size_t dims) {
      return shape.size() == dims && shape[0] != 0 && shape[1] != 0 && shape[0] <= rows_ &&
             shape[1] == rows_ / shape[0] && rows_ % shape[0] == 0 && shape[2] == blocks &&
             (dims == 3 || shape[3] == 16);
    };
    if (!shape_is(layout_.codes->shape, 4))
      return tensors_.fail(Errc::kShapeMismatch,
                           fmt::format("tensor {}: shape [{}], expected [experts, rows, {}, 16] with {} rows in all",
                                       layout_.codes->name, fmt::join(layout_.codes->shape, ", "), blocks, rows_));
    if (!shape_is(scales->shape, 3) || scales->shape[0] != layout_.codes->shape[0])
      return tensors_.fail(Errc::kShapeMismatch, fmt::format("tensor {}: shape [{}], expected [{}, {}, {}]",
                                                             scales->name, fmt::join(scales->shape, ", "),
                                                             layout_.codes->shape[0], layout_.codes->shape[1], blocks));
    exponent_scales(scales);
  }

  /// E4M3 weights with one scale, one per row, or one per rectangle.
  void float8() {
    block_type_ = DType::kGroupF8;
    layout_.place = CodePlace::kBytes;
    layout_.value = CodeValue::kTable;
    for (std::size_t code = 0; code < 256; ++code) {
      const auto byte = static_cast<std::byte>(code);
      traits(DType::kF8_E4M3).dequantize(&byte, &layout_.table[code], 1);
    }
    layout_.codes = tensors_.tensor(".weight", {DType::kF8_E4M3}, {rows_, cols_});
    const TensorInfo* scales = tensors_.tensor(tensors_.first_of({".weight_scale_inv", ".weight_scale"}),
                                               {DType::kF32, DType::kF16, DType::kBF16, DType::kF8_E8M0});
    if (!ok()) return;
    const std::vector<std::uint64_t>& shape = scales->shape;
    if (scheme_.sharing == QuantSharing::kBlock) {
      const std::uint64_t height = scheme_.block_rows, width = scheme_.block_columns;
      const std::uint64_t down = (rows_ + height - 1) / height, across = (cols_ + width - 1) / width;
      if (shape.size() != 2 || shape[0] != down || shape[1] != across)
        return tensors_.fail(Errc::kShapeMismatch,
                             fmt::format("tensor {}: shape [{}], expected [{}, {}] for blocks of {}x{}", scales->name,
                                         fmt::join(shape, ", "), down, across, height, width));
      even_groups(width, true);
      layout_.rows_per_scale = height;
    } else if (scales->num_elements() == rows_ && !shape.empty() && shape[0] == rows_ &&
               (scheme_.sharing == QuantSharing::kChannel || rows_ != 1)) {
      layout_.rows_per_scale = 1;
    } else if (scheme_.sharing == QuantSharing::kGroup && scheme_.group_size != 0) {
      layout_.rows_per_scale = 1;
      even_groups(scheme_.group_size, false);
      if (ok() && (shape.size() != 2 || shape[0] != rows_ || shape[1] != layout_.num_groups))
        return tensors_.fail(Errc::kShapeMismatch, fmt::format("tensor {}: shape [{}], expected [{}, {}]", scales->name,
                                                               fmt::join(shape, ", "), rows_, layout_.num_groups));
    } else if (scales->num_elements() != 1) {
      return tensors_.fail(Errc::kShapeMismatch, fmt::format("tensor {}: shape [{}], expected one element or [{}, 1]",
                                                             scales->name, fmt::join(shape, ", "), rows_));
    }
    scales_by_row(scales);
  }

  void bits_and_bytes() {
    if (scheme_.bits == 8) {
      layout_.place = CodePlace::kSignedBytes;
      layout_.bits = 8;
      layout_.fixed_zero = 128;
      layout_.rows_per_scale = 1;
      layout_.codes = tensors_.tensor(".weight", {DType::kI8}, {rows_, cols_});
      const TensorInfo* scales = tensors_.tensor(".SCB", kFloats, {rows_});
      if (!ok()) return;
      layout_.scales = [scales](const Checkpoint& checkpoint) -> Result<std::vector<float>> {
        CORBEL_ASSIGN_OR_RETURN(std::vector<float> values, checkpoint.read_f32(*scales));
        for (float& value : values) value = value / 127.0f;
        return values;
      };
      return;
    }
    layout_.place = CodePlace::kHighNibbles;
    layout_.value = CodeValue::kTable;
    if (rows_ * cols_ % 2 != 0) return group_error(2);
    layout_.codes = tensors_.tensor(".weight", {DType::kU8});
    if (layout_.codes != nullptr && layout_.codes->bytes != rows_ * cols_ / 2)
      return tensors_.fail(Errc::kShapeMismatch,
                           fmt::format("tensor {}: {} bytes, expected {} for [{}, {}]", layout_.codes->name,
                                       layout_.codes->bytes, rows_ * cols_ / 2, rows_, cols_));
    const bool nf4 = tensors_.find(".weight.quant_state.bitsandbytes__nf4") != nullptr;
    const TensorInfo* text = tensors_.tensor(
        nf4 ? ".weight.quant_state.bitsandbytes__nf4" : ".weight.quant_state.bitsandbytes__fp4", {DType::kU8});
    const std::vector<std::byte> raw = tensors_.bytes(text);
    if (!ok()) return;
    const Result<json::Value> state =
        json::parse(std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size()));
    if (!state.ok())
      return tensors_.fail(state.status().code(), fmt::format("tensor {}: {}", text->name, state.status().message()));
    const std::uint64_t block = state_number(*state, "blocksize", text->name);
    const json::Value* shape = state->find("shape");
    if (shape == nullptr || shape->items().size() != 2 || shape->items()[0].as_uint() != rows_ ||
        shape->items()[1].as_uint() != cols_)
      tensors_.fail(Errc::kShapeMismatch, fmt::format("tensor {}: shape {}, expected [{}, {}]", text->name,
                                                      shape == nullptr ? "none" : json::write(*shape), rows_, cols_));
    const TensorInfo* map = tensors_.tensor(".weight.quant_map", {DType::kF32}, {16});
    const std::vector<float> values = tensors_.floats(map);
    if (!ok()) return;
    std::copy(values.begin(), values.end(), layout_.table.begin());
    // The usual table has blocks of its own; another one is multiplied out.
    block_type_ =
        std::equal(values.begin(), values.end(), corbel::detail::kNf4Values.begin()) ? DType::kGroupNF4 : DType::kF32;
    layout_.flat_block = block;
    const std::uint64_t count = (rows_ * cols_ + block - 1) / block;
    if (tensors_.find(".weight.nested_absmax") == nullptr) {
      const TensorInfo* scales = tensors_.tensor(".weight.absmax", {DType::kF32}, {count});
      if (ok()) scales_by_row(scales);
      return;
    }
    // Scales are codes of a table themselves, in blocks with scales of their own, around a mean.
    const TensorInfo* codes = tensors_.tensor(".weight.absmax", {DType::kU8}, {count});
    const std::uint64_t nested_block = state_number(*state, "nested_blocksize", text->name);
    const json::Value* offset = state->find("nested_offset");
    if (offset == nullptr || !offset->is_number())
      tensors_.fail(Errc::kMissingKey, fmt::format("tensor {}: nested_offset is missing", text->name));
    if (!ok()) return;
    const TensorInfo* nested_map = tensors_.tensor(".weight.nested_quant_map", {DType::kF32}, {256});
    const TensorInfo* nested =
        tensors_.tensor(".weight.nested_absmax", {DType::kF32}, {(count + nested_block - 1) / nested_block});
    if (!ok()) return;
    layout_.scales = [codes, nested_map, nested, nested_block, mean = static_cast<float>(offset->as_double())](
                         const Checkpoint& checkpoint) -> Result<std::vector<float>> {
      CORBEL_ASSIGN_OR_RETURN(const std::vector<float> table, checkpoint.read_f32(*nested_map));
      CORBEL_ASSIGN_OR_RETURN(const std::vector<float> scales, checkpoint.read_f32(*nested));
      std::vector<std::byte> stored(static_cast<std::size_t>(codes->bytes));
      CORBEL_RETURN_IF_ERROR(checkpoint.read(*codes, 0, stored));
      std::vector<float> result(stored.size());
      for (std::size_t n = 0; n < result.size(); ++n) {
        const float value =
            table[std::to_integer<std::size_t>(stored[n])] * scales[static_cast<std::size_t>(n / nested_block)];
        result[n] = value + mean;
      }
      return result;
    };
  }

  std::uint64_t state_number(const json::Value& state, std::string_view key, const std::string& place) {
    const json::Value* value = state.find(key);
    if (value == nullptr || value->type() != json::Type::kUint || value->as_uint() == 0 ||
        value->as_uint() > (1u << 24)) {
      tensors_.fail(value == nullptr ? Errc::kMissingKey : Errc::kBadValue,
                    fmt::format("tensor {}: {} is {}", place, key,
                                value == nullptr ? std::string("missing") : json::write(*value)));
      return 1;
    }
    return value->as_uint();
  }

  void rounding() {
    const ActivationScheme& scheme = scheme_.activations;
    if (scheme.type == ActivationScheme::Type::kNone) return;
    if (scheme.type == ActivationScheme::Type::kOther) {
      result_.unsupported_rounding = scheme.other;
      return;
    }
    InputRounding rounding;
    rounding.spec.kind =
        scheme.type == ActivationScheme::Type::kInt8 ? hal::RoundKind::kInt8 : hal::RoundKind::kFp8E4M3;
    if (scheme.dynamic) {
      if (scheme.sharing == QuantSharing::kTensor) {
        // One scale for whatever tokens are computed together would make a token depend on its company.
        result_.unsupported_rounding = "one dynamic scale for all tokens of a batch";
        return;
      }
      rounding.spec.group = scheme.sharing == QuantSharing::kGroup ? scheme.group_size : 0;
      rounding.spec.asymmetric = !scheme.symmetric;
      rounding.spec.bound = scheme.upper_bound;
    } else {
      const std::string_view suffix = tensors_.first_of({".input_scale", ".activation_scale"});
      rounding.scale = tensors_.positive(suffix);
      if (!scheme.symmetric) {
        const TensorInfo* zero = tensors_.tensor(".input_zero_point", {DType::kI8});
        if (zero != nullptr && zero->num_elements() != 1)
          tensors_.fail(Errc::kShapeMismatch, fmt::format("tensor {}: shape [{}], expected one element", zero->name,
                                                          fmt::join(zero->shape, ", ")));
        const std::vector<float> value = tensors_.floats(zero);
        if (!value.empty()) rounding.zero_point = value[0];
      }
    }
    result_.rounding = rounding;
  }

  ModuleReader tensors_;
  const QuantScheme& scheme_;
  std::uint64_t rows_;
  std::uint64_t cols_;
  QuantLayout layout_;
  DType block_type_ = DType::kF32;
  bool wide_scales_ = false;  // of 32 bits
  StoredTensor result_;
};

}  // namespace detail

CORBEL_INLINE Result<std::optional<QuantizedCheckpoint>> QuantizedCheckpoint::open(const Checkpoint& checkpoint) {
  return corbel::detail::guard([&]() -> Result<std::optional<QuantizedCheckpoint>> {
    const json::Value* config = checkpoint.config();
    if (config == nullptr) return std::optional<QuantizedCheckpoint>();
    if (const json::Value* object = config->find("quantization_config"); object != nullptr && !object->is_null()) {
      CORBEL_ASSIGN_OR_RETURN(QuantizationConfig parsed,
                              QuantizationConfig::parse(*object, "config.json: quantization_config"));
      return std::optional<QuantizedCheckpoint>(QuantizedCheckpoint(checkpoint, std::move(parsed)));
    }
    for (const char* name : {"quantize_config.json", "quant_config.json"}) {
      if (!checkpoint.has_document(name)) continue;
      CORBEL_ASSIGN_OR_RETURN(const json::Value object, checkpoint.json_document(name));
      CORBEL_ASSIGN_OR_RETURN(QuantizationConfig parsed, QuantizationConfig::parse(object, name));
      return std::optional<QuantizedCheckpoint>(QuantizedCheckpoint(checkpoint, std::move(parsed)));
    }
    return std::optional<QuantizedCheckpoint>();
  });
}

CORBEL_INLINE bool QuantizedCheckpoint::has(std::string_view module) const {
  const auto find = [&](const char* suffix) { return checkpoint_.find_tensor(std::string(module) + suffix); };
  const TensorInfo* weight = find(".weight");
  const auto weight_is = [&](DType dtype) { return weight != nullptr && weight->supported && weight->dtype == dtype; };
  switch (config_->method()) {
    case QuantMethod::kGptq:
    case QuantMethod::kAwq:
      return find(".qweight") != nullptr;
    case QuantMethod::kCompressedTensors:
      return find(".weight_packed") != nullptr || weight_is(DType::kI8) || weight_is(DType::kF8_E4M3);
    case QuantMethod::kFp8:
    case QuantMethod::kFbgemmFp8:
      return weight_is(DType::kF8_E4M3);
    case QuantMethod::kMxfp4:
      return find("_blocks") != nullptr;
    case QuantMethod::kBitsAndBytes:
      return weight_is(DType::kU8) || weight_is(DType::kI8);
  }
  return false;
}

CORBEL_INLINE Result<StoredTensor> QuantizedCheckpoint::linear(
    const std::string& module, std::uint64_t rows, std::uint64_t cols,
    std::shared_ptr<const std::function<bool(std::uint64_t)>> observer) const {
  return corbel::detail::guard([&]() -> Result<StoredTensor> {
    const QuantScheme* scheme = config_->find_or_general(module);
    if (scheme == nullptr)
      return Status(Errc::kBadValue, fmt::format("module {}: has quantized tensors, but the checkpoint's configuration "
                                                 "says that it is not quantized",
                                                 module));
    return detail::LinearReader(checkpoint_, module, *scheme, rows, cols).run(checkpoint_, std::move(observer));
  });
}

}  // namespace models
CORBEL_NAMESPACE_END

CORBEL_EXACT_FP_END
