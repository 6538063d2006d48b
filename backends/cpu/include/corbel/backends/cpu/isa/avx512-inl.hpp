// The vector vocabulary of level avx512 (F, BW, CD, DQ, VL, VNNI): 16 lanes are one 512-bit vector. Meanings are those
// of base-inl.hpp, with a real fma(). Included by levels/avx512.hpp inside the level's namespace and target region.

struct Floats {
  __m512 v;
};
struct Ints {
  __m512i v;
};

inline constexpr std::size_t kMaxRows = 8;      // an integer and a float accumulator each
inline constexpr std::size_t kMaxSums = 16;     // float accumulators of attention
inline constexpr std::size_t kStreams = 4;      // groups of quantized weights that one row reads at a time
inline constexpr std::size_t kPanelGroups = 2;  // loads are what limits: each activation serves two
inline constexpr std::size_t kPanelTileRows = 6;

// ---- float32
// ------------------------------------------------------------------------------------------------------------------------------------

CORBEL_CPU_INLINE Floats broadcast(float x) { return {_mm512_set1_ps(x)}; }
CORBEL_CPU_INLINE Floats zero() { return {_mm512_setzero_ps()}; }
CORBEL_CPU_INLINE Floats load(const float* p) { return {_mm512_loadu_ps(p)}; }
CORBEL_CPU_INLINE void store(float* p, Floats v) { _mm512_storeu_ps(p, v.v); }
CORBEL_CPU_INLINE Floats add(Floats x, Floats y) { return {_mm512_add_ps(x.v, y.v)}; }
CORBEL_CPU_INLINE Floats sub(Floats x, Floats y) { return {_mm512_sub_ps(x.v, y.v)}; }
CORBEL_CPU_INLINE Floats mul(Floats x, Floats y) { return {_mm512_mul_ps(x.v, y.v)}; }
CORBEL_CPU_INLINE Floats div(Floats x, Floats y) { return {_mm512_div_ps(x.v, y.v)}; }
CORBEL_CPU_INLINE Floats fma(Floats x, Floats y, Floats z) { return {_mm512_fmadd_ps(x.v, y.v, z.v)}; }
CORBEL_CPU_INLINE Floats fnma(Floats x, Floats y, Floats z) { return {_mm512_fnmadd_ps(x.v, y.v, z.v)}; }
CORBEL_CPU_INLINE Floats max(Floats x, Floats y) { return {_mm512_max_ps(x.v, y.v)}; }
CORBEL_CPU_INLINE Floats min(Floats x, Floats y) { return {_mm512_min_ps(x.v, y.v)}; }
CORBEL_CPU_INLINE Floats select_less(Floats x, Floats y, Floats yes, Floats no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ), no.v, yes.v)};
}

CORBEL_CPU_INLINE float sum_lanes(Floats v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v.v), _mm512_extractf32x8_ps(v.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
CORBEL_CPU_INLINE float first_lane(Floats v) { return _mm512_cvtss_f32(v.v); }
CORBEL_CPU_INLINE float max_lanes(Floats v) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(v.v), _mm512_extractf32x8_ps(v.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

CORBEL_CPU_INLINE void load_pairs(const float* p, Floats& x, Floats& y) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  const Floats low = load(p), high = load(p + 16);
  x.v = _mm512_permutex2var_ps(low.v, even, high.v);
  y.v = _mm512_permutex2var_ps(low.v, odd, high.v);
}
CORBEL_CPU_INLINE void store_pairs(float* p, Floats x, Floats y) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  _mm512_storeu_ps(p, _mm512_permutex2var_ps(x.v, low, y.v));
  _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(x.v, high, y.v));
}

