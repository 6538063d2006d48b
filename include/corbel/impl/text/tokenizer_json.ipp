// Definitions of text/pipeline_model.hpp: reading the documents of a Hugging Face folder.
#pragma once

#include <corbel/detail/utf8.hpp>
#include <corbel/impl/text/json_fields.ipp>
#include <corbel/text/pipeline_model.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text {

// The reference reads a number as its digits, rounded, over a power of ten, rounded again; scores that should be equal
// differ by that, and which of two ways through a word is better.
CORBEL_INLINE double read_as_reference(double number) noexcept {
  char buffer[32];
  const double size = std::fabs(number);
  const char* const end = std::to_chars(buffer, buffer + sizeof buffer, size, std::chars_format::scientific).ptr;
  std::uint64_t digits = 0;
  int exponent = 0;
  const char* at = buffer;
  for (bool fraction = false; at != end && *at != 'e'; ++at) {
    if (*at == '.') {
      fraction = true;
    } else {
      digits = digits * 10 + static_cast<std::uint64_t>(*at - '0');
      exponent -= fraction ? 1 : 0;
    }
  }
  int written = 0;
  if (at != end) {
    ++at;
    if (at != end && *at == '+') ++at;
    std::from_chars(at, end, written);
  }
  exponent += written;
  static constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  if (exponent >= 0 || -exponent >= static_cast<int>(std::size(kPowers))) return number;
  const double value = static_cast<double>(digits) / kPowers[-exponent];
  return number < 0 ? -value : value;
}

/// Everything that is read before the model is put together. Texts live in the documents.
struct PipelineModel::Loader {
  static constexpr std::size_t kMaxHoles = 1u << 14;  // ids without a token

  json::Value tokenizer;
  json::Value config;
  json::Value special_map;
  json::Value generation;

  std::vector<Piece> pieces;
  std::vector<bool> taken;
  std::vector<double> scores;                             // unigram
  std::unordered_map<std::string_view, TokenId> by_text;  // of the model's own vocabulary and added tokens
  std::vector<AddedToken> added;
  std::vector<bool> is_added;
  const json::Value* model = nullptr;
  std::string_view kind;
  UnknownPolicy unknown;
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  SpecialIds ids;

  static Result<json::Value> parse(std::string_view document, std::string_view name);
  Status read_documents(const TokenizerDocuments& documents);
  Status read_kind();
  std::size_t added_count() const;
  Status read_vocabulary();
  Status place_token(std::string_view text, TokenId id, const std::string& path);
  Status read_vocabulary_object(const json::Value& vocabulary, std::size_t limit);
  Status read_vocabulary_list(const json::Value& vocabulary);
  Status read_added();
  Status add(const AddedToken& token, const std::string& path);
  Status read_added_entry(const json::Value& node, const std::string& path, std::optional<TokenId> id);
  Status name_special_tokens();
  Result<std::string_view> config_token(std::string_view key) const;
  TokenId find(std::string_view text) const;
  Status read_unknown();
  Result<MergeTable> read_merges(const Vocabulary& vocabulary, std::string_view prefix) const;
  Result<std::unique_ptr<const WordModel>> make_words(const Vocabulary& vocabulary, bool byte_level) const;
  Status read_post_processor();
  Status read_template(const json::Value& node, const std::string& path);
  Status read_around(const json::Value& node, const std::string& path);
  Result<TokenId> around_token(const json::Value& node, std::string_view key, const std::string& path) const;
  Status check_roles() const;
  Status read_special_ids();
  Status read_ends();
};

CORBEL_INLINE Result<json::Value> PipelineModel::Loader::parse(std::string_view document, std::string_view name) {
  Result<json::Value> value = json::parse(document);
  if (!value.ok()) return value.status().with_place(name);
  if (!value->is_object()) return json_mismatch(name, "object", *value);
  return value;
}

