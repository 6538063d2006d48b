// Definitions of models/rope_table.hpp.
//
// Frequencies are computed as the families' reference implementation has them: powers rounded to float32 before the
// reciprocal and before scaling.
#pragma once

#include <corbel/detail/compiler.hpp>
#include <corbel/detail/exact_math.hpp>
#include <corbel/models/rope_table.hpp>

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

CORBEL_EXACT_FP_BEGIN

CORBEL_NAMESPACE_BEGIN
namespace models {
namespace detail {

/// base^(-2i/rotary_dim) for each pair.
inline std::vector<float> plain_frequencies(double base, std::uint32_t rotary_dim) {
  std::vector<float> result;
  for (std::uint32_t i = 0; i < rotary_dim / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim);
    result.push_back(1.0f / static_cast<float>(exact_pow(base, exponent)));
  }
  return result;
}

/// Llama 3: long wavelengths are divided by the factor, short ones stay, between them a linear blend.
inline void scale_llama3(const RopeScaling& scaling, std::vector<float>& frequencies) {
  constexpr double kTwoPi = 6.28318530717958647693;
  const double low = scaling.original / scaling.low_factor, high = scaling.original / scaling.high_factor;
  for (float& frequency : frequencies) {
    const double f = double{frequency}, wavelength = kTwoPi / f;
    if (wavelength > low) {
      frequency = static_cast<float>(f / scaling.factor);
    } else if (wavelength >= high) {
      const double smooth =
          (scaling.original / wavelength - scaling.low_factor) / (scaling.high_factor - scaling.low_factor);
      frequency = static_cast<float>((1 - smooth) * f / scaling.factor + smooth * f);
    }
  }
}

/// YaRN (arXiv 2309.00071): pairs that turn more than beta_fast times within the original context stay, those that turn
/// less than beta_slow times are divided by the factor, between them a linear ramp.
inline void scale_yarn(const RopeScaling& scaling, std::uint32_t rotary_dim, std::vector<float>& frequencies) {
  constexpr double kTwoPi = 6.28318530717958647693;
  const double dim = static_cast<double>(rotary_dim);
  const auto pair_of = [&](double turns) {
    return dim * corbel::detail::exact_log(scaling.original / (turns * kTwoPi)) /
           (2.0 * corbel::detail::exact_log(scaling.base));
  };
  double low = pair_of(scaling.beta_fast), high = pair_of(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::min(std::max((static_cast<double>(i) - low) / (high - low), 0.0), 1.0);
    const double f = double{frequencies[i]};
    frequencies[i] = static_cast<float>(f / scaling.factor * ramp + f * (1.0 - ramp));
  }
}

inline std::vector<float> divide_by(std::vector<float> frequencies, const std::vector<double>& factors) {
  for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= static_cast<float>(factors[i]);
  return frequencies;
}

/// Reads the members of a rope_parameters or rope_scaling object, where `read` stands.
inline void read_hf_scaling(KeyReader& read, RopeScaling& scaling) {
  scaling.type = read.text_or("rope_type", read.text_or("type", "none"));
  if (scaling.type == "default" || scaling.type == "mrope") scaling.type = "none";
  if (scaling.type == "su") scaling.type = "longrope";
  scaling.base = read.number_or("rope.freq_base", scaling.base, 0, 1e12);
  scaling.states_factor = read.has("factor");
  const bool needs_factor = scaling.type == "linear" || scaling.type == "llama3" || scaling.type == "yarn";
  scaling.factor = needs_factor ? read.number("factor", 0, 1e6) : read.number_or("factor", 1, 0, 1e6);
  scaling.original = read.number_or("original_max_position_embeddings", scaling.original, 0, 1e9);
  scaling.attention_factor = read.number_or("attention_factor", 0, 0, 1e6);
  scaling.beta_fast = read.number_or("beta_fast", 32, 0, 1e6);
  scaling.beta_slow = read.number_or("beta_slow", 1, 0, 1e6);
  scaling.mscale = read.number_or("mscale", 0, -1, 1e6);
  scaling.mscale_all_dim = read.number_or("mscale_all_dim", 0, -1, 1e6);
  scaling.truncate = read.flag_or("truncate", true);
  scaling.low_factor = read.number_or("low_freq_factor", 1, 0, 1e6);
  scaling.high_factor = read.number_or("high_freq_factor", 4, 0, 1e6);
  scaling.alpha = read.number_or("alpha", 0, -1, 1e6);
  scaling.temperature = read.number_or("llama_4_scaling_beta", 0, -1, 1e6);
  scaling.partial = read.number_or("rope.partial", scaling.partial, 0, 1);
  scaling.short_factors = read.numbers("short_factor");
  scaling.long_factors = read.numbers("long_factor");
}

inline void read_gguf_scaling(KeyReader& read, RopeScaling& scaling) {
  scaling.type = read.text_or("rope.scaling.type", "none");
  scaling.factor = read.number_or("rope.scaling.factor", 1, 0, 1e6);
  scaling.original = read.number_or("rope.scaling.original_context_length", 0, 0, 1e9);
  const double attention_factor = read.number_or("rope.scaling.attn_factor", 0, 0, 1e6);
  scaling.beta_fast = read.number_or("rope.scaling.yarn_beta_fast", 32, 0, 1e6);
  scaling.beta_slow = read.number_or("rope.scaling.yarn_beta_slow", 1, 0, 1e6);
  scaling.temperature = read.number_or("attention.temperature_scale", 0, -1, 1e6);
  if (scaling.type == "yarn") {
    // A multiplier stands for mscale = mscale_all_dim: cosines stay as they are and the softmax takes the factor.
    const double multiplier = read.number_or("rope.scaling.yarn_log_multiplier", 0, -1, 1e6);
    scaling.mscale = scaling.mscale_all_dim = 10 * multiplier;
    // Files state what is left beside that of the factor, or the whole.
    scaling.attention_factor = read.number_or("rope.scaling.yarn_attn_factor", 0, 0, 1e6);
    if (attention_factor != 0) scaling.attention_factor = attention_factor * yarn_mscale(scaling.factor, 1);
  } else {
    scaling.attention_factor = attention_factor;
  }
}

}  // namespace detail