// The unmasked form is a macro at -O0, whose mask of -1 is warned about.
template <int kLanes>
CORBEL_CPU_INLINE __m512 shuffle_quarters(__m512 x, __m512 y) {
  return _mm512_maskz_shuffle_f32x4(__mmask16{0xffff}, x, y, kLanes);
}
CORBEL_CPU_INLINE void store_transposed(float* p, const Floats (&rows)[16]) {
  __m512 quads[16];  // quads[4 g + n]: in quarter q lane 4 q + n of rows 4 g to 4 g + 3
  CORBEL_CPU_UNROLL
  for (int g = 0; g < 16; g += 4) {
    const __m512d xy_low = _mm512_castps_pd(_mm512_unpacklo_ps(rows[g].v, rows[g + 1].v));
    const __m512d xy_high = _mm512_castps_pd(_mm512_unpackhi_ps(rows[g].v, rows[g + 1].v));
    const __m512d zw_low = _mm512_castps_pd(_mm512_unpacklo_ps(rows[g + 2].v, rows[g + 3].v));
    const __m512d zw_high = _mm512_castps_pd(_mm512_unpackhi_ps(rows[g + 2].v, rows[g + 3].v));
    quads[g] = _mm512_castpd_ps(_mm512_unpacklo_pd(xy_low, zw_low));
    quads[g + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(xy_low, zw_low));
    quads[g + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(xy_high, zw_high));
    quads[g + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(xy_high, zw_high));
  }
  CORBEL_CPU_UNROLL
  for (int n = 0; n < 4; ++n) {
    const __m512 even_low = shuffle_quarters<0x88>(quads[n], quads[n + 4]);
    const __m512 odd_low = shuffle_quarters<0xdd>(quads[n], quads[n + 4]);
    const __m512 even_high = shuffle_quarters<0x88>(quads[n + 8], quads[n + 12]);
    const __m512 odd_high = shuffle_quarters<0xdd>(quads[n + 8], quads[n + 12]);
    _mm512_storeu_ps(p + 16 * n, shuffle_quarters<0x88>(even_low, even_high));
    _mm512_storeu_ps(p + 16 * (n + 4), shuffle_quarters<0x88>(odd_low, odd_high));
    _mm512_storeu_ps(p + 16 * (n + 8), shuffle_quarters<0xdd>(even_low, even_high));
    _mm512_storeu_ps(p + 16 * (n + 12), shuffle_quarters<0xdd>(odd_low, odd_high));
  }
}

// ---- int32
// --------------------------------------------------------------------------------------------------------------------------------------

CORBEL_CPU_INLINE Ints broadcast_int(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
CORBEL_CPU_INLINE Ints add(Ints x, Ints y) { return {_mm512_add_epi32(x.v, y.v)}; }
CORBEL_CPU_INLINE Ints sub(Ints x, Ints y) { return {_mm512_sub_epi32(x.v, y.v)}; }
CORBEL_CPU_INLINE Ints bit_and(Ints x, Ints y) { return {_mm512_and_si512(x.v, y.v)}; }
CORBEL_CPU_INLINE Ints bit_or(Ints x, Ints y) { return {_mm512_or_si512(x.v, y.v)}; }
CORBEL_CPU_INLINE Ints max(Ints x, Ints y) { return {_mm512_max_epi32(x.v, y.v)}; }
template <int kBits>
CORBEL_CPU_INLINE Ints shift_left(Ints x) {
  return {_mm512_slli_epi32(x.v, kBits)};
}
template <int kBits>
CORBEL_CPU_INLINE Ints shift_right(Ints x) {
  return {_mm512_srli_epi32(x.v, kBits)};
}
template <int kBits>
CORBEL_CPU_INLINE Ints shift_right_signed(Ints x) {
  return {_mm512_srai_epi32(x.v, kBits)};
}
/// 16 bytes as integers.
CORBEL_CPU_INLINE Ints load_u8(const void* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
CORBEL_CPU_INLINE Ints load_i8(const void* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
}
/// table[code] for codes below 16; the table is aligned to 64 bytes.
CORBEL_CPU_INLINE Floats look_up_floats(const float* table, Ints codes) {
  return {_mm512_permutexvar_ps(codes.v, _mm512_load_ps(table))};
}
CORBEL_CPU_INLINE std::int32_t max_lanes(Ints v) {
  const __m256i eight = _mm256_max_epi32(_mm512_castsi512_si256(v.v), _mm512_extracti64x4_epi64(v.v, 1));
  const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
CORBEL_CPU_INLINE void store_int(std::int32_t* p, Ints v) { _mm512_storeu_si512(p, v.v); }
CORBEL_CPU_INLINE Ints bits(Floats x) { return {_mm512_castps_si512(x.v)}; }
CORBEL_CPU_INLINE Floats from_bits(Ints x) { return {_mm512_castsi512_ps(x.v)}; }
CORBEL_CPU_INLINE Floats to_floats(Ints x) { return {_mm512_cvtepi32_ps(x.v)}; }
CORBEL_CPU_INLINE void store_codes_and_sums(std::int8_t* p, Ints a, Ints b, std::int32_t (&sums)[2]) {
  const __m256i codes = _mm256_set_m128i(_mm512_cvtepi32_epi8(b.v), _mm512_cvtepi32_epi8(a.v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), codes);
  const __m256i four = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), codes);
  const __m256i two = _mm256_add_epi32(four, _mm256_shuffle_epi32(four, 0x4e));
  const __m256i one = _mm256_add_epi32(two, _mm256_shuffle_epi32(two, 0xb1));
  sums[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(one));
  sums[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(one, 1));
}

// ---- 16-bit floats
// ------------------------------------------------------------------------------------------------------------------------------

CORBEL_CPU_INLINE __m256i load_16_words(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
CORBEL_CPU_INLINE Floats load_f16(const void* p) { return {_mm512_cvtph_ps(load_16_words(p))}; }
CORBEL_CPU_INLINE Floats load_bf16(const void* p) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_16_words(p)), 16))};
}
CORBEL_CPU_INLINE void store_f16(std::uint16_t* p, Floats v) {
  // The unmasked form is a macro at -O0, whose mask of -1 is warned about.
  const __m256i words = _mm512_maskz_cvtps_ph(__mmask16{0xffff}, v.v, _MM_FROUND_TO_NEAREST_INT);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
}

