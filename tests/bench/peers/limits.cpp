// What this machine can do: limits [BYTES...] [FILE...] prints one JSON object. Rates are the best of several short
// runs.
//
//   compute   GOP/s or GFLOP/s of one unit from registers alone, on 1 and 2 threads
//   read      GB/s of reading so many bytes (by default 1 MiB, 64 MiB and 600 MB) again and again, for 1 and 2 threads
//   with 1 and 4 streams each; "gemv" does to each line what
//             a product of packed 4-bit weights and one vector does to it, which suits the prefetcher better
//   copy      ms that two threads need to read each file, which is in the page cache, into memory that is new to the
//             process: what a load costs at least that keeps the weights in memory of its own
//
// A stand-alone program: c++ -O2 -std=c++20 -pthread limits.cpp
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

/// The CPUs that this process may use.
std::vector<unsigned> allowed_cpus() {
  cpu_set_t set;
  std::vector<unsigned> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (unsigned i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) cpus.push_back(i);
  return cpus;
}

void pin(unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/// Seconds that `threads` pinned threads need for body(thread), all begun together; the best of `runs`.
double best_seconds(unsigned threads, int runs, const std::function<void(unsigned)>& body) {
  const std::vector<unsigned> cpus = allowed_cpus();
  double best = 1e30;
  for (int run = 0; run < runs; ++run) {
    std::atomic<unsigned> ready{0};
    std::vector<Clock::time_point> begins(threads), ends(threads);
    std::vector<std::thread> workers;
    for (unsigned t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        pin(cpus[t % cpus.size()]);
        ++ready;
        while (ready < threads) {
        }
        begins[t] = Clock::now();
        body(t);
        ends[t] = Clock::now();
      });
    }
    for (std::thread& worker : workers) worker.join();
    const auto begin = *std::min_element(begins.begin(), begins.end());
    const auto end = *std::max_element(ends.begin(), ends.end());
    best = std::min(best, std::chrono::duration<double>(end - begin).count());
  }
  return best;
}

// ---- compute: asm keeps 12 independent accumulators in registers, whatever a compiler thinks of them

constexpr int kSteps = 500'000;

#define ZERO_REGISTERS ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13\n\tvpxor %%xmm\\r, %%xmm\\r, %%xmm\\r\n\t.endr\n\t"
#define REPEAT_FOR_ACCUMULATORS(text) ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n\t" text "\n\t.endr\n\t"
#define DEFINE_UNIT(name, text)                                                                                   \
  void name(unsigned) {                                                                                           \
    long left = kSteps;                                                                                           \
    asm volatile(ZERO_REGISTERS "1:\n\t" REPEAT_FOR_ACCUMULATORS(text) "dec %0\n\tjnz 1b\n\tvzeroupper"           \
                 : "+r"(left)                                                                                     \
                 :                                                                                                \
                 : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
                   "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");                                                  \
  }

DEFINE_UNIT(run_vnni, "vpdpbusd %%zmm12, %%zmm13, %%zmm\\r")
DEFINE_UNIT(run_bf16_dot, "vdpbf16ps %%zmm12, %%zmm13, %%zmm\\r")
DEFINE_UNIT(run_fma512, "vfmadd231ps %%zmm12, %%zmm13, %%zmm\\r")
DEFINE_UNIT(run_fma256, "vfmadd231ps %%ymm12, %%ymm13, %%ymm\\r")
DEFINE_UNIT(run_avx2_int8,
            "vpmaddubsw %%ymm12, %%ymm13, %%ymm14\n\tvpmaddwd %%ymm12, %%ymm14, %%ymm15\n\t"
            "vpaddd %%ymm15, %%ymm\\r, %%ymm\\r")

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t columns_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

#define DEFINE_TILE_UNIT(name, product)                                                              \
  void name(unsigned) {                                                                              \
    const TileConfig config;                                                                         \
    long left = kSteps / 10;                                                                         \
    asm volatile(                                                                                    \
        "ldtilecfg %1\n\t.irp r,0,1,2,3,4,5,6,7\n\ttilezero %%tmm\\r\n\t.endr\n\t"                   \
        "1:\n\t" product " %%tmm4, %%tmm5, %%tmm0\n\t" product " %%tmm4, %%tmm6, %%tmm1\n\t" product \
        " %%tmm7, %%tmm5, %%tmm2\n\t" product                                                        \
        " %%tmm7, %%tmm6, %%tmm3\n\t"                                                                \
        "dec %0\n\tjnz 1b\n\ttilerelease"                                                            \
        : "+r"(left)                                                                                 \
        : "m"(config)                                                                                \
        : "cc", "memory");                                                                           \
  }

