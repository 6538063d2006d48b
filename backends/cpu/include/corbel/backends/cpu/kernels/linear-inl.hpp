// Linear layers over packed weights. A tile is 16 columns of the output (one group of the weight; of plain types some
// groups) by up to kMaxRows rows. Many rows read the weights from panels instead (linear_panel-inl.hpp).
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

/// The codes of quad kQuad of a record, as many bits as they have.
template <DType kType, int kQuad>
CORBEL_CPU_INLINE Codes quad_bytes(const std::byte* record) {
  constexpr PackedFormat kFormat = packed_format(kType);
  const Codes low = load_plane<kFormat.code_bits, 0, kQuad>(record);
  if constexpr (kFormat.codebook != Codebook::kNone) {
    return look_up(kCodebookTable<kType>.codes, low);
  } else if constexpr (kFormat.high_bits != 0) {
    return unite(low, load_plane<kFormat.high_bits, kFormat.code_bits, kQuad>(record + kFormat.low_bytes()));
  } else {
    return low;
  }
}
/// The same as what the dot products take.
template <DType kType, int kQuad>
CORBEL_CPU_INLINE auto quad_codes(const std::byte* record) {
  return prepare_codes<packed_format(kType).max_code>(quad_bytes<kType, kQuad>(record));
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

/// What the arithmetic of quantized types knows of their codes and scales.
struct CodeFormat {
  int max_code = 0;
  int zero_shift = 0;
  std::size_t scale_columns = 0;
  bool has_minimum = false;

  constexpr std::size_t num_scales() const noexcept { return kBlockColumns / scale_columns; }
};

/// Of the columns that share scale number kScale.
template <CodeFormat kFormat, std::size_t kScale>
CORBEL_CPU_INLINE const std::int32_t* offset_of(const ActivationBlock& block) {
  return kFormat.num_scales() == 1 ? &block.offset : &block.offsets[kScale];
}
template <CodeFormat kFormat, std::size_t kScale>
CORBEL_CPU_INLINE float scaled_sum_of(const ActivationBlock& block) {
  return kFormat.num_scales() == 1 ? block.scaled_sum : block.scaled_sums[kScale];
}

/// Reads a record.
template <DType kType>
struct RecordReader {
  static constexpr PackedFormat kPacked = packed_format(kType);
  static constexpr CodeFormat kFormat = {kPacked.max_code, kPacked.zero_shift, kPacked.scale_columns,
                                         kPacked.has_minimum};
  const std::byte* record;
  Factors factors;

  template <int kQuad>
  CORBEL_CPU_INLINE auto codes() const {
    return quad_codes<kType, kQuad>(record);
  }
  template <std::size_t kScale>
  CORBEL_CPU_INLINE Floats scales() const {
    return load_scales<kType>(record + kPacked.code_bytes() + kScale * kGroupRows * kPacked.scale_bytes, factors.scale);
  }
  template <std::size_t kScale>
  CORBEL_CPU_INLINE Floats minima() const {
    return load_scales<kType>(
        record + kPacked.code_bytes() + kPacked.scales_bytes() + kScale * kGroupRows * kPacked.scale_bytes,
        factors.minimum);
  }
};

/// All steps of the integer dot products that share scale number kScale of 32 columns of kGroups groups.
template <std::size_t kScale, int kStep = 0, class Reader, std::size_t kRows, std::size_t kGroups>
CORBEL_CPU_INLINE void dot_steps(const Reader (&weights)[kGroups], const TileRows<kRows>& x,
                                 Dot<Reader::kFormat.max_code> (&dots)[kRows * kGroups]) {
  constexpr CodeFormat kFormat = Reader::kFormat;
  constexpr int kSteps = static_cast<int>(kFormat.scale_columns) / 4;
  if constexpr (kStep < kSteps) {
    constexpr int kQuad = static_cast<int>(kScale) * kSteps + kStep;
    decltype(weights[0].template codes<kQuad>()) codes[kGroups];
    CORBEL_CPU_UNROLL
    for (std::size_t g = 0; g < kGroups; ++g) codes[g] = weights[g].template codes<kQuad>();
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      Quad quad = load_quad(x.at[r]->codes + 4 * kQuad);
      const std::int32_t* offset = offset_of<kFormat, kScale>(*x.at[r]);
      CORBEL_CPU_UNROLL
      for (std::size_t g = 0; g < kGroups; ++g) {
        dot_step<kFormat.max_code, kFormat.zero_shift, kStep, kSteps>(dots[r * kGroups + g], codes[g], quad, offset);
        if constexpr (kGroups > 1) pin(quad, dots[r * kGroups + g]);
      }
    }
    dot_steps<kScale, kStep + 1>(weights, x, dots);
  }
}

