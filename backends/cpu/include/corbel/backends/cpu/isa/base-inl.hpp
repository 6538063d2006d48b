// The vector vocabulary of level base: 16 lanes as four vectors of GCC's and clang's portable vector extension. There
// is no fused multiply-add on x86-64's baseline, so fma() here rounds twice; results differ from those of the other
// levels, not between machines of this one. Included by levels/base.hpp inside the level's namespace.

using Float4 = float __attribute__((vector_size(16)));
using Int4 = std::int32_t __attribute__((vector_size(16)));

struct Floats {
  Float4 a, b, c, d;
};
struct Ints {
  Int4 a, b, c, d;
};

/// Rows of activations that share one pass over the weights.
inline constexpr std::size_t kMaxRows = 2;
inline constexpr std::size_t kMaxSums = 2;
inline constexpr std::size_t kStreams = 1;
inline constexpr std::size_t kPanelGroups = 1;
inline constexpr std::size_t kPanelTileRows = 2;

// ---- float32
// ------------------------------------------------------------------------------------------------------------------------------------

CORBEL_CPU_INLINE Floats broadcast(float x) {
  const Float4 v = {x, x, x, x};
  return {v, v, v, v};
}
CORBEL_CPU_INLINE Floats zero() { return broadcast(0.0f); }
CORBEL_CPU_INLINE Float4 load4(const float* p) {
  Float4 v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
CORBEL_CPU_INLINE void store4(float* p, Float4 v) { __builtin_memcpy(p, &v, sizeof v); }
CORBEL_CPU_INLINE Floats load(const float* p) { return {load4(p), load4(p + 4), load4(p + 8), load4(p + 12)}; }
CORBEL_CPU_INLINE void store(float* p, Floats v) {
  store4(p, v.a);
  store4(p + 4, v.b);
  store4(p + 8, v.c);
  store4(p + 12, v.d);
}
CORBEL_CPU_INLINE Floats add(Floats x, Floats y) { return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d}; }
CORBEL_CPU_INLINE Floats sub(Floats x, Floats y) { return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d}; }
CORBEL_CPU_INLINE Floats mul(Floats x, Floats y) { return {x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d}; }
CORBEL_CPU_INLINE Floats div(Floats x, Floats y) { return {x.a / y.a, x.b / y.b, x.c / y.c, x.d / y.d}; }
/// x * y + z
CORBEL_CPU_INLINE Floats fma(Floats x, Floats y, Floats z) { return add(mul(x, y), z); }
/// z - x * y
CORBEL_CPU_INLINE Floats fnma(Floats x, Floats y, Floats z) { return sub(z, mul(x, y)); }
/// x > y ? x : y; the second where one is NaN, as the instruction of the other levels.
CORBEL_CPU_INLINE Float4 max4(Float4 x, Float4 y) { return x > y ? x : y; }
CORBEL_CPU_INLINE Floats max(Floats x, Floats y) {
  return {max4(x.a, y.a), max4(x.b, y.b), max4(x.c, y.c), max4(x.d, y.d)};
}
CORBEL_CPU_INLINE Float4 min4(Float4 x, Float4 y) { return x < y ? x : y; }
CORBEL_CPU_INLINE Floats min(Floats x, Floats y) {
  return {min4(x.a, y.a), min4(x.b, y.b), min4(x.c, y.c), min4(x.d, y.d)};
}
/// Lane by lane x < y ? yes : no.
CORBEL_CPU_INLINE Floats select_less(Floats x, Floats y, Floats yes, Floats no) {
  return {x.a < y.a ? yes.a : no.a, x.b < y.b ? yes.b : no.b, x.c < y.c ? yes.c : no.c, x.d < y.d ? yes.d : no.d};
}

