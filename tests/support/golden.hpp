// Golden checkpoints: tiny models with the logits and greedy tokens that Hugging Face transformers computes from them.
#pragma once

#include <corbel/batch.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/isa.hpp"
#include "support/support.hpp"

namespace corbel_test {

struct Golden {
  std::vector<corbel::TokenId> prompt;
  std::vector<float> logits;  // [prompt, vocab]
  std::vector<corbel::TokenId> greedy;
};

/// Whether a safetensors file has a tensor of this name.
inline bool has_tensor(const std::string& path, const char* name) {
  const std::string file = read_file(path);
  std::uint64_t header_bytes = 0;
  if (file.size() < 8) throw std::runtime_error("cannot read " + path);
  std::memcpy(&header_bytes, file.data(), 8);
  return nlohmann::json::parse(file.substr(8, header_bytes)).contains(name);
}

/// Reads a golden.safetensors; the logits and greedy tokens under these names.
inline Golden read_golden(const std::string& path, const char* logits_name = "logits",
                          const char* greedy_name = "greedy") {
  const std::string file = read_file(path);
  std::uint64_t header_bytes = 0;
  if (file.size() < 8) throw std::runtime_error("cannot read " + path);
  std::memcpy(&header_bytes, file.data(), 8);
  const nlohmann::json header = nlohmann::json::parse(file.substr(8, header_bytes));
  const auto data = [&](const char* name) {
    const std::uint64_t begin = header[name]["data_offsets"][0], end = header[name]["data_offsets"][1];
    return file.substr(8 + header_bytes + begin, end - begin);
  };
  const auto ids = [&](const char* name) {
    const std::string bytes = data(name);
    std::vector<corbel::TokenId> result;
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
      std::int64_t id = 0;
      std::memcpy(&id, bytes.data() + at, 8);
      result.push_back(static_cast<corbel::TokenId>(id));
    }
    return result;
  };
  Golden golden;
  golden.prompt = ids("input_ids");
  golden.greedy = ids(greedy_name);
  const std::string bytes = data(logits_name);
  golden.logits.resize(bytes.size() / 4);
  std::memcpy(golden.logits.data(), bytes.data(), bytes.size());
  return golden;
}

inline corbel::TokenId argmax(std::span<const float> row) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < row.size(); ++i)
    if (row[i] > row[best]) best = i;
  return static_cast<corbel::TokenId>(best);
}

/// A model on a backend with a cache, for tests.
template <class B>
struct Running {
  corbel::Model<B> model;
  corbel::KVCache<B> cache;

  static Running load(const std::string& path, const corbel::Context& context,
                      const corbel::KVCacheOptions& cache_options, const corbel::LoadOptions& options = {}) {
    auto model = corbel::Model<B>::load(path, context, options).value();
    auto cache = corbel::KVCache<B>::create(model, cache_options).value();
    return {std::move(model), std::move(cache)};
  }
};

/// Logits of all tokens [ids, vocab], the ids fed in pieces of `chunk`.
template <class B>
std::vector<float> all_logits(corbel::Batch<B>& batch, corbel::Sequence<B>& sequence,
                              std::span<const corbel::TokenId> ids, std::size_t chunk,
                              corbel::Role role = corbel::Role::kPrompt) {
  std::vector<float> result;
  for (std::size_t at = 0; at < ids.size(); at += chunk) {
    const corbel::Status added =
        batch.add(sequence, ids.subspan(at, std::min(chunk, ids.size() - at)), role, corbel::Wanted::kAll);
    if (!added.ok()) throw corbel::Exception(added);
    const corbel::Logits logits = batch.forward().value();
    result.insert(result.end(), logits.values.begin(), logits.values.end());
  }
  return result;
}

/// `count` greedy tokens after `prompt`; the sequence then holds prompt and all but the last of them.
template <class B>
std::vector<corbel::TokenId> greedy(corbel::Batch<B>& batch, corbel::Sequence<B>& sequence,
                                    std::span<const corbel::TokenId> prompt, std::size_t count) {
  std::vector<corbel::TokenId> result;
  const std::size_t chunk = batch.options().max_rows;
  for (std::size_t at = 0; at < prompt.size(); at += chunk) {
    const corbel::Status added =
        batch.add(sequence, prompt.subspan(at, std::min(chunk, prompt.size() - at)), corbel::Role::kPrompt);
    if (!added.ok()) throw corbel::Exception(added);
    const corbel::Logits logits = batch.forward().value();
    if (at + chunk >= prompt.size()) result.push_back(argmax(logits.row(0)));
  }
  while (result.size() < count) {
    const corbel::TokenId last = result.back();
    const corbel::Status added = batch.add(sequence, {&last, 1}, corbel::Role::kGenerated);
    if (!added.ok()) throw corbel::Exception(added);
    result.push_back(argmax(batch.forward().value().row(0)));
  }
  return result;
}

/// The same, each token from one pass over all before it: where ropes depend on the length, as the reference does it.
template <class B>
std::vector<corbel::TokenId> greedy_anew(corbel::Batch<B>& batch, corbel::Sequence<B>& sequence,
                                         std::span<const corbel::TokenId> prompt, std::size_t count) {
  std::vector<corbel::TokenId> all(prompt.begin(), prompt.end());
  for (std::size_t i = 0; i < count; ++i) {
    sequence.clear();
    const corbel::Status planned = sequence.plan_length(static_cast<std::uint32_t>(all.size()));
    if (!planned.ok()) throw corbel::Exception(planned);
    all.push_back(greedy(batch, sequence, all, 1)[0]);
  }
  return {all.begin() + static_cast<std::ptrdiff_t>(prompt.size()), all.end()};
}

inline double max_difference(std::span<const float> a, std::span<const float> b) {
  double worst = a.size() == b.size() ? 0 : 1e30;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (difference > worst) worst = difference;
    if (std::isnan(difference)) return 1e30;
  }
  return worst;
}

/// The ISA levels that this machine can run, lowest first (amx perhaps with emulated tiles); the others are skipped by
/// name.
inline std::vector<corbel::IsaLevel> isa_levels(std::string_view test_name) {
  std::vector<corbel::IsaLevel> levels;
  for (const corbel::IsaLevel level : kAllLevels) {
    if (has_level(level)) {
      levels.push_back(level);
    } else {
      skip(std::string(test_name) + " at " + corbel::isa_name(level), "this CPU lacks the level");
    }
  }
  return levels;
}

inline corbel::Context context_at(corbel::IsaLevel level, int threads = 2) {
  return corbel::Context(options_at(level, threads));
}

}  // namespace corbel_test