/// 32 columns of kGroups groups: for each scale the dots, then the scale and the minimum.
template <std::size_t kScale = 0, class Reader, std::size_t kRows, std::size_t kGroups>
CORBEL_CPU_INLINE void add_scaled_dots(const Reader (&weights)[kGroups], const TileRows<kRows>& x,
                                       Floats (&sums)[kRows * kGroups]) {
  constexpr CodeFormat kFormat = Reader::kFormat;
  Dot<kFormat.max_code> dots[kRows * kGroups];
  dot_steps<kScale>(weights, x, dots);
  Floats scales[kGroups];
  CORBEL_CPU_UNROLL
  for (std::size_t g = 0; g < kGroups; ++g) scales[g] = weights[g].template scales<kScale>();
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    const std::int32_t* offset = offset_of<kFormat, kScale>(*x.at[r]);
    const Floats scale = broadcast(x.at[r]->scale);
    CORBEL_CPU_UNROLL
    for (std::size_t g = 0; g < kGroups; ++g) {
      const std::size_t i = r * kGroups + g;
      const Floats dot = to_floats(dot_total<kFormat.max_code, kFormat.zero_shift>(dots[i], offset));
      sums[i] = fma(dot, mul(scales[g], scale), sums[i]);
    }
  }
  if constexpr (kFormat.has_minimum) {
    Floats minima[kGroups];
    CORBEL_CPU_UNROLL
    for (std::size_t g = 0; g < kGroups; ++g) minima[g] = weights[g].template minima<kScale>();
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      const Floats sum = broadcast(scaled_sum_of<kFormat, kScale>(*x.at[r]));
      CORBEL_CPU_UNROLL
      for (std::size_t g = 0; g < kGroups; ++g) sums[r * kGroups + g] = fma(minima[g], sum, sums[r * kGroups + g]);
    }
  }
  if constexpr (kScale + 1 < kFormat.num_scales()) add_scaled_dots<kScale + 1>(weights, x, sums);
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

/// What one pass over a group of the weight makes, or over some whole groups: `count` columns of the output from
/// `column` on, which are the lanes from `lane` on.
struct LinearPiece {
  const std::byte* group;
  std::size_t column;
  std::size_t lane;
  std::size_t count;
};

/// How many vectors of float32 sums a tile of kRows rows has beside each other: 1, 2 or 4 stay in registers.
template <std::size_t kRows>
inline constexpr std::size_t kSumsPerRow = kMaxSums >= 4 * kRows   ? 4
                                           : kMaxSums >= 2 * kRows ? 2
                                                                   : 1;

CORBEL_CPU_INLINE const ActivationBlock* blocks_of(const LinearArgs& a, std::size_t row) {
  return a.x_blocks + (a.rows == nullptr ? row * a.x_block_stride : a.rows[row].x_block);
}
CORBEL_CPU_INLINE const float* floats_of(const LinearArgs& a, std::size_t row) {
  return a.x + (a.rows == nullptr ? row * a.x_stride : a.rows[row].x);
}

