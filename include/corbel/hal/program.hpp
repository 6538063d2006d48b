// The program that a backend runs: ops over values, in execution order. It is polymorphic in the number of rows.
//
// A value is a matrix of float32, [rows, width], one row per token of the batch (Rows::kAll) or per wanted output
// (Rows::kWanted). Values live in one arena at the offsets of an ArenaPlan. A value with a parent is a view of some of
// its parent's columns and has no memory of its own.
#pragma once

#include <corbel/config.hpp>
#include <corbel/hal/weights.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace hal {

using ValueId = std::int32_t;
using WeightId = std::int32_t;
inline constexpr std::int32_t kNone = -1;

/// Which rows of the batch a value has.
enum class Rows : std::uint8_t { kAll, kWanted };

/// Where the rows of a value hold integers from -128 to 127 times a step, the step of each `group` columns (0: of the
/// row): `value` or, where that is 0, max(abs) / 127. So a backend that multiplies integers takes them as they are.
struct IntegerSteps {
  bool known = false;
  float value = 0;
  std::uint32_t group = 0;
};

struct Value {
  std::string name;
  std::uint32_t width = 0;  ///< float32 elements per row
  Rows rows = Rows::kAll;
  ValueId parent = kNone;    ///< the value that this is a view of
  std::uint32_t column = 0;  ///< first column in the parent
  IntegerSteps steps = {};   ///< said by who builds the program; need not be heeded
};

/// The ops. `in0`, `in1` are Op::in; W and b are Op::weight and Op::bias; r is a row, p its position.
enum class OpKind : std::uint8_t {
  kEmbed,          ///< out[r] = scale * W[token(r)]
  kEmbedPosition,  ///< out[r] = in0[r] + W[p + first], W [positions, width]
  kRopeTable,      ///< out[r] = scale * (cos(p*f[0]) ... cos(p*f[n-1]), sin(p*f[0]) ...), f inverse frequencies [n]: W,
                   ///< or without W elements [first, first + n) of the sequence's frequencies
  kNorm,           ///< out[r] = norm over each group of `norm.group` columns of in0[r], times W (+ b), each where there
                   ///< is one; W and b have `group` elements, or as many as in0 has columns (each column its own)
  kLinear,         ///< out[r] = W in0[r] (+ b), W [out, in]
  kGroupedLinear,  ///< in0 and out are divided into `groups` equal groups of columns; group g of out[r] = W[g] times
                   ///< group g of in0[r]; W [out, in / groups] holds the groups one above the other
  kRope,           ///< rotates the first rope.rotary_dim elements of each head of in0 by the table in1
  kKvAppend,       ///< writes in0 (keys) and in1 (values) of each row into the cache of `layer`; without in1 the values
                   ///< lie in the keys
  kAttention,   ///< out[r] = softmax(attention.scale * q k) v over the cached positions that the row may see; in0 = q;
                ///< W sinks [heads], b ALiBi slopes [heads]; see AttentionSpec
  kActivation,  ///< out = act(in0) * in1, or act(in0) where there is no in1
  kGate,        ///< out = (u + 1) * g * sigmoid(scale * g), g = min(in0, limit), u = min(max(in1, -limit), limit)
  kClamp,       ///< out = min(max(in0, -limit), limit)
  kAdd,         ///< out = in0 + in1
  kScale,       ///< out = scale * in0
  kPositionScale,  ///< out = (1 + scale * log(1 + floor(p / limit))) * in0
  kSoftcap,        ///< out = scale * tanh(in0 / scale)
  kJoin,           ///< out[r] = for each of `groups` equal groups of columns: the group of in0[r], then that of in1[r]
  kPermute,        ///< out[r][c] = in0[r][W[c]], W [width] column numbers (exact in float32)
  kRoundActivations,  ///< out = in0 rounded to the values that `round` can express; see RoundSpec
  kRoute,             ///< out[r] = numbers and weights of the experts chosen by the scores in0[r]; b selection bias
                      ///< [experts]; see RouteSpec
  kExpertLinear,      ///< slot j of out[r] = W[e] x (+ b[e]) for each slot j < route.top_k, e the j-th expert of in1[r]
                      ///< (of a kRoute); W [experts * n, in] and b [experts * n] hold the experts one above the other,
                      ///< slot j of out is n columns from j * n; x = in0[r], or slot j of in0[r] where in0 has
                      ///< top_k * in columns
  kExpertSum,         ///< out[r] = sum over rising j of (j-th weight of in1[r], of a kRoute) * slot j of in0[r]
  kSelectRows,        ///< out[r] = in0[wanted(r)]: from Rows::kAll to Rows::kWanted
};

