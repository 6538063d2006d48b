// Linear layers on tiles of bfloat16 with float32 sums: what level amx adds to the vocabulary and the weight readers of
// level avx512. Included by levels/amx.hpp inside the level's namespace and target region, after linear-inl.hpp.

/// The arithmetic of SoftwareTiles, 16 columns at a time.
struct VectorTileArithmetic {
  static constexpr float kSmallest = 0x1p-126f;

  /// Lane by lane zero of the same sign where x is subnormal.
  CORBEL_CPU_INLINE static Floats flushed(Floats x) {
    const Floats magnitude = from_bits(bit_and(bits(x), broadcast_int(0x7fffffff)));
    const Floats sign = from_bits(bit_and(bits(x), broadcast_int(INT32_MIN)));
    return select_less(magnitude, broadcast(kSmallest), sign, x);
  }
  /// x * y + sum, tiny results flushed. What rounds up to the smallest normal number in the grid of subnormals is tiny
  /// where it would be below with an exponent of any size: told apart at 2^24 times the size.
  CORBEL_CPU_INLINE static Floats fused_step(Floats x, Floats y, Floats sum) {
    const Floats near = fma(x, y, sum);
    const Floats magnitude = from_bits(bit_and(bits(near), broadcast_int(0x7fffffff)));
    Floats result = flushed(near);
    if (_mm512_cmp_ps_mask(magnitude.v, broadcast(kSmallest).v, _CMP_EQ_OQ) != 0) [[unlikely]] {
      const Floats large = broadcast(0x1p24f), scaled = fma(mul(x, large), y, mul(sum, large));
      const Floats size = from_bits(bit_and(bits(scaled), broadcast_int(0x7fffffff)));
      const Floats sign = from_bits(bit_and(bits(near), broadcast_int(INT32_MIN)));
      const Floats corrected = select_less(size, broadcast(0x1p-102f), sign, result);
      // Elsewhere the larger size may have overflowed.
      result = select_less(broadcast(kSmallest), magnitude, result, corrected);
    }
    return result;
  }

  static void tdpbf16ps(float* sums, const std::uint16_t* a, const std::uint16_t* b, std::size_t num_rows) noexcept {
    alignas(64) float even_weights[16][16], odd_weights[16][16];
    for (std::size_t k = 0; k < 16; ++k) {
      const Ints pairs = {_mm512_loadu_si512(b + k * 32)};
      store(even_weights[k], flushed(from_bits(shift_left<16>(pairs))));
      store(odd_weights[k], flushed(from_bits(bit_and(pairs, broadcast_int(-65536)))));
    }
    for (std::size_t m = 0; m < num_rows; ++m, a += 32) {
      Floats even = zero(), odd = zero();
      for (std::size_t k = 0; k < 16; ++k) {
        std::uint32_t pair;
        __builtin_memcpy(&pair, a + 2 * k, sizeof pair);
        const Floats first = flushed(from_bits(broadcast_int(static_cast<std::int32_t>(pair << 16))));
        const Floats second = flushed(from_bits(broadcast_int(static_cast<std::int32_t>(pair & 0xffff0000u))));
        even = fused_step(first, load(even_weights[k]), even);
        odd = fused_step(second, load(odd_weights[k]), odd);
      }
      float* to = sums + m * 16;
      store(to, flushed(add(flushed(load(to)), flushed(add(even, odd)))));
    }
  }
};

/// Four columns of 16 rows of a record as float32, equal to the dequantization bit for bit: those of quad kQuad. The
/// only part that knows what records of quantized types hold (packed.hpp); `factors` are those of the 256 columns.
template <DType kType, std::size_t kQuad>
CORBEL_CPU_INLINE void expand_quad(const std::byte* record, const Factors& factors, Floats (&columns)[4]) {
  constexpr PackedFormat kFormat = packed_format(kType);
  const Codes codes = quad_codes<kType, static_cast<int>(kQuad)>(record);
  constexpr std::size_t kAt =
      kFormat.code_bytes() + kQuad * 4 / kFormat.scale_columns * kGroupRows * kFormat.scale_bytes;
  const Floats scales = load_scales<kType>(record + kAt, factors.scale);
  const Ints words = {codes.v}, byte = broadcast_int(0xff);
  const Ints numbers[4] = {bit_and(words, byte), bit_and(shift_right<8>(words), byte),
                           bit_and(shift_right<16>(words), byte), shift_right<24>(words)};
  CORBEL_CPU_UNROLL
  for (std::size_t i = 0; i < 4; ++i) {
    columns[i] = mul(scales, to_floats(sub(numbers[i], broadcast_int(kFormat.zero()))));
    if constexpr (kFormat.has_minimum)
      columns[i] = add(columns[i], load_scales<kType>(record + kAt + kFormat.scales_bytes(), factors.minimum));
  }
}

