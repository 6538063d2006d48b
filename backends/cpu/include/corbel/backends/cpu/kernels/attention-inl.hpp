// Attention through block tables, and writing into the cache.
//
// Keys of one kv head in a block: [block_tokens / 16][head_dim][16]; values: [block_tokens][value_dim], or the first
// columns of the keys. A query walks the chunks of positions, and in a chunk the tiles of 64 positions at absolute
// multiples of 64. Per tile: scores (float32 over rising d), the running maximum, exp, the sum in 16 lanes, then the
// outputs over rising position. What the chunks give is joined from the first to the last, so that they may be
// computed apart. Nothing depends on the block size or on the queries beside; of a tile only positions that the query
// sees are used.

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

/// What positions have given so far: outputs, which belong to it, are not yet divided by `sum`.
struct Softmax {
  float maximum = -__builtin_inff();
  float sum = 0;
};

/// One query, in the chunk at hand.
struct Query {
  float* out;
  float slope;
  std::int32_t position;
  Softmax seen;
  // In the tile at hand:
  std::int32_t begin, end;  ///< the positions that it sees
  float factor;             ///< what its outputs so far are multiplied by, for the maximum may have risen
  float weights[kTileTokens];
};

/// What sums that belong to one maximum are worth under a later one.
CORBEL_CPU_INLINE float decay(float from, float to) {
  return from == to ? 1.0f : first_lane(exp(broadcast(from - to)));
}

/// The queries' vectors lie in groups of kMaxRows queries, of which the last may have fewer: [head_dim][width].
CORBEL_CPU_INLINE std::size_t group_width(const AttentionArgs& a, std::size_t first) {
  const std::size_t left = a.num_rows * a.num_heads - first;
  return left < kMaxRows ? left : kMaxRows;
}

/// How many vectors of sums a tile holds beside those of kRows rows: 1, 2 or 4 times as many stay in registers.
template <std::size_t kRows>
inline constexpr std::size_t kSumsPerRow = kMaxSums >= 4 * kRows   ? 4
                                           : kMaxSums >= 2 * kRows ? 2
                                                                   : 1;

/// Scores of the kSubtiles subtiles from number `s` on, whose first position is `start`, into the queries' weights.
/// `next` are the keys that will be read after these; `q` is the first query's column in its group, whose rows lie
/// q_stride apart.
template <hal::KvType kType, std::size_t kRows, std::size_t kSubtiles>
CORBEL_CPU_INLINE void score_subtiles(const AttentionArgs& a, const std::byte* const* keys,
                                      const std::byte* const* next, std::int32_t start, std::int32_t s, Query* queries,
                                      const float* q, std::size_t q_stride) {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  Floats scores[kRows * kSubtiles];
  CORBEL_CPU_UNROLL
  for (std::size_t i = 0; i < kRows * kSubtiles; ++i) scores[i] = zero();
  for (std::size_t d = 0; d < a.head_dim; ++d, q += q_stride) {
    Floats k[kSubtiles];
    CORBEL_CPU_UNROLL
    for (std::size_t i = 0; i < kSubtiles; ++i) {
      k[i] = load_kv<kType>(keys[i] + d * 16 * kBytes);
      __builtin_prefetch(next[i] + d * 16 * kBytes);
    }
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      const Floats x = broadcast(q[r]);
      CORBEL_CPU_UNROLL
      for (std::size_t i = 0; i < kSubtiles; ++i) scores[r * kSubtiles + i] = fma(k[i], x, scores[r * kSubtiles + i]);
    }
  }
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    CORBEL_CPU_UNROLL
    for (std::size_t i = 0; i < kSubtiles; ++i)
      store(queries[r].weights + (static_cast<std::size_t>(s) + i) * kSubtileTokens, scores[r * kSubtiles + i]);
  }
  if (a.softcap == 0 && a.slopes == nullptr && a.scale == 1) return;
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t i = 0; i < kSubtiles; ++i) {
      float* at = queries[r].weights + (static_cast<std::size_t>(s) + i) * kSubtileTokens;
      Floats score = mul(load(at), broadcast(a.scale));
      if (a.softcap != 0) {
        const Floats cap = broadcast(a.softcap);
        score = mul(cap, tanh(div(score, cap)));
      }
      if (a.slopes != nullptr) {
        const auto first =
            static_cast<float>(start + (s + static_cast<std::int32_t>(i)) * kSubtileTokens - queries[r].position);
        score = fma(broadcast(queries[r].slope), add(broadcast(first), load(kLaneNumbers)), score);
      }
      store(at, score);
    }
  }
}

