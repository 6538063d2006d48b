// Pieces that the kernels share: partial vectors, reductions, exp and what is made of it. Written in the level's
// vocabulary.

/// The first n of 16 elements, the rest 0.
CORBEL_CPU_INLINE Floats load_part(const float* p, std::size_t n) {
  float lanes[16] = {};
  for (std::size_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
CORBEL_CPU_INLINE void store_part(float* p, Floats v, std::size_t n) {
  float lanes[16];
  store(lanes, v);
  for (std::size_t i = 0; i < n; ++i) p[i] = lanes[i];
}

inline constexpr float kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/// e^x, relative error below 2e-7. 0 below -87.3; at most e^88; NaN stays NaN.
CORBEL_CPU_INLINE Floats exp(Floats x) {
  // The second operand is what comes out of a comparison with NaN.
  const Floats clamped = max(broadcast(-88.0f), min(broadcast(88.0f), x));
  // Adding 1.5 * 2^23 leaves the nearest integer to x / ln 2 in the low bits.
  const Floats shift = broadcast(12582912.0f);
  const Floats shifted = fma(clamped, broadcast(1.44269504f), shift);
  const Floats n = sub(shifted, shift);
  const Floats r = fnma(n, broadcast(-2.12194440e-4f), fnma(n, broadcast(0.693359375f), clamped));
  Floats y = broadcast(1.0f / 5040.0f);
  y = fma(y, r, broadcast(1.0f / 720.0f));
  y = fma(y, r, broadcast(1.0f / 120.0f));
  y = fma(y, r, broadcast(1.0f / 24.0f));
  y = fma(y, r, broadcast(1.0f / 6.0f));
  y = fma(y, r, broadcast(0.5f));
  y = fma(y, r, broadcast(1.0f));
  y = fma(y, r, broadcast(1.0f));
  const Floats scaled = from_bits(add(bits(y), shift_left<23>(bits(shifted))));
  // 0, or NaN where the integer addition may have made a number of it.
  const Floats nan_or_zero = sub(clamped, clamped);
  return select_less(x, broadcast(-87.3f), zero(), add(scaled, nan_or_zero));
}

/// x / (1 + e^-y)
CORBEL_CPU_INLINE Floats times_sigmoid(Floats x, Floats y) { return div(x, add(broadcast(1.0f), exp(sub(zero(), y)))); }
CORBEL_CPU_INLINE Floats silu(Floats x) { return times_sigmoid(x, x); }
/// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
CORBEL_CPU_INLINE Floats gelu_tanh(Floats x) {
  const Floats cubic = fma(mul(mul(x, x), broadcast(0.044715f)), x, x);
  return times_sigmoid(x, mul(cubic, broadcast(1.5957691216f)));
}
/// 0.5 x (1 + erf(x / sqrt(2))) = x P(x), P the normal distribution. P(-a) = exp(-a^2 / 2) t g(t), t = 1 / (1 + 0.3 a),
/// g a polynomial fitted for 0 <= a <= 13.5 (relative error below 2e-7), beyond which exp is 0.
CORBEL_CPU_INLINE Floats gelu(Floats x) {
  const Floats magnitude = from_bits(bit_and(bits(x), broadcast_int(0x7fffffff)));
  const Floats t = div(broadcast(1.0f), fma(magnitude, broadcast(0.3f), broadcast(1.0f)));
  Floats g = broadcast(0.0011017652f);
  g = fma(g, t, broadcast(0.0314295888f));
  g = fma(g, t, broadcast(-0.150666848f));
  g = fma(g, t, broadcast(0.201325119f));
  g = fma(g, t, broadcast(-0.0517976321f));
  g = fma(g, t, broadcast(0.128377661f));
  g = fma(g, t, broadcast(0.0998195261f));
  g = fma(g, t, broadcast(0.120784149f));
  g = fma(g, t, broadcast(0.119626693f));
  const Floats tail = mul(exp(mul(mul(x, x), broadcast(-0.5f))), mul(t, g));
  return mul(x, select_less(x, zero(), tail, sub(broadcast(1.0f), tail)));
}
/// x sigmoid(1.702 x)
CORBEL_CPU_INLINE Floats gelu_quick(Floats x) { return times_sigmoid(x, mul(x, broadcast(1.702f))); }

/// tanh(x), relative error below 1e-6.
CORBEL_CPU_INLINE Floats tanh(Floats x) {
  const Floats magnitude = from_bits(bit_and(bits(x), broadcast_int(0x7fffffff)));
  const Floats e = exp(mul(magnitude, broadcast(-2.0f)));
  const Floats large = div(sub(broadcast(1.0f), e), add(broadcast(1.0f), e));
  // Near 0, where 1 - e cancels: the Taylor polynomial.
  const Floats z = mul(x, x);
  Floats p = broadcast(62.0f / 2835.0f);
  p = fma(p, z, broadcast(-17.0f / 315.0f));
  p = fma(p, z, broadcast(2.0f / 15.0f));
  p = fma(p, z, broadcast(-1.0f / 3.0f));
  const Floats small = fma(mul(p, z), magnitude, magnitude);
  const Floats value = select_less(magnitude, broadcast(0.25f), small, large);
  return from_bits(bit_or(bits(value), bit_and(bits(x), broadcast_int(INT32_MIN))));
}
