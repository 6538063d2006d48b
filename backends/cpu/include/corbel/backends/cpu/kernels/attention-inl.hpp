// Attention through block tables, and writing into the cache.
//
// Keys of one kv head in a block: [block_tokens / 16][head_dim][16]; values: [block_tokens][head_dim]. A query walks
// tiles of 64 positions at absolute multiples of 64. Per tile: scores (float32 over rising d), the running maximum,
// exp, the sum in 16 lanes, then the outputs over rising position. Nothing depends on the block size or on the queries
// beside; of a tile only positions that the query sees are used.

template <hal::KvType kType>
CORBEL_CPU_INLINE Floats load_kv(const std::byte* p) {
  if constexpr (kType == hal::KvType::kF32) return load(reinterpret_cast<const float*>(p));
  if constexpr (kType == hal::KvType::kF16) return load_f16(p);
  if constexpr (kType == hal::KvType::kBF16) return load_bf16(p);
}
template <hal::KvType kType>
CORBEL_CPU_INLINE Floats load_kv_part(const std::byte* p, std::size_t n) {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  std::byte lanes[64] = {};
  __builtin_memcpy(lanes, p, n * kBytes);
  return load_kv<kType>(lanes);
}

/// Where the subtiles of one tile are.
struct KvTile {
  const std::byte* keys[kTileTokens / kSubtileTokens];    ///< [head_dim][16]
  const std::byte* values[kTileTokens / kSubtileTokens];  ///< [16][head_dim]
};

/// A query's state between tiles; the outputs so far are in its row of `out`, not yet divided by `sum`.
struct QueryState {
  float maximum;
  float sum;
};

/// One tile for kRows queries which see its positions [begin, end) (within the tile).
template <hal::KvType kType, std::size_t kRows>
inline void attend_tile(const AttentionArgs& a, const KvTile& tile, std::int32_t begin, std::int32_t end,
                        const float* const* q, float* const* out, QueryState* const* states) noexcept {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  alignas(64) float weights[kRows][kTileTokens];
  const std::int32_t first_subtile = begin / kSubtileTokens;
  const std::int32_t end_subtile = (end + kSubtileTokens - 1) / kSubtileTokens;

  for (std::int32_t s = first_subtile; s < end_subtile; ++s) {
    Floats scores[kRows];
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) scores[r] = zero();
    const std::byte* key = tile.keys[s];
    for (std::size_t d = 0; d < a.head_dim; ++d, key += 16 * kBytes) {
      const Floats k = load_kv<kType>(key);
      CORBEL_CPU_UNROLL
      for (std::size_t r = 0; r < kRows; ++r) scores[r] = fma(k, broadcast(q[r][d]), scores[r]);
    }
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      Floats score = mul(scores[r], broadcast(a.scale));
      if (a.softcap != 0) {
        const Floats cap = broadcast(a.softcap);
        score = mul(cap, tanh(div(score, cap)));
      }
      store(weights[r] + s * kSubtileTokens, score);
    }
  }

  float factors[kRows];
  for (std::size_t r = 0; r < kRows; ++r) {
    float* w = weights[r];
    // Positions outside [begin, end) get a weight of 0, whatever bits the cache holds there.
    for (std::int32_t t = first_subtile * kSubtileTokens; t < begin; ++t) w[t] = -__builtin_inff();
    for (std::int32_t t = end; t < end_subtile * kSubtileTokens; ++t) w[t] = -__builtin_inff();
    Floats largest = broadcast(states[r]->maximum);
    for (std::int32_t s = first_subtile; s < end_subtile; ++s) largest = max(load(w + s * kSubtileTokens), largest);
    const float maximum = max_lanes(largest);
    Floats sum = zero();
    for (std::int32_t s = first_subtile; s < end_subtile; ++s) {
      const Floats e = exp(sub(load(w + s * kSubtileTokens), broadcast(maximum)));
      store(w + s * kSubtileTokens, e);
      sum = add(sum, e);
    }
    // Later tiles rarely bring a new maximum; then the factor is 1, which changes nothing.
    factors[r] = states[r]->maximum == maximum ? 1.0f : first_lane(exp(broadcast(states[r]->maximum - maximum)));
    states[r]->sum = states[r]->sum * factors[r] + sum_lanes(sum);
    states[r]->maximum = maximum;
  }

  for (std::size_t d = 0; d < a.head_dim; d += 16) {
    const std::size_t n = a.head_dim - d < 16 ? a.head_dim - d : 16;
    Floats sums[kRows];
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r)
      sums[r] = mul(n == 16 ? load(out[r] + d) : load_part(out[r] + d, n), broadcast(factors[r]));
    for (std::int32_t s = first_subtile; s < end_subtile; ++s) {
      const std::int32_t from = s * kSubtileTokens < begin ? begin : s * kSubtileTokens;
      const std::int32_t to = (s + 1) * kSubtileTokens < end ? (s + 1) * kSubtileTokens : end;
      const std::byte* value =
          tile.values[s] + (static_cast<std::size_t>(from - s * kSubtileTokens) * a.head_dim + d) * kBytes;
      for (std::int32_t t = from; t < to; ++t, value += a.head_dim * kBytes) {
        const Floats v = n == 16 ? load_kv<kType>(value) : load_kv_part<kType>(value, n);
        CORBEL_CPU_UNROLL
        for (std::size_t r = 0; r < kRows; ++r) sums[r] = fma(v, broadcast(weights[r][t]), sums[r]);
      }
    }
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      if (n == 16) {
        store(out[r] + d, sums[r]);
      } else {
        store_part(out[r] + d, sums[r], n);
      }
    }
  }
}