// vocab.json and merges.txt as GPT-2 was published, in the form of a tokenizer.json.
CORBEL_INLINE Result<json::Value> join_vocab_and_merges(const TokenizerDocuments& documents) {
  Result<json::Value> vocabulary = json::parse(documents.vocab_json);
  if (!vocabulary.ok()) return vocabulary.status().with_place("vocab.json");
  json::Value merges = json::Value::array();
  for (std::size_t at = 0; at < documents.merges_txt.size();) {
    const std::size_t end = std::min(documents.merges_txt.find('\n', at), documents.merges_txt.size());
    std::string_view line = documents.merges_txt.substr(at, end - at);
    at = end + 1;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || line.substr(0, 8) == "#version") continue;
    merges.items().push_back(json::Value::string(std::string(line)));
  }
  json::Value model = json::Value::object();
  model.members().emplace_back("type", json::Value::string("BPE"));
  model.members().emplace_back("vocab", *std::move(vocabulary));
  model.members().emplace_back("merges", std::move(merges));
  const auto byte_level = [] {
    json::Value node = json::Value::object();
    node.members().emplace_back("type", json::Value::string("ByteLevel"));
    node.members().emplace_back("add_prefix_space", json::Value::boolean(false));
    return node;
  };
  json::Value tokenizer = json::Value::object();
  tokenizer.members().emplace_back("pre_tokenizer", byte_level());
  tokenizer.members().emplace_back("decoder", byte_level());
  tokenizer.members().emplace_back("model", std::move(model));
  return tokenizer;
}

CORBEL_INLINE Status PipelineModel::Loader::read_documents(const TokenizerDocuments& documents) {
  if (!documents.tokenizer_json.empty()) {
    CORBEL_ASSIGN_OR_RETURN(tokenizer, parse(documents.tokenizer_json, "tokenizer.json"));
  } else if (!documents.vocab_json.empty() && !documents.merges_txt.empty()) {
    CORBEL_ASSIGN_OR_RETURN(tokenizer, join_vocab_and_merges(documents));
  } else {
    return Status(Errc::kMissingKey, "tokenizer.json: not there (nor vocab.json with merges.txt)");
  }
  if (!documents.tokenizer_config.empty()) {
    CORBEL_ASSIGN_OR_RETURN(config, parse(documents.tokenizer_config, "tokenizer_config.json"));
  }
  if (!documents.special_tokens_map.empty()) {
    CORBEL_ASSIGN_OR_RETURN(special_map, parse(documents.special_tokens_map, "special_tokens_map.json"));
  }
  if (!documents.generation_config.empty()) {
    CORBEL_ASSIGN_OR_RETURN(generation, parse(documents.generation_config, "generation_config.json"));
  }
  return {};
}

// Files before version 0.10 of the reference have no "type"; their members tell.
CORBEL_INLINE Status PipelineModel::Loader::read_kind() {
  model = json_member(tokenizer, "model");
  if (model == nullptr) return Status(Errc::kMissingKey, "tokenizer.json: model: not in the file");
  if (!model->is_object()) return json_mismatch("tokenizer.json: model", "object", *model);
  if (model->find("type") != nullptr) {
    CORBEL_ASSIGN_OR_RETURN(kind, json_string(*model, "type", "tokenizer.json: model"));
  } else if (model->find("merges") != nullptr) {
    kind = "BPE";
  } else if (model->find("max_input_chars_per_word") != nullptr) {
    kind = "WordPiece";
  } else if (model->find("unk_id") != nullptr) {
    kind = "Unigram";
  } else {
    return Status(Errc::kMissingKey, "tokenizer.json: model.type: not in the file");
  }
  if (kind == "BPE" || kind == "Unigram" || kind == "WordPiece" || kind == "WordLevel") return {};
  return Status(
      Errc::kUnsupported,
      fmt::format("tokenizer.json: model.type: '{}' is not supported (BPE, Unigram, WordPiece and WordLevel are)",
                  detail::printable(kind, 64)));
}

CORBEL_INLINE std::size_t PipelineModel::Loader::added_count() const {
  std::size_t count = 0;
  if (const json::Value* list = json_member(tokenizer, "added_tokens"); list != nullptr) count += list->items().size();
  if (const json::Value* more = json_member(config, "added_tokens_decoder"); more != nullptr) {
    count += more->members().size();
  }
  return count;
}

CORBEL_INLINE Status PipelineModel::Loader::place_token(std::string_view text, TokenId id, const std::string& path) {
  const auto at = static_cast<std::size_t>(id);
  if (at >= pieces.size()) {
    pieces.resize(at + 1, Piece{{}, PieceType::kUndefined});
    taken.resize(at + 1);
    is_added.resize(at + 1);
  }
  if (taken[at]) {
    return Status(Errc::kVocabInvalid, fmt::format("{}: the id {} belongs to '{}' already", path, id,
                                                   detail::printable(pieces[at].text, 64)));
  }
  taken[at] = true;
  pieces[at] = {text, PieceType::kNormal};
  by_text.emplace(text, id);
  return {};
}

