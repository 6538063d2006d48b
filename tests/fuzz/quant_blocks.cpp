// Target quant_blocks: random bytes as blocks of every type. Blocks decode alone as they do together, nothing outside
// them is read, the packed form of the cpu backend holds the same values, and its linear of every level multiplies them
// as the definition says.
#include <corbel/backends/cpu/kernel_table.hpp>
#include <corbel/backends/cpu/pack.hpp>
#include <corbel/context.hpp>
#include <corbel/dtype.hpp>

#include <cmath>
#include <cstring>

#include "fuzz/fuzz.hpp"

CORBEL_EXACT_FP_BEGIN

using namespace corbel;
using namespace corbel_fuzz;

namespace {

constexpr float kPoison = 12345.5f;

bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

struct Level {
  IsaLevel isa;
  const cpu::KernelTable& (*kernels)() noexcept;
};
constexpr Level kLevels[] = {
    {IsaLevel::kBase, &cpu::base_kernels},
#if defined(__x86_64__)
    {IsaLevel::kAvx2, &cpu::avx2_kernels},
    {IsaLevel::kAvx512, &cpu::avx512_kernels},
#endif
};

/// For each of `count` values how large the parts of its sum may be: scale times code, and minimum.
std::unique_ptr<double[]> sizes_of(const DTypeTraits& type, const std::byte* stored, const float* values,
                                   std::size_t count) {
  std::unique_ptr<double[]> sizes(new double[count]);
  for (std::size_t i = 0; i < count; ++i) sizes[i] = std::fabs(static_cast<double>(values[i]));
  if (type.unpack == nullptr) return sizes;
  IntegerBlock block;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t in_block = i % type.block_elements, group = in_block / type.scale_elements;
    if (in_block == 0) type.unpack(stored + i / type.block_elements * type.block_bytes, block);
    sizes[i] = std::fabs(static_cast<double>(block.scales[group])) * 255;
    if (type.has_minimum) sizes[i] += std::fabs(static_cast<double>(block.minima[group]));
  }
  return sizes;
}

/// The linear of a packed group with finite `values` [rows, columns], at each level that this machine has.
void check_linear(const DTypeTraits& type, const std::byte* stored, const std::byte* group, const float* values,
                  std::size_t rows, std::size_t columns, std::string_view content) {
  const std::unique_ptr<float[]> x(new float[columns]);
  for (std::size_t i = 0; i < columns; ++i)
    x[i] = static_cast<float>(static_cast<signed char>(content[i * 7 % content.size()])) * 0.037f + 0.01f;
  const std::unique_ptr<double[]> sizes = sizes_of(type, stored, values, rows * columns);
  const bool quantized = cpu::packed_format(type.dtype).quantized();
  for (const Level& level : kLevels) {
    if (level.isa > detected_isa()) continue;
    const cpu::KernelTable& kernels = level.kernels();
    const std::unique_ptr<cpu::ActivationBlock[]> blocks(new cpu::ActivationBlock[columns / cpu::kBlockColumns + 1]);
    if (quantized) kernels.quantize_row(x.get(), columns, cpu::kBlockColumns, 0, blocks.get());
    const std::unique_ptr<float[]> out(new float[rows]);
    cpu::LinearArgs args;
    args.weights = group;
    args.group_bytes = static_cast<std::size_t>(cpu::group_bytes(type.dtype, columns));
    args.num_columns = rows;
    args.k = columns;
    args.x_blocks = blocks.get();
    args.x = x.get();
    args.out = out.get();
    args.num_rows = 1;
    kernels.linear[static_cast<std::size_t>(type.dtype)](args);
    for (std::size_t row = 0; row < rows; ++row) {
      double sum = 0, size = 0;
      for (std::size_t i = 0; i < columns; ++i) {
        const cpu::ActivationBlock& block = blocks[i / cpu::kBlockColumns];
        const double activation = quantized ? static_cast<double>(block.scale) * block.codes[i % cpu::kBlockColumns]
                                            : static_cast<double>(x[i]);
        sum += activation * static_cast<double>(values[row * columns + i]);
        size += std::fabs(activation) * sizes[row * columns + i];
      }
      if (size > 1e37) continue;  // float32 may overflow
      FUZZ_CHECK(std::fabs(static_cast<double>(out[row]) - sum) <= 1e-5 * size + 1e-36,
                 std::string(type.name) + " at " + isa_name(level.isa) + ": " + std::to_string(out[row]) +
                     ", expected " + std::to_string(sum));
    }
  }
}

}  // namespace

