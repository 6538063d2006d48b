// Ops on one row: quantization of activations, norms, rope, activations, sums.

inline void quantize_row(const float* x, std::size_t width, ActivationBlock* out) noexcept {
  const Ints magnitude_bits = broadcast_int(0x7fffffff);
  const Floats shift = broadcast(12582912.0f);
  for (std::size_t block = 0; block < width / kBlockColumns; ++block, x += kBlockColumns, ++out) {
    const Floats a = load(x);
    const Floats b = load(x + 16);
    // As integers magnitudes keep their order, and a NaN is above infinity: it reaches the scale, and so every output.
    std::int32_t lanes[16];
    store_int(lanes, max(bit_and(bits(a), magnitude_bits), bit_and(bits(b), magnitude_bits)));
    std::int32_t largest = 0;
    for (int i = 0; i < 16; ++i) largest = lanes[i] > largest ? lanes[i] : largest;
    float peak;
    __builtin_memcpy(&peak, &largest, sizeof peak);
    const float scale = peak * (1.0f / 127.0f);
    const float inverse = peak < 1e-30f ? 0.0f : 127.0f / peak;
    const Floats factor = broadcast(inverse);
    const Ints qa = sub(bits(add(mul(a, factor), shift)), bits(shift));
    const Ints qb = sub(bits(add(mul(b, factor), shift)), bits(shift));
    store_int8(out->codes, qa);
    store_int8(out->codes + 16, qb);
    for (int half = 0; half < 2; ++half) {
      store_int(lanes, half == 0 ? qa : qb);
      std::uint32_t sum = 0;  // wraps where a NaN made the codes meaningless
      for (int i = 0; i < 16; ++i) sum += static_cast<std::uint32_t>(lanes[i]);
      out->sums[half] = static_cast<std::int32_t>(sum);
      out->scaled_sums[half] = scale * static_cast<float>(out->sums[half]);
    }
    out->scale = scale;
    out->sum =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(out->sums[0]) + static_cast<std::uint32_t>(out->sums[1]));
    out->scaled_sum = scale * static_cast<float>(out->sum);
    out->padding = 0;
  }
}

/// Sums in 16 lanes over rising columns, then over the lanes; one rounding per step.
inline void norm_row(const NormArgs& a) noexcept {
  const std::size_t group = a.norm.group;
  const float count = static_cast<float>(group);
  for (std::size_t start = 0; start < a.width; start += group) {
    const float* x = a.in + start;
    float* out = a.out + start;
    const std::size_t whole = group / 16 * 16;
    float mean = 0;
    if (a.norm.kind == hal::NormKind::kLayer) {
      Floats sum = zero();
      for (std::size_t i = 0; i < whole; i += 16) sum = add(sum, load(x + i));
      if (whole != group) sum = add(sum, load_part(x + whole, group - whole));
      mean = sum_lanes(sum) / count;
    }
    const Floats centre = broadcast(mean);
    Floats squares = zero();
    for (std::size_t i = 0; i < whole; i += 16) {
      const Floats v = sub(load(x + i), centre);
      squares = fma(v, v, squares);
    }
    for (std::size_t i = whole; i < group; ++i) {
      float lane[16] = {};
      lane[i - whole] = x[i] - mean;
      const Floats v = load(lane);
      squares = fma(v, v, squares);
    }
    const float variance = sum_lanes(squares) / count;
    const Floats factor = broadcast(1.0f / __builtin_sqrtf(variance + a.norm.epsilon));
    for (std::size_t i = 0; i < group; i += 16) {
      const std::size_t n = group - i < 16 ? group - i : 16;
      Floats v = mul(sub(n == 16 ? load(x + i) : load_part(x + i, n), centre), factor);
      if (a.weight != nullptr) v = mul(v, n == 16 ? load(a.weight + i) : load_part(a.weight + i, n));
      if (a.bias != nullptr) v = add(v, n == 16 ? load(a.bias + i) : load_part(a.bias + i, n));
      if (n == 16) {
        store(out + i, v);
      } else {
        store_part(out + i, v, n);
      }
    }
  }
}

