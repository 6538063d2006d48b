// The vector vocabulary of level avx2 (AVX2, FMA, F16C): 16 lanes as two 256-bit vectors. Meanings are those of
// base-inl.hpp, with a real fma(). Included by levels/avx2.hpp inside the level's namespace and target region.

struct Floats {
  __m256 lo, hi;
};
struct Ints {
  __m256i lo, hi;
};

inline constexpr std::size_t kMaxRows = 4;  // two 16-bit accumulators each, and eight registers for everything else
inline constexpr std::size_t kMaxSums = 4;
inline constexpr std::size_t kStreams = 1;
inline constexpr std::size_t kPanelGroups = 1;
inline constexpr std::size_t kPanelTileRows = 4;

// ---- float32
// ------------------------------------------------------------------------------------------------------------------------------------

CORBEL_CPU_INLINE Floats broadcast(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
CORBEL_CPU_INLINE Floats zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
CORBEL_CPU_INLINE Floats load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
CORBEL_CPU_INLINE void store(float* p, Floats v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
CORBEL_CPU_INLINE Floats add(Floats x, Floats y) { return {_mm256_add_ps(x.lo, y.lo), _mm256_add_ps(x.hi, y.hi)}; }
CORBEL_CPU_INLINE Floats sub(Floats x, Floats y) { return {_mm256_sub_ps(x.lo, y.lo), _mm256_sub_ps(x.hi, y.hi)}; }
CORBEL_CPU_INLINE Floats mul(Floats x, Floats y) { return {_mm256_mul_ps(x.lo, y.lo), _mm256_mul_ps(x.hi, y.hi)}; }
CORBEL_CPU_INLINE Floats div(Floats x, Floats y) { return {_mm256_div_ps(x.lo, y.lo), _mm256_div_ps(x.hi, y.hi)}; }
CORBEL_CPU_INLINE Floats fma(Floats x, Floats y, Floats z) {
  return {_mm256_fmadd_ps(x.lo, y.lo, z.lo), _mm256_fmadd_ps(x.hi, y.hi, z.hi)};
}
CORBEL_CPU_INLINE Floats fnma(Floats x, Floats y, Floats z) {
  return {_mm256_fnmadd_ps(x.lo, y.lo, z.lo), _mm256_fnmadd_ps(x.hi, y.hi, z.hi)};
}
CORBEL_CPU_INLINE Floats max(Floats x, Floats y) { return {_mm256_max_ps(x.lo, y.lo), _mm256_max_ps(x.hi, y.hi)}; }
CORBEL_CPU_INLINE Floats min(Floats x, Floats y) { return {_mm256_min_ps(x.lo, y.lo), _mm256_min_ps(x.hi, y.hi)}; }
CORBEL_CPU_INLINE Floats select_less(Floats x, Floats y, Floats yes, Floats no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, _mm256_cmp_ps(x.lo, y.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.hi, yes.hi, _mm256_cmp_ps(x.hi, y.hi, _CMP_LT_OQ))};
}

CORBEL_CPU_INLINE float sum_lanes(Floats v) {
  const __m256 eight = _mm256_add_ps(v.lo, v.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
CORBEL_CPU_INLINE float first_lane(Floats v) { return _mm256_cvtss_f32(v.lo); }
CORBEL_CPU_INLINE float max_lanes(Floats v) {
  const __m256 eight = _mm256_max_ps(v.lo, v.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

CORBEL_CPU_INLINE __m256 swap_middle_pairs(__m256 v) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}
CORBEL_CPU_INLINE void load_pairs(const float* p, Floats& x, Floats& y) {
  const Floats low = load(p), high = load(p + 16);
  x = {swap_middle_pairs(_mm256_shuffle_ps(low.lo, low.hi, 0x88)),
       swap_middle_pairs(_mm256_shuffle_ps(high.lo, high.hi, 0x88))};
  y = {swap_middle_pairs(_mm256_shuffle_ps(low.lo, low.hi, 0xdd)),
       swap_middle_pairs(_mm256_shuffle_ps(high.lo, high.hi, 0xdd))};
}
CORBEL_CPU_INLINE Floats interleave8(__m256 x, __m256 y) {
  const __m256 low = _mm256_unpacklo_ps(x, y), high = _mm256_unpackhi_ps(x, y);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
CORBEL_CPU_INLINE void store_pairs(float* p, Floats x, Floats y) {
  store(p, interleave8(x.lo, y.lo));
  store(p + 16, interleave8(x.hi, y.hi));
}

/// p[16 * j + i] = lane j of r[i], for a block of 8 by 8.
CORBEL_CPU_INLINE void store_transposed8(float* p, const __m256 (&r)[8]) {
  __m256 pairs[8], quads[8];
  CORBEL_CPU_UNROLL
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  CORBEL_CPU_UNROLL
  for (int i = 0; i < 8; i += 4) {  // of rows i to i + 3 lane n, and lane n + 4 in the upper half
    quads[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    quads[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
    quads[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    quads[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
  }
  CORBEL_CPU_UNROLL
  for (int n = 0; n < 4; ++n) {
    _mm256_storeu_ps(p + 16 * n, _mm256_permute2f128_ps(quads[n], quads[n + 4], 0x20));
    _mm256_storeu_ps(p + 16 * (n + 4), _mm256_permute2f128_ps(quads[n], quads[n + 4], 0x31));
  }
}
CORBEL_CPU_INLINE void store_transposed(float* p, const Floats (&rows)[16]) {
  CORBEL_CPU_UNROLL
  for (int i = 0; i < 16; i += 8) {
    __m256 lo[8], hi[8];
    CORBEL_CPU_UNROLL
    for (int n = 0; n < 8; ++n) {
      lo[n] = rows[i + n].lo;
      hi[n] = rows[i + n].hi;
    }
    store_transposed8(p + i, lo);
    store_transposed8(p + 128 + i, hi);
  }
}

// ---- int32
// --------------------------------------------------------------------------------------------------------------------------------------

CORBEL_CPU_INLINE Ints broadcast_int(std::int32_t x) {
  const __m256i v = _mm256_set1_epi32(x);
  return {v, v};
}
CORBEL_CPU_INLINE Ints add(Ints x, Ints y) { return {_mm256_add_epi32(x.lo, y.lo), _mm256_add_epi32(x.hi, y.hi)}; }
CORBEL_CPU_INLINE Ints sub(Ints x, Ints y) { return {_mm256_sub_epi32(x.lo, y.lo), _mm256_sub_epi32(x.hi, y.hi)}; }
CORBEL_CPU_INLINE Ints bit_and(Ints x, Ints y) { return {_mm256_and_si256(x.lo, y.lo), _mm256_and_si256(x.hi, y.hi)}; }
CORBEL_CPU_INLINE Ints bit_or(Ints x, Ints y) { return {_mm256_or_si256(x.lo, y.lo), _mm256_or_si256(x.hi, y.hi)}; }
CORBEL_CPU_INLINE Ints max(Ints x, Ints y) { return {_mm256_max_epi32(x.lo, y.lo), _mm256_max_epi32(x.hi, y.hi)}; }
template <int kBits>
CORBEL_CPU_INLINE Ints shift_left(Ints x) {
  return {_mm256_slli_epi32(x.lo, kBits), _mm256_slli_epi32(x.hi, kBits)};
}
template <int kBits>
CORBEL_CPU_INLINE Ints shift_right(Ints x) {
  return {_mm256_srli_epi32(x.lo, kBits), _mm256_srli_epi32(x.hi, kBits)};
}
template <int kBits>
CORBEL_CPU_INLINE Ints shift_right_signed(Ints x) {
  return {_mm256_srai_epi32(x.lo, kBits), _mm256_srai_epi32(x.hi, kBits)};
}
/// 16 bytes as integers.
CORBEL_CPU_INLINE Ints load_u8(const void* p) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
CORBEL_CPU_INLINE Ints load_i8(const void* p) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
/// For eight codes below 16: the lane permutation looks at three bits; the fourth, shifted to the sign, chooses the
/// half.
CORBEL_CPU_INLINE __m256 look_up_8(__m256 first, __m256 second, __m256i codes) {
  return _mm256_blendv_ps(_mm256_permutevar8x32_ps(first, codes), _mm256_permutevar8x32_ps(second, codes),
                          _mm256_castsi256_ps(_mm256_slli_epi32(codes, 28)));
}
/// table[code] for codes below 16; the table is aligned to 64 bytes.
CORBEL_CPU_INLINE Floats look_up_floats(const float* table, Ints codes) {
  const __m256 first = _mm256_load_ps(table), second = _mm256_load_ps(table + 8);
  return {look_up_8(first, second, codes.lo), look_up_8(first, second, codes.hi)};
}
CORBEL_CPU_INLINE std::int32_t max_lanes(Ints v) {
  const __m256i eight = _mm256_max_epi32(v.lo, v.hi);
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
CORBEL_CPU_INLINE void store_int(std::int32_t* p, Ints v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), v.hi);
}
CORBEL_CPU_INLINE Ints bits(Floats x) { return {_mm256_castps_si256(x.lo), _mm256_castps_si256(x.hi)}; }
CORBEL_CPU_INLINE Floats from_bits(Ints x) { return {_mm256_castsi256_ps(x.lo), _mm256_castsi256_ps(x.hi)}; }
CORBEL_CPU_INLINE Floats to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)}; }
CORBEL_CPU_INLINE __m128i to_int8(Ints v) {
  // Packing works within 128-bit halves: 0-3, 8-11 | 4-7, 12-15.
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.lo, v.hi), 0xd8);
  return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
CORBEL_CPU_INLINE void store_codes_and_sums(std::int8_t* p, Ints a, Ints b, std::int32_t (&sums)[2]) {
  const __m256i codes = _mm256_set_m128i(to_int8(b), to_int8(a));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), codes);
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  const __m256i four = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  const __m256i two = _mm256_add_epi32(four, _mm256_shuffle_epi32(four, 0x4e));
  const __m256i one = _mm256_add_epi32(two, _mm256_shuffle_epi32(two, 0xb1));
  sums[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(one));
  sums[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(one, 1));
}

// ---- 16-bit floats
// ------------------------------------------------------------------------------------------------------------------------------

CORBEL_CPU_INLINE __m128i load_8_words(const void* p, int half) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p) + half);
}
CORBEL_CPU_INLINE Floats load_f16(const void* p) {
  return {_mm256_cvtph_ps(load_8_words(p, 0)), _mm256_cvtph_ps(load_8_words(p, 1))};
}
CORBEL_CPU_INLINE Floats load_bf16(const void* p) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_8_words(p, 0)), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_8_words(p, 1)), 16))};
}
CORBEL_CPU_INLINE void store_f16(std::uint16_t* p, Floats v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(v.hi, _MM_FROUND_TO_NEAREST_INT));
}

