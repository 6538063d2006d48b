// Definitions of text/pipeline_model.hpp: a folder's tokenizer as the keys of a GGUF file.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/impl/text/json_fields.ipp>
#include <corbel/text/byte_stand_ins.hpp>
#include <corbel/text/pipeline_model.hpp>
#include <corbel/text/pretokenizer.hpp>

#include <algorithm>
#include <fmt/format.h>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

// The steps of a pre-tokenizer or normalizer, in order, in one line: "Split(pattern);Digits(1);ByteLevel(regex)". The
// node has been read before: its shape is right.
CORBEL_INLINE std::string describe_steps(const json::Value* node, std::string_view list_key) {
  std::string out;
  std::vector<const json::Value*> left;
  if (node != nullptr && node->is_object()) left.push_back(node);
  const auto flag = [](const json::Value& step, std::string_view key, bool fallback) {
    const json::Value* value = step.find(key);
    return value != nullptr && value->type() == json::Type::kBool ? value->as_bool() : fallback;
  };
  while (!left.empty()) {
    const json::Value& step = *left.back();
    left.pop_back();
    if (const json::Value* list = step.find(list_key); list != nullptr) {
      for (std::size_t at = list->items().size(); at > 0; --at) left.push_back(&list->items()[at - 1]);
      continue;
    }
    const json::Value* type = step.find("type");
    const std::string_view name = type == nullptr ? std::string_view() : type->as_string();
    if (!out.empty()) out += ';';
    out += name;
    if (name == "Split" || name == "Replace") {
      const json::Value* pattern = step.find("pattern");
      const json::Value* text = pattern == nullptr ? nullptr : pattern->find("Regex");
      if (pattern != nullptr && text == nullptr) text = pattern->find("String");
      if (text != nullptr) out.append("(").append(text->as_string()).append(")");
    } else if (name == "Digits") {
      out += flag(step, "individual_digits", false) ? "(1)" : "";
    } else if (name == "ByteLevel") {
      out += flag(step, "use_regex", true) ? "(regex)" : "";
    }
  }
  return out;
}

/// A name of tokenizer.ggml.pre and the pre-tokenizer that it stands for, with ignore_merges where that tells two
/// apart.
struct PreName {
  std::string_view steps;
  std::string_view name;
};

// The patterns as published in tokenizer.json: openai-community/gpt2, meta-llama/Meta-Llama-3-8B, Qwen/Qwen2-7B,
// openai/gpt-oss-20b, mistralai/Mistral-Nemo, HuggingFaceTB/SmolLM2, tiiuae/falcon-7b, bigscience/bloom.
#define CORBEL_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define CORBEL_TAIL "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+);ByteLevel"
#define CORBEL_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define CORBEL_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
inline constexpr PreName kPreNames[] = {
    {"ByteLevel(regex)", "gpt-2"},
    {"Digits(1);ByteLevel(regex)", "smollm"},
    {"Split(" CORBEL_CONTRACTIONS
     "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" CORBEL_TAIL,
     "llama-bpe"},
    {"Split(" CORBEL_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" CORBEL_TAIL,
     "qwen2"},
    {"Split([^\\r\\n\\p{L}\\p{N}]?" CORBEL_UPPER "*" CORBEL_LOWER "+" CORBEL_CONTRACTIONS
     "?|[^\\r\\n\\p{L}\\p{N}]?" CORBEL_UPPER "+" CORBEL_LOWER "*" CORBEL_CONTRACTIONS
     "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" CORBEL_TAIL,
     "gpt-4o"},
    {"Split([^\\r\\n\\p{L}\\p{N}]?" CORBEL_UPPER "*" CORBEL_LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" CORBEL_UPPER
     "+" CORBEL_LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" CORBEL_TAIL,
     "tekken"},
    {"Punctuation;ByteLevel(regex);Digits;Split([0-9][0-9][0-9])", "falcon"},
    {"Split( ?[^(\\s|[.,!?\xE2\x80\xA6\xE3\x80\x82\xEF\xBC\x8C\xE3\x80\x81\xE0\xA5\xA4\xDB\x94\xD8\x8C])]+);ByteLevel",
     "bloom"},
};
#undef CORBEL_CONTRACTIONS
#undef CORBEL_TAIL
#undef CORBEL_UPPER
#undef CORBEL_LOWER

// The name of tokenizer.ggml.pre for these steps: those that are published, else those of a row as its patterns are.
CORBEL_INLINE std::string_view name_of_steps(std::string_view steps, bool whole_words) {
  for (const PreName& row : kPreNames) {
    if (row.steps == steps) return row.name;
  }
  for (const Pretokenizer& row : all_pretokenizers()) {
    if (!row.byte_level || row.whole_words != whole_words) continue;
    std::string spelled;
    for (const std::string_view pattern : row.patterns) {
      if (!pattern.empty()) spelled.append("Split(").append(pattern).append(");");
    }
    if (spelled + "ByteLevel" == steps) return row.name;
  }
  return "unknown";
}