/// Lower-case name of an op, for dumps and messages.
CORBEL_API const char* op_name(OpKind kind) noexcept;

enum class NormKind : std::uint8_t {
  kRms,    ///< x / sqrt(mean(x^2) + epsilon)
  kLayer,  ///< (x - mean(x)) / sqrt(variance(x) + epsilon)
};
struct NormSpec {
  NormKind kind = NormKind::kRms;
  std::uint32_t group = 0;  ///< columns per group; the width divides into whole groups
  float epsilon = 0;
};

struct RopeSpec {
  std::uint32_t head_dim = 0;
  std::uint32_t rotary_dim = 0;  ///< even, <= head_dim; the rest passes unchanged
  bool interleaved = false;      ///< pairs (2i, 2i+1); else (i, i + rotary_dim/2)
};

/// The score of a query at p and a key at t is s = scale * (q k); then, where there is a softcap, s = softcap * tanh(s
/// / softcap); then, where there are slopes, s = s + slope[head] * (t - p). The weights are exp(s - m) / (sum of all
/// exp(s - m)), m the greatest score of the head; with sinks, sink[head] takes part as one more score whose value is
/// zero.
struct AttentionSpec {
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;  ///< divides heads; query head h reads kv head h / (heads / kv_heads)
  std::uint32_t head_dim = 0;  ///< of queries and keys; in0 is heads * head_dim wide
  float scale = 1;
  std::uint32_t window = 0;     ///< row at position p sees positions > p - window; 0: all up to p
  float softcap = 0;            ///< 0: none
  std::uint32_t value_dim = 0;  ///< of values; out is heads * value_dim wide; 0: head_dim
  bool values_in_keys = false;  ///< the value of a position is the first value_dim elements of its key

  std::uint32_t value_width() const noexcept { return value_dim != 0 ? value_dim : head_dim; }
};

enum class ActivationKind : std::uint8_t {
  kSilu,         ///< x / (1 + exp(-x))
  kGeluTanh,     ///< 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kGelu,         ///< 0.5 x (1 + erf(x / sqrt(2)))
  kGeluQuick,    ///< x / (1 + exp(-1.702 x))
  kRelu,         ///< max(x, 0)
  kReluSquared,  ///< max(x, 0)^2
};
/// Lower-case name, for dumps and messages.
CORBEL_API const char* activation_name(ActivationKind kind) noexcept;

/// How the activations that enter a quantized linear are rounded. Columns are divided into groups of `group` (the last
/// may be shorter; 0: one group, the whole row). All steps are float32, each rounded to nearest even:
///   s = max(abs(x)) / top over the group, top 127 (kInt8) or 448 (kFp8E4M3), or the static scale W[0] where there is
///       a W; with `bound`, min(max(abs(x)), bound) / top
///   kInt8:     q = round(x / s) + zero clamped to [-128, 127], zero = b[0] where there is a b; out = (q - zero) * s
///   kFp8E4M3:  out = e4m3(clamp(x / s, -448, 448)) * s, e4m3 with 3 mantissa bits and exponents from -6, subnormals
///              kept
/// `asymmetric` (kInt8 without W): low = min(0, min(x)), high = max(0, max(x)), s = (high - low) / 255, zero =
/// round(-128 - low / s) clamped to [-128, 127]. A group of zeros stays zeros.
enum class RoundKind : std::uint8_t { kInt8, kFp8E4M3 };
struct RoundSpec {
  RoundKind kind = RoundKind::kInt8;
  std::uint32_t group = 0;
  bool asymmetric = false;
  float bound = 0;  ///< 0: none
  bool operator==(const RoundSpec&) const = default;
};

