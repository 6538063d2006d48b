// What writing a model in the other container takes, in either direction.
#pragma once

#include <corbel/checkpoint/generation_defaults.hpp>
#include <corbel/checkpoint/json.hpp>
#include <corbel/config.hpp>
#include <corbel/models/model_spec.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

/// A GGUF key with the generation_config.json that the file was made from.
inline constexpr const char* kGenerationKey = "corbel.tokenizer.generation_config";

/// A GGUF key with what config.json had besides: members that no family reads.
inline constexpr const char* kConfigKey = "corbel.config";

/// A float32 as a person would have written it.
inline double plain(float value) {
  const std::string digits = fmt::format("{}", value);
  double written = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), written);
  return written;
}

/// Replaces the member of that name, or adds it.
inline void set_member(json::Value& object, std::string_view key, json::Value value) {
  auto& members = object.members();
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const auto& member) { return member.first == key; });
  if (found != members.end()) {
    found->second = std::move(value);
  } else {
    members.emplace_back(std::string(key), std::move(value));
  }
}

inline json::Value token_or_null(const std::optional<std::uint32_t>& id) {
  return id ? json::Value::unsigned_integer(*id) : json::Value::null();
}

/// One id, a list of several, or null.
inline json::Value tokens_or_null(const std::vector<std::uint32_t>& ids) {
  if (ids.size() < 2) return ids.empty() ? json::Value::null() : json::Value::unsigned_integer(ids[0]);
  json::Value list = json::Value::array();
  for (const std::uint32_t id : ids) list.items().push_back(json::Value::unsigned_integer(id));
  return list;
}

/// As much alike as float32 of a key that was written and read.
inline bool close_enough(double x, double y) noexcept {
  return std::abs(x - y) <= 2e-6 * std::max(std::abs(x), std::abs(y));
}

/// The name of what differs between two specs as a program sees them; empty where nothing does.
inline std::string spec_difference(const ModelSpec& a, const ModelSpec& b) {
  constexpr auto close = close_enough;
  const std::pair<const char*, bool> same[] = {
      {"the number of layers", a.layers.size() == b.layers.size()},
      {"context_length", a.context_length == b.context_length},
      {"the head size", a.head_dim == b.head_dim && a.heads == b.heads && a.kv_heads == b.kv_heads},
      {"the feed-forward", a.feed_forward == b.feed_forward && a.activation == b.activation},
      {"the rotary dimensions", a.ropes.empty() || a.rotary_dim == b.rotary_dim},
      {"the norm's epsilon", close(a.norm_epsilon, b.norm_epsilon)},
      {"the embedding's scale", close(a.embedding_scale, b.embedding_scale)},
      {"the residual's scale", close(a.residual_scale, b.residual_scale)},
      {"attention's scale", close(a.attention_scale, b.attention_scale) && a.scale_by_layer == b.scale_by_layer},
      {"the place of its residuals", a.residual_after_norm == b.residual_after_norm},
      {"the logits' scale", close(a.logit_scale, b.logit_scale)},
      {"attention's soft-cap", close(a.attention_softcap, b.attention_softcap)},
      {"the logits' soft-cap", close(a.logit_softcap, b.logit_softcap)},
      {"the clamp of queries, keys and values", close(a.qkv_clamp, b.qkv_clamp)},
      {"attention's temperature", close(a.temperature, b.temperature)},
      {"the gate's limit", close(a.gate_limit, b.gate_limit)},
      {"the parallel residual", a.parallel == b.parallel},
      {"the norms of latent attention", close(a.latent.norm_epsilon, b.latent.norm_epsilon)},
      {"the head", a.tied_head == b.tied_head},
      {"the slopes of ALiBi", std::equal(a.slopes.begin(), a.slopes.end(), b.slopes.begin(), b.slopes.end(), close)},
      {"the experts", a.experts.feed_forward == b.experts.feed_forward &&
                          a.experts.shared_feed_forward == b.experts.shared_feed_forward &&
                          a.experts.route.experts == b.experts.route.experts &&
                          a.experts.route.top_k == b.experts.route.top_k},
      {"the routing of experts",
       a.experts.route.experts == 0 ||
           (a.experts.route.score == b.experts.route.score && a.experts.route.normalize == b.experts.route.normalize &&
            close(a.experts.route.scale, b.experts.route.scale) && a.experts.route.groups == b.experts.route.groups &&
            a.experts.route.top_groups == b.experts.route.top_groups)},
  };
  for (const auto& [name, equal] : same) {
    if (!equal) return name;
  }
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    const LayerSpec& x = a.layers[i];
    const LayerSpec& y = b.layers[i];
    // A window that is as long as the context hides nothing.
    const auto window = [](const LayerSpec& layer, const ModelSpec& spec) {
      return layer.window >= spec.context_length ? 0 : layer.window;
    };
    const std::string place = "layer " + std::to_string(i) + ": ";
    if (window(x, a) != window(y, b)) return place + "its window";
    if ((x.rope == kNoRope) != (y.rope == kNoRope)) return place + "its rotary embedding";
    if (x.sparse != y.sparse) return place + "its experts";
    if (x.rope == kNoRope) continue;
    const RopeTable& p = a.ropes[x.rope];
    const RopeTable& q = b.ropes[y.rope];
    const auto equal = [&](const std::vector<float>& m, const std::vector<float>& n) {
      return std::equal(m.begin(), m.end(), n.begin(), n.end(), close);
    };
    if (!equal(p.inverse_frequencies, q.inverse_frequencies) || !equal(p.long_frequencies, q.long_frequencies) ||
        !close(p.attention_factor, q.attention_factor) || p.original != q.original ||
        !close(p.dynamic_factor, q.dynamic_factor)) {
      return place + "the scaling of its rotary embedding";
    }
  }
  return {};
}

}  // namespace detail
}  // namespace models
CORBEL_NAMESPACE_END