/// Tiles for any number of queries with the same visible range.
template <hal::KvType kType, std::size_t kRows>
CORBEL_CPU_INLINE void attend_rows(const AttentionArgs& a, const KvTile& tile, std::int32_t begin, std::int32_t end,
                                   const float* const* q, float* const* out, QueryState* const* states,
                                   std::size_t count) {
  std::size_t i = 0;
  for (; i + kRows <= count; i += kRows) attend_tile<kType, kRows>(a, tile, begin, end, q + i, out + i, states + i);
  if constexpr (kRows > 1) attend_rows<kType, kRows - 1>(a, tile, begin, end, q + i, out + i, states + i, count - i);
}

template <hal::KvType kType>
inline void attention(const AttentionArgs& a) noexcept {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  QueryState states[kMaxAttentionRows];
  std::int32_t first = a.rows[0].first, last = a.rows[0].last;
  for (std::size_t row = 0; row < a.num_rows; ++row) {
    first = a.rows[row].first < first ? a.rows[row].first : first;
    last = a.rows[row].last > last ? a.rows[row].last : last;
    for (std::size_t i = 0; i < a.num_heads * a.head_dim; ++i) a.rows[row].out[i] = 0;
    for (std::size_t h = 0; h < a.num_heads; ++h) states[row * a.num_heads + h] = {-__builtin_inff(), 0};
  }
  for (std::int32_t start = first / kTileTokens * kTileTokens; start <= last; start += kTileTokens) {
    KvTile tile;
    for (std::int32_t s = 0; s < kTileTokens / kSubtileTokens; ++s) {
      const std::int32_t position = start + s * kSubtileTokens;
      if (position > last || position + kSubtileTokens <= first) continue;
      const std::size_t token = static_cast<std::size_t>(position) % a.block_tokens;
      const std::size_t block =
          static_cast<std::size_t>(a.table[static_cast<std::size_t>(position) / a.block_tokens].block);
      const std::size_t offset = block * a.block_bytes + token * a.head_dim * kBytes;
      tile.keys[s] = a.keys + offset;
      tile.values[s] = a.values + offset;
    }
    // Queries that see the whole tile go together; the others row by row, for the heads of a row see the same.
    const float* q[kMaxAttentionRows];
    float* out[kMaxAttentionRows];
    QueryState* at[kMaxAttentionRows];
    std::size_t count = 0;
    for (std::size_t row = 0; row < a.num_rows; ++row) {
      const std::int32_t begin = a.rows[row].first > start ? a.rows[row].first - start : 0;
      const std::int32_t end = a.rows[row].last - start + 1 < kTileTokens ? a.rows[row].last - start + 1 : kTileTokens;
      if (begin >= end) continue;
      const bool whole = begin == 0 && end == kTileTokens;
      const std::size_t own = count;
      for (std::size_t h = 0; h < a.num_heads; ++h, ++count) {
        q[count] = a.rows[row].q + h * a.head_dim;
        out[count] = a.rows[row].out + h * a.head_dim;
        at[count] = &states[row * a.num_heads + h];
      }
      if (!whole) {
        attend_rows<kType, kMaxRows>(a, tile, begin, end, q + own, out + own, at + own, a.num_heads);
        count = own;
      }
    }
    attend_rows<kType, kMaxRows>(a, tile, 0, kTileTokens, q, out, at, count);
  }
  for (std::size_t row = 0; row < a.num_rows; ++row)
    for (std::size_t h = 0; h < a.num_heads; ++h)
      scale_row(1.0f / states[row * a.num_heads + h].sum, a.rows[row].out + h * a.head_dim,
                a.rows[row].out + h * a.head_dim, a.head_dim);
}

template <hal::KvType kType>
inline void kv_append(const KvAppendArgs& a) noexcept {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  const std::size_t subtile = a.token / kSubtileTokens, lane = a.token % kSubtileTokens;
  for (std::size_t head = 0; head < a.kv_heads; ++head) {
    const float* k = a.k + head * a.head_dim;
    const float* v = a.v + head * a.head_dim;
    const std::size_t plane = head * a.block_tokens * a.head_dim;
    std::byte* key = a.keys + (plane + subtile * kSubtileTokens * a.head_dim + lane) * kBytes;
    std::byte* value = a.values + (plane + a.token * a.head_dim) * kBytes;
    for (std::size_t d = 0; d < a.head_dim; d += 16) {
      const std::size_t n = a.head_dim - d < 16 ? a.head_dim - d : 16;
      if constexpr (kType == hal::KvType::kF32) {
        for (std::size_t i = 0; i < n; ++i) __builtin_memcpy(key + (d + i) * 16 * kBytes, k + d + i, kBytes);
        __builtin_memcpy(value + d * kBytes, v + d, n * kBytes);
      } else {
        std::uint16_t keys[16], values[16];
        if constexpr (kType == hal::KvType::kF16) {
          store_f16(keys, load_part(k + d, n));
          store_f16(values, load_part(v + d, n));
        } else {
          for (std::size_t i = 0; i < n; ++i) {
            keys[i] = f32_to_bf16(k[d + i]);
            values[i] = f32_to_bf16(v[d + i]);
          }
        }
        for (std::size_t i = 0; i < n; ++i) __builtin_memcpy(key + (d + i) * 16 * kBytes, keys + i, kBytes);
        __builtin_memcpy(value + d * kBytes, values, n * kBytes);
      }
    }
  }
}