/// The weights of one tile for kRows queries which see the same positions of it. `start` is the tile's first position;
/// `next` is the tile that will be read after it.
template <hal::KvType kType, std::size_t kRows>
inline void score_tile(const AttentionArgs& a, const KvTile& tile, const KvTile& next, std::int32_t start, Query* all,
                       std::size_t index) noexcept {
  Query* queries = all + index;
  const std::size_t group = index - index % kMaxRows;
  const std::size_t q_stride = group_width(a, group);
  const float* q = a.vectors + group * a.head_dim + index % kMaxRows;
  constexpr auto kWide = static_cast<std::int32_t>(kSumsPerRow<kRows>);
  const std::int32_t begin = queries[0].begin, end = queries[0].end;
  const std::int32_t first_subtile = begin / kSubtileTokens;
  const std::int32_t end_subtile = (end + kSubtileTokens - 1) / kSubtileTokens;
  std::int32_t scored = first_subtile;
  for (; scored + kWide <= end_subtile; scored += kWide)
    score_subtiles<kType, kRows, kSumsPerRow<kRows>>(a, tile.keys + scored, next.keys + scored, start, scored, queries,
                                                     q, q_stride);
  for (; scored < end_subtile; ++scored)
    score_subtiles<kType, kRows, 1>(a, tile.keys + scored, next.keys + scored, start, scored, queries, q, q_stride);

  for (std::size_t r = 0; r < kRows; ++r) {
    Query& query = queries[r];
    float* w = query.weights;
    // Positions outside [begin, end) get a weight of 0, whatever bits the cache holds there.
    for (std::int32_t t = first_subtile * kSubtileTokens; t < begin; ++t) w[t] = -__builtin_inff();
    for (std::int32_t t = end; t < end_subtile * kSubtileTokens; ++t) w[t] = -__builtin_inff();
    Floats largest = broadcast(query.seen.maximum);
    for (std::int32_t s = first_subtile; s < end_subtile; ++s) largest = max(load(w + s * kSubtileTokens), largest);
    const float maximum = max_lanes(largest);
    Floats sum = zero();
    for (std::int32_t s = first_subtile; s < end_subtile; ++s) {
      const Floats e = exp(sub(load(w + s * kSubtileTokens), broadcast(maximum)));
      store(w + s * kSubtileTokens, e);
      sum = add(sum, e);
    }
    // Later tiles rarely bring a new maximum; then the factor is 1, which changes nothing.
    query.factor = decay(query.seen.maximum, maximum);
    query.seen = {maximum, query.seen.sum * query.factor + sum_lanes(sum)};
  }
}

