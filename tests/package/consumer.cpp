// Uses the library through its umbrella header, without exceptions, printing, or anything else that the library itself
// must not do: the object file of this source is searched for banned symbols.
#include "consumer.hpp"

#include <corbel/corbel.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace {

template <class B>
corbel::Result<std::string> digest(const char* path, const corbel::Context& context) {
  CORBEL_ASSIGN_OR_RETURN(const corbel::Model<B> model, corbel::Model<B>::load(path, context));
  CORBEL_ASSIGN_OR_RETURN(const corbel::KVCache<B> cache, corbel::KVCache<B>::create(model, {.max_tokens = 64}));
  CORBEL_ASSIGN_OR_RETURN(corbel::Sampler<> sampler,
                          corbel::Sampler<>::create({.temperature = 0.8f, .top_k = 20, .seed = 7}));
  CORBEL_ASSIGN_OR_RETURN(corbel::Batch<B> batch, corbel::Batch<B>::create(cache, {.max_rows = 16}));
  corbel::Sequence<B> sequence(cache);
  std::array<corbel::TokenId, 7> prompt = {1, 5, 9, 2, 8, 3, 4};
  std::span<const corbel::TokenId> ids = prompt;
  corbel::Role role = corbel::Role::kPrompt;
  corbel::TokenId token = 0;
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a over the bits of all logits
  std::string text = std::string(B::kName) + ":";
  for (int step = 0; step < 8; ++step) {
    CORBEL_RETURN_IF_ERROR(batch.add(sequence, ids, role));
    CORBEL_ASSIGN_OR_RETURN(const corbel::Logits logits, batch.forward());
    for (const float value : logits.values) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      hash = (hash ^ bits) * 0x100000001b3u;
    }
    CORBEL_ASSIGN_OR_RETURN(token, sampler.sample(logits.row(0)));
    CORBEL_RETURN_IF_ERROR(sampler.accept(token));
    text += " " + std::to_string(token);
    ids = {&token, 1};
    role = corbel::Role::kGenerated;
  }
  return text + " #" + std::to_string(hash);
}

}  // namespace

std::string consume(const char* model_path) {
  std::string lines;
  for (const corbel::IsaLevel level : {corbel::IsaLevel::kBase, corbel::IsaLevel::kAvx2, corbel::IsaLevel::kAvx512}) {
    if (level > corbel::detected_isa()) break;
    const corbel::Context context({.threads = 2, .isa = level, .force_isa = true});
    const corbel::Result<std::string> line = digest<corbel::DefaultBackend>(model_path, context);
    if (!line.ok()) return "error: " + std::string(line.status().message());
    lines += std::string(corbel::isa_name(level)) + " " + *line + "\n";
  }
  if (corbel::detected_isa() >= corbel::IsaLevel::kAvx512) {
    const corbel::Context context(
        {.threads = 2, .isa = corbel::IsaLevel::kAmx, .force_isa = true, .amx = corbel::AmxUse::kEmulate});
    const corbel::Result<std::string> line = digest<corbel::DefaultBackend>(model_path, context);
    if (!line.ok()) return "error: " + std::string(line.status().message());
    lines += "amx (emulated tiles) " + *line + "\n";
  }
  const corbel::Context context({.threads = 2});
  const corbel::Result<std::string> line = digest<corbel::RefBackend>(model_path, context);
  if (!line.ok()) return "error: " + std::string(line.status().message());
  return lines + *line;
}

const char* consumed_version() { return corbel::build_info().version; }