CORBEL_INLINE bool has_text(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return value != nullptr && value->is_string() && !value->as_string().empty();
}

/// What tokenizer.ggml.* says of one tokenizer.
struct GgufTokenizer {
  std::string_view model;
  std::string_view pre;
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  std::vector<std::string> merges;
};

// A score for each piece that orders merges by score as their ranks order them.
CORBEL_INLINE void score_by_rank(const json::Value& merges, const Vocabulary& vocabulary, std::vector<float>& scores) {
  scores.assign(vocabulary.size(), 0.0f);
  std::string joined;
  for (std::size_t rank = 0; rank < merges.items().size(); ++rank) {
    const json::Value& merge = merges.items()[rank];
    if (merge.is_array()) {
      joined.assign(merge.items()[0].as_string()).append(merge.items()[1].as_string());
    } else {
      joined.assign(merge.as_string());
      joined.erase(joined.find(' '), 1);
    }
    const TokenId id = vocabulary.find(joined);
    if (id < 0 || scores[static_cast<std::size_t>(id)] != 0.0f) continue;
    scores[static_cast<std::size_t>(id)] = -static_cast<float>(rank + 1);
  }
}

// A merge as GGUF writes it: a space inside a half, which byte-level vocabularies do not have, has no spelling.
CORBEL_INLINE std::string merge_line(const json::Value& merge) {
  if (!merge.is_array()) return std::string(merge.as_string());
  return std::string(merge.items()[0].as_string()).append(" ").append(merge.items()[1].as_string());
}

CORBEL_INLINE std::string decode_base64(std::string_view text) {
  std::string out;
  std::uint32_t word = 0;
  int bits = 0;
  for (const char c : text) {
    const int digit = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (digit < 0) continue;
    word = word << 6 | static_cast<std::uint32_t>(digit);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    out += static_cast<char>(word >> bits & 255u);
  }
  return out;
}

// The first precompiled_charsmap among the normalizers, as bytes.
CORBEL_INLINE std::string find_charsmap(const json::Value* node) {
  std::vector<const json::Value*> left = {node};
  while (!left.empty()) {
    const json::Value* step = left.back();
    left.pop_back();
    if (step == nullptr) continue;
    if (const json::Value* map = step->find("precompiled_charsmap"); map != nullptr) {
      return decode_base64(map->as_string());
    }
    if (const json::Value* list = step->find("normalizers"); list != nullptr) {
      for (std::size_t at = list->items().size(); at > 0; --at) left.push_back(&list->items()[at - 1]);
    }
  }
  return {};
}

