// Attention through block tables, and writing into the cache.
//
// Keys of one kv head in a block: [block_tokens / 16][head_dim][16]; values: [block_tokens][value_dim], or the first
// columns of the keys. A query walks the chunks of positions, and in a chunk the tiles of 64 positions at absolute
// multiples of 64. Per tile: scores (float32 over rising d), the running maximum, exp, the sum in 16 lanes, then the
// outputs over rising position. What the chunks give is joined from the first to the last, so that they may be
// computed apart. Nothing depends on the block size or on the queries beside; of a tile only positions that the query
// sees are used.

/// Bytes of a number in the cache.
template <hal::KvType kType>
inline constexpr std::size_t kKvBytes = kType == hal::KvType::kF32 ? 4 : 2;

template <hal::KvType kType>
CORBEL_CPU_INLINE Floats load_kv(const std::byte* p) {
  if constexpr (kType == hal::KvType::kF32) return load(reinterpret_cast<const float*>(p));
  if constexpr (kType == hal::KvType::kF16) return load_f16(p);
  if constexpr (kType == hal::KvType::kBF16) return load_bf16(p);
}
template <hal::KvType kType>
CORBEL_CPU_INLINE Floats load_kv_part(const std::byte* p, std::size_t n) {
  std::byte lanes[64] = {};
  __builtin_memcpy(lanes, p, n * kKvBytes<kType>);
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

/// The subtiles of a tile that the positions [begin, end) of it lie in.
CORBEL_CPU_INLINE std::int32_t first_subtile(std::int32_t begin) { return begin / kSubtileTokens; }
CORBEL_CPU_INLINE std::int32_t end_subtile(std::int32_t end) { return (end + kSubtileTokens - 1) / kSubtileTokens; }

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

/// What sums that belong to one maximum are worth under a later one: 1 where it is the same, infinite ones too.
CORBEL_CPU_INLINE Floats decays(Floats from, Floats to) {
  const Floats one = broadcast(1.0f), e = exp(sub(from, to));
  return select_less(from, to, e, select_less(to, from, e, one));
}
CORBEL_CPU_INLINE float decay(float from, float to) {
  return from == to ? 1.0f : first_lane(exp(broadcast(from - to)));
}

/// The queries' vectors lie in groups of kMaxRows queries, of which the last may have fewer: [head_dim][width].
CORBEL_CPU_INLINE std::size_t group_width(const AttentionArgs& a, std::size_t first) {
  const std::size_t left = a.num_rows * a.num_heads - first;
  return left < kMaxRows ? left : kMaxRows;
}

/// Scores of the kSubtiles subtiles from number `s` on, whose first position is `start`, into the queries' weights.
/// `next` are the keys that will be read after these; `q` is the first query's column in its group, whose rows lie
/// q_stride apart.
template <hal::KvType kType, std::size_t kRows, std::size_t kSubtiles>
CORBEL_CPU_INLINE void score_subtiles(const AttentionArgs& a, const std::byte* const* keys,
                                      const std::byte* const* next, std::int32_t start, std::int32_t s, Query* queries,
                                      const float* q, std::size_t q_stride) {
  Floats scores[kRows * kSubtiles];
  CORBEL_CPU_UNROLL
  for (std::size_t i = 0; i < kRows * kSubtiles; ++i) scores[i] = zero();
  for (std::size_t d = 0; d < a.head_dim; ++d, q += q_stride) {
    Floats k[kSubtiles];
    CORBEL_CPU_UNROLL
    for (std::size_t i = 0; i < kSubtiles; ++i) {
      k[i] = load_kv<kType>(keys[i] + d * 16 * kKvBytes<kType>);
      __builtin_prefetch(next[i] + d * 16 * kKvBytes<kType>);
    }
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) {
      const Floats x = broadcast(q[r]);
      CORBEL_CPU_UNROLL
      for (std::size_t i = 0; i < kSubtiles; ++i) scores[r * kSubtiles + i] = fma(k[i], x, scores[r * kSubtiles + i]);
    }
  }
  const Floats scale = broadcast(a.scale);
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    CORBEL_CPU_UNROLL
    for (std::size_t i = 0; i < kSubtiles; ++i)
      store(queries[r].weights + (static_cast<std::size_t>(s) + i) * kSubtileTokens,
            mul(scores[r * kSubtiles + i], scale));
  }
  if (a.softcap == 0 && a.slopes == nullptr) return;
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t i = 0; i < kSubtiles; ++i) {
      float* at = queries[r].weights + (static_cast<std::size_t>(s) + i) * kSubtileTokens;
      Floats score = load(at);
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

/// Scores of the subtiles [first, end) for the kRows queries from number `index` on, which are of one group; `keys` and
/// `next` are those of subtile `first`. At most kMost subtiles are read at a time.
template <hal::KvType kType, std::size_t kRows, std::size_t kMost>
inline void score_rows(const AttentionArgs& a, const std::byte* const* keys, const std::byte* const* next,
                       std::int32_t start, std::int32_t first, std::int32_t end, Query* all,
                       std::size_t index) noexcept {
  constexpr std::size_t kSubtiles = kSumsPerRow<kRows> < kMost ? kSumsPerRow<kRows> : kMost;
  constexpr auto kWide = static_cast<std::int32_t>(kSubtiles);
  Query* queries = all + index;
  const float* q = a.vectors + index * a.head_dim;
  std::int32_t s = first;
  for (; s + kWide <= end; s += kWide)
    score_subtiles<kType, kRows, kSubtiles>(a, keys + (s - first), next + (s - first), start, s, queries, q, kRows);
  for (; s < end; ++s)
    score_subtiles<kType, kRows, 1>(a, keys + (s - first), next + (s - first), start, s, queries, q, kRows);
}

/// Turns the scores of a tile into weights. One step for all queries follows the other, so that none waits for the
/// results of its own step before.
inline void weigh(Query* queries, std::size_t num_queries) noexcept {
  alignas(64) float before[kMaxAttentionRows], maxima[kMaxAttentionRows];
  for (std::size_t i = 0; i < num_queries; ++i) {
    const Query& query = queries[i];
    before[i] = maxima[i] = query.seen.maximum;
    if (query.begin >= query.end) continue;
    const std::int32_t first = first_subtile(query.begin), end = end_subtile(query.end);
    float* w = queries[i].weights;
    // Positions outside [begin, end) get a weight of 0, whatever bits the cache holds there.
    for (std::int32_t t = first * kSubtileTokens; t < query.begin; ++t) w[t] = -__builtin_inff();
    for (std::int32_t t = query.end; t < end * kSubtileTokens; ++t) w[t] = -__builtin_inff();
    Floats largest = broadcast(query.seen.maximum);
    for (std::int32_t s = first; s < end; ++s) largest = max(load(w + s * kSubtileTokens), largest);
    maxima[i] = max_lanes(largest);
  }
  for (std::size_t i = num_queries; i % 16 != 0; ++i) before[i] = maxima[i] = 0;
  for (std::size_t i = 0; i < num_queries; i += 16) store(before + i, decays(load(before + i), load(maxima + i)));
  for (std::size_t i = 0; i < num_queries; ++i) {
    Query& query = queries[i];
    if (query.begin >= query.end) continue;
    const std::int32_t first = first_subtile(query.begin), end = end_subtile(query.end);
    float* w = query.weights;
    const Floats maximum = broadcast(maxima[i]);
    Floats sum = zero();
    for (std::int32_t s = first; s < end; ++s) {
      const Floats e = exp(sub(load(w + s * kSubtileTokens), maximum));
      store(w + s * kSubtileTokens, e);
      sum = add(sum, e);
    }
    query.factor = before[i];
    query.seen = {maxima[i], query.seen.sum * query.factor + sum_lanes(sum)};
  }
}

/// Where values of a tile are: subtiles[s] is a column of the first token of a subtile; tokens lie `stride` bytes
/// apart, and 16 columns `step`. `next` are the values that will be read after these.
struct MixFrom {
  const std::byte* const* subtiles;
  const std::byte* const* next;
  std::size_t stride;
  std::size_t step;
};
/// What kRows queries add up: the positions [begin, end) of the tile, to outputs that are first multiplied by factors.
struct MixTo {
  Query* queries;
  const float* factors;
  std::int32_t begin;
  std::int32_t end;
};

/// Adds the weighted values from byte `offset` on to kVectors * 16 outputs from `first` on; or, of a last vector, to
/// the first `width` outputs.
template <hal::KvType kType, std::size_t kRows, std::size_t kVectors>
CORBEL_CPU_INLINE void mix_columns(const MixTo& to, const MixFrom& from, std::size_t offset, std::size_t first,
                                   std::size_t width) {
  const bool whole = width >= 16;
  Floats sums[kRows * kVectors];
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    const Floats factor = broadcast(to.factors[r]);
    CORBEL_CPU_UNROLL
    for (std::size_t i = 0; i < kVectors; ++i) {
      const float* out = to.queries[r].out + first + 16 * i;
      sums[r * kVectors + i] = mul(whole ? load(out) : load_part(out, width), factor);
    }
  }
  for (std::int32_t s = to.begin / kSubtileTokens; s * kSubtileTokens < to.end; ++s) {
    const std::int32_t begin = s * kSubtileTokens < to.begin ? to.begin : s * kSubtileTokens;
    const std::int32_t end = (s + 1) * kSubtileTokens < to.end ? (s + 1) * kSubtileTokens : to.end;
    std::size_t at = static_cast<std::size_t>(begin - s * kSubtileTokens) * from.stride + offset;
    for (std::int32_t t = begin; t < end; ++t, at += from.stride) {
      Floats v[kVectors];
      CORBEL_CPU_UNROLL
      for (std::size_t i = 0; i < kVectors; ++i) {
        const std::byte* value = from.subtiles[s] + at + i * from.step;
        v[i] = whole ? load_kv<kType>(value) : load_kv_part<kType>(value, width);
        __builtin_prefetch(from.next[s] + at + i * from.step);
      }
      CORBEL_CPU_UNROLL
      for (std::size_t r = 0; r < kRows; ++r) {
        const Floats weight = broadcast(to.queries[r].weights[t]);
        CORBEL_CPU_UNROLL
        for (std::size_t i = 0; i < kVectors; ++i) sums[r * kVectors + i] = fma(v[i], weight, sums[r * kVectors + i]);
      }
    }
  }
  CORBEL_CPU_UNROLL
  for (std::size_t r = 0; r < kRows; ++r) {
    CORBEL_CPU_UNROLL
    for (std::size_t i = 0; i < kVectors; ++i) {
      float* out = to.queries[r].out + first + 16 * i;
      if (whole) {
        store(out, sums[r * kVectors + i]);
      } else {
        store_part(out, sums[r * kVectors + i], width);
      }
    }
  }
}

