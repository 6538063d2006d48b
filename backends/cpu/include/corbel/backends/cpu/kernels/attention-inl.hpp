// Attention through block tables, and writing into the cache.
//
// Keys of one kv head in a block: [block_tokens / 16][head_dim][16]; values: [block_tokens][value_dim], or the first
// columns of the keys. A query walks tiles of 64 positions at absolute multiples of 64. Per tile: scores (float32 over
// rising d), the running maximum, exp, the sum in 16 lanes, then the outputs over rising position. Nothing depends on
// the block size or on the queries beside; of a tile only positions that the query sees are used.

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
  const std::byte* values[kTileTokens / kSubtileTokens];  ///< [16][value_dim]; null where values are in the keys
};

/// One query vector. What it has seen so far are `maximum`, `sum` and its outputs, which are not yet divided by `sum`.
struct Query {
  const float* q;
  float* out;
  float slope;
  std::int32_t position;
  float maximum;
  float sum;
  // In the tile at hand:
  std::int32_t begin, end;  ///< the positions that it sees
  float factor;             ///< what its outputs so far are multiplied by, for the maximum may have risen
  float weights[kTileTokens];
};

/// The weights of one tile for kRows queries which see the same positions of it. `start` is the tile's first position.
template <hal::KvType kType, std::size_t kRows>
inline void score_tile(const AttentionArgs& a, const KvTile& tile, std::int32_t start, Query* queries) noexcept {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  const std::int32_t begin = queries[0].begin, end = queries[0].end;
  const std::int32_t first_subtile = begin / kSubtileTokens;
  const std::int32_t end_subtile = (end + kSubtileTokens - 1) / kSubtileTokens;

  const float* q[kRows];
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) q[r] = queries[r].q;
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
      if (a.slopes != nullptr) {
        const auto first = static_cast<float>(start + s * kSubtileTokens - queries[r].position);
        score = fma(broadcast(queries[r].slope), add(broadcast(first), load(kLaneNumbers)), score);
      }
      store(queries[r].weights + s * kSubtileTokens, score);
    }
  }

  for (std::size_t r = 0; r < kRows; ++r) {
    Query& query = queries[r];
    float* w = query.weights;
    // Positions outside [begin, end) get a weight of 0, whatever bits the cache holds there.
    for (std::int32_t t = first_subtile * kSubtileTokens; t < begin; ++t) w[t] = -__builtin_inff();
    for (std::int32_t t = end; t < end_subtile * kSubtileTokens; ++t) w[t] = -__builtin_inff();
    Floats largest = broadcast(query.maximum);
    for (std::int32_t s = first_subtile; s < end_subtile; ++s) largest = max(load(w + s * kSubtileTokens), largest);
    const float maximum = max_lanes(largest);
    Floats sum = zero();
    for (std::int32_t s = first_subtile; s < end_subtile; ++s) {
      const Floats e = exp(sub(load(w + s * kSubtileTokens), broadcast(maximum)));
      store(w + s * kSubtileTokens, e);
      sum = add(sum, e);
    }
    // Later tiles rarely bring a new maximum; then the factor is 1, which changes nothing.
    query.factor = query.maximum == maximum ? 1.0f : first_lane(exp(broadcast(query.maximum - maximum)));
    query.sum = query.sum * query.factor + sum_lanes(sum);
    query.maximum = maximum;
  }
}

