// The memory of a paged KV cache: blocks of tokens, each holding the keys and values of all layers.
#pragma once

#include <corbel/config.hpp>
#include <corbel/hal/program.hpp>

#include <cstdint>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace hal {

/// Element type of cached keys and values.
enum class KvType : std::uint8_t { kF32, kBF16, kF16 };

inline const char* kv_type_name(KvType type) noexcept {
  return type == KvType::kF32 ? "f32" : type == KvType::kBF16 ? "bf16" : "f16";
}
inline std::uint32_t kv_type_bytes(KvType type) noexcept { return type == KvType::kF32 ? 4 : 2; }

struct KvSpec {
  std::vector<KvLayerSpec> layers;
  std::uint32_t block_tokens = 32;  ///< 16, 32 or 64
  KvType type = KvType::kF16;
};

/// Where a backend keeps the planes inside one block; block b of the pool begins at byte b * block_bytes. The order of
/// elements inside a plane is the backend's own.
struct KvLayout {
  KvSpec spec;
  std::vector<std::uint64_t> k_offset;  ///< bytes from the block's start, one per layer
  std::vector<std::uint64_t> v_offset;
  std::uint64_t block_bytes = 0;
};

/// The plain layout: per layer the key plane, then the value plane, each kv_heads * head_dim * block_tokens elements at
/// a multiple of 64 bytes.
inline KvLayout make_kv_layout(const KvSpec& spec) {
  KvLayout layout;
  layout.spec = spec;
  std::uint64_t end = 0;
  for (const KvLayerSpec& layer : spec.layers) {
    const std::uint64_t plane =
        std::uint64_t{layer.kv_heads} * layer.head_dim * spec.block_tokens * kv_type_bytes(spec.type);
    layout.k_offset.push_back(end);
    end = (end + plane + 63) / 64 * 64;
    layout.v_offset.push_back(end);
    end = (end + plane + 63) / 64 * 64;
  }
  layout.block_bytes = end;
  return layout;
}

}  // namespace hal
CORBEL_NAMESPACE_END