/// The sums of a group, number `group` of the piece, for one row.
CORBEL_CPU_INLINE void write_sums(const LinearArgs& a, const LinearPiece& piece, std::size_t row, std::size_t group,
                                  Floats sums) {
  const std::size_t column = piece.column + group * kGroupRows, count = piece.count - group * kGroupRows;
  float* out = a.out + (a.rows == nullptr ? row * a.out_stride : a.rows[row].out) + column;
  const float* bias = a.bias == nullptr ? nullptr : a.bias + column;
  if (count >= kGroupRows) {
    store(out, bias == nullptr ? sums : add(sums, load(bias)));
  } else {
    float lanes[kGroupRows];
    store(lanes, sums);
    const float* own = lanes + piece.lane;
    for (std::size_t i = 0; i < count; ++i) out[i] = bias == nullptr ? own[i] : own[i] + bias[i];
  }
}

/// Asks for the lines of kBytes bytes, which may lie beyond the weight.
template <std::size_t kBytes, std::size_t kLine = 0>
CORBEL_CPU_INLINE void prefetch(const std::byte* p) {
  if constexpr (kLine < kBytes) {
    __builtin_prefetch(p + kLine);
    prefetch<kBytes, kLine + 64>(p);
  }
}

/// A piece of kGroups groups, each a stream of memory of its own, for the rows [row, row + kRows).
template <DType kType, std::size_t kRows, std::size_t kGroups>
inline void quantized_tile(const LinearArgs& a, const LinearPiece& piece, std::size_t row) noexcept {
  constexpr PackedFormat kFormat = packed_format(kType);
  const std::byte *group = piece.group, *const end = group + a.group_bytes;  // beyond it: the next groups
  const std::size_t ahead = row == 0 ? a.prefetch_distance : 0;  // later rows find the weights in a cache
  const std::size_t num_blocks = a.k / kBlockColumns;
  TileRows<kRows> x;
  Floats sums[kRows * kGroups];
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) x.at[r] = blocks_of(a, row + r);
  CORBEL_CPU_UNROLL
  for (std::size_t i = 0; i < kRows * kGroups; ++i) sums[i] = zero();
  RecordReader<kType> weights[kGroups];
  CORBEL_CPU_UNROLL
  for (std::size_t g = 0; g < kGroups; ++g) weights[g].factors = {zero(), zero()};
  for (std::size_t block = 0; block < num_blocks; ++block, group += kFormat.record_bytes()) {
    if constexpr (kFormat.nested()) {
      if (block % (kNestColumns / kBlockColumns) == 0) {
        CORBEL_CPU_UNROLL
        for (std::size_t g = 0; g < kGroups; ++g) weights[g].factors = load_factors<kType>(group + g * a.group_bytes);
        group += kFormat.header_bytes();
      }
    }
    const std::byte* upcoming = group + ahead;
    if (kGroups > 1 && upcoming >= end) upcoming += (kGroups - 1) * a.group_bytes;
    CORBEL_CPU_UNROLL
    for (std::size_t g = 0; g < kGroups; ++g) {
      weights[g].record = group + g * a.group_bytes;
      prefetch<kFormat.record_bytes()>(upcoming + g * a.group_bytes);
    }
    add_scaled_dots(weights, x, sums);
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) ++x.at[r];
  }
  CORBEL_CPU_UNROLL
  for (std::size_t i = 0; i < kRows * kGroups; ++i) write_sums(a, piece, row + i / kGroups, i % kGroups, sums[i]);
}

/// Columns of a step of plain_tile: those that share a scale.
template <DType kType>
inline constexpr std::size_t kPlainStep = packed_format(kType).coded() ? kBlockColumns : 1;

