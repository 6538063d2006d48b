// Linear layers over packed weights. A tile is 16 columns of the output (one group of the weight) by up to kMaxRows
// rows.
//
// Quantized types: per 32 columns of the weight an exact integer dot product, then one fused step into a float32
// accumulator per scale and one per minimum. Plain types and small floats: one fused step per column. Either way the
// order is that of the columns, whatever the rows beside.

/// The activations of the rows of a tile at one block.
template <std::size_t kRows>
struct TileRows {
  const ActivationBlock* at[kRows];
};

template <DType kType>
inline constexpr CodebookTable kCodebookTable = codebook_table(packed_format(kType));

/// The codes of quad kQuad from a plane of kBits bits, moved to bit kTo of their bytes.
template <int kBits, int kTo, int kQuad>
CORBEL_CPU_INLINE Codes load_plane(const std::byte* plane) {
  constexpr int kPerLine = 8 / kBits;
  return move_bits<kQuad % kPerLine * kBits, kTo, kBits>(load_codes(plane + kQuad / kPerLine * 64));
}

/// The codes of quad kQuad of a record as what the dot products take.
template <DType kType, int kQuad>
CORBEL_CPU_INLINE auto quad_codes(const std::byte* record) {
  constexpr PackedFormat kFormat = packed_format(kType);
  const Codes low = load_plane<kFormat.code_bits, 0, kQuad>(record);
  if constexpr (kFormat.codebook != Codebook::kNone) {
    return prepare_codes<kFormat.max_code>(look_up(kCodebookTable<kType>.codes, low));
  } else if constexpr (kFormat.high_bits != 0) {
    return prepare_codes<kFormat.max_code>(
        unite(low, load_plane<kFormat.high_bits, kFormat.code_bits, kQuad>(record + kFormat.low_bytes())));
  } else {
    return prepare_codes<kFormat.max_code>(low);
  }
}

/// All steps of the integer dot products that share scale number kScale of a record.
template <DType kType, std::size_t kRows, std::size_t kScale, int kStep = 0>
CORBEL_CPU_INLINE void dot_steps(const std::byte* record, const TileRows<kRows>& x,
                                 Dot<packed_format(kType).max_code> (&dots)[kRows]) {
  constexpr PackedFormat kFormat = packed_format(kType);
  constexpr int kSteps = static_cast<int>(kFormat.scale_columns) / 4;
  if constexpr (kStep < kSteps) {
    constexpr int kQuad = static_cast<int>(kScale) * kSteps + kStep;
    const auto codes = quad_codes<kType, kQuad>(record);
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r)
      dot_step<kFormat.max_code, kStep, kSteps>(dots[r], codes, load_quad(x.at[r]->codes + 4 * kQuad));
    dot_steps<kType, kRows, kScale, kStep + 1>(record, x, dots);
  }
}

/// What the integer scales and minima of 256 columns are multiplied by.
struct Factors {
  Floats scale, minimum;
};
template <DType kType>
CORBEL_CPU_INLINE Factors load_factors(const std::byte* header) {
  constexpr PackedFormat kFormat = packed_format(kType);
  if constexpr (kFormat.nested() && kFormat.has_minimum)
    return {load_f16(header), load_f16(header + kGroupRows * sizeof(std::uint16_t))};
  if constexpr (kFormat.nested()) return {load_f16(header), zero()};
  return {zero(), zero()};
}

template <DType kType>
CORBEL_CPU_INLINE Floats load_scales(const std::byte* p, Floats factor) {
  constexpr PackedFormat kFormat = packed_format(kType);
  if constexpr (kFormat.nested()) return mul(factor, to_floats(load_i8(p)));
  if constexpr (kFormat.scale_bytes == 4) return load(reinterpret_cast<const float*>(p));
  if constexpr (kFormat.scale_bytes == 2 && kFormat.bf16_scales) return load_bf16(p);
  return load_f16(p);
}