CORBEL_INLINE Status PipelineModel::Loader::read_vocabulary_object(const json::Value& vocabulary, std::size_t limit) {
  for (const json::Value::Member& member : vocabulary.members()) {
    const auto path = [&member] {
      return fmt::format("tokenizer.json: model.vocab[\"{}\"]", detail::printable(member.first, 64));
    };
    const json::Value& id = member.second;
    if (!id.is_number()) return json_mismatch(path(), "integer", id);
    if (id.type() != json::Type::kUint || id.as_uint() >= limit) {
      return Status(Errc::kVocabInvalid, id.type() == json::Type::kUint
                                             ? fmt::format("{}: the id {} leaves more than {} holes among {} tokens",
                                                           path(), id.as_uint(), kMaxHoles, vocabulary.members().size())
                                             : fmt::format("{}: expected an id from 0 on", path()));
    }
    const auto at = static_cast<std::size_t>(id.as_uint());
    if (at < taken.size() && taken[at]) return place_token(member.first, static_cast<TokenId>(at), path());
    CORBEL_RETURN_IF_ERROR(place_token(member.first, static_cast<TokenId>(at), {}));
  }
  return {};
}

CORBEL_INLINE Status PipelineModel::Loader::read_vocabulary_list(const json::Value& vocabulary) {
  for (std::size_t at = 0; at < vocabulary.items().size(); ++at) {
    const json::Value& entry = vocabulary.items()[at];
    const auto path = [at] { return fmt::format("tokenizer.json: model.vocab[{}]", at); };
    if (!entry.is_array() || entry.items().size() != 2 || !entry.items()[0].is_string() ||
        !entry.items()[1].is_number()) {
      return Status(Errc::kTypeMismatch, fmt::format("{}: expected [text, score]", path()));
    }
    const double score = entry.items()[1].as_double();
    if (!std::isfinite(score)) return Status(Errc::kVocabInvalid, fmt::format("{}: the score is no number", path()));
    scores.push_back(read_as_reference(score));
    CORBEL_RETURN_IF_ERROR(place_token(entry.items()[0].as_string(), static_cast<TokenId>(at), {}));
  }
  return {};
}

CORBEL_INLINE Status PipelineModel::Loader::read_vocabulary() {
  const json::Value* vocabulary = model->find("vocab");
  if (vocabulary == nullptr) return Status(Errc::kMissingKey, "tokenizer.json: model.vocab: not in the file");
  const bool list = kind == "Unigram";
  if (list ? !vocabulary->is_array() : !vocabulary->is_object()) {
    return json_mismatch("tokenizer.json: model.vocab", list ? "array" : "object", *vocabulary);
  }
  const std::size_t count = list ? vocabulary->items().size() : vocabulary->members().size();
  if (count == 0) return Status(Errc::kVocabInvalid, "tokenizer.json: model.vocab: no tokens");
  if (count > kMaxPieces) {
    return Status(Errc::kLimitExceeded,
                  fmt::format("tokenizer.json: model.vocab: {} tokens, at most {} are read", count, kMaxPieces));
  }
  pieces.reserve(count);
  by_text.reserve(count);
  return list ? read_vocabulary_list(*vocabulary)
              : read_vocabulary_object(*vocabulary, std::min(count + added_count() + kMaxHoles, kMaxPieces));
}

CORBEL_INLINE Status PipelineModel::Loader::add(const AddedToken& token, const std::string& path) {
  const auto found = by_text.find(token.content);
  AddedToken entry = token;
  if (found != by_text.end()) {
    entry.id = found->second;  // a token of the model: its own id counts, as in the reference
    if (is_added[static_cast<std::size_t>(entry.id)]) return {};
  } else {
    if (entry.id < 0) return {};
    if (static_cast<std::size_t>(entry.id) >= pieces.size() + kMaxHoles) {
      return Status(Errc::kVocabInvalid,
                    fmt::format("{}: the id {} is more than {} above all others", path, entry.id, kMaxHoles));
    }
    CORBEL_RETURN_IF_ERROR(place_token(entry.content, entry.id, path));
  }
  is_added[static_cast<std::size_t>(entry.id)] = true;
  pieces[static_cast<std::size_t>(entry.id)].type = entry.special            ? PieceType::kControl
                                                    : found != by_text.end() ? PieceType::kUserDefined
                                                                             : PieceType::kAdded;
  added.push_back(entry);
  return {};
}

