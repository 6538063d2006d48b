// Rotary embeddings (Su et al. 2021, arXiv 2104.09864) and their scalings, as inverse frequencies.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>
#include <corbel/models/key_reader.hpp>

#include <cstdint>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// One kind of rotary embedding of a model. Most are fixed; "dynamic" and "longrope" depend on the length for which a
/// sequence is meant (docs/adr/0010-rope-by-planned-length.md).
struct RopeTable {
  /// [rotary_dim / 2], scaling applied; of sequences of up to `original` tokens
  std::vector<float> inverse_frequencies;
  float attention_factor = 1;  ///< multiplies cos and sin

  std::uint32_t original = 0;           ///< tokens up to which inverse_frequencies hold; 0: always
  std::vector<float> long_frequencies;  ///< longrope: above `original`
  double dynamic_base = 0;              ///< dynamic: the base before scaling, and the factor
  double dynamic_factor = 0;

  bool depends_on_length() const noexcept { return original != 0; }
};

/// What a checkpoint says of one rotary embedding.
struct RopeScaling {
  std::string type = "none";  ///< none, linear, dynamic, llama3, yarn, longrope
  double base = 10000;
  double factor = 1;
  bool states_factor = false;   ///< longrope: else the factor is that of the context over the original one
  double original = 0;          ///< context before scaling; 0: not said
  double attention_factor = 0;  ///< 0: not said
  double beta_fast = 32;        ///< yarn
  double beta_slow = 1;
  double mscale = 0;
  double mscale_all_dim = 0;
  bool truncate = true;   ///< yarn: ends of the ramp are whole numbers
  double low_factor = 1;  ///< llama3
  double high_factor = 4;
  double alpha = 0;        ///< dynamic with a fixed base (Hunyuan); 0: by length
  double temperature = 0;  ///< factor on queries that grows with the position (Ministral 3); 0: none
  double partial = 0;      ///< part of the head that is rotated; 0: not said
  std::vector<double> short_factors, long_factors;
};

/// Reads the scaling that holds for layers of `layer_type` ("full_attention", "sliding_attention") from config.json in
/// its old style (rope_theta, rope_scaling) or its new one (rope_parameters), or from GGUF metadata.
CORBEL_API RopeScaling read_rope_scaling(KeyReader& read, double default_base, const char* layer_type);

/// base^exponent for a positive finite base, the same bits everywhere.
CORBEL_API double exact_pow(double base, double exponent) noexcept;

/// dynamic with alpha: the base that says the same without.
CORBEL_API double alpha_base(const RopeScaling& scaling, std::uint32_t rotary_dim);

/// yarn: the factor that `mscale` gives (arXiv 2309.00071); 1 for factors up to 1.
CORBEL_API double yarn_mscale(double factor, double mscale);

/// `context` is the model's context length, `divisors` GGUF's rope_freqs (may be empty). Failures go to `read`.
CORBEL_API RopeTable make_rope_table(KeyReader& read, const RopeScaling& scaling, std::uint32_t rotary_dim,
                                     std::uint32_t context, const std::vector<float>& divisors);

/// The inverse frequencies of a table for a sequence meant for `length` tokens.
CORBEL_API std::vector<float> rope_frequencies(const RopeTable& table, std::uint32_t length);

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/rope_table.ipp>
#endif
