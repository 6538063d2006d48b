// Linear layers of many rows. What the arithmetic reads of some columns of a group is made once, a panel, and serves
// all rows: codes of a byte each, scales as float32; or the weights as float32. The arithmetic and its order are those
// of linear-inl.hpp.

inline constexpr std::size_t kRowsForPanels = 3 * kMaxRows;

template <std::size_t kRows, std::size_t kGroups>
CORBEL_CPU_INLINE void load_sums(Floats (&to)[kRows * kGroups], const float (*from)[kGroups * kGroupRows], bool none) {
  CORBEL_CPU_UNROLL
  for (std::size_t i = 0; i < kRows * kGroups; ++i)
    to[i] = none ? zero() : load(from[i / kGroups] + i % kGroups * kGroupRows);
}
/// The sums go on with the next panel, or are the outputs.
template <std::size_t kRows, std::size_t kGroups>
CORBEL_CPU_INLINE void store_sums(const Floats (&from)[kRows * kGroups], float (*to)[kGroups * kGroupRows], bool last,
                                  const LinearArgs& a, const LinearPiece& piece, std::size_t row) {
  CORBEL_CPU_UNROLL
  for (std::size_t i = 0; i < kRows * kGroups; ++i) {
    if (last) {
      write_sums(a, piece, row + i / kGroups, i % kGroups, from[i]);
    } else {
      store(to[i / kGroups] + i % kGroups * kGroupRows, from[i]);
    }
  }
}

/// How panels keep the codes of a type.
constexpr CodeFormat panel_format(DType dtype) noexcept {
  const PackedFormat format = packed_format(dtype);
  CodeFormat panel = {format.max_code, format.zero_shift, format.scale_columns, format.has_minimum};
  if (kWideCodesAreBest) {
    panel.max_code = 255;
    if (panel.zero_shift != 0) panel.zero_shift = 7;
  }
  return panel;
}

/// 32 columns of a group.
template <CodeFormat kFormat>
struct PanelBlock {
  alignas(64) std::byte bytes[kBlockColumns * kGroupRows];
  float factors[kFormat.num_scales() * (kFormat.has_minimum ? 2 : 1)][kGroupRows];  ///< scales, then minima
};
template <CodeFormat kOf>
struct PanelReader {
  static constexpr CodeFormat kFormat = kOf;
  const PanelBlock<kOf>* block;

  template <int kQuad>
  CORBEL_CPU_INLINE auto codes() const {
    return prepare_codes<kFormat.max_code>(load_codes(block->bytes + kQuad * 64));
  }
  template <std::size_t kScale>
  CORBEL_CPU_INLINE Floats scales() const {
    return load(block->factors[kScale]);
  }
  template <std::size_t kScale>
  CORBEL_CPU_INLINE Floats minima() const {
    return load(block->factors[kFormat.num_scales() + kScale]);
  }
};

template <DType kType, int kQuad = 0>
CORBEL_CPU_INLINE void expand_codes(const std::byte* record, std::byte* bytes) {
  constexpr int kZero = packed_format(kType).zero(), kZeroShift = panel_format(kType).zero_shift;
  constexpr int kMoved = (kZeroShift == 0 ? 0 : 1 << kZeroShift) - kZero;
  if constexpr (kQuad < 8) {
    const Codes codes = quad_bytes<kType, kQuad>(record);
    if constexpr (kMoved == 0) {
      store_codes(bytes + kQuad * 64, codes);
    } else {
      store_codes(bytes + kQuad * 64, add_to_codes<kMoved>(codes));
    }
    expand_codes<kType, kQuad + 1>(record, bytes);
  }
}
template <DType kType, std::size_t kScale = 0>
CORBEL_CPU_INLINE void expand_scales(const RecordReader<kType>& from, PanelBlock<panel_format(kType)>& to) {
  constexpr CodeFormat kFormat = panel_format(kType);
  if constexpr (kScale < kFormat.num_scales()) {
    store(to.factors[kScale], from.template scales<kScale>());
    if constexpr (kFormat.has_minimum) store(to.factors[kFormat.num_scales() + kScale], from.template minima<kScale>());
    expand_scales<kType, kScale + 1>(from, to);
  }
}

