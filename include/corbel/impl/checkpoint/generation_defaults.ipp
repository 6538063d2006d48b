// Definitions of generation_defaults.hpp.
#pragma once

#include <corbel/checkpoint/generation_defaults.hpp>
#include <corbel/checkpoint/json.hpp>
#include <corbel/detail/guard.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

CORBEL_NAMESPACE_BEGIN
namespace detail {

// A token that the vocabulary does not have.
enum class UnknownToken : std::uint8_t { kRefused, kLeftOut };

class GenerationReader {
 public:
  // Values of one object into `out`, which is empty. `vocab`: tokens that the model has; 0 where that is not known.
  GenerationReader(const json::Value& from, std::uint64_t vocab, UnknownToken unknown, GenerationDefaults& out)
      : from_(from), vocab_(vocab), unknown_(unknown), out_(out) {}

  Status read() {
    CORBEL_RETURN_IF_ERROR(tokens("eos_token_id", out_.eos_ids));
    CORBEL_RETURN_IF_ERROR(token("bos_token_id", out_.bos_id));
    CORBEL_RETURN_IF_ERROR(token("pad_token_id", out_.pad_id));
    if (const json::Value* value = find("do_sample"); value != nullptr) {
      if (value->type() != json::Type::kBool) return mismatch("do_sample", "true or false");
      out_.do_sample = value->as_bool();
    }
    if (const json::Value* value = find("top_k"); value != nullptr) {
      if (!value->is_integer()) return mismatch("top_k", "an integer");
      if (value->type() == json::Type::kInt || value->as_uint() > std::numeric_limits<std::uint32_t>::max()) {
        return bad("top_k", *value, "0 or more");
      }
      out_.top_k = static_cast<std::uint32_t>(value->as_uint());
    }
    CORBEL_RETURN_IF_ERROR(number("temperature", 0, false, std::numeric_limits<float>::max(), out_.temperature));
    CORBEL_RETURN_IF_ERROR(number("top_p", 0, false, 1, out_.top_p));
    CORBEL_RETURN_IF_ERROR(number("min_p", 0, false, 1, out_.min_p));
    return number("repetition_penalty", 0, true, std::numeric_limits<float>::max(), out_.repetition_penalty);
  }

 private:
  static constexpr std::size_t kMaxEnds = 1024;

  // null means: not given.
  const json::Value* find(const char* key) const {
    const json::Value* value = from_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  static Status mismatch(const char* key, const char* expected) {
    return {Errc::kTypeMismatch, std::string(key) + ": expected " + expected};
  }
  static Status bad(const char* key, const json::Value& value, const char* expected) {
    return {Errc::kBadValue,
            std::string(key) + ": expected " + expected + ", found " + printable(json::write(value), 40)};
  }

  // Appends a token id, or notes that it is left out.
  Status add(const char* key, const json::Value& value, std::vector<std::uint32_t>& out) const {
    if (!value.is_integer()) return mismatch(key, "a token id");
    constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 31;
    const std::uint64_t most = vocab_ == 0 ? kMostTokens : std::min(vocab_, kMostTokens);
    if (value.type() == json::Type::kUint && value.as_uint() < most) {
      const auto one = static_cast<std::uint32_t>(value.as_uint());
      if (std::find(out.begin(), out.end(), one) == out.end()) out.push_back(one);
      return {};
    }
    std::string line = std::string(key) + ": " + json::write(value) + " is no token of a vocabulary of " +
                       (vocab_ == 0 ? "at most 2^31" : std::to_string(vocab_));
    if (unknown_ == UnknownToken::kRefused) return {Errc::kVocabInvalid, line};
    out_.ignored.push_back(std::move(line));
    return {};
  }

  // -1 is what some files write for "none".
  static bool is_none(const json::Value* value) noexcept {
    return value == nullptr || (value->type() == json::Type::kInt && value->as_int() == -1);
  }

  Status token(const char* key, std::optional<std::uint32_t>& out) const {
    const json::Value* value = find(key);
    if (is_none(value)) return {};
    std::vector<std::uint32_t> one;
    CORBEL_RETURN_IF_ERROR(add(key, *value, one));
    if (!one.empty()) out = one[0];
    return {};
  }

  // One id or a list of them.
  Status tokens(const char* key, std::vector<std::uint32_t>& out) const {
    const json::Value* value = find(key);
    if (is_none(value)) return {};
    if (!value->is_array()) return add(key, *value, out);
    if (value->items().size() > kMaxEnds) {
      return {Errc::kLimitExceeded, std::string(key) + ": " + std::to_string(value->items().size()) +
                                        " tokens, the limit is " + std::to_string(kMaxEnds)};
    }
    for (const json::Value& item : value->items()) {
      if (!is_none(&item)) CORBEL_RETURN_IF_ERROR(add(key, item, out));
    }
    return {};
  }

  Status number(const char* key, double least, bool above, double most, std::optional<double>& out) const {
    const json::Value* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_number()) return mismatch(key, "a number");
    const double found = value->as_double();
    if (found < least || (above && found <= least) || found > most) {
      return bad(key, *value, most == 1 ? "0 to 1" : above ? "more than 0" : "0 or more");
    }
    out = found;
    return {};
  }

