// The tile registers of AMX as two types with the same members: HardwareTiles are the processor's, SoftwareTiles
// give the same bits on any machine.
//
// There are eight tiles of up to 16 rows of 64 bytes. Here tiles 0 and 1 hold rows of activations (16 rows of 32
// bfloat16), tiles 2 and 3 weights (16 rows, each two consecutive columns of K of 16 output columns, as pairs), and
// tiles 4 to 7 float32 sums (16 rows of 16): 4 and 5 of the rows of tile 0, 6 and 7 of those of tile 1.
//
// Every instruction has a wrapper of its own in inline assembly, which needs no compiler flag and no target attribute.
// GCC's intrinsics are not used: GCC 12 reads 8 of the 64 bytes that its _tile_loadconfig is given (PR 114098), and its
// loads of tiles have no memory operand.
#pragma once

#include <corbel/config.hpp>
#include <corbel/detail/compiler.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

CORBEL_EXACT_FP_BEGIN
CORBEL_NAMESPACE_BEGIN
namespace cpu {

inline constexpr std::size_t kTileRows = 16;
inline constexpr std::size_t kTileRowBytes = 64;
inline constexpr std::size_t kTileStep = 32;                      ///< columns of K in a tile of activations or weights
inline constexpr std::size_t kTileWords = kTileRows * kTileStep;  ///< bfloat16 of such a tile
inline constexpr std::size_t kTileSums = kTileRows * 16;          ///< float32 of a tile of sums

/// The operand of LDTILECFG (Intel SDM, volume 1, "Tile configuration"), palette 1.
struct TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  /// With `first` rows of tile 0 and of its sums, `second` of tile 1 and of its sums; 1 to 16 both.
  constexpr TileConfig(std::size_t first, std::size_t second) noexcept {
    for (std::size_t tile = 0; tile < 8; ++tile) {
      const bool of_first = tile == 0 || tile == 4 || tile == 5, of_second = tile == 1 || tile == 6 || tile == 7;
      row_bytes[tile] = kTileRowBytes;
      rows[tile] = static_cast<std::uint8_t>(of_first ? first : of_second ? second : kTileRows);
    }
  }
};
static_assert(sizeof(TileConfig) == 64);

#if defined(__x86_64__)
#define CORBEL_TILE_INLINE __attribute__((always_inline)) inline

/// The tiles of the calling thread, configured by the constructor and released by the destructor: at most one object
/// per thread at a time. Needs a CPU with AMX bf16 and the system's permission (permission.hpp).
class HardwareTiles {
 public:
  CORBEL_TILE_INLINE HardwareTiles(std::size_t first, std::size_t second) noexcept { configure(first, second); }
  CORBEL_TILE_INLINE ~HardwareTiles() { __asm__ volatile("tilerelease" ::: "memory"); }
  HardwareTiles(const HardwareTiles&) = delete;
  HardwareTiles& operator=(const HardwareTiles&) = delete;

  /// LDTILECFG; all tiles are zero after it.
  CORBEL_TILE_INLINE void configure(std::size_t first, std::size_t second) noexcept {
    const TileConfig config(first, second);
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  /// TILEZERO
  template <int kTile>
  CORBEL_TILE_INLINE void zero() noexcept {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  /// TILELOADD: rows of 64 bytes that lie `stride` bytes apart.
  template <int kTile>
  CORBEL_TILE_INLINE void load(const void* rows, std::size_t stride) noexcept {
    __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(rows), "r"(stride) : "memory");
  }
  /// TILESTORED
  template <int kTile>
  CORBEL_TILE_INLINE void store(void* rows, std::size_t stride) const noexcept {
    __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(rows), "r"(stride) : "memory");
  }
  /// TDPBF16PS: sums[m][n] += the products of the pairs of a[m][k] and b[k][n] over all k.
  template <int kSums, int kA, int kB>
  CORBEL_TILE_INLINE void dot_bf16() noexcept {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};
#undef CORBEL_TILE_INLINE
#endif

namespace amx_twin {

/// Subnormal numbers as zeros of their sign.
inline float flushed(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return (bits & 0x7f800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : x;
}

inline float operand(std::uint16_t bf16) noexcept {
  return flushed(std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16));
}

/// x * y + sum, rounded once, results that are tiny flushed; the operands are flushed, and x and y are bfloat16. In
/// float64 the product is exact. The sum is rounded to odd there (its last bit tells that something was lost) and then
/// to float32, which is right because float64 has more than two bits beyond float32.
inline float fused_step(float x, float y, float sum) noexcept {
  const double product = static_cast<double>(x) * static_cast<double>(y), addend = static_cast<double>(sum);
  const double near = product + addend, back = near - product;
  const double error = (product - (near - back)) + (addend - back);
  auto bits = std::bit_cast<std::uint64_t>(near);
  if ((error < 0 || error > 0) && (bits & 1) == 0) bits += (error < 0) == (near < 0) ? 1 : ~std::uint64_t{0};
  const double odd = std::bit_cast<double>(bits);
  // Tiny is what would round to less than the smallest normal number if exponents had no end.
  constexpr double kTiny = 0x1p-126 - 0x1p-151;
  if (odd < kTiny && odd > -kTiny) return std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 63) << 31);
  return static_cast<float>(odd);
}

}  // namespace amx_twin