CORBEL_INLINE Status PipelineModel::write_metadata(const TokenizerDocuments& documents, Metadata& metadata) {
  // What cannot be read is not written.
  CORBEL_ASSIGN_OR_RETURN(const std::shared_ptr<const TokenizerModel> read, from_documents(documents));
  Loader loader;
  CORBEL_RETURN_IF_ERROR(loader.read_documents(documents));
  CORBEL_RETURN_IF_ERROR(loader.read_kind());
  const auto& model = static_cast<const PipelineModel&>(*read);
  const Vocabulary& vocabulary = model.vocabulary();
  const std::string cutter = describe_steps(json_member(loader.tokenizer, "pre_tokenizer"), "pretokenizers");
  const std::string normalizer = describe_steps(json_member(loader.tokenizer, "normalizer"), "normalizers");

  GgufTokenizer out;
  for (std::size_t at = 0; at < vocabulary.size(); ++at) {
    const auto id = static_cast<TokenId>(at);
    PieceType type = vocabulary.type(id);
    if (type == PieceType::kUndefined) type = PieceType::kUnused;
    if (type == PieceType::kAdded) type = PieceType::kUserDefined;
    out.tokens.emplace_back(vocabulary.piece(id));
    out.types.push_back(static_cast<std::int32_t>(type));
  }
  const json::Value* merges = loader.model->find("merges");
  const bool spaced = cutter.find("Metaspace") != std::string::npos || normalizer.find("Prepend") != std::string::npos;
  std::string charsmap;
  // Bytes that no text has, such as 0xFF, may have no piece.
  const bool affixed =
      has_text(*loader.model, "continuing_subword_prefix") || has_text(*loader.model, "end_of_word_suffix");
  if (loader.kind == "BPE" && model.cutter_.byte_level() && !affixed) {
    out.model = "gpt2";
    const json::Value* whole = loader.model->find("ignore_merges");
    out.pre = name_of_steps(cutter, whole != nullptr && whole->type() == json::Type::kBool && whole->as_bool());
    for (const json::Value& merge : merges->items()) out.merges.push_back(merge_line(merge));
  } else if (loader.kind == "BPE" && model.decoder_.has_byte_fallback()) {
    out.model = "llama";
    score_by_rank(*merges, vocabulary, out.scores);
    metadata.set("tokenizer.ggml.add_space_prefix", MetaValue::from_bool(spaced));
  } else if (loader.kind == "Unigram") {
    out.model = "t5";
    for (std::size_t at = 0; at < vocabulary.size(); ++at) {
      const json::Value* list = loader.model->find("vocab");
      out.scores.push_back(at < list->items().size() ? static_cast<float>(list->items()[at].items()[1].as_double())
                                                     : 0.0f);
    }
    metadata.set("tokenizer.ggml.add_space_prefix", MetaValue::from_bool(spaced));
    metadata.set("tokenizer.ggml.remove_extra_whitespaces",
                 MetaValue::from_bool(normalizer.find("Replace( {2,})") != std::string::npos));
    charsmap = find_charsmap(json_member(loader.tokenizer, "normalizer"));
    if (!charsmap.empty()) {
      metadata.set("tokenizer.ggml.precompiled_charsmap",
                   MetaValue::from_bytes(MetaType::kU8, std::as_bytes(std::span(charsmap))));
    }
  } else if (loader.kind == "WordPiece") {
    out.model = "bert";
    CORBEL_ASSIGN_OR_RETURN(const std::string_view prefix,
                            json_string_or(*loader.model, "continuing_subword_prefix", "tokenizer.json: model", "##"));
    for (std::size_t at = 0; at < out.tokens.size(); ++at) {
      if (out.types[at] != static_cast<std::int32_t>(PieceType::kNormal)) continue;
      std::string& token = out.tokens[at];
      if (!prefix.empty() && token.compare(0, prefix.size(), prefix) == 0) {
        token.erase(0, prefix.size());
      } else {
        token.insert(0, "\xE2\x96\x81");
      }
    }
  } else {
    out.model = "none";
  }

  metadata.set("tokenizer.ggml.model", MetaValue::from_string(out.model));
  if (!out.pre.empty()) metadata.set("tokenizer.ggml.pre", MetaValue::from_string(out.pre));
  metadata.set("tokenizer.ggml.tokens", MetaValue::from_strings(out.tokens));
  metadata.set("tokenizer.ggml.token_type", MetaValue::from_ints(out.types));
  if (!out.scores.empty()) metadata.set("tokenizer.ggml.scores", MetaValue::from_floats(out.scores));
  if (!out.merges.empty()) metadata.set("tokenizer.ggml.merges", MetaValue::from_strings(out.merges));
  const auto set_id = [&](std::string_view key, TokenId id) {
    if (id < 0) return;
    metadata.set(fmt::format("tokenizer.ggml.{}_token_id", key), MetaValue::from_uint(static_cast<std::uint64_t>(id)));
  };
  set_id("bos", model.bos());
  set_id("eos", model.eos());
  set_id("unknown", model.unknown());
  static constexpr std::pair<const char*, const char*> kRoles[] = {
      {"pad_token", "padding"}, {"sep_token", "seperator"}, {"cls_token", "cls"}, {"mask_token", "mask"}};
  for (const auto& [key, role] : kRoles) {
    CORBEL_ASSIGN_OR_RETURN(const std::string_view text, loader.config_token(key));
    if (!text.empty()) set_id(role, vocabulary.find(text));
  }
  metadata.set("tokenizer.ggml.add_bos_token", MetaValue::from_bool(model.adds_bos()));
  metadata.set("tokenizer.ggml.add_eos_token", MetaValue::from_bool(model.adds_eos()));

  metadata.set("tokenizer.huggingface.json", documents.tokenizer_json.empty()
                                                 ? MetaValue::from_string(json::write(loader.tokenizer))
                                                 : MetaValue::from_string(documents.tokenizer_json));
  const std::pair<const char*, std::string_view> rest[] = {
      {"corbel.tokenizer.config", documents.tokenizer_config},
      {"corbel.tokenizer.special_tokens_map", documents.special_tokens_map},
      {"corbel.tokenizer.generation_config", documents.generation_config}};
  for (const auto& [key, document] : rest) {
    if (!document.empty()) metadata.set(key, MetaValue::from_string(document));
  }
  return {};
}

}  // namespace text
CORBEL_NAMESPACE_END