/// Adds the weighted values of the tile to kVectors * 16 outputs from `first` on of kRows queries which see the same
/// positions; or, of a last vector, to the first `width` outputs. subtiles[s] is the column `first` of the first token
/// of a subtile; tokens lie `stride` bytes apart. `next` are the values that will be read after these.
template <hal::KvType kType, std::size_t kRows, std::size_t kVectors>
CORBEL_CPU_INLINE void mix_columns(Query* queries, const std::byte* const* subtiles, const std::byte* const* next,
                                   std::size_t stride, std::size_t offset, std::size_t first, std::size_t width) {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  const std::int32_t begin = queries[0].begin, end = queries[0].end;
  const bool whole = width >= 16;
  Floats sums[kRows * kVectors];
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    const Floats factor = broadcast(queries[r].factor);
    CORBEL_CPU_UNROLL
    for (std::size_t i = 0; i < kVectors; ++i) {
      const float* out = queries[r].out + first + 16 * i;
      sums[r * kVectors + i] = mul(whole ? load(out) : load_part(out, width), factor);
    }
  }
  for (std::int32_t s = begin / kSubtileTokens; s * kSubtileTokens < end; ++s) {
    const std::int32_t from = s * kSubtileTokens < begin ? begin : s * kSubtileTokens;
    const std::int32_t to = (s + 1) * kSubtileTokens < end ? (s + 1) * kSubtileTokens : end;
    std::size_t at = static_cast<std::size_t>(from - s * kSubtileTokens) * stride + offset;
    for (std::int32_t t = from; t < to; ++t, at += stride) {
      Floats v[kVectors];
      CORBEL_CPU_UNROLL
      for (std::size_t i = 0; i < kVectors; ++i) {
        const std::byte* value = subtiles[s] + at + i * 16 * kBytes;
        v[i] = whole ? load_kv<kType>(value) : load_kv_part<kType>(value, width);
        __builtin_prefetch(next[s] + at + i * 16 * kBytes);
      }
      CORBEL_CPU_UNROLL
      for (std::size_t r = 0; r < kRows; ++r) {
        const Floats weight = broadcast(queries[r].weights[t]);
        CORBEL_CPU_UNROLL
        for (std::size_t i = 0; i < kVectors; ++i) sums[r * kVectors + i] = fma(v[i], weight, sums[r * kVectors + i]);
      }
    }
  }
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    CORBEL_CPU_UNROLL
    for (std::size_t i = 0; i < kVectors; ++i) {
      float* out = queries[r].out + first + 16 * i;
      if (whole) {
        store(out, sums[r * kVectors + i]);
      } else {
        store_part(out, sums[r * kVectors + i], width);
      }
    }
  }
}

/// mix_columns for the outputs [first, first + width); subtiles[s] is where column `first` is.
template <hal::KvType kType, std::size_t kRows>
inline void mix_tile(Query* queries, const std::byte* const* subtiles, const std::byte* const* next, std::size_t stride,
                     std::size_t first, std::size_t width) noexcept {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  constexpr std::size_t kVectors = kSumsPerRow<kRows>;
  std::size_t d = 0;
  for (; d + 16 * kVectors <= width; d += 16 * kVectors)
    mix_columns<kType, kRows, kVectors>(queries, subtiles, next, stride, d * kBytes, first + d, 16);
  for (; d < width; d += 16)
    mix_columns<kType, kRows, 1>(queries, subtiles, next, stride, d * kBytes, first + d, width - d);
}

/// Neighbours in the array of queries that see the same positions of a tile, of one group of kMaxRows.
struct QueryRun {
  std::size_t first;
  std::size_t count;
};

template <hal::KvType kType, std::size_t kRows = kMaxRows>
CORBEL_CPU_INLINE void score_run(const AttentionArgs& a, const KvTile& tile, const KvTile& next, std::int32_t start,
                                 Query* queries, const QueryRun& run) {
  if constexpr (kRows > 1) {
    if (run.count < kRows) return score_run<kType, kRows - 1>(a, tile, next, start, queries, run);
  }
  score_tile<kType, kRows>(a, tile, next, start, queries, run.first);
}
template <hal::KvType kType, std::size_t kRows = kMaxRows>
CORBEL_CPU_INLINE void mix_run(Query* queries, const QueryRun& run, const std::byte* const* subtiles,
                               const std::byte* const* next, std::size_t stride, std::size_t first, std::size_t width) {
  if constexpr (kRows > 1) {
    if (run.count < kRows) return mix_run<kType, kRows - 1>(queries, run, subtiles, next, stride, first, width);
  }
  mix_tile<kType, kRows>(queries + run.first, subtiles, next, stride, first, width);
}

