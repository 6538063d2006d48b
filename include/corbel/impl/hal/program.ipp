// Definitions of hal/program.hpp.
#pragma once

#include <corbel/hal/program.hpp>

CORBEL_NAMESPACE_BEGIN
namespace hal {

CORBEL_INLINE const char* op_name(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::kEmbed: return "embed";
    case OpKind::kRopeTable: return "rope_table";
    case OpKind::kNorm: return "norm";
    case OpKind::kLinear: return "linear";
    case OpKind::kRope: return "rope";
    case OpKind::kKvAppend: return "kv_append";
    case OpKind::kAttention: return "attention";
    case OpKind::kActivation: return "activation";
    case OpKind::kAdd: return "add";
    case OpKind::kScale: return "scale";
    case OpKind::kSoftcap: return "softcap";
    case OpKind::kEmbedPosition: return "embed_position";
    case OpKind::kGroupedLinear: return "grouped_linear";
    case OpKind::kGate: return "gate";
    case OpKind::kClamp: return "clamp";
    case OpKind::kPositionScale: return "position_scale";
    case OpKind::kJoin: return "join";
    case OpKind::kPermute: return "permute";
    case OpKind::kRoundActivations: return "round_activations";
    case OpKind::kRoute: return "route";
    case OpKind::kExpertLinear: return "expert_linear";
    case OpKind::kExpertSum: return "expert_sum";
    case OpKind::kSelectRows: return "select_rows";
  }
  return "unknown";
}

CORBEL_INLINE const char* activation_name(ActivationKind kind) noexcept {
  switch (kind) {
    case ActivationKind::kSilu: return "silu";
    case ActivationKind::kGeluTanh: return "gelu_tanh";
    case ActivationKind::kGelu: return "gelu";
    case ActivationKind::kGeluQuick: return "gelu_quick";
    case ActivationKind::kRelu: return "relu";
    case ActivationKind::kReluSquared: return "relu_squared";
  }
  return "unknown";
}

}  // namespace hal
CORBEL_NAMESPACE_END