/// Adds the weighted values of the tile to the outputs [first, first + width) of kRows queries which see the same
/// positions. subtiles[s] is column `first` of the first token of a subtile; tokens lie `stride` bytes apart.
template <hal::KvType kType, std::size_t kRows>
inline void mix_tile(Query* queries, const std::byte* const* subtiles, std::size_t stride, std::size_t first,
                     std::size_t width) noexcept {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  const std::int32_t begin = queries[0].begin, end = queries[0].end;
  const std::int32_t first_subtile = begin / kSubtileTokens;
  const std::int32_t end_subtile = (end + kSubtileTokens - 1) / kSubtileTokens;
  float* out[kRows];
  const float* weights[kRows];
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    out[r] = queries[r].out + first;
    weights[r] = queries[r].weights;
  }
  for (std::size_t d = 0; d < width; d += 16) {
    const std::size_t n = width - d < 16 ? width - d : 16;
    Floats sums[kRows];
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r)
      sums[r] = mul(n == 16 ? load(out[r] + d) : load_part(out[r] + d, n), broadcast(queries[r].factor));
    for (std::int32_t s = first_subtile; s < end_subtile; ++s) {
      const std::int32_t from = s * kSubtileTokens < begin ? begin : s * kSubtileTokens;
      const std::int32_t to = (s + 1) * kSubtileTokens < end ? (s + 1) * kSubtileTokens : end;
      const std::byte* value = subtiles[s] + static_cast<std::size_t>(from - s * kSubtileTokens) * stride + d * kBytes;
      for (std::int32_t t = from; t < to; ++t, value += stride) {
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

// Any number of queries with the same visible range.

template <hal::KvType kType, std::size_t kRows>
CORBEL_CPU_INLINE void score_rows(const AttentionArgs& a, const KvTile& tile, std::int32_t start, Query* queries,
                                  std::size_t count) {
  std::size_t i = 0;
  for (; i + kRows <= count; i += kRows) score_tile<kType, kRows>(a, tile, start, queries + i);
  if constexpr (kRows > 1) score_rows<kType, kRows - 1>(a, tile, start, queries + i, count - i);
}
template <hal::KvType kType, std::size_t kRows>
CORBEL_CPU_INLINE void mix_rows(Query* queries, const std::byte* const* subtiles, std::size_t stride, std::size_t first,
                                std::size_t width, std::size_t count) {
  std::size_t i = 0;
  for (; i + kRows <= count; i += kRows) mix_tile<kType, kRows>(queries + i, subtiles, stride, first, width);
  if constexpr (kRows > 1) mix_rows<kType, kRows - 1>(queries + i, subtiles, stride, first, width, count - i);
}

/// Neighbours in the array of queries that see the same positions of a tile.
struct QueryRun {
  std::size_t first;
  std::size_t count;
};

/// mix_rows where values are the first columns of the keys: 16 columns at a time are turned into float32 rows, which
/// all queries then read.
template <hal::KvType kType>
inline void mix_keys(const AttentionArgs& a, const KvTile& tile, Query* queries, const QueryRun* runs,
                     std::size_t num_runs) noexcept {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  constexpr std::int32_t kSubtiles = kTileTokens / kSubtileTokens;
  std::int32_t begin = kTileTokens, end = 0;
  for (std::size_t i = 0; i < num_runs; ++i) {
    const Query& query = queries[runs[i].first];
    begin = query.begin < begin ? query.begin : begin;
    end = query.end > end ? query.end : end;
  }
  alignas(64) float columns[kTileTokens * 16];
  const std::byte* subtiles[kSubtiles];
  for (std::int32_t s = 0; s < kSubtiles; ++s)
    subtiles[s] = reinterpret_cast<const std::byte*>(columns + s * kSubtileTokens * 16);
  for (std::size_t d = 0; d < a.value_dim; d += 16) {
    const std::size_t n = a.value_dim - d < 16 ? a.value_dim - d : 16;
    for (std::int32_t s = begin / kSubtileTokens; s * kSubtileTokens < end; ++s) {
      Floats rows[16];
      CORBEL_CPU_UNROLL
      for (std::size_t i = 0; i < 16; ++i)
        rows[i] = load_kv<kType>(tile.keys[s] + (d + (i < n ? i : n - 1)) * 16 * kBytes);
      store_transposed(columns + s * kSubtileTokens * 16, rows);
    }
    for (std::size_t i = 0; i < num_runs; ++i)
      mix_rows<hal::KvType::kF32, kMaxRows>(queries + runs[i].first, subtiles, 16 * sizeof(float), d, n, runs[i].count);
  }
}

template <hal::KvType kType>
inline void attention(const AttentionArgs& a) noexcept {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  const bool values_in_keys = a.values == nullptr;
  alignas(64) Query queries[kMaxAttentionRows];
  const std::size_t num_queries = a.num_rows * a.num_heads;
  std::int32_t first = a.rows[0].first, last = a.rows[0].last;
  for (std::size_t row = 0; row < a.num_rows; ++row) {
    first = a.rows[row].first < first ? a.rows[row].first : first;
    last = a.rows[row].last > last ? a.rows[row].last : last;
    for (std::size_t h = 0; h < a.num_heads; ++h) {
      Query& query = queries[row * a.num_heads + h];
      query.q = a.rows[row].q + h * a.head_dim;
      query.out = a.rows[row].out + h * a.value_dim;
      query.slope = a.slopes == nullptr ? 0.0f : a.slopes[h];
      query.position = a.rows[row].last;
      // A sink is a score without a value.
      query.maximum = a.sinks == nullptr ? -__builtin_inff() : a.sinks[h];
      query.sum = a.sinks == nullptr ? 0.0f : 1.0f;
      for (std::size_t d = 0; d < a.value_dim; ++d) query.out[d] = 0;
    }
  }
  for (std::int32_t start = first / kTileTokens * kTileTokens; start <= last; start += kTileTokens) {
    KvTile tile;
    for (std::int32_t s = 0; s < kTileTokens / kSubtileTokens; ++s) {
      const std::int32_t position = start + s * kSubtileTokens;
      if (position > last || position + kSubtileTokens <= first) continue;
      const std::size_t token = static_cast<std::size_t>(position) % a.block_tokens;
      const std::size_t block =
          static_cast<std::size_t>(a.table[static_cast<std::size_t>(position) / a.block_tokens].block);
      tile.keys[s] = a.keys + block * a.block_bytes + token * a.head_dim * kBytes;
      tile.values[s] = values_in_keys ? nullptr : a.values + block * a.block_bytes + token * a.value_dim * kBytes;
    }
    // Queries that see the same of the tile go together: most see all of it, and the heads of a row see the same.
    QueryRun runs[kMaxAttentionRows];
    std::size_t num_runs = 0;
    bool extend = false;
    for (std::size_t i = 0; i < num_queries; ++i) {
      const AttentionRow& row = a.rows[i / a.num_heads];
      Query& query = queries[i];
      query.begin = row.first > start ? row.first - start : 0;
      query.end = row.last - start + 1 < kTileTokens ? row.last - start + 1 : kTileTokens;
      if (query.begin >= query.end) {
        extend = false;
      } else if (extend && query.begin == queries[i - 1].begin && query.end == queries[i - 1].end) {
        ++runs[num_runs - 1].count;
      } else {
        runs[num_runs++] = {i, 1};
        extend = true;
      }
    }
    for (std::size_t i = 0; i < num_runs; ++i) {
      score_rows<kType, kMaxRows>(a, tile, start, queries + runs[i].first, runs[i].count);
      if (!values_in_keys) {
        mix_rows<kType, kMaxRows>(queries + runs[i].first, tile.values, a.value_dim * kBytes, 0, a.value_dim,
                                  runs[i].count);
      }
    }
    if (values_in_keys) mix_keys<kType>(a, tile, queries, runs, num_runs);
  }
  for (std::size_t i = 0; i < num_queries; ++i)
    scale_row(1.0f / queries[i].sum, queries[i].out, queries[i].out, a.value_dim);
}

/// The first n (at most 16) elements of `in` as the cache keeps them.
template <hal::KvType kType>
CORBEL_CPU_INLINE void round_kv(const float* in, std::size_t n, std::byte* out) {
  if constexpr (kType == hal::KvType::kF32) {
    __builtin_memcpy(out, in, n * 4);
  } else {
    std::uint16_t words[16];
    if constexpr (kType == hal::KvType::kF16) {
      store_f16(words, load_part(in, n));
    } else {
      for (std::size_t i = 0; i < n; ++i) words[i] = f32_to_bf16(in[i]);
    }
    __builtin_memcpy(out, words, n * 2);
  }
}

template <hal::KvType kType>
inline void kv_append(const KvAppendArgs& a) noexcept {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  const std::size_t subtile = a.token / kSubtileTokens, lane = a.token % kSubtileTokens;
  for (std::size_t head = 0; head < a.kv_heads; ++head) {
    const float* k = a.k + head * a.head_dim;
    std::byte* key = a.keys + ((head * a.block_tokens + subtile * kSubtileTokens) * a.head_dim + lane) * kBytes;
    for (std::size_t d = 0; d < a.head_dim; d += 16) {
      const std::size_t n = a.head_dim - d < 16 ? a.head_dim - d : 16;
      std::byte piece[16 * kBytes];
      round_kv<kType>(k + d, n, piece);
      for (std::size_t i = 0; i < n; ++i) __builtin_memcpy(key + (d + i) * 16 * kBytes, piece + i * kBytes, kBytes);
    }
    if (a.v == nullptr) continue;
    const float* v = a.v + head * a.value_dim;
    std::byte* value = a.values + (head * a.block_tokens + a.token) * a.value_dim * kBytes;
    for (std::size_t d = 0; d < a.value_dim; d += 16)
      round_kv<kType>(v + d, a.value_dim - d < 16 ? a.value_dim - d : 16, value + d * kBytes);
  }
}