/// Finite numbers to bfloat16, to nearest even, in the high halves.
CORBEL_CPU_INLINE Ints rounded_bits(Floats x) {
  const Ints odd = bit_and(shift_right<16>(bits(x)), broadcast_int(1));
  return add(bits(x), add(odd, broadcast_int(0x7fff)));
}
/// Two columns as a row of a tile.
CORBEL_CPU_INLINE void store_pair(std::uint16_t* row, Floats even, Floats odd) {
  const Ints pairs = bit_or(shift_right<16>(rounded_bits(even)), bit_and(rounded_bits(odd), broadcast_int(-65536)));
  _mm512_storeu_si512(row, pairs.v);
}

template <DType kType, std::size_t kQuad = 0>
CORBEL_CPU_INLINE void expand_quads(const std::byte* record, const Factors& factors, std::uint16_t* tile) {
  if constexpr (kQuad < kBlockColumns / 4) {
    Floats columns[4];
    expand_quad<kType, kQuad>(record, factors, columns);
    store_pair(tile + kQuad * 64, columns[0], columns[1]);
    store_pair(tile + kQuad * 64 + 32, columns[2], columns[3]);
    expand_quads<kType, kQuad + 1>(record, factors, tile);
  }
}

/// TileTable::expand of a type.
template <DType kType>
inline void expand(const std::byte* group, std::size_t first_step, std::size_t num_steps, std::size_t k,
                   std::uint16_t* tiles) noexcept {
  constexpr PackedFormat kFormat = packed_format(kType);
  for (std::size_t step = first_step; step < first_step + num_steps; ++step, tiles += 2 * kTileWords) {
    if constexpr (kFormat.quantized()) {
      const std::size_t column = step * kTileStep;
      const std::size_t nest = record_offset(kFormat, column / kNestColumns * kNestColumns) - kFormat.header_bytes();
      expand_quads<kType>(group + record_offset(kFormat, column), load_factors<kType>(group + nest), tiles);
    } else if constexpr (kFormat.coded()) {
      const std::byte* record = group + step * kFormat.record_bytes();
      const Floats scales = load(reinterpret_cast<const float*>(record));
      const std::byte* codes = record + kGroupRows * sizeof(float);
      for (std::size_t i = 0; i < kTileStep; i += 2)
        store_pair(tiles + i * 16, mul(load_coded<kFormat.float_code>(codes, i), scales),
                   mul(load_coded<kFormat.float_code>(codes, i + 1), scales));
    } else {
      const std::byte* column = group + step * kTileStep * kGroupRows * plain_bytes(kType);
      for (std::size_t i = 0; i < kTileStep; i += 2, column += 2 * kGroupRows * plain_bytes(kType)) {
        const std::size_t at = step * kTileStep + i;
        const Floats even = at < k ? load_weights<kType>(column) : zero();
        const Floats odd = at + 1 < k ? load_weights<kType>(column + kGroupRows * plain_bytes(kType)) : zero();
        store_pair(tiles + i * 16, even, odd);
      }
    }
  }
}

/// 16 numbers to bfloat16, to nearest even; a NaN stays one.
CORBEL_CPU_INLINE void store_rounded(std::uint16_t* to, Floats x) {
  const __m512i finite = shift_right<16>(rounded_bits(x)).v;
  const __m512i words =
      _mm512_mask_mov_epi32(finite, _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc0));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(words));
}

