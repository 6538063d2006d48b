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
    case OpKind::kSelectRows: return "select_rows";
  }
  return "unknown";
}

}  // namespace hal
CORBEL_NAMESPACE_END