enum class ScoreKind : std::uint8_t {
  kSoftmax,  ///< exp(x - max) / sum over all experts
  kSigmoid,  ///< 1 / (1 + exp(-x))
};
/// How a router chooses. score[e] from in0; choice[e] = score[e] (+ b[e]). Where `groups` > 1 the experts are divided
/// into equal groups in order; a group's value is its highest choice (group_top 1) or the sum of its group_top highest;
/// only experts of the `top_groups` groups of highest value can be chosen. Chosen are the top_k experts of highest
/// choice. Ties go to the lower number (group or expert). weight[j] = score of expert j; where `normalize`, divided by
/// (the sum of the chosen scores + 1e-20); then times `scale`. out [2 * top_k]: the chosen experts' numbers as float32
/// in falling order of choice, then their weights.
struct RouteSpec {
  std::uint32_t experts = 0;
  std::uint32_t top_k = 0;  ///< at most experts
  ScoreKind score = ScoreKind::kSoftmax;
  bool normalize = false;
  float scale = 1;
  std::uint32_t groups = 1;
  std::uint32_t top_groups = 1;
  std::uint32_t group_top = 1;
};

struct Op {
  OpKind kind = OpKind::kAdd;
  std::array<ValueId, 2> in = {kNone, kNone};
  ValueId out = kNone;
  WeightId weight = kNone;
  WeightId bias = kNone;
  std::int32_t layer = kNone;  ///< index into Program::kv_layers for kKvAppend and kAttention; else the layer for dumps
  float scale = 1;
  float limit = 0;           ///< kGate, kClamp, kPositionScale
  std::uint32_t first = 0;   ///< kEmbedPosition, kRopeTable
  std::uint32_t groups = 1;  ///< kGroupedLinear, kJoin
  NormSpec norm = {};
  RopeSpec rope = {};
  AttentionSpec attention = {};
  ActivationKind activation = ActivationKind::kSilu;
  RoundSpec round = {};
  RouteSpec route = {};  ///< kRoute; of it kExpertLinear and kExpertSum use experts and top_k
};

/// The cache planes of one layer.
struct KvLayerSpec {
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;   ///< of keys, and of values where value_dim is 0
  std::uint32_t value_dim = 0;  ///< of values where it differs
  bool values_in_keys = false;  ///< one plane: values are the first value_dim elements of the keys (latent attention)

  std::uint32_t value_width() const noexcept { return value_dim != 0 ? value_dim : head_dim; }
};

struct Program {
  std::vector<Op> ops;
  std::vector<Value> values;
  std::vector<WeightSpec> weights;  ///< sources are dropped once weights are prepared
  std::vector<KvLayerSpec> kv_layers;
  ValueId logits = kNone;  ///< Rows::kWanted, width = vocabulary

  /// The value whose memory `id` lies in, and the first column there.
  struct Root {
    ValueId value;
    std::uint32_t column;
  };
  Root root(ValueId id) const noexcept {
    std::uint32_t column = 0;
    while (values[static_cast<std::size_t>(id)].parent != kNone) {
      column += values[static_cast<std::size_t>(id)].column;
      id = values[static_cast<std::size_t>(id)].parent;
    }
    return {id, column};
  }
};

/// Where the values of a program lie in an arena for given row capacities. Offsets are multiples of 64 bytes. Rows of a
/// value lie `stride` apart.
struct ArenaPlan {
  struct Slot {
    std::uint64_t offset = 0;  ///< bytes from the arena's start to row 0 of the value (of a view: to its first column)
    std::uint32_t stride = 0;  ///< float32 elements from one row to the next
  };
  std::vector<Slot> slots;  ///< one per value
  std::uint64_t bytes = 0;
};

}  // namespace hal
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/hal/program.ipp>
#endif