/// The sum of 16 lanes as a tree: lanes 8 apart, then 4, 2, 1.
CORBEL_CPU_INLINE float sum_lanes(Floats v) {
  const Float4 s = (v.a + v.c) + (v.b + v.d);
  return (s[0] + s[2]) + (s[1] + s[3]);
}
CORBEL_CPU_INLINE float first_lane(Floats v) { return v.a[0]; }
CORBEL_CPU_INLINE float max_lanes(Floats v) {
  const Float4 m = max4(max4(v.a, v.c), max4(v.b, v.d));
  const float even = m[0] > m[2] ? m[0] : m[2], odd = m[1] > m[3] ? m[1] : m[3];
  return even > odd ? even : odd;
}

/// x and y alternate from p on.
CORBEL_CPU_INLINE void load_pairs(const float* p, Floats& x, Floats& y) {
  const Floats low = load(p), high = load(p + 16);
  x = {__builtin_shufflevector(low.a, low.b, 0, 2, 4, 6), __builtin_shufflevector(low.c, low.d, 0, 2, 4, 6),
       __builtin_shufflevector(high.a, high.b, 0, 2, 4, 6), __builtin_shufflevector(high.c, high.d, 0, 2, 4, 6)};
  y = {__builtin_shufflevector(low.a, low.b, 1, 3, 5, 7), __builtin_shufflevector(low.c, low.d, 1, 3, 5, 7),
       __builtin_shufflevector(high.a, high.b, 1, 3, 5, 7), __builtin_shufflevector(high.c, high.d, 1, 3, 5, 7)};
}
CORBEL_CPU_INLINE void store_pairs4(float* p, Float4 x, Float4 y) {
  store4(p, __builtin_shufflevector(x, y, 0, 4, 1, 5));
  store4(p + 4, __builtin_shufflevector(x, y, 2, 6, 3, 7));
}
CORBEL_CPU_INLINE void store_pairs(float* p, Floats x, Floats y) {
  store_pairs4(p, x.a, y.a);
  store_pairs4(p + 8, x.b, y.b);
  store_pairs4(p + 16, x.c, y.c);
  store_pairs4(p + 24, x.d, y.d);
}

/// p[16 * j + i] = lane j of rows[i]
CORBEL_CPU_INLINE void store_transposed4(float* p, Float4 x, Float4 y, Float4 z, Float4 w) {
  const Float4 xy_low = __builtin_shufflevector(x, y, 0, 4, 1, 5), xy_high = __builtin_shufflevector(x, y, 2, 6, 3, 7);
  const Float4 zw_low = __builtin_shufflevector(z, w, 0, 4, 1, 5), zw_high = __builtin_shufflevector(z, w, 2, 6, 3, 7);
  store4(p, __builtin_shufflevector(xy_low, zw_low, 0, 1, 4, 5));
  store4(p + 16, __builtin_shufflevector(xy_low, zw_low, 2, 3, 6, 7));
  store4(p + 32, __builtin_shufflevector(xy_high, zw_high, 0, 1, 4, 5));
  store4(p + 48, __builtin_shufflevector(xy_high, zw_high, 2, 3, 6, 7));
}
CORBEL_CPU_INLINE void store_transposed(float* p, const Floats (&rows)[16]) {
  for (std::size_t i = 0; i < 16; i += 4) {
    store_transposed4(p + i, rows[i].a, rows[i + 1].a, rows[i + 2].a, rows[i + 3].a);
    store_transposed4(p + 64 + i, rows[i].b, rows[i + 1].b, rows[i + 2].b, rows[i + 3].b);
    store_transposed4(p + 128 + i, rows[i].c, rows[i + 1].c, rows[i + 2].c, rows[i + 3].c);
    store_transposed4(p + 192 + i, rows[i].d, rows[i + 1].d, rows[i + 2].d, rows[i + 3].d);
  }
}

// ---- int32
// --------------------------------------------------------------------------------------------------------------------------------------

