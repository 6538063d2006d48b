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

struct Value {
  std::string name;
  std::uint32_t width = 0;  ///< float32 elements per row
  Rows rows = Rows::kAll;
  ValueId parent = kNone;    ///< the value that this is a view of
  std::uint32_t column = 0;  ///< first column in the parent
};

/// The ops. `in0`, `in1` are Op::in; W and b are Op::weight and Op::bias.
enum class OpKind : std::uint8_t {
  kEmbed,      ///< out[r] = scale * W[token(r)]
  kRopeTable,  ///< out[r] = scale * (cos(p*W[0]) ... cos(p*W[n-1]), sin(p*W[0]) ...), p the row's position, W inverse
               ///< frequencies [n]
  kNorm,       ///< out[r] = norm over each group of `norm.group` columns of in0[r], times W (+ b); W and b have `group`
               ///< elements
  kLinear,     ///< out[r] = W in0[r] (+ b), W [out, in]
  kRope,       ///< rotates the first rope.rotary_dim elements of each head of in0 by the table in1
  kKvAppend,   ///< writes in0 (keys) and in1 (values) of each row into the cache of `layer`
  kAttention,  ///< out[r] = softmax(attention.scale * q k) v over the cached positions that the row may see; in0 = q
  kActivation,  ///< out = act(in0) * in1, or act(in0) where there is no in1
  kAdd,         ///< out = in0 + in1
  kScale,       ///< out = scale * in0
  kSoftcap,     ///< out = scale * tanh(in0 / scale)
  kSelectRows,  ///< out[r] = in0[wanted(r)]: from Rows::kAll to Rows::kWanted
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

struct AttentionSpec {
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;  ///< divides heads; query head h reads kv head h / (heads / kv_heads)
  std::uint32_t head_dim = 0;
  float scale = 1;
  std::uint32_t window = 0;  ///< row at position p sees positions > p - window; 0: all up to p
  float softcap = 0;         ///< scores become softcap * tanh(score / softcap); 0: none
};

enum class ActivationKind : std::uint8_t {
  kSilu,      ///< x / (1 + exp(-x))
  kGeluTanh,  ///< 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
};

struct Op {
  OpKind kind = OpKind::kAdd;
  std::array<ValueId, 2> in = {kNone, kNone};
  ValueId out = kNone;
  WeightId weight = kNone;
  WeightId bias = kNone;
  std::int32_t layer = kNone;  ///< index into Program::kv_layers for kKvAppend and kAttention; else the layer for dumps
  float scale = 1;
  NormSpec norm = {};
  RopeSpec rope = {};
  AttentionSpec attention = {};
  ActivationKind activation = ActivationKind::kSilu;
};

/// The cache planes of one layer.
struct KvLayerSpec {
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;  ///< of keys and of values
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
