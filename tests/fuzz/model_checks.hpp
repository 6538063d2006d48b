// Loads a checkpoint on the reference backend and computes two tokens.
#pragma once

#include <corbel/batch.hpp>
#include <corbel/kv_cache.hpp>
#include <corbel/model.hpp>
#include <corbel/sampler.hpp>

#include <cstring>
#include <vector>

#include "fuzz/fuzz.hpp"

namespace corbel_fuzz {

/// Fails where a load ends in an internal error, or where a loaded model gives logits of another size, a token out of
/// range, or other logits the second time.
inline void check_model(const corbel::Checkpoint& checkpoint, const corbel::Context& context) {
  using Backend = corbel::RefBackend;
  const auto model = corbel::Model<Backend>::load(checkpoint, context);
  check_status(model.status());
  if (!model.ok()) return;
  FUZZ_CHECK(model->spec().vocab >= 1 && !model->spec().layers.empty(), "");
  check_status(model->chat_template().status());
  const auto cache = corbel::KVCache<Backend>::create(*model, {.max_tokens = 16, .block_tokens = 16});
  check_status(cache.status());
  if (!cache.ok()) return;
  auto batch = corbel::Batch<Backend>::create(*cache, {.max_rows = 2, .max_wanted = 2, .max_sequences = 1});
  check_status(batch.status());
  if (!batch.ok()) return;

  std::vector<float> first;
  for (int round = 0; round < 2; ++round) {
    corbel::Sequence<Backend> sequence(*cache);
    std::vector<corbel::TokenId> ids = {static_cast<corbel::TokenId>(model->spec().vocab - 1)};
    for (int step = 0; step < 2; ++step) {
      const corbel::Status added = batch->add(sequence, ids, corbel::Role::kPrompt);
      check_status(added);
      if (!added.ok()) return;
      const auto logits = batch->forward();
      check_status(logits.status());
      if (!logits.ok()) return;
      FUZZ_CHECK(logits->rows == 1 && logits->vocab == model->spec().vocab, "");
      const std::span<const float> row = logits->row(0);
      if (round == 0) {
        first.insert(first.end(), row.begin(), row.end());
      } else {
        const float* before = first.data() + static_cast<std::size_t>(step) * row.size();
        FUZZ_CHECK(std::memcmp(row.data(), before, row.size_bytes()) == 0, "");
      }
      auto sampler = corbel::Sampler<>::create({.temperature = 0.0f});
      FUZZ_CHECK(sampler.ok(), sampler.status().message());
      const auto token = sampler->sample(row);
      check_status(token.status());  // NaN logits are an error
      if (!token.ok()) return;
      FUZZ_CHECK(*token >= 0 && static_cast<std::uint32_t>(*token) < model->spec().vocab, std::to_string(*token));
      ids = {*token};
    }
  }
}

}  // namespace corbel_fuzz