  const json::Value& from_;
  std::uint64_t vocab_;
  UnknownToken unknown_;
  GenerationDefaults& out_;
};

// Gives `out` what `other` says and `out` does not.
inline void fill_generation(const GenerationDefaults& other, GenerationDefaults& out) {
  const auto fill = [](auto& value, const auto& from) {
    if (!value) value = from;
  };
  if (out.eos_ids.empty()) out.eos_ids = other.eos_ids;
  fill(out.bos_id, other.bos_id);
  fill(out.pad_id, other.pad_id);
  fill(out.do_sample, other.do_sample);
  fill(out.temperature, other.temperature);
  fill(out.top_k, other.top_k);
  fill(out.top_p, other.top_p);
  fill(out.min_p, other.min_p);
  fill(out.repetition_penalty, other.repetition_penalty);
}

// The keys of a GGUF file as the object that a folder would have.
inline Result<json::Value> generation_from_metadata(const Metadata& metadata) {
  json::Value all = json::Value::object();
  struct Names {
    const char* key;
    const char* name;
  };
  json::Value ends = json::Value::array();
  for (const Names& names :
       {Names{"tokenizer.ggml.eos_token_id", nullptr}, Names{"tokenizer.ggml.eot_token_id", nullptr},
        Names{"tokenizer.ggml.eom_token_id", nullptr}, Names{"tokenizer.ggml.bos_token_id", "bos_token_id"},
        Names{"tokenizer.ggml.padding_token_id", "pad_token_id"}}) {
    if (metadata.find(names.key) == nullptr) continue;
    CORBEL_ASSIGN_OR_RETURN(const std::uint64_t value, metadata.get_uint(names.key));
    const json::Value id = json::Value::unsigned_integer(value);
    if (names.name == nullptr) {
      ends.items().push_back(id);
    } else {
      all.members().emplace_back(names.name, id);
    }
  }
  all.members().emplace_back("eos_token_id", std::move(ends));
  static constexpr const char* kTopK = "general.sampling.top_k";
  if (const MetaValue* value = metadata.find(kTopK)) {
    const Result<std::int64_t> number = value->as_int();
    if (!number.ok()) return number.status().with_place(std::string("metadata key \"") + kTopK + "\"");
    // Below 0: all tokens are kept.
    const auto top = static_cast<std::uint64_t>(std::max<std::int64_t>(*number, 0));
    all.members().emplace_back("top_k", json::Value::unsigned_integer(top));
  }
  for (const Names& names :
       {Names{"general.sampling.temp", "temperature"}, Names{"general.sampling.top_p", "top_p"},
        Names{"general.sampling.min_p", "min_p"}, Names{"general.sampling.penalty_repeat", "repetition_penalty"}}) {
    if (metadata.find(names.key) == nullptr) continue;
    CORBEL_ASSIGN_OR_RETURN(const double value, metadata.get_float(names.key));
    if (!std::isfinite(value)) {
      return Status(Errc::kBadValue, std::string("metadata key \"") + names.key + "\": not a finite number");
    }
    all.members().emplace_back(names.name, json::Value::number(value));
  }
  return all;
}

// The generation_config.json that a GGUF file was made from has more than the keys can say: all tokens that end a
// reply, and do_sample. Its tokens go before those of the keys, which are the tokenizer's; of the rest the keys go
// first: they may have been changed since.
inline Status read_kept_document(const Metadata& metadata, std::uint64_t vocab, GenerationDefaults& out) {
  static constexpr const char* kKey = "corbel.tokenizer.generation_config";
  if (metadata.find(kKey) == nullptr) return {};
  const auto placed = [](const Status& status) {
    return status.with_place(std::string("metadata key \"") + kKey + "\"");
  };
  CORBEL_ASSIGN_OR_RETURN(const std::string_view text, metadata.get_string(kKey));
  const Result<json::Value> all = json::parse(text);
  if (!all.ok()) return placed(all.status());
  if (!all->is_object()) return placed(Status(Errc::kTypeMismatch, "expected an object"));
  GenerationDefaults kept;
  if (Status status = GenerationReader(*all, vocab, UnknownToken::kRefused, kept).read(); !status.ok()) {
    return placed(status);
  }
  if (!kept.eos_ids.empty()) out.eos_ids = kept.eos_ids;
  if (kept.bos_id) out.bos_id = kept.bos_id;
  if (kept.pad_id) out.pad_id = kept.pad_id;
  // Where it says false the temperature was written as 0.
  if (kept.do_sample == false && out.temperature.value_or(0) != 0) kept.do_sample.reset();
  fill_generation(kept, out);
  return {};
}

// Tokens that the model of a GGUF file has; 0 where the file does not say.
inline std::uint64_t vocabulary_of_gguf(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata();
  const Result<std::string_view> family = metadata.get_string("general.architecture");
  if (family.ok()) {
    const Result<std::uint64_t> size = metadata.get_uint(std::string(*family) + ".vocab_size");
    if (size.ok()) return *size;
  }
  const TensorInfo* rows = checkpoint.find_tensor("token_embd.weight");
  if (rows != nullptr && rows->shape.size() == 2) return rows->shape[0];
  const MetaValue* tokens = metadata.find("tokenizer.ggml.tokens");
  return tokens != nullptr && tokens->is_array() ? tokens->size() : 0;
}

inline Result<GenerationDefaults> generation_of(const Checkpoint& checkpoint) {
  GenerationDefaults out;
  const auto placed = [&](const Status& status) { return status.with_place(printable(checkpoint.name(), 200)); };
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    const std::uint64_t vocab = vocabulary_of_gguf(checkpoint);
    const Result<json::Value> all = generation_from_metadata(checkpoint.metadata());
    if (!all.ok()) return placed(all.status());
    if (Status status = GenerationReader(*all, vocab, UnknownToken::kRefused, out).read(); !status.ok()) {
      return placed(status);
    }
    if (Status status = read_kept_document(checkpoint.metadata(), vocab, out); !status.ok()) return placed(status);
    return out;
  }
  std::uint64_t vocab = 0;
  const json::Value* config = checkpoint.config();
  const json::Value* inner = config != nullptr ? config->find("text_config") : nullptr;
  for (const json::Value* from : {inner, config}) {
    const json::Value* size = from != nullptr && vocab == 0 ? from->find("vocab_size") : nullptr;
    if (size != nullptr && size->type() == json::Type::kUint) vocab = size->as_uint();
  }
  static constexpr const char* kFile = "generation_config.json";
  if (checkpoint.has_document(kFile)) {
    CORBEL_ASSIGN_OR_RETURN(const json::Value all, checkpoint.json_document(kFile));
    if (!all.is_object()) return placed(Status(Errc::kTypeMismatch, std::string(kFile) + ": expected an object"));
    if (Status status = GenerationReader(all, vocab, UnknownToken::kRefused, out).read(); !status.ok()) {
      return placed(status.with_place(kFile));
    }
  }
  for (const json::Value* from : {config, inner}) {
    if (from == nullptr) continue;
    GenerationDefaults more;
    if (Status status = GenerationReader(*from, vocab, UnknownToken::kLeftOut, more).read(); !status.ok()) {
      return placed(status.with_place("config.json"));
    }
    fill_generation(more, out);
    for (const std::string& each : more.ignored) {
      std::string line = "config.json: " + each + " and is left out";
      if (std::find(out.ignored.begin(), out.ignored.end(), line) == out.ignored.end())
        out.ignored.push_back(std::move(line));
    }
  }
  return out;
}

}  // namespace detail

CORBEL_INLINE Result<GenerationDefaults> read_generation_defaults(const Checkpoint& checkpoint) {
  return detail::guard([&]() { return detail::generation_of(checkpoint); });
}

CORBEL_NAMESPACE_END