// ---- dot products of unsigned codes and signed activations, four per lane
// -------------------------------------------------------------------------
//
// vpdpbusd does it in one step, for all codes.

struct Codes {
  __m512i v;
};
struct Quad {
  __m512i v;
};
template <int kMaxCode>
struct Dot {
  __m512i sum;
};

CORBEL_CPU_INLINE Codes load_codes(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
CORBEL_CPU_INLINE void store_codes(std::byte* p, Codes c) { _mm512_storeu_si512(p, c.v); }
inline constexpr bool kWideCodesAreBest = true;
/// Codes with kAdd added to each.
template <int kAdd>
CORBEL_CPU_INLINE Codes add_to_codes(Codes c) {
  return {_mm512_add_epi8(c.v, _mm512_set1_epi8(static_cast<char>(kAdd)))};
}
template <int kFrom, int kTo, int kBits>
CORBEL_CPU_INLINE Codes move_bits(Codes c) {
  if constexpr (kBits == 8) return c;
  constexpr auto kMask = static_cast<char>(((1 << kBits) - 1) << kTo);
  // How many bits to shift is unsigned for clang.
  constexpr auto kDown = static_cast<unsigned>(kFrom > kTo ? kFrom - kTo : 0);
  constexpr auto kUp = static_cast<unsigned>(kFrom < kTo ? kTo - kFrom : 0);
  const __m512i moved = kFrom > kTo ? _mm512_srli_epi16(c.v, kDown) : kFrom < kTo ? _mm512_slli_epi16(c.v, kUp) : c.v;
  return {_mm512_and_si512(moved, _mm512_set1_epi8(kMask))};
}
CORBEL_CPU_INLINE Codes unite(Codes x, Codes y) { return {_mm512_or_si512(x.v, y.v)}; }
CORBEL_CPU_INLINE Codes look_up(const std::uint8_t* table, Codes c) {
  const __m512i t = _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm512_shuffle_epi8(t, c.v)};
}
template <int kMaxCode>
CORBEL_CPU_INLINE Codes prepare_codes(Codes c) {
  return c;
}
CORBEL_CPU_INLINE Quad load_quad(const std::int8_t* p) {
  std::int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return {_mm512_set1_epi32(word)};
}
/// Keeps the order of steps: clang would finish row after row, and save all activations for the second group.
template <int kMaxCode>
CORBEL_CPU_INLINE void pin(Quad& x, Dot<kMaxCode>& dot) {
#if defined(__clang__)
  __asm__ volatile("" : "+v"(x.v), "+v"(dot.sum));
#else
  (void)x, (void)dot;
#endif
}
template <int kMaxCode, int kZeroShift, int kStep, int kSteps>
CORBEL_CPU_INLINE void dot_step(Dot<kMaxCode>& dot, Codes c, Quad x, const std::int32_t* offset) {
  if constexpr (kStep == 0) dot.sum = kZeroShift == 7 ? _mm512_set1_epi32(*offset) : _mm512_setzero_si512();
  dot.sum = _mm512_dpbusd_epi32(dot.sum, c.v, x.v);
}
template <int kMaxCode, int kZeroShift>
CORBEL_CPU_INLINE Ints dot_total(const Dot<kMaxCode>& dot, const std::int32_t* offset) {
  if constexpr (kZeroShift == 0 || kZeroShift == 7) return {dot.sum};  // 7: the sum began there
  return add({dot.sum}, shift_right_signed<7 - kZeroShift>(broadcast_int(*offset)));
}