/// mix_run where values are the first columns of the keys: 16 columns at a time are turned into float32 rows, which
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
      mix_run<hal::KvType::kF32>(queries, runs[i], subtiles, subtiles, 16 * sizeof(float), d, n);
  }
}

CORBEL_CPU_INLINE void clear(float* p, std::size_t count) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) store(p + i, zero());
  for (; i < count; ++i) p[i] = 0;
}

/// The tile that begins at `start`, as far as the positions up to `last` go; subtiles beyond are the last one.
template <hal::KvType kType>
CORBEL_CPU_INLINE KvTile find_tile(const AttentionArgs& a, std::int32_t start, std::int32_t last) {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  KvTile tile;
  for (std::int32_t s = 0; s < kTileTokens / kSubtileTokens; ++s) {
    const std::int32_t wanted = start + s * kSubtileTokens;
    const auto position = static_cast<std::size_t>(wanted <= last ? wanted : last / kSubtileTokens * kSubtileTokens);
    const std::size_t token = position % a.block_tokens;
    const auto block = static_cast<std::size_t>(a.table[position / a.block_tokens].block);
    tile.keys[s] = a.keys + block * a.block_bytes + token * a.head_dim * kBytes;
    tile.values[s] = a.values == nullptr ? nullptr : a.values + block * a.block_bytes + token * a.value_dim * kBytes;
  }
  return tile;
}

/// What the positions [begin, end) of one chunk give to all queries.
template <hal::KvType kType>
inline void attend_chunk(const AttentionArgs& a, std::int32_t begin, std::int32_t end, Query* queries) noexcept {
  constexpr std::size_t kBytes = kType == hal::KvType::kF32 ? 4 : 2;
  const bool values_in_keys = a.values == nullptr;
  const std::size_t num_queries = a.num_rows * a.num_heads;
  std::int32_t first = end, last = begin - 1;
  for (std::size_t i = 0; i < num_queries; ++i) {
    const AttentionRow& row = a.rows[i / a.num_heads];
    first = row.first < first ? row.first : first;
    last = row.last > last ? row.last : last;
    queries[i].seen = {};
    clear(queries[i].out, a.value_dim);
  }
  first = first < begin ? begin : first;
  last = last >= end ? end - 1 : last;
  if (first > last) return;
  std::int32_t start = first / kTileTokens * kTileTokens;
  KvTile tile = find_tile<kType>(a, start, last);
  for (; start <= last; start += kTileTokens) {
    const KvTile next = find_tile<kType>(a, start + kTileTokens <= last ? start + kTileTokens : start, last);
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
      } else if (extend && i % kMaxRows != 0 && query.begin == queries[i - 1].begin &&
                 query.end == queries[i - 1].end) {
        ++runs[num_runs - 1].count;
      } else {
        runs[num_runs++] = {i, 1};
        extend = true;
      }
    }
    for (std::size_t i = 0; i < num_runs; ++i) {
      const KvTile& after = i == 0 ? next : tile;
      score_run<kType>(a, tile, after, start, queries, runs[i]);
      if (!values_in_keys)
        mix_run<kType>(queries, runs[i], tile.values, after.values, a.value_dim * kBytes, 0, a.value_dim);
    }
    if (values_in_keys) mix_keys<kType>(a, tile, queries, runs, num_runs);
    tile = next;
  }
}

/// Adds what a later chunk gave: `values` belong to `part` as `out` do to `total`.
CORBEL_CPU_INLINE void join_chunk(Softmax& total, float* out, Softmax part, const float* values, std::size_t width) {
  if (part.sum == 0) return;  // nothing of the chunk was seen
  const float maximum = part.maximum > total.maximum ? part.maximum : total.maximum;
  const float before = decay(total.maximum, maximum), now = decay(part.maximum, maximum);
  total = {maximum, total.sum * before + part.sum * now};
  for (std::size_t d = 0; d < width; d += 16) {
    const std::size_t n = width - d < 16 ? width - d : 16;
    const Floats old = n == 16 ? load(out + d) : load_part(out + d, n);
    const Floats value = n == 16 ? load(values + d) : load_part(values + d, n);
    const Floats joined = fma(value, broadcast(now), mul(old, broadcast(before)));
    if (n == 16) {
      store(out + d, joined);
    } else {
      store_part(out + d, joined, n);
    }
  }
}