// The first byte chooses the type, the second how many blocks; the rest is repeated to fill them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const auto types = all_dtypes();
  const DTypeTraits& type = types[input.below(static_cast<std::uint32_t>(types.size()))];
  const std::size_t blocks = 1 + input.below(type.block_elements == 1 ? 64 : 4);
  const std::size_t shift = input.below(4);  // blocks need no alignment
  const std::string_view content = input.rest();
  if (content.empty()) return 0;

  // Memory that ends where the blocks end, so that the sanitizer sees every byte read too much.
  const std::size_t bytes = blocks * type.block_bytes, elements = blocks * type.block_elements;
  const std::unique_ptr<std::byte[]> memory(new std::byte[shift + bytes]);
  std::byte* stored = memory.get() + shift;
  for (std::size_t i = 0; i < bytes; ++i) stored[i] = static_cast<std::byte>(content[i % content.size()]);
  if (std::string_view(type.name).substr(0, 5) == "group") {
    // Blocks that no file has: made at load, with float32 scales that come from 16 bits.
    for (std::size_t block = 0; block < blocks; ++block) {
      for (const std::size_t at : {std::size_t{0}, std::size_t{4}}) {
        if (at != 0 && type.dtype != DType::kGroupE2M1) continue;
        std::byte* place = stored + block * type.block_bytes + at;
        std::uint16_t half;
        std::memcpy(&half, place, sizeof half);
        const float scale = f16_to_f32(half);
        std::memcpy(place, &scale, sizeof scale);
      }
    }
  }
  const std::unique_ptr<float[]> values(new float[elements]);
  std::fill_n(values.get(), elements, kPoison);
  type.dequantize(stored, values.get(), blocks);

  const std::size_t first_bad = type.first_non_finite(stored, blocks);
  FUZZ_CHECK(first_bad <= blocks, type.name);
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::unique_ptr<std::byte[]> one(new std::byte[type.block_bytes]);
    std::memcpy(one.get(), stored + block * type.block_bytes, type.block_bytes);
    const std::unique_ptr<float[]> alone(new float[type.block_elements]);
    type.dequantize(one.get(), alone.get(), 1);
    const float* together = values.get() + block * type.block_elements;
    FUZZ_CHECK(std::memcmp(alone.get(), together, type.block_elements * sizeof(float)) == 0, type.name);
    const bool bad = type.first_non_finite(one.get(), 1) == 0;
    FUZZ_CHECK(block >= first_bad || !bad, type.name);
    FUZZ_CHECK(block != first_bad || bad, type.name);
    // A block with finite scales has finite values only.
    const bool finite = std::all_of(together, together + type.block_elements, [](float v) { return std::isfinite(v); });
    FUZZ_CHECK(bad || finite, type.name);
  }

  if (first_bad != blocks) return 0;
  // The blocks as one row, and as rows of one block each.
  for (const std::size_t rows : {std::size_t{1}, blocks}) {
    if (rows > cpu::kGroupRows) continue;
    const std::size_t columns = elements / rows;
    const std::unique_ptr<std::byte[]> group(new std::byte[cpu::group_bytes(type.dtype, columns)]);
    cpu::pack_group(type.dtype, stored, rows, bytes / rows, columns, group.get());
    const std::unique_ptr<float[]> row_values(new float[columns]);
    for (std::size_t row = 0; row < rows; ++row) {
      std::fill_n(row_values.get(), columns, kPoison);
      cpu::read_packed_row(type.dtype, group.get(), row, columns, row_values.get());
      for (std::size_t column = 0; column < columns; ++column)
        FUZZ_CHECK(same(row_values[column], values[row * columns + column]), type.name);
    }
    check_linear(type, stored, group.get(), values.get(), rows, columns, content);
  }
  return 0;
}

CORBEL_EXACT_FP_END