CORBEL_INLINE Status PipelineModel::Loader::read_added_entry(const json::Value& node, const std::string& path,
                                                             std::optional<TokenId> id) {
  if (!node.is_object()) return json_mismatch(path, "object", node);
  AddedToken token;
  CORBEL_ASSIGN_OR_RETURN(token.content, json_string(node, "content", path));
  if (token.content.empty()) return Status(Errc::kVocabInvalid, fmt::format("{}.content: empty", path));
  if (!id.has_value()) {
    if (node.find("id") == nullptr) return Status(Errc::kMissingKey, fmt::format("{}.id: not in the file", path));
    CORBEL_ASSIGN_OR_RETURN(const std::uint64_t value,
                            json_uint_or(node, "id", path, 0, kMaxPieces - 1, Errc::kVocabInvalid));
    id = static_cast<TokenId>(value);
  }
  token.id = *id;
  CORBEL_ASSIGN_OR_RETURN(token.special, json_bool_or(node, "special", path, false));
  CORBEL_ASSIGN_OR_RETURN(token.single_word, json_bool_or(node, "single_word", path, false));
  CORBEL_ASSIGN_OR_RETURN(token.strip_left, json_bool_or(node, "lstrip", path, false));
  CORBEL_ASSIGN_OR_RETURN(token.strip_right, json_bool_or(node, "rstrip", path, false));
  CORBEL_ASSIGN_OR_RETURN(token.normalized, json_bool_or(node, "normalized", path, !token.special));
  return add(token, path);
}

CORBEL_INLINE Status PipelineModel::Loader::read_added() {
  if (added_count() > kMaxAddedTokens) {
    return Status(Errc::kLimitExceeded, fmt::format("tokenizer.json: added_tokens: {} entries, at most {} are read",
                                                    added_count(), kMaxAddedTokens));
  }
  if (const json::Value* list = json_member(tokenizer, "added_tokens"); list != nullptr) {
    if (!list->is_array()) return json_mismatch("tokenizer.json: added_tokens", "array", *list);
    for (std::size_t at = 0; at < list->items().size(); ++at) {
      CORBEL_RETURN_IF_ERROR(
          read_added_entry(list->items()[at], fmt::format("tokenizer.json: added_tokens[{}]", at), std::nullopt));
    }
  }
  if (const json::Value* more = json_member(config, "added_tokens_decoder"); more != nullptr) {
    static constexpr std::string_view kPath = "tokenizer_config.json: added_tokens_decoder";
    if (!more->is_object()) return json_mismatch(kPath, "object", *more);
    for (const json::Value::Member& member : more->members()) {
      const std::string path = fmt::format("{}[\"{}\"]", kPath, detail::printable(member.first, 32));
      std::uint64_t id = 0;
      bool digits = !member.first.empty() && member.first.size() <= 9;
      for (const char c : member.first) {
        digits = digits && c >= '0' && c <= '9';
        id = id * 10 + static_cast<std::uint64_t>(c - '0');
        if (!digits) break;
      }
      if (!digits || id >= kMaxPieces) return Status(Errc::kVocabInvalid, fmt::format("{}: expected an id", path));
      CORBEL_RETURN_IF_ERROR(read_added_entry(member.second, path, static_cast<TokenId>(id)));
    }
  }
  return name_special_tokens();
}

// The tokens with a role count as special though nobody says so, where the vocabulary has them.
CORBEL_INLINE Status PipelineModel::Loader::name_special_tokens() {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"}) {
    CORBEL_ASSIGN_OR_RETURN(const std::string_view text, config_token(key));
    if (text.empty() || find(text) < 0) continue;
    AddedToken token;
    token.content = text;
    token.special = true;
    CORBEL_RETURN_IF_ERROR(add(token, {}));
  }
  return {};
}

// The text of a token with a role: a string, or an object with its content; empty where there is none.
inline Result<std::string_view> role_token(const json::Value& document, std::string_view name, std::string_view key) {
  const json::Value* value = json_member(document, key);
  if (value == nullptr) return std::string_view();
  if (value->is_object()) return json_string(*value, "content", fmt::format("{}: {}", name, key));
  if (value->is_string()) return value->as_string();
  return json_mismatch(fmt::format("{}: {}", name, key), "string", *value);
}

CORBEL_INLINE Result<std::string_view> PipelineModel::Loader::config_token(std::string_view key) const {
  if (json_member(config, key) != nullptr) return role_token(config, "tokenizer_config.json", key);
  return role_token(special_map, "special_tokens_map.json", key);
}