/// A sink is a score without a value.
CORBEL_CPU_INLINE Softmax begin_softmax(const float* sink, float* out, std::size_t width) {
  clear(out, width);
  return sink == nullptr ? Softmax{} : Softmax{*sink, 1.0f};
}

/// Puts the queries' vectors into groups, and what a query needs beside.
inline void begin_queries(const AttentionArgs& a, Query* queries) noexcept {
  const std::size_t num_queries = a.num_rows * a.num_heads;
  for (std::size_t i = 0; i < num_queries; ++i) {
    const std::size_t head = i % a.num_heads;
    const AttentionRow& row = a.rows[i / a.num_heads];
    const std::size_t group = i - i % kMaxRows, width = group_width(a, group);
    const float* from = row.q + head * a.head_dim;
    float* to = a.vectors + group * a.head_dim + i % kMaxRows;
    for (std::size_t d = 0; d < a.head_dim; ++d, to += width) *to = from[d];
    queries[i].slope = a.slopes == nullptr ? 0.0f : a.slopes[head];
    queries[i].position = row.last;
  }
}

template <hal::KvType kType>
inline void attention(const AttentionArgs& a) noexcept {
  Query queries[kMaxAttentionRows];
  Softmax totals[kMaxAttentionRows];
  const std::size_t num_queries = a.num_rows * a.num_heads;
  const auto out = [&](std::size_t i) { return a.rows[i / a.num_heads].out + i % a.num_heads * a.out_step; };
  std::int32_t first = a.rows[0].first, last = a.rows[0].last;
  begin_queries(a, queries);
  for (std::size_t i = 0; i < num_queries; ++i) {
    const AttentionRow& row = a.rows[i / a.num_heads];
    first = row.first < first ? row.first : first;
    last = row.last > last ? row.last : last;
    queries[i].out = a.chunk_outputs + i * a.value_dim;
    totals[i] = begin_softmax(a.sinks == nullptr ? nullptr : a.sinks + i % a.num_heads, out(i), a.value_dim);
  }
  for (std::int32_t begin = first, end; begin <= last; begin = end) {
    end = attention_chunk_end(begin);
    attend_chunk<kType>(a, begin, end, queries);
    for (std::size_t i = 0; i < num_queries; ++i)
      join_chunk(totals[i], out(i), queries[i].seen, queries[i].out, a.value_dim);
  }
  for (std::size_t i = 0; i < num_queries; ++i) scale_row(1.0f / totals[i].sum, out(i), out(i), a.value_dim);
}

template <hal::KvType kType>
inline void attention_chunk(const AttentionArgs& a, std::int32_t begin) noexcept {
  Query queries[kMaxAttentionRows];
  const std::size_t num_queries = a.num_rows * a.num_heads;
  begin_queries(a, queries);
  for (std::size_t i = 0; i < num_queries; ++i)
    queries[i].out = a.rows[i / a.num_heads].out + i % a.num_heads * a.out_step + kChunkHeader;
  attend_chunk<kType>(a, begin, attention_chunk_end(begin), queries);
  for (std::size_t i = 0; i < num_queries; ++i) {
    float* header = queries[i].out - kChunkHeader;
    header[0] = queries[i].seen.maximum;
    header[1] = queries[i].seen.sum;
  }
}

inline void join_chunks(const JoinChunksArgs& a) noexcept {
  Softmax total = begin_softmax(a.sink, a.out, a.value_dim);
  for (std::size_t i = 0; i < a.count; ++i) {
    const float* chunk = a.chunks + i * a.chunk_step;
    join_chunk(total, a.out, {chunk[0], chunk[1]}, chunk + kChunkHeader, a.value_dim);
  }
  scale_row(1.0f / total.sum, a.out, a.out, a.value_dim);
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
