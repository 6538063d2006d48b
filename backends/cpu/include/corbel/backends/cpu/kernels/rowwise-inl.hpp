// Ops on one row: quantization of activations, norms, rope, activations, sums.

/// The largest magnitude. As integers magnitudes keep their order, and a NaN is above infinity: it reaches the scale,
/// and so every output.
CORBEL_CPU_INLINE float peak_of(const float* x, std::size_t count) {
  const Ints magnitude_bits = broadcast_int(0x7fffffff);
  Ints highest = broadcast_int(0);
  for (std::size_t i = 0; i < count; i += 16) highest = max(highest, bit_and(bits(load(x + i)), magnitude_bits));
  const std::int32_t largest = max_lanes(highest);
  float peak;
  __builtin_memcpy(&peak, &largest, sizeof peak);
  return peak;
}

inline void quantize_row(const float* x, std::size_t width, std::size_t group, float step,
                         ActivationBlock* out) noexcept {
  const Floats shift = broadcast(12582912.0f);
  float scale = 0, inverse = 0;
  for (std::size_t at = 0; at < width; at += kBlockColumns, ++out) {
    if (step != 0.0f || at % group == 0) {
      const std::size_t count = step != 0.0f ? kBlockColumns : width - at < group ? width - at : group;
      const float peak = peak_of(x + at, count);
      if (step != 0.0f && peak < step * 127.5f) {
        scale = step;
        inverse = 1.0f / step;
      } else {  // the dot products take codes from -127 on
        scale = peak * (1.0f / 127.0f);
        inverse = peak < 1e-30f ? 0.0f : 127.0f / peak;
      }
    }
    const Floats factor = broadcast(inverse);
    const Ints qa = sub(bits(add(mul(load(x + at), factor), shift)), bits(shift));
    const Ints qb = sub(bits(add(mul(load(x + at + 16), factor), shift)), bits(shift));
    std::int32_t of_codes[2];
    store_codes_and_sums(out->codes, qa, qb, of_codes);
    // Of rows with a NaN or an infinity sums may be of any size: they wrap.
    const std::uint32_t sums[2] = {static_cast<std::uint32_t>(of_codes[0]), static_cast<std::uint32_t>(of_codes[1])};
    constexpr auto kFactor = static_cast<std::uint32_t>(kOffsetFactor);
    for (int half = 0; half < 2; ++half) {
      out->scaled_sums[half] = scale * static_cast<float>(static_cast<std::int32_t>(sums[half]));
      out->offsets[half] = static_cast<std::int32_t>(sums[half] * kFactor);
    }
    out->scale = scale;
    out->scaled_sum = scale * static_cast<float>(static_cast<std::int32_t>(sums[0] + sums[1]));
    out->offset = static_cast<std::int32_t>((sums[0] + sums[1]) * kFactor);
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
      const std::size_t w = start / group * a.weight_step + i, b = start / group * a.bias_step + i;
      Floats v = mul(sub(n == 16 ? load(x + i) : load_part(x + i, n), centre), factor);
      if (a.weight != nullptr) v = mul(v, n == 16 ? load(a.weight + w) : load_part(a.weight + w, n));
      if (a.bias != nullptr) v = add(v, n == 16 ? load(a.bias + b) : load_part(a.bias + b, n));
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
  for (; i + 16 <= half; i += 16) {
    Floats x, y;
    if (rope.interleaved) {
      load_pairs(in + 2 * i, x, y);
    } else {
      x = load(in + i);
      y = load(in + half + i);
    }
    rotate(x, y, load(table + i), load(table + half + i));
    if (rope.interleaved) {
      store_pairs(out + 2 * i, x, y);
    } else {
      store(out + i, x);
      store(out + half + i, y);
    }
  }
  if (const std::size_t n = half - i; n != 0) {
    const std::size_t step = rope.interleaved ? 2 : 1, distance = rope.interleaved ? 1 : half;
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
struct GeluTanhOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats) { return gelu_tanh(x); }
};
struct GeluOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats) { return gelu(x); }
};
struct GeluQuickOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats) { return gelu_quick(x); }
};
struct ReluOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats) { return max(zero(), x); }  // a NaN is the second operand
};
struct ReluSquaredOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats) {
    const Floats positive = max(zero(), x);
    return mul(positive, positive);
  }
};
template <class Activation>
struct GatedOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats y) { return mul(Activation::apply(x, y), y); }
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
struct ClampOp {
  static CORBEL_CPU_INLINE Floats apply(Floats x, Floats limit) { return min(limit, max(sub(zero(), limit), x)); }
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

template <class Activation>
CORBEL_CPU_INLINE void activate(const float* in, const float* gate, float* out, std::size_t width) {
  if (gate != nullptr) {
    map_pairs<GatedOp<Activation>>(in, gate, out, width);
  } else {
    map_pairs<Activation>(in, nullptr, out, width);
  }
}
inline void activation_row(hal::ActivationKind kind, const float* in, const float* gate, float* out,
                           std::size_t width) noexcept {
  switch (kind) {
    case hal::ActivationKind::kSilu:
      return activate<SiluOp>(in, gate, out, width);
    case hal::ActivationKind::kGeluTanh:
      return activate<GeluTanhOp>(in, gate, out, width);
    case hal::ActivationKind::kGelu:
      return activate<GeluOp>(in, gate, out, width);
    case hal::ActivationKind::kGeluQuick:
      return activate<GeluQuickOp>(in, gate, out, width);
    case hal::ActivationKind::kRelu:
      return activate<ReluOp>(in, gate, out, width);
    case hal::ActivationKind::kReluSquared:
      return activate<ReluSquaredOp>(in, gate, out, width);
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
inline void clamp_row(float limit, const float* in, float* out, std::size_t width) noexcept {
  map_scalar<ClampOp>(in, limit, out, width);
}

CORBEL_CPU_INLINE Floats gated_unit(Floats x, Floats up, float alpha, float limit) {
  const Floats g = min(broadcast(limit), x);  // as in ClampOp a NaN comes through
  const Floats u = ClampOp::apply(up, broadcast(limit));
  return times_sigmoid(mul(add(u, broadcast(1.0f)), g), mul(g, broadcast(alpha)));
}
inline void gate_row(float alpha, float limit, const float* in, const float* up, float* out,
                     std::size_t width) noexcept {
  std::size_t i = 0;
  for (; i + 16 <= width; i += 16) store(out + i, gated_unit(load(in + i), load(up + i), alpha, limit));
  if (const std::size_t n = width - i; n != 0)
    store_part(out + i, gated_unit(load_part(in + i, n), load_part(up + i, n), alpha, limit), n);
}

/// The nearest integer, halves to even, for |x| < 2^22.
CORBEL_CPU_INLINE Floats round_to_even(Floats x) {
  const Floats shift = broadcast(12582912.0f);
  return sub(add(x, shift), shift);
}
/// The nearest E4M3 value for |x| <= 448: multiples of a step that is 2^-3 of the power of two below, and at least
/// 2^-9.
CORBEL_CPU_INLINE Floats round_to_e4m3(Floats x) {
  const Ints sign = bit_and(bits(x), broadcast_int(INT32_MIN));
  const Floats magnitude = from_bits(bit_and(bits(x), broadcast_int(0x7fffffff)));
  const Ints power = bit_and(bits(x), broadcast_int(0x7f800000));
  const Floats step = from_bits(max(sub(power, broadcast_int(3 << 23)), broadcast_int((127 - 9) << 23)));
  return from_bits(bit_or(bits(mul(round_to_even(div(magnitude, step)), step)), sign));
}
CORBEL_CPU_INLINE Floats clamp(Floats x, float low, float high) {
  return min(broadcast(high), max(broadcast(low), x));  // a NaN is the second operand
}
CORBEL_CPU_INLINE Floats round_value(hal::RoundKind kind, Floats x, float scale, float zero_point) {
  const Floats s = broadcast(scale), zero = broadcast(zero_point);
  if (kind == hal::RoundKind::kFp8E4M3) return mul(round_to_e4m3(clamp(div(x, s), -448.0f, 448.0f)), s);
  const Floats code = clamp(add(round_to_even(clamp(div(x, s), -1000.0f, 1000.0f)), zero), -128.0f, 127.0f);
  return mul(sub(code, zero), s);
}

inline void round_row(const RoundArgs& a) noexcept {
  const std::size_t group = a.round.group != 0 ? a.round.group : a.width;
  for (std::size_t start = 0; start < a.width; start += group) {
    const std::size_t count = a.width - start < group ? a.width - start : group;
    const float* x = a.in + start;
    float* out = a.out + start;
    float zero_point = a.zero_point == nullptr ? 0.0f : *a.zero_point;
    float scale = a.scale == nullptr ? 0.0f : *a.scale;
    if (a.scale == nullptr) {
      Floats highest = zero(), lowest = zero();  // the second one negated
      for (std::size_t i = 0; i < count; i += 16) {
        const Floats v = count - i < 16 ? load_part(x + i, count - i) : load(x + i);
        highest = max(v, highest);
        lowest = max(sub(zero(), v), lowest);
      }
      const float high = max_lanes(highest), low = -max_lanes(lowest);
      if (a.round.asymmetric) {
        scale = (high - low) / 255.0f;
        if (scale != 0) {
          const float code = -128.0f - low / scale;  // in [-128, 127] up to rounding
          zero_point = code + 12582912.0f - 12582912.0f;
          zero_point = zero_point < -128.0f ? -128.0f : zero_point > 127.0f ? 127.0f : zero_point;
        }
      } else {
        const float largest = high > -low ? high : -low;
        const bool bounded = a.round.bound != 0 && a.round.bound < largest;
        scale = (bounded ? a.round.bound : largest) / (a.round.kind == hal::RoundKind::kInt8 ? 127.0f : 448.0f);
      }
    }
    for (std::size_t i = 0; i < count; i += 16) {
      const std::size_t n = count - i < 16 ? count - i : 16;
      const Floats v = n == 16 ? load(x + i) : load_part(x + i, n);
      const Floats rounded = scale == 0 ? zero() : round_value(a.round.kind, v, scale, zero_point);
      if (n == 16) {
        store(out + i, rounded);
      } else {
        store_part(out + i, rounded, n);
      }
    }
  }
}

inline void weighted_sum_row(const WeightedSumArgs& a) noexcept {
  for (std::size_t c = 0; c < a.width; c += 16) {
    const std::size_t n = a.width - c < 16 ? a.width - c : 16;
    Floats sum = zero();
    for (std::size_t j = 0; j < a.count; ++j) {
      const float* in = a.in + j * a.width + c;
      sum = fma(n == 16 ? load(in) : load_part(in, n), broadcast(a.weights[j]), sum);
    }
    if (n == 16) {
      store(a.out + c, sum);
    } else {
      store_part(a.out + c, sum, n);
    }
  }
}