CORBEL_INLINE double exact_pow(double base, double exponent) noexcept {
  return corbel::detail::exact_exp(exponent * corbel::detail::exact_log(base));
}

CORBEL_INLINE double alpha_base(const RopeScaling& scaling, std::uint32_t rotary_dim) {
  const double dim = static_cast<double>(rotary_dim);
  return scaling.base * exact_pow(scaling.alpha, dim / (dim - 2));
}

CORBEL_INLINE double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * corbel::detail::exact_log(factor) + 1.0;
}

CORBEL_INLINE RopeScaling read_rope_scaling(KeyReader& read, double default_base, const char* layer_type) {
  RopeScaling scaling;
  scaling.base = read.number_or("rope.freq_base", default_base, 0, 1e12);
  if (!read.is_hf()) {
    detail::read_gguf_scaling(read, scaling);
    return scaling;
  }
  scaling.partial = read.number_or("rope.partial", 0, 0, 1);
  // Phi-3 keeps this one beside rope_scaling.
  scaling.original = read.number_or("original_max_position_embeddings", 0, 0, 1e9);
  if (read.enter(std::string("rope_parameters.") + layer_type) || read.enter("rope_parameters") ||
      read.enter("rope_scaling")) {
    detail::read_hf_scaling(read, scaling);
  } else {
    for (const char* name : {"rope_parameters", "rope_scaling"})
      if (read.has(name)) read.fail(Errc::kTypeMismatch, fmt::format("{}: expected an object", read.name_of(name)));
  }
  read.enter("");
  return scaling;
}

