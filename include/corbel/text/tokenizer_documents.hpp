// TokenizerDocuments: the texts that describe a tokenizer in a Hugging Face folder.
#pragma once

#include <corbel/config.hpp>

#include <string_view>

CORBEL_NAMESPACE_BEGIN

/// The texts of the documents that describe a tokenizer in a Hugging Face folder; those that are absent are empty.
struct TokenizerDocuments {
  std::string_view tokenizer_json;
  std::string_view tokenizer_config;    ///< tokenizer_config.json
  std::string_view special_tokens_map;  ///< special_tokens_map.json
  std::string_view generation_config;   ///< generation_config.json: more tokens that end a reply
  std::string_view vocab_json;          ///< with merges_txt instead of tokenizer_json, as GPT-2 was published
  std::string_view merges_txt;
};

CORBEL_NAMESPACE_END