// Roles that nothing here needs must have a text too.
CORBEL_INLINE Status PipelineModel::Loader::check_roles() const {
  for (const std::string_view key :
       {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"}) {
    CORBEL_RETURN_IF_ERROR(role_token(config, "tokenizer_config.json", key).status());
    CORBEL_RETURN_IF_ERROR(role_token(special_map, "special_tokens_map.json", key).status());
  }
  for (const std::string_view key : {"add_bos_token", "add_eos_token"}) {
    const json::Value* value = json_member(config, key);
    if (value != nullptr && value->type() != json::Type::kBool)
      return json_mismatch(fmt::format("tokenizer_config.json: {}", key), "bool", *value);
  }
  return {};
}

CORBEL_INLINE TokenId PipelineModel::Loader::find(std::string_view text) const {
  const auto found = by_text.find(text);
  return found == by_text.end() ? kNoToken : found->second;
}

CORBEL_INLINE Status PipelineModel::Loader::read_unknown() {
  static constexpr std::string_view kPath = "tokenizer.json: model";
  if (kind == "Unigram") {
    if (json_member(*model, "unk_id") != nullptr) {
      CORBEL_ASSIGN_OR_RETURN(const std::uint64_t id,
                              json_uint_or(*model, "unk_id", kPath, 0, scores.size() - 1, Errc::kVocabInvalid));
      unknown.unknown = static_cast<TokenId>(id);
    }
    unknown.fuse = true;
  } else {
    CORBEL_ASSIGN_OR_RETURN(const std::string_view text,
                            json_string_or(*model, "unk_token", kPath, kind == "BPE" ? "" : "[UNK]"));
    if (!text.empty()) unknown.unknown = find(text);
    CORBEL_ASSIGN_OR_RETURN(unknown.fuse, json_bool_or(*model, "fuse_unk", kPath, false));
  }
  CORBEL_ASSIGN_OR_RETURN(unknown.bytes, json_bool_or(*model, "byte_fallback", kPath, false));
  if (unknown.bytes) {
    static constexpr char kHex[] = "0123456789ABCDEF";
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const char piece[] = {'<', '0', 'x', kHex[byte / 16], kHex[byte % 16], '>'};
      const TokenId id = find(std::string_view(piece, 6));
      unknown.byte_ids[byte] = id;
      if (id >= 0 && pieces[static_cast<std::size_t>(id)].type == PieceType::kNormal) {
        pieces[static_cast<std::size_t>(id)].type = PieceType::kByte;
      }
    }
  }
  if (unknown.unknown >= 0) {
    PieceType& type = pieces[static_cast<std::size_t>(unknown.unknown)].type;
    if (type == PieceType::kControl) type = PieceType::kUnknown;
  }
  return {};
}

CORBEL_INLINE Result<MergeTable> PipelineModel::Loader::read_merges(const Vocabulary& vocabulary,
                                                                    std::string_view prefix) const {
  static constexpr std::string_view kPath = "tokenizer.json: model.merges";
  MergeTable table;
  const json::Value* merges = model->find("merges");
  if (merges == nullptr) return Status(Errc::kMissingKey, fmt::format("{}: not in the file", kPath));
  if (!merges->is_array()) return json_mismatch(kPath, "array", *merges);
  if (merges->items().size() > kMaxMerges) {
    return Status(Errc::kLimitExceeded,
                  fmt::format("{}: {} merges, at most {} are read", kPath, merges->items().size(), kMaxMerges));
  }
  table.reserve(merges->items().size());
  std::string joined;
  for (std::size_t rank = 0; rank < merges->items().size(); ++rank) {
    const json::Value& merge = merges->items()[rank];
    std::string_view halves[2];
    if (merge.is_array()) {
      const json::Value::Array& pair = merge.items();
      if (pair.size() != 2) {
        return Status(Errc::kVocabInvalid,
                      fmt::format("{}[{}]: expected two pieces, got {}", kPath, rank, pair.size()));
      }
      for (std::size_t side = 0; side < 2; ++side) {
        if (!pair[side].is_string()) {
          return json_mismatch(fmt::format("{}[{}][{}]", kPath, rank, side), "string", pair[side]);
        }
        halves[side] = pair[side].as_string();
      }
    } else if (merge.is_string()) {
      const std::string_view text = merge.as_string();
      if (text.substr(0, 8) == "#version") continue;
      const std::size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        return Status(Errc::kVocabInvalid, fmt::format("{}[{}]: '{}' is not two pieces with one space between them",
                                                       kPath, rank, detail::printable(text, 64)));
      }
      halves[0] = text.substr(0, space);
      halves[1] = text.substr(space + 1);
    } else {
      return json_mismatch(fmt::format("{}[{}]", kPath, rank), "string or array", merge);
    }
    TokenId found[2];
    for (std::size_t side = 0; side < 2; ++side) {
      found[side] = halves[side].empty() ? kNoToken : vocabulary.find(halves[side]);
      if (found[side] >= 0) continue;
      return Status(Errc::kVocabInvalid, fmt::format("{}[{}]: '{}' is not in the vocabulary", kPath, rank,
                                                     detail::printable(halves[side], 64)));
    }
    if (halves[1].size() < prefix.size()) {
      return Status(Errc::kVocabInvalid, fmt::format("{}[{}]: '{}' is shorter than the prefix '{}'", kPath, rank,
                                                     detail::printable(halves[1], 64), detail::printable(prefix, 32)));
    }
    joined.assign(halves[0]).append(halves[1].substr(prefix.size()));
    const TokenId result = vocabulary.find(joined);
    if (result < 0) {
      return Status(Errc::kVocabInvalid, fmt::format("{}[{}]: the result '{}' is not in the vocabulary", kPath, rank,
                                                     detail::printable(joined, 64)));
    }
    // What would spell a control token is never merged: message content could.
    if (vocabulary.find_text(joined) >= 0) {
      table.insert(found[0], found[1], static_cast<std::uint32_t>(rank), result, true);
    }
  }
  return table;
}

