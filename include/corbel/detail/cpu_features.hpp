// Which instructions this CPU has and the operating system has switched on. Plain baseline code; changes nothing.
#pragma once

#include <corbel/config.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

CORBEL_NAMESPACE_BEGIN
namespace detail {

/// The groups of features that the ISA levels are made of.
struct CpuFeatures {
  bool avx2 = false;    ///< AVX2, FMA, F16C, BMI2
  bool avx512 = false;  ///< avx2 and AVX-512 F, BW, CD, DQ, VL, VNNI
  bool amx = false;  ///< avx512 and AVX-512 BF16, AMX tile, int8, bf16; the kernel's permission is asked for elsewhere
};

#if defined(__x86_64__)
inline CpuFeatures cpu_features() noexcept {
  CpuFeatures features;
  unsigned a = 0, b1 = 0, c1 = 0, d1 = 0, b7 = 0, c7 = 0, d7 = 0, a71 = 0, ignored = 0;
  if (__get_cpuid(1, &a, &b1, &c1, &d1) == 0) return features;
  const auto bit = [](unsigned word, int index) { return ((word >> index) & 1u) != 0; };
  // Without OSXSAVE the XGETBV instruction does not exist, and without it no wide register is saved.
  if (!bit(c1, 27) || __get_cpuid_count(7, 0, &a, &b7, &c7, &d7) == 0) return features;
  const bool has_leaf_7_1 = a >= 1 && __get_cpuid_count(7, 1, &a71, &ignored, &ignored, &ignored) != 0;
  std::uint32_t xcr0 = 0, xcr0_high = 0;
  __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(xcr0_high) : "c"(0));
  const auto saved = [&](std::uint32_t mask) { return (xcr0 & mask) == mask; };

  const bool avx = bit(c1, 28) && saved(0x6);                                         // xmm, ymm
  features.avx2 = avx && bit(c1, 12) && bit(c1, 29) && bit(b7, 5) && bit(b7, 8);      // FMA, F16C, AVX2, BMI2
  features.avx512 = features.avx2 && saved(0xe6) && bit(b7, 16) && bit(b7, 17) &&     // opmask, zmm; F, DQ
                    bit(b7, 28) && bit(b7, 30) && bit(b7, 31) && bit(c7, 11);         // CD, BW, VL, VNNI
  features.amx = features.avx512 && saved(0x60000) && has_leaf_7_1 && bit(a71, 5) &&  // tile registers; BF16
                 bit(d7, 22) && bit(d7, 24) && bit(d7, 25);                           // AMX bf16, tile, int8
  return features;
}

/// What the processor calls itself, with its family, model and stepping.
inline std::string processor_name() {
  unsigned words[13] = {}, ignored = 0;
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    unsigned* const at = words + 4 * leaf;
    if (__get_cpuid(0x80000002u + leaf, at, at + 1, at + 2, at + 3) == 0) break;
  }
  char name[49] = {};
  std::memcpy(name, words, 48);
  unsigned signature = 0;
  __get_cpuid(1, &signature, &ignored, &ignored, &ignored);
  return std::string(name) + " " + std::to_string(signature);
}
#else
inline CpuFeatures cpu_features() noexcept { return {}; }
inline std::string processor_name() { return "unknown"; }
#endif

}  // namespace detail
CORBEL_NAMESPACE_END