/// Column `i` of a step of a group of a type that is multiplied as float32.
template <DType kType>
CORBEL_CPU_INLINE Floats load_column(const std::byte* step, std::size_t i) {
  constexpr PackedFormat kFormat = packed_format(kType);
  if constexpr (kFormat.coded()) {
    return mul(load_coded<kFormat.float_code>(step + kGroupRows * sizeof(float), i),
               load(reinterpret_cast<const float*>(step)));
  } else {
    return load_weights<kType>(step);
  }
}
template <DType kType>
inline constexpr std::size_t kStepBytes = packed_format(kType).coded() ? packed_format(kType).record_bytes()
                                                                       : kGroupRows* plain_bytes(kType);

/// A piece of kGroups groups for the rows [row, row + kRows), multiplied as float32.
template <DType kType, std::size_t kRows, std::size_t kGroups>
inline void plain_tile(const LinearArgs& a, const LinearPiece& piece, std::size_t row) noexcept {
  const std::byte *group = piece.group, *const end = group + a.group_bytes;
  const std::size_t ahead = row == 0 ? a.prefetch_distance : 0;
  const float* x[kRows];
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) x[r] = floats_of(a, row + r);
  Floats sums[kRows * kGroups];
  CORBEL_CPU_UNROLL
  for (std::size_t i = 0; i < kRows * kGroups; ++i) sums[i] = zero();
  for (std::size_t k = 0; k < a.k; k += kPlainStep<kType>, group += kStepBytes<kType>) {
    const std::byte* upcoming = group + ahead;
    if (kGroups > 1 && upcoming >= end) upcoming += (kGroups - 1) * a.group_bytes;
    for (std::size_t i = 0; i < kPlainStep<kType>; ++i) {
      Floats w[kGroups];
      CORBEL_CPU_UNROLL
      for (std::size_t g = 0; g < kGroups; ++g) {
        w[g] = load_column<kType>(group + g * a.group_bytes, i);
        if (i == 0) prefetch<kStepBytes<kType>>(upcoming + g * a.group_bytes);
      }
      CORBEL_CPU_UNROLL
      for (std::size_t r = 0; r < kRows; ++r) {
        const Floats factor = broadcast(x[r][k + i]);
        CORBEL_CPU_UNROLL
        for (std::size_t g = 0; g < kGroups; ++g) sums[r * kGroups + g] = fma(w[g], factor, sums[r * kGroups + g]);
      }
    }
  }
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    CORBEL_CPU_UNROLL
    for (std::size_t g = 0; g < kGroups; ++g) write_sums(a, piece, row + r, g, sums[r * kGroups + g]);
  }
}

/// A piece for the rows from `row` on, in tiles of kRows and then of fewer. Of quantized weights it has one group, or for
/// one row kStreams.
template <DType kType, std::size_t kRows>
CORBEL_CPU_INLINE void linear_rows(const LinearArgs& a, const LinearPiece& piece, std::size_t row) {
  for (; row + kRows <= a.num_rows; row += kRows) {
    if constexpr (packed_format(kType).quantized()) {
      if constexpr (kRows == 1 && kStreams > 1) {
        if (piece.count > kGroupRows) return quantized_tile<kType, 1, kStreams>(a, piece, row);
      }
      quantized_tile<kType, kRows, 1>(a, piece, row);
    } else {
      // Codes need the registers that more sums would take.
      constexpr std::size_t kGroups = packed_format(kType).coded() ? 1 : kSumsPerRow<kRows>;
      LinearPiece part = piece;
      std::size_t left = piece.count;
      for (; left >= kGroups * kGroupRows; left -= kGroups * kGroupRows) {
        part.count = kGroups * kGroupRows;
        plain_tile<kType, kRows, kGroups>(a, part, row);
        part.column += part.count;
        part.group += kGroups * a.group_bytes;
      }
      for (; left != 0; left -= part.count) {
        part.count = left < kGroupRows ? left : kGroupRows;
        plain_tile<kType, kRows, 1>(a, part, row);
        part.column += part.count;
        part.group += a.group_bytes;
      }
    }
  }
  if constexpr (kRows > 1) linear_rows<kType, kRows / 2>(a, piece, row);
}