DEFINE_TILE_UNIT(run_amx_int8, "tdpbssd")
DEFINE_TILE_UNIT(run_amx_bf16, "tdpbf16ps")

/// Whether the processor has tiles with bit `bit` of CPUID 7's EDX, and the system lets this process use them.
bool has_tiles(unsigned bit) {
  unsigned a = 7, b = 0, c = 0, d = 0;
  asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return (d >> 24 & 1) != 0 && (d >> bit & 1) != 0 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

struct Unit {
  const char* name;
  bool present;
  void (*run)(unsigned);
  double operations;  // of one call
};

std::vector<Unit> units() {
  constexpr double kCalls = 12.0 * kSteps, kProducts = 4.0 * (kSteps / 10);
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  return {
      {"amx_int8", has_tiles(25), run_amx_int8, kProducts * 2 * 16 * 16 * 64},
      {"amx_bf16", has_tiles(22), run_amx_bf16, kProducts * 2 * 16 * 16 * 32},
      {"avx512_vnni", avx512 && __builtin_cpu_supports("avx512vnni"), run_vnni, kCalls * 2 * 64},
      {"avx512_bf16", avx512 && __builtin_cpu_supports("avx512bf16"), run_bf16_dot, kCalls * 2 * 32},
      {"avx512_fma", avx512, run_fma512, kCalls * 2 * 16},
      {"avx2_int8", __builtin_cpu_supports("avx2") != 0, run_avx2_int8, kCalls * 2 * 32},
      {"avx2_fma", __builtin_cpu_supports("fma") != 0, run_fma256, kCalls * 2 * 8},
  };
}

// ---- memory

using Reader = std::uint64_t (*)(const std::byte* data, std::size_t bytes);

/// Reads `bytes` (a multiple of 1024) as `Streams` runs side by side. One run is left to the hardware's prefetcher.
template <int Streams, bool Gemv>
[[gnu::target("avx512f,avx512bw,avx512vnni")]] std::uint64_t read_avx512(const std::byte* data, std::size_t bytes) {
  __m512i sums[4] = {};
  const __m512i low = _mm512_set1_epi8(15), x = _mm512_set1_epi8(1);
  const std::size_t run = bytes / Streams;
  for (std::size_t i = 0; i < run; i += 256 / Streams) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < 4; ++j) {
      const std::byte* const line = data + i + (Streams == 1 ? 64 * j : run * j);
      if (Streams > 1) _mm_prefetch(reinterpret_cast<const char*>(line + 4096), _MM_HINT_T0);
      const __m512i bits = _mm512_load_si512(line);
      if (Gemv) {
        sums[j] = _mm512_dpbusd_epi32(sums[j], _mm512_and_si512(bits, low), x);
        sums[j] = _mm512_dpbusd_epi32(sums[j], _mm512_and_si512(_mm512_srli_epi16(bits, 4), low), x);
      } else {
        sums[j] = _mm512_xor_si512(sums[j], bits);
      }
    }
  }
  const __m512i sum = _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
  alignas(64) std::uint64_t words[8];
  _mm512_store_si512(words, sum);
  return words[0] ^ words[5];
}

template <int Streams, bool Gemv>
[[gnu::target("avx2")]] std::uint64_t read_avx2(const std::byte* data, std::size_t bytes) {
  __m256i sums[4] = {};
  const __m256i low = _mm256_set1_epi8(15), x = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  const std::size_t run = bytes / Streams;
  for (std::size_t i = 0; i < run; i += 256 / Streams) {
#pragma GCC unroll 8
    for (std::size_t j = 0; j < 8; ++j) {
      const std::byte* const half = data + i + (Streams == 1 ? 32 * j : run * (j / 2) + 32 * (j % 2));
      if (Streams > 1 && j % 2 == 0) _mm_prefetch(reinterpret_cast<const char*>(half + 4096), _MM_HINT_T0);
      const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(half));
      __m256i& sum = sums[j % 4];
      if (Gemv) {
        const __m256i pairs =
            _mm256_add_epi16(_mm256_maddubs_epi16(_mm256_and_si256(bits, low), x),
                             _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(bits, 4), low), x));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
      } else {
        sum = _mm256_xor_si256(sum, bits);
      }
    }
  }
  const __m256i sum = _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  return static_cast<std::uint64_t>(_mm256_extract_epi64(sum, 0) ^ _mm256_extract_epi64(sum, 3));
}

