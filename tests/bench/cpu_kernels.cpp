// Rates of the CPU backend's kernels on one thread, in the CPU time of that thread: cpu_kernels [level] [k] [columns]
//
// A tool for whoever changes kernels; ctest does not run it.
#include <corbel/backends/cpu/cpu_backend.hpp>
#include <corbel/context.hpp>
#include <corbel/dtype.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <vector>

namespace {

using corbel::DType;
namespace cpu = corbel::cpu;
namespace hal = corbel::hal;

double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// The best of several runs of body(), each long enough for the clock.
template <class Body>
double best_seconds(const Body& body) {
  double best = 1e30;
  int repeat = 1;
  for (int run = 0; run < 7; ++run) {
    const double begin = thread_seconds();
    for (int i = 0; i < repeat; ++i) body();
    const double seconds = (thread_seconds() - begin) / repeat;
    best = std::min(best, seconds);
    if (run == 0) repeat = std::max(1, static_cast<int>(0.02 / std::max(seconds, 1e-7)));
  }
  return best;
}

template <class T>
std::vector<T> filled(std::size_t count, std::uint32_t seed) {
  std::vector<T> out(count);
  std::mt19937 rng(seed);
  for (T& value : out) value = static_cast<T>(static_cast<double>(rng() % 2001) / 1000.0 - 1.0);
  return out;
}

void bench_linear(const cpu::KernelTable& kernels, std::size_t k, std::size_t columns) {
  std::printf("linear, k %zu, %zu columns: GB/s of packed weights for 1 row, then GOP/s for rows\n", k, columns);
  constexpr std::size_t kRows[] = {1, 2, 8, 24, 64, 240};
  const std::vector<float> x = filled<float>(240 * k, 1);
  std::vector<float> out(240 * columns);
  std::vector<cpu::ActivationBlock> blocks(240 * k / 32);
  for (std::size_t r = 0; r < 240; ++r) kernels.quantize_row(x.data() + r * k, k, 32, 0, blocks.data() + r * (k / 32));
  for (const corbel::DTypeTraits& type : corbel::all_dtypes()) {
    const std::size_t group = static_cast<std::size_t>(cpu::group_bytes(type.dtype, k));
    std::vector<std::byte> weights(group * columns / 16 + 64, std::byte{0});
    cpu::LinearArgs args;
    args.weights = weights.data();
    args.group_bytes = group;
    args.num_columns = columns;
    args.k = k;
    args.x_blocks = blocks.data();
    args.x_block_stride = k / 32;
    args.x = x.data();
    args.x_stride = k;
    args.out = out.data();
    args.out_stride = columns;
    std::printf("  %-5s", type.name);
    for (const std::size_t rows : kRows) {
      args.num_rows = rows;
      const double seconds = best_seconds([&] { kernels.linear[static_cast<std::size_t>(type.dtype)](args); });
      if (rows == 1) std::printf(" %6.1f |", static_cast<double>(group * columns / 16) / seconds / 1e9);
      std::printf(" %zu: %5.0f", rows, 2e-9 * static_cast<double>(rows * k * columns) / seconds);
    }
    std::printf("\n");
  }
}

void bench_attention(const cpu::KernelTable& kernels, std::size_t heads, std::size_t head_dim) {
  constexpr std::size_t kTokens = 512, kBlockTokens = 32, kRows = 16;
  std::printf("attention, %zu heads on one kv head, head_dim %zu, last 16 of 512 rows, f16: ", heads, head_dim);
  const std::size_t plane = kBlockTokens * head_dim * 2;
  std::vector<std::byte> cache(kTokens / kBlockTokens * 2 * plane, std::byte{0});
  std::vector<hal::BlockEntry> table(kTokens / kBlockTokens);
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = {static_cast<std::int32_t>(i), static_cast<std::int32_t>(i * kBlockTokens)};
  const std::vector<float> q = filled<float>(kRows * heads * head_dim, 2);
  std::vector<float> out(q.size()), chunk(q.size()), vectors(q.size());
  cpu::AttentionRow rows[kRows];
  cpu::AttentionArgs args;
  args.rows = rows;
  args.num_heads = heads;
  args.head_dim = args.value_dim = args.out_step = head_dim;
  args.vectors = vectors.data();
  args.chunk_outputs = chunk.data();
  args.scale = 0.125f;
  args.table = table.data();
  args.block_tokens = kBlockTokens;
  args.keys = cache.data();
  args.values = cache.data() + plane;
  args.block_bytes = 2 * plane;
  for (const std::size_t num_rows : {std::size_t{1}, kRows}) {
    args.num_rows = num_rows;
    for (std::size_t r = 0; r < num_rows; ++r)
      rows[r] = {q.data() + r * heads * head_dim, out.data() + r * heads * head_dim, 0,
                 static_cast<std::int32_t>(kTokens - num_rows + r)};
    const double seconds = best_seconds([&] { kernels.attention[static_cast<int>(hal::KvType::kF16)](args); });
    std::printf(" %zu rows %.1f GFLOP/s", num_rows,
                4e-9 * static_cast<double>(num_rows * heads * head_dim * kTokens) / seconds);
  }
  std::printf("\n");
}

void bench_rows(const cpu::KernelTable& kernels) {
  constexpr std::size_t kWidth = 1536;
  const std::vector<float> x = filled<float>(kWidth, 3);
  std::vector<float> out(kWidth);
  std::vector<cpu::ActivationBlock> blocks(kWidth / 32);
  const auto print = [](const char* name, double seconds) {
    std::printf("  %-12s %.2f elements/ns\n", name, 1e-9 * kWidth / seconds);
  };
  std::printf("row-wise, width %zu\n", kWidth);
  print("quantize", best_seconds([&] { kernels.quantize_row(x.data(), kWidth, 32, 0, blocks.data()); }));
  cpu::NormArgs norm{x.data(), out.data(), kWidth, {hal::NormKind::kRms, kWidth, 1e-5f}, x.data(), nullptr};
  print("norm", best_seconds([&] { kernels.norm_row(norm); }));
  print("silu gate", best_seconds([&] {
          kernels.activation_row(hal::ActivationKind::kSilu, x.data(), x.data(), out.data(), kWidth);
        }));
  print("gelu gate", best_seconds([&] {
          kernels.activation_row(hal::ActivationKind::kGeluTanh, x.data(), x.data(), out.data(), kWidth);
        }));
  print("add", best_seconds([&] { kernels.add_row(x.data(), x.data(), out.data(), kWidth); }));
  const std::vector<float> table = filled<float>(64, 4);
  print("rope", best_seconds([&] {
          for (std::size_t i = 0; i < kWidth; i += 64)
            kernels.rope_head({64, 64, false}, x.data() + i, table.data(), out.data() + i);
        }));
}

}  // namespace