CORBEL_CPU_INLINE Ints broadcast_int(std::int32_t x) {
  const Int4 v = {x, x, x, x};
  return {v, v, v, v};
}
// Sums wrap, as the vector instructions of the other levels do: rows with a NaN or an infinity have sums of any size.
typedef std::uint32_t Unsigned4 __attribute__((vector_size(16)));
CORBEL_CPU_INLINE Int4 add4(Int4 x, Int4 y) { return (Int4)((Unsigned4)x + (Unsigned4)y); }
CORBEL_CPU_INLINE Int4 sub4(Int4 x, Int4 y) { return (Int4)((Unsigned4)x - (Unsigned4)y); }
CORBEL_CPU_INLINE Ints add(Ints x, Ints y) { return {add4(x.a, y.a), add4(x.b, y.b), add4(x.c, y.c), add4(x.d, y.d)}; }
CORBEL_CPU_INLINE Ints sub(Ints x, Ints y) { return {sub4(x.a, y.a), sub4(x.b, y.b), sub4(x.c, y.c), sub4(x.d, y.d)}; }
CORBEL_CPU_INLINE Ints bit_and(Ints x, Ints y) { return {x.a & y.a, x.b & y.b, x.c & y.c, x.d & y.d}; }
CORBEL_CPU_INLINE Ints bit_or(Ints x, Ints y) { return {x.a | y.a, x.b | y.b, x.c | y.c, x.d | y.d}; }
CORBEL_CPU_INLINE Int4 max4(Int4 x, Int4 y) { return x > y ? x : y; }
CORBEL_CPU_INLINE Ints max(Ints x, Ints y) { return {max4(x.a, y.a), max4(x.b, y.b), max4(x.c, y.c), max4(x.d, y.d)}; }
template <int kBits>
CORBEL_CPU_INLINE Ints shift_left(Ints x) {
  return {x.a << kBits, x.b << kBits, x.c << kBits, x.d << kBits};
}
template <int kBits>
CORBEL_CPU_INLINE Ints shift_right(Ints x) {  // of numbers that are not negative
  return {x.a >> kBits, x.b >> kBits, x.c >> kBits, x.d >> kBits};
}
template <int kBits>
CORBEL_CPU_INLINE Ints shift_right_signed(Ints x) {
  return shift_right<kBits>(x);
}
template <class Byte>
CORBEL_CPU_INLINE Ints load_bytes(const void* p) {
  Byte bytes[16];
  __builtin_memcpy(bytes, p, sizeof bytes);
  std::int32_t lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = bytes[i];
  Ints v;
  __builtin_memcpy(&v, lanes, sizeof v);
  return v;
}
/// 16 bytes as integers.
CORBEL_CPU_INLINE Ints load_u8(const void* p) { return load_bytes<std::uint8_t>(p); }
CORBEL_CPU_INLINE Ints load_i8(const void* p) { return load_bytes<std::int8_t>(p); }
/// table[code] for codes below 16.
CORBEL_CPU_INLINE Floats look_up_floats(const float* table, Ints codes) {
  std::int32_t lanes[16];
  __builtin_memcpy(lanes, &codes, sizeof lanes);
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = table[lanes[i]];
  Floats v;
  __builtin_memcpy(&v, values, sizeof v);
  return v;
}
/// The sum wraps, as that of the other levels does.
CORBEL_CPU_INLINE std::int32_t sum_lanes(Ints v) {
  const Int4 four = add4(add4(v.a, v.b), add4(v.c, v.d));
  const Int4 two = add4(four, Int4{four[2], four[3], four[0], four[1]});
  return add4(two, Int4{two[1], two[0], two[3], two[2]})[0];
}
CORBEL_CPU_INLINE std::int32_t max_lanes(Ints v) {
  const Int4 four = max4(max4(v.a, v.b), max4(v.c, v.d));
  const std::int32_t even = four[0] > four[2] ? four[0] : four[2], odd = four[1] > four[3] ? four[1] : four[3];
  return even > odd ? even : odd;
}
CORBEL_CPU_INLINE void store_int(std::int32_t* p, Ints v) { __builtin_memcpy(p, &v, sizeof v); }
/// The same bits as the other type.
CORBEL_CPU_INLINE Ints bits(Floats x) { return {(Int4)x.a, (Int4)x.b, (Int4)x.c, (Int4)x.d}; }
CORBEL_CPU_INLINE Floats from_bits(Ints x) { return {(Float4)x.a, (Float4)x.b, (Float4)x.c, (Float4)x.d}; }
CORBEL_CPU_INLINE Floats to_floats(Ints x) {
  return {__builtin_convertvector(x.a, Float4), __builtin_convertvector(x.b, Float4),
          __builtin_convertvector(x.c, Float4), __builtin_convertvector(x.d, Float4)};
}
/// The low bytes of 32 integers within [-128, 127], and what the first and the last 16 of them add up to.
CORBEL_CPU_INLINE void store_codes_and_sums(std::int8_t* p, Ints a, Ints b, std::int32_t (&sums)[2]) {
  std::int32_t lanes[32];
  store_int(lanes, a);
  store_int(lanes + 16, b);
  for (int i = 0; i < 32; ++i) p[i] = static_cast<std::int8_t>(lanes[i]);
  sums[0] = sum_lanes(a);
  sums[1] = sum_lanes(b);
}