// ---- dot products of unsigned codes and signed activations, four per lane
// -------------------------------------------------------------------------
//
// The instruction multiplies unsigned by signed bytes and adds pairs into 16 bits, where it saturates. Codes of up to 7
// bits cannot reach that, and the small ones leave room to add several steps in 16 bits before one widening step. 8-bit
// codes are made signed, and their magnitude (at most 128) is multiplied by the activation (at most 127) with their
// sign: 128 * 127 * 2 fits.

struct Codes {
  __m256i lo, hi;
};
struct SignedCodes {
  Codes magnitude, value;
};
struct Quad {
  __m256i v;
};
template <int kMaxCode>
struct Dot {
  Codes narrow;
  Ints wide;
};

CORBEL_CPU_INLINE Codes load_codes(const std::byte* p) {
  const auto* v = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
}
CORBEL_CPU_INLINE void store_codes(std::byte* p, Codes c) {
  auto* v = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(v, c.lo);
  _mm256_storeu_si256(v + 1, c.hi);
}
inline constexpr bool kWideCodesAreBest = false;
template <int kFrom, int kTo, int kBits>
CORBEL_CPU_INLINE __m256i move_bits(__m256i v) {
  constexpr auto kMask = static_cast<char>(((1 << kBits) - 1) << kTo);
  const __m256i moved = kFrom > kTo   ? _mm256_srli_epi16(v, kFrom > kTo ? kFrom - kTo : 0)
                        : kFrom < kTo ? _mm256_slli_epi16(v, kFrom < kTo ? kTo - kFrom : 0)
                                      : v;
  return _mm256_and_si256(moved, _mm256_set1_epi8(kMask));
}
template <int kFrom, int kTo, int kBits>
CORBEL_CPU_INLINE Codes move_bits(Codes c) {
  if constexpr (kBits == 8) return c;
  return {move_bits<kFrom, kTo, kBits>(c.lo), move_bits<kFrom, kTo, kBits>(c.hi)};
}
CORBEL_CPU_INLINE Codes unite(Codes x, Codes y) { return {_mm256_or_si256(x.lo, y.lo), _mm256_or_si256(x.hi, y.hi)}; }
CORBEL_CPU_INLINE Codes look_up(const std::uint8_t* table, Codes c) {
  const __m256i t = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(t, c.lo), _mm256_shuffle_epi8(t, c.hi)};
}
template <int kMaxCode>
CORBEL_CPU_INLINE auto prepare_codes(Codes c) {
  if constexpr (kMaxCode < 128) {
    return c;
  } else {
    const __m256i offset = _mm256_set1_epi8(-128);
    const Codes value = {_mm256_xor_si256(c.lo, offset), _mm256_xor_si256(c.hi, offset)};
    return SignedCodes{{_mm256_abs_epi8(value.lo), _mm256_abs_epi8(value.hi)}, value};
  }
}
CORBEL_CPU_INLINE Quad load_quad(const std::int8_t* p) {
  std::int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return {_mm256_set1_epi32(word)};
}