/// Columns of quantized weights, of kPanelGroups groups.
template <CodeFormat kFormat>
struct CodePanel {
  static constexpr std::size_t kColumns = 512;
  static constexpr std::size_t kGroups = kPanelGroups;
  static constexpr std::size_t kTileRows = kPanelTileRows;
  PanelBlock<kFormat> blocks[kColumns / kBlockColumns][kGroups];

  /// Adds the products of `count` columns from column `k` of the weight on to the sums of the rows from `row` on.
  template <std::size_t kRows>
  inline void add_products(const LinearArgs& a, const LinearPiece& piece, std::size_t row, std::size_t k,
                           std::size_t count, float (*sums)[kGroups * kGroupRows]) const noexcept {
    TileRows<kRows> x;
    Floats totals[kRows * kGroups];
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) x.at[r] = blocks_of(a, row + r) + k / kBlockColumns;
    load_sums<kRows, kGroups>(totals, sums, k == 0);
    for (std::size_t i = 0; i < count / kBlockColumns; ++i) {
      PanelReader<kFormat> weights[kGroups];
      CORBEL_CPU_UNROLL
      for (std::size_t g = 0; g < kGroups; ++g) weights[g].block = &blocks[i][g];
      add_scaled_dots(weights, x, totals);
      CORBEL_CPU_UNROLL
      for (std::size_t r = 0; r < kRows; ++r) ++x.at[r];
    }
    store_sums<kRows, kGroups>(totals, sums, k + count == a.k, a, piece, row);
  }
};

template <DType kType>
struct CodePanelOf : CodePanel<panel_format(kType)> {
  /// Makes the panel of `count` columns from column `k` on, a multiple of kColumns.
  CORBEL_CPU_INLINE void expand(const std::byte* groups, std::size_t group_bytes, std::size_t k, std::size_t count,
                                std::size_t ahead) {
    constexpr PackedFormat kFormat = packed_format(kType);
    for (std::size_t g = 0; g < kPanelGroups; ++g) {
      Factors factors = {zero(), zero()};
      for (std::size_t i = 0; i < count / kBlockColumns; ++i) {
        const std::byte* record = groups + g * group_bytes + record_offset(kFormat, k + i * kBlockColumns);
        if constexpr (kFormat.nested()) {
          if (i % (kNestColumns / kBlockColumns) == 0) factors = load_factors<kType>(record - kFormat.header_bytes());
        }
        if (ahead != 0) prefetch<kFormat.record_bytes()>(record + ahead);
        expand_codes<kType>(record, this->blocks[i][g].bytes);
        expand_scales<kType>(RecordReader<kType>{record, factors}, this->blocks[i][g]);
      }
    }
  }
};

/// Columns of weights that are multiplied as float32, of as many groups as a tile has sums for.
struct FloatPanel {
  static constexpr std::size_t kColumns = 128;
  static constexpr std::size_t kTileRows = kMaxRows;
  static constexpr std::size_t kGroups = kSumsPerRow<kTileRows>;
  alignas(64) float weights[kColumns][kGroups * kGroupRows];

  template <std::size_t kRows>
  inline void add_products(const LinearArgs& a, const LinearPiece& piece, std::size_t row, std::size_t k,
                           std::size_t count, float (*sums)[kGroups * kGroupRows]) const noexcept {
    const float* x[kRows];
    Floats totals[kRows * kGroups];
    CORBEL_CPU_UNROLL
    for (std::size_t r = 0; r < kRows; ++r) x[r] = floats_of(a, row + r) + k;
    load_sums<kRows, kGroups>(totals, sums, k == 0);
    for (std::size_t c = 0; c < count; ++c) {
      Floats w[kGroups];
      CORBEL_CPU_UNROLL
      for (std::size_t g = 0; g < kGroups; ++g) w[g] = load(weights[c] + g * kGroupRows);
      CORBEL_CPU_UNROLL
      for (std::size_t r = 0; r < kRows; ++r) {
        const Floats factor = broadcast(x[r][c]);
        CORBEL_CPU_UNROLL
        for (std::size_t g = 0; g < kGroups; ++g) totals[r * kGroups + g] = fma(w[g], factor, totals[r * kGroups + g]);
      }
    }
    store_sums<kRows, kGroups>(totals, sums, k + count == a.k, a, piece, row);
  }
};