CORBEL_INLINE Result<std::unique_ptr<const WordModel>> PipelineModel::Loader::make_words(const Vocabulary& vocabulary,
                                                                                         bool byte_level) const {
  static constexpr std::string_view kPath = "tokenizer.json: model";
  if (kind == "WordLevel") {
    return std::unique_ptr<const WordModel>(std::make_unique<WordLevelWords>(vocabulary, unknown.unknown));
  }
  if (kind == "Unigram") {
    std::vector<double> all = scores;
    return std::unique_ptr<const WordModel>(std::make_unique<UnigramWords>(vocabulary, std::move(all), unknown));
  }
  if (kind == "WordPiece") {
    static constexpr std::uint64_t kLongestWord = 1u << 20;
    WordPieceWords::Options options;
    options.unknown = unknown.unknown;
    CORBEL_ASSIGN_OR_RETURN(options.prefix, json_string_or(*model, "continuing_subword_prefix", kPath, "##"));
    CORBEL_ASSIGN_OR_RETURN(options.longest,
                            json_uint_or(*model, "max_input_chars_per_word", kPath, 100, kLongestWord));
    if (options.longest == 0) {
      return Status(Errc::kBadValue,
                    fmt::format("{}.max_input_chars_per_word: 0 given, expected 1 to {}", kPath, kLongestWord));
    }
    return std::unique_ptr<const WordModel>(std::make_unique<WordPieceWords>(vocabulary, std::move(options)));
  }
  BpeWords::Options options;
  options.unknown = unknown;
  options.byte_level = byte_level;
  CORBEL_ASSIGN_OR_RETURN(options.prefix, json_string_or(*model, "continuing_subword_prefix", kPath, ""));
  CORBEL_ASSIGN_OR_RETURN(options.suffix, json_string_or(*model, "end_of_word_suffix", kPath, ""));
  CORBEL_ASSIGN_OR_RETURN(options.whole_words, json_bool_or(*model, "ignore_merges", kPath, false));
  CORBEL_ASSIGN_OR_RETURN(MergeTable merges, read_merges(vocabulary, options.prefix));
  return std::unique_ptr<const WordModel>(
      std::make_unique<BpeWords>(vocabulary, std::move(merges), std::move(options)));
}

CORBEL_INLINE Status PipelineModel::Loader::read_post_processor() {
  const json::Value* node = json_member(tokenizer, "post_processor");
  if (node == nullptr) return {};
  std::vector<std::pair<const json::Value*, std::string>> left = {{node, "tokenizer.json: post_processor"}};
  while (!left.empty()) {
    const auto [value, path] = std::move(left.back());
    left.pop_back();
    if (!value->is_object()) return json_mismatch(path, "object", *value);
    CORBEL_ASSIGN_OR_RETURN(const std::string_view type, json_string(*value, "type", path));
    if (type == "Sequence") {
      const json::Value* list = value->find("processors");
      if (list == nullptr) return Status(Errc::kMissingKey, fmt::format("{}.processors: not in the file", path));
      if (!list->is_array()) return json_mismatch(path + ".processors", "array", *list);
      for (std::size_t at = list->items().size(); at > 0; --at) {
        left.emplace_back(&list->items()[at - 1], fmt::format("{}.processors[{}]", path, at - 1));
      }
    } else if (type == "TemplateProcessing") {
      CORBEL_RETURN_IF_ERROR(read_template(*value, path));
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      CORBEL_RETURN_IF_ERROR(read_around(*value, path));
    } else if (type != "ByteLevel") {  // which only moves offsets
      return Status(Errc::kUnsupported, fmt::format("{}.type: the post-processor '{}' is not supported", path,
                                                    detail::printable(type, 64)));
    }
    if (before.size() > kMaxEndTokens || after.size() > kMaxEndTokens) {
      return Status(Errc::kLimitExceeded, fmt::format("{}: more than {} tokens around a text", path, kMaxEndTokens));
    }
  }
  return {};
}