Reader reader(int streams, bool gemv) {
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw")) {
    if (gemv) return streams == 1 ? read_avx512<1, true> : read_avx512<4, true>;
    return streams == 1 ? read_avx512<1, false> : read_avx512<4, false>;
  }
  if (gemv) return streams == 1 ? read_avx2<1, true> : read_avx2<4, true>;
  return streams == 1 ? read_avx2<1, false> : read_avx2<4, false>;
}

std::string read_rates(std::size_t bytes) {
  constexpr std::size_t kHuge = 2u << 20, kAhead = 8192;
  bytes = (bytes + 2047) / 2048 * 2048;
  const std::size_t mapped = (bytes + kAhead + kHuge - 1) / kHuge * kHuge + kHuge;
  void* const pages = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return "";
  const std::size_t skip = (kHuge - reinterpret_cast<std::uintptr_t>(pages) % kHuge) % kHuge;
  std::byte* const data = static_cast<std::byte*>(pages) + skip;
  madvise(data, mapped - skip, MADV_HUGEPAGE);
  std::memset(data, 0x35, bytes);

  const int repeat = static_cast<int>(std::max<std::size_t>(1, (256u << 20) / bytes));
  std::atomic<std::uint64_t> sink{0};
  std::string rows;
  for (const bool gemv : {false, true}) {
    for (const unsigned threads : {1u, 2u}) {
      for (const int streams : {1, 4}) {
        const Reader read = reader(streams, gemv);
        const std::size_t part = bytes / threads;
        const double seconds = best_seconds(threads, 4, [&](unsigned t) {
          for (int i = 0; i < repeat; ++i) sink += read(data + t * part, part);
        });
        char row[160];
        std::snprintf(row, sizeof row,
                      "%s{\"bytes\": %zu, \"gemv\": %s, \"threads\": %u, \"streams\": %d, \"gb_per_s\": %.2f}",
                      rows.empty() ? "" : ", ", bytes, gemv ? "true" : "false", threads, streams,
                      1e-9 * static_cast<double>(bytes) * repeat / seconds);
        rows += row;
      }
    }
  }
  munmap(pages, mapped);
  return rows;
}

/// Huge pages where there are any, as far as the memory is aligned for them.
std::byte* new_pages(std::size_t bytes) {
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  madvise(pages, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(pages);
}

double copy_seconds(const char* path) {
  const int file = open(path, O_RDONLY);
  const off_t bytes = file < 0 ? 0 : lseek(file, 0, SEEK_END);
  double best = 1e30;
  for (int run = 0; run < 3 && bytes > 0; ++run) {
    std::byte* const data = new_pages(static_cast<std::size_t>(bytes));
    if (data == nullptr) break;
    best = std::min(best, best_seconds(2, 1, [&](unsigned t) {
                      for (off_t at = bytes / 2 * t, end = t == 0 ? bytes / 2 : bytes; at < end;) {
                        const ssize_t got =
                            pread(file, data + at, static_cast<std::size_t>(std::min<off_t>(end - at, 1 << 20)), at);
                        if (got <= 0) break;
                        at += got;
                      }
                    }));
    munmap(data, static_cast<std::size_t>(bytes));
  }
  if (file >= 0) close(file);
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::size_t> sizes;
  std::vector<const char*> files;
  for (int i = 1; i < argc; ++i) {
    char* end = nullptr;
    const std::size_t bytes = std::strtoull(argv[i], &end, 10);
    if (*end != '\0') {
      files.push_back(argv[i]);
    } else {
      sizes.push_back(std::max<std::size_t>(bytes, 4096));
    }
  }
  if (sizes.empty()) sizes = {1u << 20, 64u << 20, 600'000'000};
  if (!__builtin_cpu_supports("avx2")) {
    std::fprintf(stderr, "limits: needs AVX2\n");
    return 1;
  }
  std::printf("{\"compute\": {");
  const char* separator = "";
  for (const Unit& unit : units()) {
    if (!unit.present) continue;
    const double one = best_seconds(1, 7, unit.run), two = best_seconds(2, 7, unit.run);
    std::printf("%s\"%s\": {\"1\": %.1f, \"2\": %.1f}", separator, unit.name, 1e-9 * unit.operations / one,
                2e-9 * unit.operations / two);
    separator = ", ";
  }
  std::printf("}, \"read\": [");
  separator = "";
  for (const std::size_t bytes : sizes) {
    std::printf("%s%s", separator, read_rates(bytes).c_str());
    separator = ", ";
  }
  std::printf("], \"copy\": [");
  separator = "";
  for (const char* path : files) {
    std::printf("%s%.1f", separator, 1e3 * copy_seconds(path));
    separator = ", ";
  }
  std::printf("]}\n");
}