// ---- 16-bit floats
// ------------------------------------------------------------------------------------------------------------------------------

CORBEL_CPU_INLINE Ints load_u16(const void* p) {
  std::uint16_t h[16];
  __builtin_memcpy(h, p, sizeof h);
  Ints v;
  v.a = Int4{h[0], h[1], h[2], h[3]};
  v.b = Int4{h[4], h[5], h[6], h[7]};
  v.c = Int4{h[8], h[9], h[10], h[11]};
  v.d = Int4{h[12], h[13], h[14], h[15]};
  return v;
}
CORBEL_CPU_INLINE Int4 special4(Int4 magnitude) { return (magnitude > 0x7bff) & 0x7f800000; }
CORBEL_CPU_INLINE Floats load_f16(const void* p) {
  const Ints h = load_u16(p);
  const Ints sign = shift_left<16>(bit_and(h, broadcast_int(0x8000)));
  const Ints magnitude = bit_and(h, broadcast_int(0x7fff));
  // Exponent and mantissa in place, then 2^112 corrects the exponent's bias, for subnormals too. Infinity and NaN get
  // all exponent bits.
  const Ints value = bits(mul(from_bits(shift_left<13>(magnitude)), broadcast(0x1p112f)));
  const Ints all = {value.a | special4(magnitude.a), value.b | special4(magnitude.b), value.c | special4(magnitude.c),
                    value.d | special4(magnitude.d)};
  return from_bits(bit_or(all, sign));
}
CORBEL_CPU_INLINE Floats load_bf16(const void* p) { return from_bits(shift_left<16>(load_u16(p))); }
/// Rounds to nearest even.
CORBEL_CPU_INLINE void store_f16(std::uint16_t* p, Floats v) {
  float lanes[16];
  store(lanes, v);
  for (int i = 0; i < 16; ++i) p[i] = f32_to_f16(lanes[i]);
}

// ---- dot products of unsigned codes and signed activations, four per lane
// -------------------------------------------------------------------------

/// 64 bytes: four codes for each of the 16 lanes.
struct Codes {
  Ints v;
};
/// Four activations, the same in each lane, spread to 16 bits: (0, 2) and (1, 3).
struct Quad {
  Int4 even, odd;
};
/// The sum over the codes times activations added so far, exact.
template <int kMaxCode>
struct Dot {
  Ints sum;
};