/// mix_columns for the outputs [first, first + width); from.subtiles[s] is where column `first` is.
template <hal::KvType kType, std::size_t kRows>
inline void mix_rows(const MixTo& to, const MixFrom& from, std::size_t first, std::size_t width) noexcept {
  constexpr std::size_t kVectors = kSumsPerRow<kRows>;
  std::size_t d = 0, offset = 0;
  for (; d + 16 * kVectors <= width; d += 16 * kVectors, offset += kVectors * from.step)
    mix_columns<kType, kRows, kVectors>(to, from, offset, first + d, 16);
  for (; d < width; d += 16, offset += from.step) mix_columns<kType, kRows, 1>(to, from, offset, first + d, width - d);
}

/// Calls `function` with a constant of 1 to kMost that equals `count`.
template <std::size_t kMost, class Function>
CORBEL_CPU_INLINE void with_constant(std::size_t count, const Function& function) {
  if constexpr (kMost > 1) {
    if (count < kMost) return with_constant<kMost - 1>(count, function);
  }
  function(std::integral_constant<std::size_t, kMost>());
}

/// Adds the weighted values of a tile to the outputs [first, first + width) of the `count` queries of a group: together
/// what all of them see, and apart what is before and after.
template <hal::KvType kType>
inline void mix_group(Query* queries, std::size_t count, const MixFrom& from, std::size_t first,
                      std::size_t width) noexcept {
  std::int32_t begin = 0, end = kTileTokens;
  for (std::size_t i = 0; i < count; ++i) {
    begin = queries[i].begin > begin ? queries[i].begin : begin;
    end = queries[i].end < end ? queries[i].end : end;
  }
  if (begin >= end) begin = end = kTileTokens;  // nothing together, all before
  float factors[kMaxRows];
  for (std::size_t i = 0; i < count; ++i) {
    const Query& query = queries[i];
    const std::int32_t before = query.end < begin ? query.end : begin;
    factors[i] = query.factor;
    if (query.begin >= before) continue;
    mix_rows<kType, 1>({queries + i, factors + i, query.begin, before}, from, first, width);
    factors[i] = 1;
  }
  if (begin >= end) return;
  with_constant<kMaxRows>(count, [&](auto rows) {
    mix_rows<kType, rows()>({queries, factors, begin, end}, from, first, width);
  });
  for (std::size_t i = 0; i < count; ++i) {
    const float one = 1;
    if (queries[i].end > end) mix_rows<kType, 1>({queries + i, &one, end, queries[i].end}, from, first, width);
  }
}

