// The vector vocabulary of level avx512 (F, BW, CD, DQ, VL, VNNI): 16 lanes are one 512-bit vector. Meanings are those
// of base-inl.hpp, with a real fma(). Included by levels/avx512.hpp inside the level's namespace and target region.

struct Floats {
  __m512 v;
};
struct Ints {
  __m512i v;
};

inline constexpr std::size_t kMaxRows = 8;  // an integer and a float accumulator each

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
CORBEL_CPU_INLINE void store_int(std::int32_t* p, Ints v) { _mm512_storeu_si512(p, v.v); }
CORBEL_CPU_INLINE Ints bits(Floats x) { return {_mm512_castps_si512(x.v)}; }
CORBEL_CPU_INLINE Floats from_bits(Ints x) { return {_mm512_castsi512_ps(x.v)}; }
CORBEL_CPU_INLINE Floats to_floats(Ints x) { return {_mm512_cvtepi32_ps(x.v)}; }
CORBEL_CPU_INLINE void store_int8(std::int8_t* p, Ints v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v.v));
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
CORBEL_CPU_INLINE Codes low_nibbles(Codes c) { return {_mm512_and_si512(c.v, _mm512_set1_epi8(15))}; }
CORBEL_CPU_INLINE Codes high_nibbles(Codes c) { return low_nibbles({_mm512_srli_epi16(c.v, 4)}); }
template <int kMaxCode>
CORBEL_CPU_INLINE Codes prepare_codes(Codes c) {
  return c;
}
CORBEL_CPU_INLINE Quad load_quad(const std::int8_t* p) {
  std::int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return {_mm512_set1_epi32(word)};
}
template <int kMaxCode, int kStep, int kSteps>
CORBEL_CPU_INLINE void dot_step(Dot<kMaxCode>& dot, Codes c, Quad x) {
  dot.sum = _mm512_dpbusd_epi32(kStep == 0 ? _mm512_setzero_si512() : dot.sum, c.v, x.v);
}
template <int kMaxCode, int kZeroShift>
CORBEL_CPU_INLINE Ints dot_total(const Dot<kMaxCode>& dot, const std::int32_t* sum) {
  if constexpr (kZeroShift == 0) return {dot.sum};
  return sub({dot.sum}, shift_left<kZeroShift>(broadcast_int(*sum)));
}
