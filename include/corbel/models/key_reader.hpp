// KeyReader: the hyper-parameters of a checkpoint under one set of names (those of GGUF without the architecture's
// prefix), whether they stand in GGUF metadata or in config.json.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/checkpoint/json.hpp>
#include <corbel/checkpoint/metadata.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// Reads and checks. The first failure is kept in status(); later reads then do nothing and answer something harmless.
/// Messages name the key as it stands in the file: "llama.block_count", "config.json: num_hidden_layers". A JSON null
/// is an absent key. Keys that only config.json has are asked for by their name there. What a folder's config.json
/// leaves out has the family's value (Architecture::defaults).
class CORBEL_API KeyReader {
 public:
  /// `architecture` prefixes the keys of a GGUF file.
  KeyReader(const Checkpoint& checkpoint, std::string_view architecture);

  bool is_hf() const noexcept { return config_ != nullptr; }
  const Status& status() const noexcept { return status_; }
  bool ok() const noexcept { return status_.ok(); }
  void fail(Errc code, std::string_view message);

  /// Looks into this member of the config instead (an object), e.g. "rope_parameters"; empty: back to the top. Nothing
  /// happens in a GGUF file. False where there is no such object.
  bool enter(std::string_view member);

  bool has(std::string_view key) const;
  /// Whether the key has an array.
  bool has_list(std::string_view key) const;
  /// The key as it stands in the file, for messages.
  std::string name_of(std::string_view key) const;

  /// An integer in [low, high]: missing_key, type_mismatch, bad_value (below), limit_exceeded (above).
  std::uint32_t count(std::string_view key, std::uint64_t low, std::uint64_t high);
  std::uint32_t count_or(std::string_view key, std::uint32_t fallback, std::uint64_t low, std::uint64_t high);
  /// A count that files may give per layer; all layers must agree.
  std::uint32_t uniform_count(std::string_view key, std::uint32_t layers, std::uint64_t low, std::uint64_t high);
  /// A finite number in (low, high].
  double number(std::string_view key, double low, double high);
  double number_or(std::string_view key, double fallback, double low, double high);
  bool flag_or(std::string_view key, bool fallback);
  std::string text_or(std::string_view key, std::string_view fallback);
  /// The elements of an array; at most 65536. Empty where the key is absent.
  std::vector<double> numbers(std::string_view key);
  std::vector<std::string> texts(std::string_view key);

 private:
  /// A value of either container; both null: absent.
  struct Found {
    std::string name;
    const MetaValue* meta = nullptr;
    const json::Value* json = nullptr;
    explicit operator bool() const noexcept { return meta != nullptr || json != nullptr; }
  };
  Found find(std::string_view key) const;
  Found require(std::string_view key);
  std::uint32_t fail_count(Errc code, std::string_view message);
  std::uint32_t in_range(const std::string& name, std::uint64_t value, std::uint64_t low, std::uint64_t high);

  const Checkpoint& checkpoint_;
  const json::Value* config_ = nullptr;  // of a folder: the object with the text model's keys
  const json::Value* scope_ = nullptr;   // where keys are looked up
  std::string place_;                    // before a key of config.json in messages
  std::string scope_place_;              // the path from there to scope_
  std::string prefix_;                   // of GGUF keys
  json::Value defaults_;                 // of a folder's family
  Status status_;
};

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/key_reader.ipp>
#endif