inline void tile_rows(const float* x, const LinearRow* rows, std::size_t num_rows, std::size_t k,
                      std::uint16_t* out) noexcept {
  const std::size_t steps = tile_steps(k);
  for (std::size_t block = 0; block < num_rows; block += kTileRows, out += steps * kTileWords) {
    for (std::size_t r = 0; r < kTileRows; ++r) {
      std::uint16_t* to = out + r * kTileStep;
      if (block + r >= num_rows) {
        for (std::size_t step = 0; step < steps; ++step) __builtin_memset(to + step * kTileWords, 0, kTileRowBytes);
        continue;
      }
      const float* from = x + rows[block + r].x;
      std::size_t at = 0;
      for (; at + kTileStep <= k; at += kTileStep, to += kTileWords) {
        store_rounded(to, load(from + at));
        store_rounded(to + 16, load(from + at + 16));
      }
      if (at < k) {
        float last[kTileStep] = {};
        __builtin_memcpy(last, from + at, (k - at) * sizeof(float));
        store_rounded(to, load(last));
        store_rounded(to + 16, load(last + 16));
      }
    }
  }
}

/// Adds up `num_steps` steps of one or two blocks of 16 rows and of one or two groups of 16 columns: into `sums`
/// [2][2][16][16], by block and group.
template <bool kTwoBlocks, bool kTwoGroups, class Tiles>
inline void multiply_tiles(Tiles& tiles, const std::uint16_t* x, std::size_t block_step, const std::uint16_t* weights,
                           std::size_t num_steps, bool go_on, float* sums) noexcept {
  if (go_on) {
    tiles.template load<4>(sums, kTileRowBytes);
    if constexpr (kTwoGroups) tiles.template load<5>(sums + kTileSums, kTileRowBytes);
    if constexpr (kTwoBlocks) tiles.template load<6>(sums + 2 * kTileSums, kTileRowBytes);
    if constexpr (kTwoBlocks && kTwoGroups) tiles.template load<7>(sums + 3 * kTileSums, kTileRowBytes);
  } else {
    tiles.template zero<4>();
    if constexpr (kTwoGroups) tiles.template zero<5>();
    if constexpr (kTwoBlocks) tiles.template zero<6>();
    if constexpr (kTwoBlocks && kTwoGroups) tiles.template zero<7>();
  }
  // The loads of a step's second operands lie between its products.
  for (std::size_t step = 0; step < num_steps; ++step, x += kTileWords, weights += 2 * kTileWords) {
    tiles.template load<0>(x, kTileRowBytes);
    tiles.template load<2>(weights, kTileRowBytes);
    tiles.template dot_bf16<4, 0, 2>();
    if constexpr (kTwoGroups) {
      tiles.template load<3>(weights + kTileWords, kTileRowBytes);
      tiles.template dot_bf16<5, 0, 3>();
    }
    if constexpr (kTwoBlocks) {
      tiles.template load<1>(x + block_step, kTileRowBytes);
      tiles.template dot_bf16<6, 1, 2>();
      if constexpr (kTwoGroups) tiles.template dot_bf16<7, 1, 3>();
    }
  }
  tiles.template store<4>(sums, kTileRowBytes);
  if constexpr (kTwoGroups) tiles.template store<5>(sums + kTileSums, kTileRowBytes);
  if constexpr (kTwoBlocks) tiles.template store<6>(sums + 2 * kTileSums, kTileRowBytes);
  if constexpr (kTwoBlocks && kTwoGroups) tiles.template store<7>(sums + 3 * kTileSums, kTileRowBytes);
}

/// Sums of up to 32 rows from `row` on to the columns of the panel that begins `first` lanes after the first group's
/// first: lanes [begin, end) of its 32.
CORBEL_CPU_INLINE void finish_tiles(const TileLinearArgs& a, std::size_t row, std::size_t num_rows, std::size_t first,
                                    std::size_t begin, std::size_t end, const float* sums) {
  for (std::size_t r = 0; r < num_rows; ++r) {
    const float* own = sums + r / kTileRows * 2 * kTileSums + r % kTileRows * 16;
    float* out = a.out + a.rows[row + r].out;
    for (std::size_t half = 0; half < kTilePanel; half += 16, own += kTileSums) {
      const std::size_t from = begin > half ? begin - half : 0, to = end < half ? 0 : end - half < 16 ? end - half : 16;
      if (from >= to) continue;
      const std::size_t column = first + half + from - a.first_lane;
      if (to - from == 16) {
        const Floats sum = load(own);
        store(out + column, a.bias == nullptr ? sum : add(sum, load(a.bias + column)));
      } else {
        for (std::size_t i = 0; i < to - from; ++i)
          out[column + i] = a.bias == nullptr ? own[from + i] : own[from + i] + a.bias[column + i];
      }
    }
  }
}

