// What a checkpoint says about generating: the tokens that end a reply, and how its authors sample.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

CORBEL_NAMESPACE_BEGIN

/// Empty where the files say nothing.
struct GenerationDefaults {
  std::vector<std::uint32_t> eos_ids;  ///< tokens that end a reply, each once, in the file's order
  std::optional<std::uint32_t> bos_id;
  std::optional<std::uint32_t> pad_id;
  std::optional<bool> do_sample;  ///< false: the most probable token each time
  std::optional<double> temperature;
  std::optional<std::uint32_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  /// A line for each id of config.json that is no token of the model, which is left out: files that were made from
  /// others keep such.
  std::vector<std::string> ignored;
};

/// Reads and checks generation_config.json and, for each value that is not there, config.json, which is checked whether
/// its values are needed or not; of GGUF the keys general.sampling.* and tokenizer.ggml.*_token_id (eos, eot and eom
/// end a reply), and what they cannot say of the generation_config.json that convert() keeps
/// (corbel.tokenizer.generation_config). Ids are integers below the size of the model's vocabulary, -1 is none. Errors
/// name file and key: the JSON errors, type_mismatch, bad_value (temperature below 0, top_p or min_p outside [0, 1],
/// repetition_penalty not above 0), vocab_invalid (an integer that is no token of the model; in config.json it is left
/// out), limit_exceeded (more than 1024 tokens that end a reply).
CORBEL_API Result<GenerationDefaults> read_generation_defaults(const Checkpoint& checkpoint);

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/checkpoint/generation_defaults.ipp>
#endif