/// Calls body(first, count) for each group of queries.
template <class Body>
CORBEL_CPU_INLINE void each_group(std::size_t num_queries, const Body& body) {
  for (std::size_t first = 0; first < num_queries; first += kMaxRows)
    body(first, num_queries - first < kMaxRows ? num_queries - first : kMaxRows);
}

/// The positions of a tile that any of the queries sees.
struct Seen {
  std::int32_t begin = kTileTokens;
  std::int32_t end = 0;

  CORBEL_CPU_INLINE Seen(const Query* queries, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (queries[i].begin >= queries[i].end) continue;
      begin = queries[i].begin < begin ? queries[i].begin : begin;
      end = queries[i].end > end ? queries[i].end : end;
    }
  }
};

// ---- a group of queries: keys and values are read where they are

template <hal::KvType kType>
inline void score_tile(const AttentionArgs& a, const KvTile& tile, const KvTile& next, std::int32_t start,
                       Query* queries, std::size_t first, std::size_t count) noexcept {
  const Seen seen(queries + first, count);
  const std::int32_t from = first_subtile(seen.begin);
  with_constant<kMaxRows>(count, [&](auto rows) {
    score_rows<kType, rows(), 4>(a, tile.keys + from, next.keys + from, start, from, end_subtile(seen.end), queries,
                                 first);
  });
}