int main(int argc, char** argv) {
  const auto level =
      argc > 1 ? corbel::isa_from_name(argv[1]) : corbel::Result<corbel::IsaLevel>(corbel::detected_isa());
  if (!level.ok() || *level > corbel::detected_isa()) {
    std::printf("no such level on this CPU\n");
    return 2;
  }
  const std::size_t k = argc > 2 ? static_cast<std::size_t>(std::atoi(argv[2])) : 1536;
  const std::size_t columns = argc > 3 ? static_cast<std::size_t>(std::atoi(argv[3])) : 576;
  if (k == 0 || k % 256 != 0 || columns == 0 || columns % 16 != 0) {
    std::printf("k must be a multiple of 256, columns of 16\n");
    return 2;
  }
#if defined(__x86_64__)
  const cpu::KernelTable& kernels = *level == corbel::IsaLevel::kBase   ? cpu::base_kernels()
                                    : *level == corbel::IsaLevel::kAvx2 ? cpu::avx2_kernels()
                                                                        : cpu::avx512_kernels();
#else
  const cpu::KernelTable& kernels = cpu::base_kernels();
#endif
  bench_linear(kernels, k, columns);
  bench_attention(kernels, 3, 64);
  bench_attention(kernels, 4, 256);
  bench_attention(kernels, 1, 128);
  bench_rows(kernels);
}