template <class Tiles>
inline void linear_on_tiles(const TileLinearArgs& a) noexcept {
  const std::size_t steps = tile_steps(a.k), lanes = a.first_lane + a.num_columns;
  auto* const weights = reinterpret_cast<std::uint16_t*>(a.scratch);
  auto* const all_sums = reinterpret_cast<float*>(a.scratch + tile_weights_bytes(a.k));
  const auto block_rows = [&](std::size_t row) {
    return row >= a.num_rows ? 0 : a.num_rows - row < kTileRows ? a.num_rows - row : kTileRows;
  };
  const std::size_t block_step = steps * kTileWords;
  Tiles tiles(kTileRows, kTileRows);
  bool whole = true;  // as the tiles are configured
  for (std::size_t first = 0; first < lanes; first += kTilePanel) {
    const std::byte* group = a.weights + first / kGroupRows * a.group_bytes;
    const bool two_groups = lanes - first > kGroupRows;
    for (std::size_t step = 0; step < steps; step += kMaxPanelSteps) {
      const std::size_t num_steps = steps - step < kMaxPanelSteps ? steps - step : kMaxPanelSteps;
      a.expand(group, step, num_steps, a.k, weights);
      if (two_groups) a.expand(group + a.group_bytes, step, num_steps, a.k, weights + kTileWords);
      for (std::size_t row = 0; row < a.num_rows; row += 2 * kTileRows) {
        const std::size_t rows0 = block_rows(row), rows1 = block_rows(row + kTileRows);
        const bool wants_whole = rows0 + rows1 == 2 * kTileRows;
        if (wants_whole != whole) tiles.configure(rows0, rows1 == 0 ? kTileRows : rows1);
        whole = wants_whole;
        float* const sums = all_sums + (steps > kMaxPanelSteps ? row * kTilePanel : 0);
        const std::uint16_t* x = a.x + row / kTileRows * block_step + step * kTileWords;
        if (rows1 != 0 && two_groups) {
          multiply_tiles<true, true>(tiles, x, block_step, weights, num_steps, step != 0, sums);
        } else if (rows1 != 0) {
          multiply_tiles<true, false>(tiles, x, block_step, weights, num_steps, step != 0, sums);
        } else if (two_groups) {
          multiply_tiles<false, true>(tiles, x, block_step, weights, num_steps, step != 0, sums);
        } else {
          multiply_tiles<false, false>(tiles, x, block_step, weights, num_steps, step != 0, sums);
        }
        if (step + num_steps == steps)
          finish_tiles(a, row, rows0 + rows1, first, first == 0 ? a.first_lane : 0,
                       lanes - first < kTilePanel ? lanes - first : kTilePanel, sums);
      }
    }
  }
}

/// float32 keeps its own kernel: its values have 16 bits more than bfloat16.
template <DType kType>
constexpr auto expander() {
  constexpr PackedFormat kFormat = packed_format(kType);
  decltype(TileLinearArgs::expand) function = nullptr;
  if constexpr (kFormat.quantized() || kFormat.coded() || kFormat.plain == DType::kBF16) function = &expand<kType>;
  return function;
}

template <class Tiles, std::size_t... kTypes>
constexpr TileTable make_tile_table(std::index_sequence<kTypes...>) {
  return {{expander<kernel_type(static_cast<DType>(kTypes))>()...}, &tile_rows, &linear_on_tiles<Tiles>};
}

inline constexpr TileTable kHardwareTable = make_tile_table<HardwareTiles>(std::make_index_sequence<kNumDTypes>());
inline constexpr TileTable kEmulatedTable =
    make_tile_table<SoftwareTiles<VectorTileArithmetic>>(std::make_index_sequence<kNumDTypes>());