template <hal::KvType kType>
inline void mix_tile(const AttentionArgs& a, const KvTile& tile, const KvTile& next, Query* queries,
                     std::size_t count) noexcept {
  mix_group<kType>(queries, count, {tile.values, next.values, a.value_dim * kKvBytes<kType>, 16 * kKvBytes<kType>}, 0,
                   a.value_dim);
}

// ---- some groups: what they read is turned into float32 once for all of them

inline constexpr std::size_t kQueriesForWide = 4 * kMaxRows;

inline constexpr std::size_t kWideSubtiles = kSumsPerRow<kMaxRows>;  ///< and vectors of values
inline constexpr std::size_t kMaxWideColumns = 256;

/// head_dim is at most kMaxWideColumns.
template <hal::KvType kType>
inline void score_wide(const AttentionArgs& a, const KvTile& tile, const KvTile& next, std::int32_t start,
                       Query* queries, std::size_t num_queries) noexcept {
  constexpr auto kStep = static_cast<std::int32_t>(kWideSubtiles);
  alignas(64) float columns[kWideSubtiles][kMaxWideColumns * kSubtileTokens];
  const std::byte* keys[kWideSubtiles];
  for (std::size_t i = 0; i < kWideSubtiles; ++i) keys[i] = reinterpret_cast<const std::byte*>(columns[i]);
  const Seen all(queries, num_queries);
  for (std::int32_t s = first_subtile(all.begin); s < end_subtile(all.end); s += kStep) {
    const std::int32_t end = s + kStep < end_subtile(all.end) ? s + kStep : end_subtile(all.end);
    for (std::int32_t i = s; i < end; ++i) {
      for (std::size_t d = 0; d < a.head_dim; ++d) {
        store(columns[i - s] + d * kSubtileTokens, load_kv<kType>(tile.keys[i] + d * kSubtileTokens * kKvBytes<kType>));
        __builtin_prefetch(next.keys[i] + d * kSubtileTokens * kKvBytes<kType>);
      }
    }
    each_group(num_queries, [&](std::size_t first, std::size_t count) {
      const Seen seen(queries + first, count);
      const std::int32_t from = first_subtile(seen.begin) > s ? first_subtile(seen.begin) : s;
      const std::int32_t to = end_subtile(seen.end) < end ? end_subtile(seen.end) : end;
      if (from >= to) return;
      with_constant<kMaxRows>(count, [&](auto rows) {
        score_rows<hal::KvType::kF32, rows(), kWideSubtiles>(a, keys + (from - s), keys + (from - s), start, from, to,
                                                             queries, first);
      });
    });
  }
}

