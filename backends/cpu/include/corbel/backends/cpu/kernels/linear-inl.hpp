// Linear layers over packed weights. A tile is 16 columns of the output (one group of the weight) by up to kMaxRows
// rows.
//
// Quantized types: per 32 columns of the weight an exact integer dot product, then one fused step into a float32
// accumulator per scale and one per minimum. Plain types: one fused step per column. Either way the order is that of
// the columns, whatever the rows beside.

/// The activations of the rows of a tile at one block.
template <std::size_t kRows>
struct TileRows {
  const ActivationBlock* at[kRows];
};

/// All steps of the integer dot products that share scale number kScale of a record.
template <DType kType, std::size_t kRows, std::size_t kScale, int kStep = 0>
CORBEL_CPU_INLINE void dot_steps(const std::byte* codes, const TileRows<kRows>& x,
                                 Dot<packed_format(kType).max_code> (&dots)[kRows]) {
  constexpr PackedFormat kFormat = packed_format(kType);
  constexpr int kSteps = static_cast<int>(kFormat.scale_columns) / 4;
  if constexpr (kStep < kSteps) {
    constexpr int kQuad = static_cast<int>(kScale) * kSteps + kStep;
    if constexpr (kFormat.code_bits == 4) {
      const Codes line = load_codes(codes + kQuad / 2 * 64);
      const Codes low = low_nibbles(line);
      CORBEL_CPU_UNROLL
      for (std::size_t r = 0; r < kRows; ++r)
        dot_step<kFormat.max_code, kStep, kSteps>(dots[r], low, load_quad(x.at[r]->codes + 4 * kQuad));
      const Codes high = high_nibbles(line);
      CORBEL_CPU_UNROLL
      for (std::size_t r = 0; r < kRows; ++r)
        dot_step<kFormat.max_code, kStep + 1, kSteps>(dots[r], high, load_quad(x.at[r]->codes + 4 * kQuad + 4));
      dot_steps<kType, kRows, kScale, kStep + 2>(codes, x, dots);
    } else {
      const auto line = prepare_codes<kFormat.max_code>(load_codes(codes + kQuad * 64));
      CORBEL_CPU_UNROLL
      for (std::size_t r = 0; r < kRows; ++r)
        dot_step<kFormat.max_code, kStep, kSteps>(dots[r], line, load_quad(x.at[r]->codes + 4 * kQuad));
      dot_steps<kType, kRows, kScale, kStep + 1>(codes, x, dots);
    }
  }
}

template <std::size_t kScaleBytes>
CORBEL_CPU_INLINE Floats load_scales(const std::byte* p) {
  if constexpr (kScaleBytes == 2) return load_f16(p);
  return load(reinterpret_cast<const float*>(p));
}

/// One record and scale: the dots, then the scale and the minimum.
template <DType kType, std::size_t kRows, std::size_t kScale>
CORBEL_CPU_INLINE void add_scaled_dots(const std::byte* record, const TileRows<kRows>& x, Floats (&sums)[kRows]) {
  constexpr PackedFormat kFormat = packed_format(kType);
  constexpr std::size_t kScaleOffset = kFormat.code_bytes() + kScale * kGroupRows * kFormat.scale_bytes;
  Dot<kFormat.max_code> dots[kRows];
  dot_steps<kType, kRows, kScale>(record, x, dots);
  const Floats scales = load_scales<kFormat.scale_bytes>(record + kScaleOffset);
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    const std::int32_t* sum = kFormat.scale_columns == 32 ? &x.at[r]->sum : &x.at[r]->sums[kScale];
    const Floats dot = to_floats(dot_total<kFormat.max_code, kFormat.zero_shift>(dots[r], sum));
    sums[r] = fma(dot, mul(scales, broadcast(x.at[r]->scale)), sums[r]);
  }
  if constexpr (kFormat.has_minimum) {
    const Floats minima = load_scales<kFormat.scale_bytes>(record + kScaleOffset + kFormat.scales_bytes());
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      const float* sum = kFormat.scale_columns == 32 ? &x.at[r]->scaled_sum : &x.at[r]->scaled_sums[kScale];
      sums[r] = fma(minima, broadcast(*sum), sums[r]);
    }
  }
}

template <DType kType>
CORBEL_CPU_INLINE Floats load_weights(const std::byte* p) {
  if constexpr (kType == DType::kF32) return load(reinterpret_cast<const float*>(p));
  if constexpr (kType == DType::kF16) return load_f16(p);
  if constexpr (kType == DType::kBF16) return load_bf16(p);
}

/// The sums of rows [row, row + kRows) and the 16 columns of one group.
template <DType kType, std::size_t kRows>
inline void linear_tile(const LinearArgs& a, const std::byte* group, std::size_t row, std::size_t column) noexcept {
  constexpr PackedFormat kFormat = packed_format(kType);
  Floats sums[kRows];
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) sums[r] = zero();
  if constexpr (kFormat.quantized()) {
    const std::size_t num_blocks = a.k / kBlockColumns;
    TileRows<kRows> x;
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) x.at[r] = a.x_blocks + (row + r) * num_blocks;
    for (std::size_t block = 0; block < num_blocks; ++block, group += kFormat.record_bytes()) {
      add_scaled_dots<kType, kRows, 0>(group, x, sums);
      if constexpr (kFormat.scale_columns == 16) add_scaled_dots<kType, kRows, 1>(group, x, sums);
      CORBEL_CPU_UNROLL
      for (std::size_t r = 0; r < kRows; ++r) ++x.at[r];
    }
  } else {
    const float* x[kRows];
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) x[r] = a.x + (row + r) * a.x_stride;
    for (std::size_t k = 0; k < a.k; ++k, group += kGroupRows * plain_bytes(kType)) {
      const Floats w = load_weights<kType>(group);
      CORBEL_CPU_UNROLL
      for (std::size_t r = 0; r < kRows; ++r) sums[r] = fma(w, broadcast(x[r][k]), sums[r]);
    }
  }
  const std::size_t n = a.num_columns - column < kGroupRows ? a.num_columns - column : kGroupRows;
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    float* out = a.out + (row + r) * a.out_stride + column;
    if (n == kGroupRows) {
      store(out, a.bias == nullptr ? sums[r] : add(sums[r], load(a.bias + column)));
    } else {
      store_part(out, a.bias == nullptr ? sums[r] : add(sums[r], load_part(a.bias + column, n)), n);
    }
  }
}

/// The rows from `row` on, in tiles of kRows and then of fewer.
template <DType kType, std::size_t kRows>
CORBEL_CPU_INLINE void linear_rows(const LinearArgs& a, const std::byte* group, std::size_t row, std::size_t column) {
  for (; row + kRows <= a.num_rows; row += kRows) linear_tile<kType, kRows>(a, group, row, column);
  if constexpr (kRows > 1) linear_rows<kType, kRows / 2>(a, group, row, column);
}

template <DType kType>
inline void linear(const LinearArgs& a) noexcept {
  const std::byte* group = a.weights;
  for (std::size_t column = 0; column < a.num_columns; column += kGroupRows, group += a.group_bytes)
    linear_rows<kType, kMaxRows>(a, group, 0, column);
}