CORBEL_CPU_INLINE Ints widen(Codes narrow) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(narrow.lo, ones), _mm256_madd_epi16(narrow.hi, ones)};
}
/// Keeps the order of the additions before it: as one big sum the compilers rearrange them into a tree, whose leaves do
/// not fit in the registers.
CORBEL_CPU_INLINE void pin(__m256i& lo, __m256i& hi) { __asm__("" : "+x"(lo), "+x"(hi)); }
template <int kMaxCode>
CORBEL_CPU_INLINE void pin(Quad&, Dot<kMaxCode>&) {}
template <int kMaxCode, int kZeroShift, int kStep, int kSteps>
CORBEL_CPU_INLINE void dot_step(Dot<kMaxCode>& dot, Codes c, Quad x, const std::int32_t*) {
  constexpr int kRoom = 32767 / (2 * 127 * kMaxCode);  // steps that fit in 16 bits
  constexpr int kPhase = kStep % kRoom;
  const Codes product = {_mm256_maddubs_epi16(c.lo, x.v), _mm256_maddubs_epi16(c.hi, x.v)};
  if constexpr (kPhase == 0) {
    dot.narrow = product;
  } else {
    dot.narrow = {_mm256_add_epi16(dot.narrow.lo, product.lo), _mm256_add_epi16(dot.narrow.hi, product.hi)};
  }
  pin(dot.narrow.lo, dot.narrow.hi);
  if constexpr (kPhase == kRoom - 1 || kStep == kSteps - 1) {
    dot.wide = kStep < kRoom ? widen(dot.narrow) : add(dot.wide, widen(dot.narrow));
    pin(dot.wide.lo, dot.wide.hi);
  }
}
template <int kMaxCode, int kZeroShift, int kStep, int kSteps>
CORBEL_CPU_INLINE void dot_step(Dot<kMaxCode>& dot, SignedCodes c, Quad x, const std::int32_t*) {
  const Ints product = widen({_mm256_maddubs_epi16(c.magnitude.lo, _mm256_sign_epi8(x.v, c.value.lo)),
                              _mm256_maddubs_epi16(c.magnitude.hi, _mm256_sign_epi8(x.v, c.value.hi))});
  dot.wide = kStep == 0 ? product : add(dot.wide, product);
  pin(dot.wide.lo, dot.wide.hi);
}
template <int kMaxCode, int kZeroShift>
CORBEL_CPU_INLINE Ints dot_total(const Dot<kMaxCode>& dot, const std::int32_t* offset) {
  if constexpr (kZeroShift == 0 || kMaxCode >= 128) return dot.wide;  // signed codes have lost their zero point already
  return add(dot.wide, shift_right_signed<7 - kZeroShift>(broadcast_int(*offset)));
}