/// 16 columns of values from `first` on, `n` of which there are, as rows of float32.
template <hal::KvType kType>
CORBEL_CPU_INLINE void copy_values(const AttentionArgs& a, const KvTile& tile, const KvTile& next, std::int32_t s,
                                   std::size_t first, std::size_t n, float* to) {
  if (a.values != nullptr) {
    const std::size_t stride = a.value_dim * kKvBytes<kType>;
    const std::byte* from = tile.values[s] + first * kKvBytes<kType>;
    for (std::size_t t = 0; t < kSubtileTokens; ++t, from += stride) {
      store(to + t * 16, n == 16 ? load_kv<kType>(from) : load_kv_part<kType>(from, n));
      __builtin_prefetch(next.values[s] + t * stride + first * kKvBytes<kType>);
    }
  } else {  // the first columns of the keys
    Floats rows[16];
    CORBEL_CPU_UNROLL
    for (std::size_t i = 0; i < 16; ++i)
      rows[i] = load_kv<kType>(tile.keys[s] + (first + (i < n ? i : n - 1)) * 16 * kKvBytes<kType>);
    store_transposed(to, rows);
  }
}

template <hal::KvType kType>
inline void mix_wide(const AttentionArgs& a, const KvTile& tile, const KvTile& next, Query* queries,
                     std::size_t num_queries) noexcept {
  constexpr std::int32_t kSubtiles = kTileTokens / kSubtileTokens;
  alignas(64) float columns[kWideSubtiles][kTileTokens * 16];
  const std::byte* subtiles[kSubtiles];
  for (std::int32_t s = 0; s < kSubtiles; ++s)
    subtiles[s] = reinterpret_cast<const std::byte*>(columns[0] + s * kSubtileTokens * 16);
  const MixFrom from = {subtiles, subtiles, 16 * sizeof(float), sizeof columns[0]};
  const Seen all(queries, num_queries);
  constexpr std::size_t kColumns = kWideSubtiles * 16;
  for (std::size_t d = 0; d < a.value_dim; d += kColumns) {
    const std::size_t width = a.value_dim - d < kColumns ? a.value_dim - d : kColumns;
    for (std::size_t i = 0; i * 16 < width; ++i) {
      const std::size_t n = width - i * 16 < 16 ? width - i * 16 : 16;
      for (std::int32_t s = first_subtile(all.begin); s < end_subtile(all.end); ++s)
        copy_values<kType>(a, tile, next, s, d + i * 16, n, columns[i] + s * kSubtileTokens * 16);
    }
    each_group(num_queries, [&](std::size_t first, std::size_t count) {
      mix_group<hal::KvType::kF32>(queries + first, count, from, d, width);
    });
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
  KvTile tile;
  for (std::int32_t s = 0; s < kTileTokens / kSubtileTokens; ++s) {
    const std::int32_t wanted = start + s * kSubtileTokens;
    const auto position = static_cast<std::size_t>(wanted <= last ? wanted : last / kSubtileTokens * kSubtileTokens);
    const std::size_t token = position % a.block_tokens;
    const auto block = static_cast<std::size_t>(a.table[position / a.block_tokens].block);
    tile.keys[s] = a.keys + block * a.block_bytes + token * a.head_dim * kKvBytes<kType>;
    tile.values[s] =
        a.values == nullptr ? nullptr : a.values + block * a.block_bytes + token * a.value_dim * kKvBytes<kType>;
  }
  return tile;
}

/// What the positions [begin, end) of one chunk give to all queries.
template <hal::KvType kType>
inline void attend_chunk(const AttentionArgs& a, std::int32_t begin, std::int32_t end, Query* queries) noexcept {
  const std::size_t num_queries = a.num_rows * a.num_heads;
  const bool wide = num_queries >= kQueriesForWide;
  const bool wide_scores = wide && a.head_dim <= kMaxWideColumns, wide_values = wide || a.values == nullptr;
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
    for (std::size_t i = 0; i < num_queries; ++i) {
      const AttentionRow& row = a.rows[i / a.num_heads];
      queries[i].begin = row.first > start ? row.first - start : 0;
      queries[i].end = row.last - start + 1 < kTileTokens ? row.last - start + 1 : kTileTokens;
    }
    if (wide_scores) {
      score_wide<kType>(a, tile, next, start, queries, num_queries);
    } else {
      each_group(num_queries, [&](std::size_t group, std::size_t count) {
        score_tile<kType>(a, tile, group == 0 ? next : tile, start, queries, group, count);
      });
    }
    weigh(queries, num_queries);
    if (wide_values) {
      mix_wide<kType>(a, tile, next, queries, num_queries);
    } else {
      each_group(num_queries, [&](std::size_t group, std::size_t count) {
        mix_tile<kType>(a, tile, group == 0 ? next : tile, queries + group, count);
      });
    }
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
  const std::size_t subtile = a.token / kSubtileTokens, lane = a.token % kSubtileTokens;
  for (std::size_t head = 0; head < a.kv_heads; ++head) {
    const float* k = a.k + head * a.head_dim;
    std::byte* key =
        a.keys + ((head * a.block_tokens + subtile * kSubtileTokens) * a.head_dim + lane) * kKvBytes<kType>;
    for (std::size_t d = 0; d < a.head_dim; d += 16) {
      const std::size_t n = a.head_dim - d < 16 ? a.head_dim - d : 16;
      std::byte piece[16 * kKvBytes<kType>];
      round_kv<kType>(k + d, n, piece);
      for (std::size_t i = 0; i < n; ++i)
        __builtin_memcpy(key + (d + i) * 16 * kKvBytes<kType>, piece + i * kKvBytes<kType>, kKvBytes<kType>);
    }
    if (a.v == nullptr) continue;
    const float* v = a.v + head * a.value_dim;
    std::byte* value = a.values + (head * a.block_tokens + a.token) * a.value_dim * kKvBytes<kType>;
    for (std::size_t d = 0; d < a.value_dim; d += 16)
      round_kv<kType>(v + d, a.value_dim - d < 16 ? a.value_dim - d : 16, value + d * kKvBytes<kType>);
  }
}