/// The arithmetic of the tiles in plain C++.
struct PlainTileArithmetic {
  /// What TDPBF16PS does to `num_rows` rows of `sums` [num_rows][16] with the rows of `a` [num_rows][32] and with `b`
  /// [16][16][2] (Intel SDM, volume 2; MXCSR plays no part):
  ///
  ///   - Inputs that are subnormal count as zeros of their sign, and results that are tiny become such zeros.
  ///   - For each row and column the products of even columns of K are added up by fused multiply-adds over rising k,
  ///     from 0, and those of odd columns apart from them; rounding is to nearest even.
  ///   - Then the two are added, and what they give to the destination.
  ///
  /// NaNs may have any payload.
  static void tdpbf16ps(float* sums, const std::uint16_t* a, const std::uint16_t* b, std::size_t num_rows) noexcept {
    for (std::size_t m = 0; m < num_rows; ++m) {
      for (std::size_t n = 0; n < 16; ++n) {
        float even = 0, odd = 0;
        for (std::size_t k = 0; k < kTileStep; k += 2) {
          const std::uint16_t* pair = b + k * 16 + 2 * n;
          even = amx_twin::fused_step(amx_twin::operand(a[m * kTileStep + k]), amx_twin::operand(pair[0]), even);
          odd = amx_twin::fused_step(amx_twin::operand(a[m * kTileStep + k + 1]), amx_twin::operand(pair[1]), odd);
        }
        // A sum of float32 numbers that is subnormal is exact: it can be flushed afterwards.
        float& to = sums[m * 16 + n];
        to = amx_twin::flushed(amx_twin::flushed(to) + amx_twin::flushed(even + odd));
      }
    }
  }
};

/// The twin of HardwareTiles, 8 KiB of memory: the same members, the same bits. Arithmetic::tdpbf16ps() is that of
/// PlainTileArithmetic, or gives the same faster.
template <class Arithmetic>
class SoftwareTiles {
 public:
  SoftwareTiles(std::size_t first, std::size_t second) noexcept : config_(first, second) { configure(first, second); }
  SoftwareTiles(const SoftwareTiles&) = delete;
  SoftwareTiles& operator=(const SoftwareTiles&) = delete;

  void configure(std::size_t first, std::size_t second) noexcept {
    config_ = TileConfig(first, second);
    std::memset(tiles_, 0, sizeof tiles_);
  }
  template <int kTile>
  void zero() noexcept {
    std::memset(tiles_[kTile], 0, sizeof tiles_[kTile]);
  }
  template <int kTile>
  void load(const void* rows, std::size_t stride) noexcept {
    zero<kTile>();
    for (std::size_t r = 0; r < config_.rows[kTile]; ++r)
      std::memcpy(tiles_[kTile] + r * kTileWords / kTileRows, static_cast<const std::byte*>(rows) + r * stride,
                  kTileRowBytes);
  }
  template <int kTile>
  void store(void* rows, std::size_t stride) const noexcept {
    for (std::size_t r = 0; r < config_.rows[kTile]; ++r)
      std::memcpy(static_cast<std::byte*>(rows) + r * stride, tiles_[kTile] + r * kTileWords / kTileRows,
                  kTileRowBytes);
  }
  template <int kSums, int kA, int kB>
  void dot_bf16() noexcept {
    float sums[kTileSums];
    std::memcpy(sums, tiles_[kSums], sizeof sums);
    Arithmetic::tdpbf16ps(sums, tiles_[kA], tiles_[kB], config_.rows[kSums]);
    std::memcpy(tiles_[kSums], sums, sizeof sums);
  }

 private:
  TileConfig config_;
  alignas(64) std::uint16_t tiles_[8][kTileWords];
};

}  // namespace cpu
CORBEL_NAMESPACE_END
CORBEL_EXACT_FP_END