CORBEL_CPU_INLINE Codes load_codes(const std::byte* p) {
  Codes codes;
  __builtin_memcpy(&codes.v, p, sizeof codes.v);
  return codes;
}
/// kBits bits of each byte from bit kFrom on, moved to bit kTo; the other bits are 0.
template <int kFrom, int kTo, int kBits>
CORBEL_CPU_INLINE Codes move_bits(Codes c) {
  constexpr int kMask = kBits == 8 ? -1 : 0x01010101 * (((1 << kBits % 8) - 1) << kTo);
  const Ints mask = broadcast_int(kMask);
  if constexpr (kBits == 8) {
    return c;
  } else if constexpr (kFrom > kTo) {
    constexpr int kShift = kFrom - kTo;
    return {bit_and({c.v.a >> kShift, c.v.b >> kShift, c.v.c >> kShift, c.v.d >> kShift}, mask)};
  } else {
    return {bit_and(shift_left<kTo - kFrom>(c.v), mask)};
  }
}
CORBEL_CPU_INLINE Codes unite(Codes x, Codes y) { return {bit_or(x.v, y.v)}; }
/// table[code] for codes below 16.
CORBEL_CPU_INLINE Codes look_up(const std::uint8_t* table, Codes codes) {
  std::uint8_t bytes[64];
  __builtin_memcpy(bytes, &codes.v, sizeof bytes);
  for (int i = 0; i < 64; ++i) bytes[i] = table[bytes[i]];
  __builtin_memcpy(&codes.v, bytes, sizeof bytes);
  return codes;
}
CORBEL_CPU_INLINE void store_codes(std::byte* p, Codes codes) { __builtin_memcpy(p, &codes.v, sizeof codes.v); }
template <int kMaxCode>
CORBEL_CPU_INLINE Codes prepare_codes(Codes codes) {
  return codes;
}
/// Whether dot products cost the least for codes of 8 bits with a zero point of 128, or of 0: to those panels are
/// expanded. Else they keep the codes' own range.
inline constexpr bool kWideCodesAreBest = false;

#if defined(__SSE2__)
CORBEL_CPU_INLINE Quad load_quad(const std::int8_t* p) {
  std::int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  const __m128i v = _mm_set1_epi32(word);
  return {(Int4)_mm_srai_epi16(_mm_slli_epi16(v, 8), 8), (Int4)_mm_srai_epi16(v, 8)};
}
CORBEL_CPU_INLINE Int4 dot4(Int4 codes, Quad x) {
  const __m128i even = _mm_and_si128((__m128i)codes, _mm_set1_epi16(0xff));
  const __m128i odd = _mm_srli_epi16((__m128i)codes, 8);
  return (Int4)_mm_madd_epi16(even, (__m128i)x.even) + (Int4)_mm_madd_epi16(odd, (__m128i)x.odd);
}
#else
CORBEL_CPU_INLINE Quad load_quad(const std::int8_t* p) {
  return {Int4{p[0], p[2], p[0], p[2]}, Int4{p[1], p[3], p[1], p[3]}};
}
CORBEL_CPU_INLINE Int4 dot4(Int4 codes, Quad x) {
  return (codes & 0xff) * x.even[0] + (codes >> 16 & 0xff) * x.even[1] + (codes >> 8 & 0xff) * x.odd[0] +
         (codes >> 24 & 0xff) * x.odd[1];
}
#endif

template <int kMaxCode>
CORBEL_CPU_INLINE void pin(Quad&, Dot<kMaxCode>&) {}
/// Adds step kStep of kSteps. `offset` is kOffsetFactor times the sum of the activations; the zero point of the codes
/// is 1 << kZeroShift, or 0 where kZeroShift is.
template <int kMaxCode, int kZeroShift, int kStep, int kSteps>
CORBEL_CPU_INLINE void dot_step(Dot<kMaxCode>& dot, Codes codes, Quad x, const std::int32_t*) {
  const Ints product = {dot4(codes.v.a, x), dot4(codes.v.b, x), dot4(codes.v.c, x), dot4(codes.v.d, x)};
  dot.sum = kStep == 0 ? product : add(dot.sum, product);
}
/// The sum of (code - zero) * x.
template <int kMaxCode, int kZeroShift>
CORBEL_CPU_INLINE Ints dot_total(const Dot<kMaxCode>& dot, const std::int32_t* offset) {
  if constexpr (kZeroShift == 0) return dot.sum;
  return add(dot.sum, shift_right_signed<7 - kZeroShift>(broadcast_int(*offset)));
}