CORBEL_INLINE Status PipelineModel::Loader::read_template(const json::Value& node, const std::string& path) {
  const json::Value* single = node.find("single");
  if (single == nullptr) return Status(Errc::kMissingKey, fmt::format("{}.single: not in the file", path));
  if (!single->is_array()) return json_mismatch(path + ".single", "array", *single);
  const json::Value* tokens = json_member(node, "special_tokens");
  std::vector<TokenId> sides[2];
  std::size_t sequences = 0;
  for (std::size_t at = 0; at < single->items().size(); ++at) {
    const json::Value& entry = single->items()[at];
    const std::string place = fmt::format("{}.single[{}]", path, at);
    if (entry.find("Sequence") != nullptr) {
      ++sequences;
      continue;
    }
    const json::Value* special = entry.find("SpecialToken");
    if (special == nullptr) {
      return Status(Errc::kTypeMismatch, fmt::format("{}: expected a Sequence or a SpecialToken", place));
    }
    CORBEL_ASSIGN_OR_RETURN(const std::string_view name, json_string(*special, "id", place + ".SpecialToken"));
    const json::Value* named = tokens == nullptr ? nullptr : tokens->find(name);
    const json::Value* list = named == nullptr ? nullptr : named->find("ids");
    if (list == nullptr || !list->is_array()) {
      return Status(Errc::kVocabInvalid,
                    fmt::format("{}: '{}' is not among special_tokens", place, detail::printable(name, 64)));
    }
    for (const json::Value& id : list->items()) {
      if (id.type() != json::Type::kUint || id.as_uint() >= pieces.size()) {
        return Status(Errc::kVocabInvalid,
                      fmt::format("{}: an id of '{}' is not in the vocabulary", place, detail::printable(name, 64)));
      }
      sides[sequences == 0 ? 0 : 1].push_back(static_cast<TokenId>(id.as_uint()));
    }
  }
  if (sequences != 1) {
    return Status(Errc::kUnsupported,
                  fmt::format("{}.single: the text stands in it {} times, once is supported", path, sequences));
  }
  before.insert(before.begin(), sides[0].begin(), sides[0].end());
  after.insert(after.end(), sides[1].begin(), sides[1].end());
  return {};
}

CORBEL_INLINE Result<TokenId> PipelineModel::Loader::around_token(const json::Value& node, std::string_view key,
                                                                  const std::string& path) const {
  const json::Value* pair = node.find(key);
  if (pair == nullptr) return Status(Errc::kMissingKey, fmt::format("{}.{}: not in the file", path, key));
  if (!pair->is_array() || pair->items().size() != 2 || !pair->items()[0].is_string()) {
    return Status(Errc::kTypeMismatch, fmt::format("{}.{}: expected [text, id]", path, key));
  }
  const json::Value& id = pair->items()[1];
  if (id.type() != json::Type::kUint || id.as_uint() >= pieces.size()) {
    return Status(Errc::kVocabInvalid, fmt::format("{}.{}: the id is not in the vocabulary", path, key));
  }
  return static_cast<TokenId>(id.as_uint());
}

CORBEL_INLINE Status PipelineModel::Loader::read_around(const json::Value& node, const std::string& path) {
  CORBEL_ASSIGN_OR_RETURN(const TokenId first, around_token(node, "cls", path));
  CORBEL_ASSIGN_OR_RETURN(const TokenId last, around_token(node, "sep", path));
  before.insert(before.begin(), first);
  after.push_back(last);
  return {};
}

