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

/// The plain layout: per layer the key plane (kv_heads x head_dim x block_tokens elements), then the value plane
/// (kv_heads x value_width() x block_tokens), each at a multiple of 64 bytes. Where values lie in keys both offsets are
/// the key plane's.
inline KvLayout make_kv_layout(const KvSpec& spec) {
  KvLayout layout;
  layout.spec = spec;
  std::uint64_t end = 0;
  for (const KvLayerSpec& layer : spec.layers) {
    const auto plane = [&](std::uint32_t dim) {
      return std::uint64_t{layer.kv_heads} * dim * spec.block_tokens * kv_type_bytes(spec.type);
    };
    layout.k_offset.push_back(end);
    layout.v_offset.push_back(end);
    end = (end + plane(layer.head_dim) + 63) / 64 * 64;
    if (layer.values_in_keys) continue;
    layout.v_offset.back() = end;
    end = (end + plane(layer.value_width()) + 63) / 64 * 64;
  }
  layout.block_bytes = end;
  return layout;
}

}  // namespace hal
CORBEL_NAMESPACE_END