template <DType kType>
struct FloatPanelOf : FloatPanel {
  CORBEL_CPU_INLINE void expand(const std::byte* group, std::size_t group_bytes, std::size_t k, std::size_t count,
                                std::size_t ahead) {
    for (std::size_t g = 0; g < kGroups; ++g) {
      const std::byte* step = group + g * group_bytes + k / kPlainStep<kType> * kStepBytes<kType>;
      for (std::size_t c = 0; c < count; c += kPlainStep<kType>, step += kStepBytes<kType>) {
        if (ahead != 0) prefetch<kStepBytes<kType>>(step + ahead);
        for (std::size_t i = 0; i < kPlainStep<kType>; ++i)
          store(weights[c + i] + g * kGroupRows, load_column<kType>(step, i));
      }
    }
  }
};

/// A tile of `rows` rows, kRows at most.
template <std::size_t kRows, class Panel>
CORBEL_CPU_INLINE void add_tile(const Panel& panel, std::size_t rows, const LinearArgs& a, const LinearPiece& piece,
                                std::size_t row, std::size_t k, std::size_t count,
                                float (*sums)[Panel::kGroups * kGroupRows]) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return add_tile<kRows - 1>(panel, rows, a, piece, row, k, count, sums);
  }
  panel.template add_products<kRows>(a, piece, row, k, count, sums);
}

/// Adds a panel's products to the sums of the rows [first, end). The last two tiles share what is left over.
template <class Panel>
CORBEL_CPU_INLINE void add_panel(const Panel& panel, const LinearArgs& a, const LinearPiece& piece, std::size_t first,
                                 std::size_t end, std::size_t k, std::size_t count,
                                 float (*sums)[Panel::kGroups * kGroupRows]) {
  constexpr std::size_t kRows = Panel::kTileRows;
  for (std::size_t row = first, rows; row < end; row += rows) {
    const std::size_t left = end - row;
    rows = left >= 2 * kRows || left == kRows ? kRows : left > kRows ? (left + 1) / 2 : left;
    add_tile<kRows>(panel, rows, a, piece, row, k, count, sums + (row - first));
  }
}

/// A piece of Panel::kGroups groups for all rows.
template <class Panel>
inline void linear_panel(const LinearArgs& a, const LinearPiece& piece) noexcept {
  Panel panel;
  alignas(64) float sums[kLinearRows][Panel::kGroups * kGroupRows];
  const std::size_t passes = (a.num_rows + kLinearRows - 1) / kLinearRows;
  const std::size_t step = (a.num_rows + passes - 1) / passes;
  for (std::size_t first = 0; first < a.num_rows; first += step) {
    const std::size_t end = first + step < a.num_rows ? first + step : a.num_rows;
    for (std::size_t k = 0; k < a.k; k += Panel::kColumns) {
      const std::size_t count = a.k - k < Panel::kColumns ? a.k - k : Panel::kColumns;
      panel.expand(piece.group, a.group_bytes, k, count, first == 0 ? a.prefetch_distance : 0);
      add_panel(panel, a, piece, first, end, k, count, sums);
    }
  }
}

template <DType kType>
inline void linear(const LinearArgs& a) noexcept {
  constexpr bool kQuantized = packed_format(kType).quantized();
  using Panel = std::conditional_t<kQuantized, CodePanelOf<kType>, FloatPanelOf<kType>>;
  const bool panels = a.num_rows >= kRowsForPanels;
  // One row of quantized weights is worth streams where they are long; more share a group in a first-level cache.
  constexpr std::size_t kLongGroup = 16 << 10;
  const bool streams = a.streams && a.num_rows == 1 && a.group_bytes >= kLongGroup;
  const std::size_t most = kGroupRows * (panels ? Panel::kGroups : !kQuantized ? 4 : streams ? kStreams : 1);
  LinearPiece piece = {a.weights, 0, a.first_lane, 0};
  while (piece.column < a.num_columns) {
    const std::size_t left = a.num_columns - piece.column;
    const std::size_t whole = piece.lane == 0 ? left / kGroupRows * kGroupRows : 0;
    const std::size_t lanes = kGroupRows - piece.lane;
    piece.count = whole >= most ? most : whole != 0 ? (kQuantized ? kGroupRows : whole) : left < lanes ? left : lanes;
    if (panels && piece.count == most) {
      linear_panel<Panel>(a, piece);
    } else {
      linear_rows<kType, kMaxRows>(a, piece, 0);
    }
    piece.group += (piece.count + kGroupRows - 1) / kGroupRows * a.group_bytes;
    piece.column += piece.count;
    piece.lane = 0;
  }
}