// The ids of tokens with a role, and what tokenizer_config.json says about adding them: a flag that is given wins over
// the post-processor, as in the reference.
CORBEL_INLINE Status PipelineModel::Loader::read_special_ids() {
  CORBEL_RETURN_IF_ERROR(check_roles());
  CORBEL_ASSIGN_OR_RETURN(const std::string_view bos, config_token("bos_token"));
  CORBEL_ASSIGN_OR_RETURN(const std::string_view eos, config_token("eos_token"));
  ids.bos = bos.empty() ? kNoToken : find(bos);
  ids.eos = eos.empty() ? kNoToken : find(eos);
  ids.unknown = unknown.unknown;
  if (bos.empty() && before.size() == 1) ids.bos = before[0];
  if (eos.empty() && after.size() == 1) ids.eos = after[0];
  const bool has_bos = !before.empty() && before.front() == ids.bos;
  const bool has_eos = !after.empty() && after.back() == ids.eos;
  CORBEL_ASSIGN_OR_RETURN(ids.add_bos, json_bool_or(config, "add_bos_token", "tokenizer_config.json", has_bos));
  CORBEL_ASSIGN_OR_RETURN(ids.add_eos, json_bool_or(config, "add_eos_token", "tokenizer_config.json", has_eos));
  if (ids.bos >= 0 && ids.add_bos != has_bos) {
    if (has_bos) {
      before.erase(before.begin());
    } else {
      before.insert(before.begin(), ids.bos);
    }
  }
  if (ids.eos >= 0 && ids.add_eos != has_eos) {
    if (has_eos) {
      after.pop_back();
    } else {
      after.push_back(ids.eos);
    }
  }
  return read_ends();
}

CORBEL_INLINE Status PipelineModel::Loader::read_ends() {
  const json::Value* end = json_member(generation, "eos_token_id");
  if (end == nullptr) return {};
  static constexpr std::string_view kPath = "generation_config.json: eos_token_id";
  const std::size_t count = end->is_array() ? end->items().size() : 1;
  if (count > kMaxEndTokens) {
    return Status(Errc::kLimitExceeded, fmt::format("{}: {} ids, at most {} are read", kPath, count, kMaxEndTokens));
  }
  for (std::size_t at = 0; at < count; ++at) {
    const json::Value& id = end->is_array() ? end->items()[at] : *end;
    if (id.type() == json::Type::kInt && id.as_int() == -1) continue;  // what some files write for "none"
    if (!id.is_integer()) return json_mismatch(kPath, "integer", id);
    if (id.type() != json::Type::kUint || id.as_uint() >= pieces.size()) {
      return Status(Errc::kVocabInvalid, fmt::format("{}: not among the {} tokens", kPath, pieces.size()));
    }
    ids.ends.push_back(static_cast<TokenId>(id.as_uint()));
  }
  if (ids.eos < 0 && !ids.ends.empty()) ids.eos = ids.ends.front();
  return {};
}

CORBEL_INLINE Result<std::shared_ptr<const TokenizerModel>> PipelineModel::from_documents(
    const TokenizerDocuments& documents) {
  Loader loader;
  CORBEL_RETURN_IF_ERROR(loader.read_documents(documents));
  CORBEL_RETURN_IF_ERROR(loader.read_kind());
  CORBEL_RETURN_IF_ERROR(loader.read_vocabulary());
  CORBEL_RETURN_IF_ERROR(loader.read_added());
  CORBEL_RETURN_IF_ERROR(loader.read_unknown());
  CORBEL_RETURN_IF_ERROR(loader.read_post_processor());
  CORBEL_RETURN_IF_ERROR(loader.read_special_ids());

  auto model = std::make_shared<PipelineModel>();
  model->from_documents_ = true;
  const json::Value none;
  const auto part = [&](std::string_view key) -> const json::Value& {
    const json::Value* node = loader.tokenizer.find(key);
    return node == nullptr ? none : *node;
  };
  CORBEL_ASSIGN_OR_RETURN(model->normalizer_, Normalizer::from_json(part("normalizer"), "tokenizer.json: normalizer"));
  CORBEL_ASSIGN_OR_RETURN(model->cutter_,
                          WordCutter::from_json(part("pre_tokenizer"), "tokenizer.json: pre_tokenizer"));
  CORBEL_ASSIGN_OR_RETURN(model->decoder_, Decoder::from_json(&part("decoder"), "tokenizer.json: decoder"));
  CORBEL_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::from_pieces(loader.pieces, "tokenizer.json: model.vocab"));
  model->set_common(std::move(vocabulary), std::move(loader.ids));
  model->before_ = std::move(loader.before);
  model->after_ = std::move(loader.after);
  CORBEL_ASSIGN_OR_RETURN(model->words_, loader.make_words(model->vocabulary(), model->cutter_.byte_level()));
  model->flags_.resize(model->vocabulary().size());
  CORBEL_RETURN_IF_ERROR(model->finish_added(loader.added));
  return std::shared_ptr<const TokenizerModel>(std::move(model));
}

}  // namespace text
CORBEL_NAMESPACE_END