CORBEL_INLINE RopeTable make_rope_table(KeyReader& read, const RopeScaling& scaling, std::uint32_t rotary_dim,
                                        std::uint32_t context, const std::vector<float>& divisors) {
  RopeTable table;
  RopeScaling s = scaling;
  const std::string key = read.is_hf() ? "config.json: rope scaling" : read.name_of("rope.scaling.type");
  if (s.original == 0) s.original = context;
  table.inverse_frequencies = detail::plain_frequencies(s.base, rotary_dim);
  table.attention_factor = s.attention_factor == 0 ? 1.0f : static_cast<float>(s.attention_factor);
  if (s.type == "linear") {
    for (float& frequency : table.inverse_frequencies) frequency /= static_cast<float>(s.factor);
  } else if (s.type == "llama3") {
    if (!(s.high_factor > s.low_factor)) {
      read.fail(Errc::kBadValue, fmt::format("{}: high_freq_factor {} is not above low_freq_factor {}", key,
                                             s.high_factor, s.low_factor));
      return table;
    }
    detail::scale_llama3(s, table.inverse_frequencies);
  } else if (s.type == "yarn") {
    detail::scale_yarn(s, rotary_dim, table.inverse_frequencies);
    if (s.attention_factor == 0) {
      const bool both = s.mscale > 0 && s.mscale_all_dim > 0;
      table.attention_factor = static_cast<float>(
          both ? yarn_mscale(s.factor, s.mscale) / yarn_mscale(s.factor, s.mscale_all_dim) : yarn_mscale(s.factor, 1));
    }
  } else if (s.type == "dynamic" && s.alpha > 0) {
    table.inverse_frequencies = detail::plain_frequencies(alpha_base(s, rotary_dim), rotary_dim);
  } else if (s.type == "dynamic") {
    table.original = context;
    table.dynamic_base = s.base;
    table.dynamic_factor = s.factor;
  } else if (s.type == "longrope") {
    for (const auto* factors : {&s.short_factors, &s.long_factors}) {
      bool sound = factors->size() == rotary_dim / 2;
      for (const double factor : *factors) sound = sound && factor > 1e-6 && factor < 1e6;
      if (sound) continue;
      read.fail(Errc::kBadValue,
                fmt::format("{}: longrope needs {} positive short and long factors", key, rotary_dim / 2));
      return table;
    }
    if (s.long_factors != s.short_factors) {
      table.original = static_cast<std::uint32_t>(s.original);
      table.long_frequencies = detail::divide_by(table.inverse_frequencies, s.long_factors);
    }
    table.inverse_frequencies = detail::divide_by(std::move(table.inverse_frequencies), s.short_factors);
    const double stretch = s.states_factor ? s.factor : static_cast<double>(context) / s.original;
    if (s.attention_factor == 0 && stretch > 1)
      table.attention_factor = static_cast<float>(
          std::sqrt(1.0 + corbel::detail::exact_log(stretch) / corbel::detail::exact_log(s.original)));
  } else if (s.type != "none") {
    read.fail(Errc::kUnsupported,
              fmt::format("{}: \"{}\" is not supported; supported are none, linear, dynamic, llama3, yarn, longrope",
                          key, s.type));
  }
  for (std::size_t i = 0; i < divisors.size(); ++i) table.inverse_frequencies[i] /= divisors[i];
  constexpr float kHighest = 16;  // times the greatest position stays in the range of sine and cosine
  for (const auto* frequencies : {&table.inverse_frequencies, &table.long_frequencies})
    for (const float frequency : *frequencies)
      if (!(frequency >= 0 && frequency <= kHighest)) {
        read.fail(Errc::kBadValue,
                  fmt::format("{}: base {} and factor {} give a frequency of {}", key, s.base, s.factor, frequency));
        return table;
      }
  return table;
}

CORBEL_INLINE std::vector<float> rope_frequencies(const RopeTable& table, std::uint32_t length) {
  if (!table.depends_on_length() || length <= table.original) return table.inverse_frequencies;
  if (!table.long_frequencies.empty()) return table.long_frequencies;
  const double dim = 2.0 * static_cast<double>(table.inverse_frequencies.size());
  const double stretch = table.dynamic_factor * static_cast<double>(length) / static_cast<double>(table.original) -
                         (table.dynamic_factor - 1);
  return detail::plain_frequencies(table.dynamic_base * exact_pow(stretch, dim / (dim - 2)),
                                   static_cast<std::uint32_t>(dim));
}

}  // namespace models
CORBEL_NAMESPACE_END

CORBEL_EXACT_FP_END