/// One record and scale: the dots, then the scale and the minimum.
template <DType kType, std::size_t kRows, std::size_t kScale>
CORBEL_CPU_INLINE void add_scaled_dots(const std::byte* record, const Factors& factors, const TileRows<kRows>& x,
                                       Floats (&sums)[kRows]) {
  constexpr PackedFormat kFormat = packed_format(kType);
  constexpr std::size_t kScaleOffset = kFormat.code_bytes() + kScale * kGroupRows * kFormat.scale_bytes;
  Dot<kFormat.max_code> dots[kRows];
  dot_steps<kType, kRows, kScale>(record, x, dots);
  const Floats scales = load_scales<kType>(record + kScaleOffset, factors.scale);
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    const std::int32_t* sum = kFormat.scale_columns == 32 ? &x.at[r]->sum : &x.at[r]->sums[kScale];
    const Floats dot = to_floats(dot_total<kFormat.max_code, kFormat.zero_shift>(dots[r], sum));
    sums[r] = fma(dot, mul(scales, broadcast(x.at[r]->scale)), sums[r]);
  }
  if constexpr (kFormat.has_minimum) {
    const Floats minima = load_scales<kType>(record + kScaleOffset + kFormat.scales_bytes(), factors.minimum);
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

/// Values of NF4; facts of its definition (see groups.ipp of the library's dtypes).
alignas(64) inline constexpr float kNf4Table[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

/// Column `k` of a record of small floats, before the scales.
template <FloatCode kCode>
CORBEL_CPU_INLINE Floats load_coded(const std::byte* codes, std::size_t k) {
  if constexpr (kCode == FloatCode::kNF4) {
    const Ints pair = load_u8(codes + k / 2 * kGroupRows);
    return look_up_floats(kNf4Table, bit_and(k % 2 == 0 ? pair : shift_right<4>(pair), broadcast_int(15)));
  } else {
    // Exponent and mantissa in the places of float32, then 2^120 corrects the exponent's bias, for subnormals too.
    const Ints code = load_u8(codes + k * kGroupRows);
    const Floats magnitude = mul(from_bits(shift_left<20>(bit_and(code, broadcast_int(0x7f)))), broadcast(0x1p120f));
    return from_bits(bit_or(bits(magnitude), shift_left<24>(bit_and(code, broadcast_int(0x80)))));
  }
}

/// What one pass over a group of the weight makes: `count` columns of the output from `column` on, which are the lanes
/// from `lane` on.
struct LinearPiece {
  const std::byte* group;
  std::size_t column;
  std::size_t lane;
  std::size_t count;
};

/// Asks for the lines of kBytes bytes, which may lie beyond the weight.
template <std::size_t kBytes, std::size_t kLine = 0>
CORBEL_CPU_INLINE void prefetch(const std::byte* p) {
  if constexpr (kLine < kBytes) {
    __builtin_prefetch(p + kLine);
    prefetch<kBytes, kLine + 64>(p);
  }
}

/// A piece for the rows [row, row + kRows).
template <DType kType, std::size_t kRows>
inline void linear_tile(const LinearArgs& a, const LinearPiece& piece, std::size_t row) noexcept {
  constexpr PackedFormat kFormat = packed_format(kType);
  const std::byte* group = piece.group;
  const std::size_t ahead = row == 0 ? a.prefetch_distance : 0;  // later rows find the weights in a cache
  Floats sums[kRows];
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) sums[r] = zero();
  if constexpr (kFormat.quantized()) {
    const std::size_t num_blocks = a.k / kBlockColumns;
    TileRows<kRows> x;
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r)
      x.at[r] = a.x_blocks + (a.rows == nullptr ? (row + r) * a.x_block_stride : a.rows[row + r].x_block);
    Factors factors = {zero(), zero()};
    for (std::size_t block = 0; block < num_blocks; ++block, group += kFormat.record_bytes()) {
      if constexpr (kFormat.nested()) {
        if (block % (kNestColumns / kBlockColumns) == 0) {
          factors = load_factors<kType>(group);
          group += kFormat.header_bytes();
        }
      }
      prefetch<kFormat.record_bytes()>(group + ahead);
      add_scaled_dots<kType, kRows, 0>(group, factors, x, sums);
      if constexpr (kFormat.scale_columns == 16) add_scaled_dots<kType, kRows, 1>(group, factors, x, sums);
      CORBEL_CPU_UNROLL
      for (std::size_t r = 0; r < kRows; ++r) ++x.at[r];
    }
  } else {
    const float* x[kRows];
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r)
      x[r] = a.x + (a.rows == nullptr ? (row + r) * a.x_stride : a.rows[row + r].x);
    if constexpr (kFormat.coded()) {
      for (std::size_t k = 0; k < a.k; k += kBlockColumns, group += kFormat.record_bytes()) {
        const Floats scales = load(reinterpret_cast<const float*>(group));
        for (std::size_t i = 0; i < kBlockColumns; ++i) {
          const Floats w = mul(load_coded<kFormat.float_code>(group + kGroupRows * sizeof(float), i), scales);
          CORBEL_CPU_UNROLL
          for (std::size_t r = 0; r < kRows; ++r) sums[r] = fma(w, broadcast(x[r][k + i]), sums[r]);
        }
      }
    } else {
      for (std::size_t k = 0; k < a.k; ++k, group += kGroupRows * plain_bytes(kType)) {
        const Floats w = load_weights<kType>(group);
        CORBEL_CPU_UNROLL
        for (std::size_t r = 0; r < kRows; ++r) sums[r] = fma(w, broadcast(x[r][k]), sums[r]);
      }
    }
  }
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    float* out = a.out + (a.rows == nullptr ? (row + r) * a.out_stride : a.rows[row + r].out) + piece.column;
    if (piece.count == kGroupRows) {
      store(out, a.bias == nullptr ? sums[r] : add(sums[r], load(a.bias + piece.column)));
    } else {
      float lanes[kGroupRows];
      store(lanes, sums[r]);
      const float* own = lanes + piece.lane;
      for (std::size_t i = 0; i < piece.count; ++i)
        out[i] = a.bias == nullptr ? own[i] : own[i] + a.bias[piece.column + i];
    }
  }
}

/// The rows from `row` on, in tiles of kRows and then of fewer.
template <DType kType, std::size_t kRows>
CORBEL_CPU_INLINE void linear_rows(const LinearArgs& a, const LinearPiece& piece, std::size_t row) {
  for (; row + kRows <= a.num_rows; row += kRows) linear_tile<kType, kRows>(a, piece, row);
  if constexpr (kRows > 1) linear_rows<kType, kRows / 2>(a, piece, row);
}

template <DType kType>
inline void linear(const LinearArgs& a) noexcept {
  LinearPiece piece = {a.weights, 0, a.first_lane, 0};
  for (; piece.column < a.num_columns; piece.column += piece.count, piece.lane = 0, piece.group += a.group_bytes) {
    const std::size_t left = a.num_columns - piece.column, lanes = kGroupRows - piece.lane;
    piece.count = left < lanes ? left : lanes;
    linear_rows<kType, kMaxRows>(a, piece, 0);
  }
}