/// (x, y) -> (x cos - y sin, y cos + x sin), the second product fused to the first.
CORBEL_CPU_INLINE void rotate(Floats& x, Floats& y, Floats cosine, Floats sine) {
  const Floats rotated = fnma(y, sine, mul(x, cosine));
  y = fma(x, sine, mul(y, cosine));
  x = rotated;
}
inline void rope_head(const hal::RopeSpec& rope, const float* in, const float* table, float* out) noexcept {
  const std::size_t half = rope.rotary_dim / 2;
  std::size_t i = 0;
  if (!rope.interleaved) {
    for (; i + 16 <= half; i += 16) {
      Floats x = load(in + i), y = load(in + half + i);
      rotate(x, y, load(table + i), load(table + half + i));
      store(out + i, x);
      store(out + half + i, y);
    }
  }
  const std::size_t step = rope.interleaved ? 2 : 1;
  const std::size_t distance = rope.interleaved ? 1 : half;
  for (; i < half; i += 16) {
    const std::size_t n = half - i < 16 ? half - i : 16;
    float x_lanes[16] = {}, y_lanes[16] = {};
    for (std::size_t j = 0; j < n; ++j) {
      x_lanes[j] = in[step * (i + j)];
      y_lanes[j] = in[step * (i + j) + distance];
    }
    Floats x = load(x_lanes), y = load(y_lanes);
    rotate(x, y, load_part(table + i, n), load_part(table + half + i, n));
    store(x_lanes, x);
    store(y_lanes, y);
    for (std::size_t j = 0; j < n; ++j) {
      out[step * (i + j)] = x_lanes[j];
      out[step * (i + j) + distance] = y_lanes[j];
    }
  }
  for (i = rope.rotary_dim; i < rope.head_dim; ++i) out[i] = in[i];
}

struct SiluOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats) { return silu(x); }
};
struct SiluGateOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats y) { return mul(silu(x), y); }
};
struct GeluOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats) { return gelu_tanh(x); }
};
struct GeluGateOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats y) { return mul(gelu_tanh(x), y); }
};
struct AddOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats y) { return add(x, y); }
};
struct ScaleOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats s) { return mul(x, s); }
};
struct SoftcapOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats cap) { return mul(cap, tanh(div(x, cap))); }
};

/// out[i] = Op(x[i], y[i]); y may be null.
template <class Op>
inline void map_pairs(const float* x, const float* y, float* out, std::size_t width) noexcept {
  std::size_t i = 0;
  for (; i + 16 <= width; i += 16) store(out + i, Op::apply(load(x + i), y == nullptr ? zero() : load(y + i)));
  if (const std::size_t n = width - i; n != 0) {
    store_part(out + i, Op::apply(load_part(x + i, n), y == nullptr ? zero() : load_part(y + i, n)), n);
  }
}
/// out[i] = Op(x[i], parameter)
template <class Op>
inline void map_scalar(const float* x, float parameter, float* out, std::size_t width) noexcept {
  const Floats p = broadcast(parameter);
  std::size_t i = 0;
  for (; i + 16 <= width; i += 16) store(out + i, Op::apply(load(x + i), p));
  if (const std::size_t n = width - i; n != 0) store_part(out + i, Op::apply(load_part(x + i, n), p), n);
}

inline void activation_row(hal::ActivationKind kind, const float* in, const float* gate, float* out,
                           std::size_t width) noexcept {
  if (kind == hal::ActivationKind::kSilu) {
    gate != nullptr ? map_pairs<SiluGateOp>(in, gate, out, width) : map_pairs<SiluOp>(in, nullptr, out, width);
  } else {
    gate != nullptr ? map_pairs<GeluGateOp>(in, gate, out, width) : map_pairs<GeluOp>(in, nullptr, out, width);
  }
}
inline void add_row(const float* a, const float* b, float* out, std::size_t width) noexcept {
  map_pairs<AddOp>(a, b, out, width);
}
inline void scale_row(float scale, const float* in, float* out, std::size_t width) noexcept {
  map_scalar<ScaleOp>(in, scale, out, width);
}
inline void softcap_row(float cap, const float* in, float* out, std::size_t width) noexcept {
  map_scalar<SoftcapOp>(in, cap, out, width);
}
