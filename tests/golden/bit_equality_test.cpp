// The same bits whatever the threads, the chunks, the company in the batch, forks and block sizes: numerics contract,
// docs/concepts/numerics.md.
#include <catch2/catch.hpp>
#include <random>

#include "support/golden.hpp"

using namespace corbel;
using namespace corbel_test;

namespace {

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::vector<TokenId> random_ids(std::size_t count, std::uint32_t vocab) {
  std::mt19937 random(7);
  std::vector<TokenId> ids(count);
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % vocab);
  return ids;
}

/// Everything that must not change a bit, for one model on one backend.
template <class B>
void check_equality(const std::string& path, const Context& one_thread, const Context& two_threads, std::size_t length,
                    KvType type) {
  INFO(path << " on " << B::kName << " with a cache of " << hal::kv_type_name(type));
  auto base = Running<B>::load(path, one_thread, {.max_tokens = 4096, .block_tokens = 32, .type = type});
  const BatchOptions options = {.max_rows = 128, .max_wanted = 128, .max_sequences = 4};
  auto batch = Batch<B>::create(base.cache, options).value();
  const std::vector<TokenId> ids = random_ids(length, base.model.spec().vocab);
  Sequence<B> whole(base.cache);
  const std::vector<float> expected = all_logits(batch, whole, ids, 128);

  for (const std::size_t chunk : {std::size_t{1}, std::size_t{7}, std::size_t{64}}) {
    INFO("chunk " << chunk);
    Sequence<B> sequence(base.cache);
    CHECK(same_bits(all_logits(batch, sequence, ids, chunk), expected));
  }
  {
    INFO("two threads");
    auto other = Running<B>::load(path, two_threads, {.max_tokens = 512, .block_tokens = 32, .type = type});
    auto other_batch = Batch<B>::create(other.cache, options).value();
    Sequence<B> sequence(other.cache);
    CHECK(same_bits(all_logits(other_batch, sequence, ids, 128), expected));
  }
  for (std::uint32_t block_tokens : {16u, 64u}) {
    INFO("block size " << block_tokens);
    auto cache =
        KVCache<B>::create(base.model, {.max_tokens = 512, .block_tokens = block_tokens, .type = type}).value();
    auto other_batch = Batch<B>::create(cache, options).value();
    Sequence<B> sequence(cache);
    CHECK(same_bits(all_logits(other_batch, sequence, ids, 128), expected));
  }
  for (const Role role : {Role::kPrompt, Role::kGenerated}) {
    INFO("a second sequence in the same run, of role " << static_cast<int>(role));
    Sequence<B> first(base.cache), second(base.cache);
    const std::vector<TokenId> stranger = random_ids(ids.size(), 100);
    const std::uint64_t runs = batch.num_runs();
    std::vector<float> got;
    for (std::size_t at = 0; at < ids.size(); at += 40) {
      const std::size_t rows = std::min<std::size_t>(40, ids.size() - at);
      REQUIRE(batch.add(second, std::span(stranger).subspan(at, rows), role, Wanted::kLast).ok());
      REQUIRE(batch.add(first, std::span(ids).subspan(at, rows), Role::kPrompt, Wanted::kAll).ok());
      const Logits logits = batch.forward().value();
      REQUIRE(logits.rows == rows + 1);
      got.insert(got.end(), logits.values.begin() + static_cast<std::ptrdiff_t>(logits.vocab), logits.values.end());
    }
    CHECK(batch.num_runs() == runs + (ids.size() + 39) / 40);
    CHECK(same_bits(got, expected));
  }
  {
    INFO("forked in the middle of a block");
    const std::size_t at = ids.size() / 2 + 1;
    Sequence<B> trunk(base.cache);
    std::vector<float> got = all_logits(batch, trunk, std::span(ids).first(at), 128);
    Sequence<B> branch = trunk.fork().value();
    const std::vector<TokenId> other = random_ids(ids.size() - at, 50);
    all_logits(batch, trunk, other, 128);  // writes into what was shared
    const std::vector<float> rest = all_logits(batch, branch, std::span(ids).subspan(at), 128);
    got.insert(got.end(), rest.begin(), rest.end());
    CHECK(same_bits(got, expected));
  }
  {
    INFO("truncated and computed again");
    const std::size_t keep = ids.size() / 3;
    REQUIRE(whole.truncate(keep).ok());
    const std::vector<float> rest = all_logits(batch, whole, std::span(ids).subspan(keep), 128);
    CHECK(same_bits(rest, std::span(expected).subspan(keep * base.model.spec().vocab)));
  }
}

}  // namespace

TEST_CASE("bit equality on ref", "[bits][ref]") {
  const Context one({.threads = 1}), two({.threads = 2});
  for (const char* name : {"llama-gqa", "gemma3-text", "llama-q4_k_m"})
    check_equality<RefBackend>(test_data("golden/") + name + "/model.gguf", one, two, 100, KvType::kF32);
  check_equality<RefBackend>(test_data("golden/qwen3/model.gguf"), one, two, 100, KvType::kBF16);
  for (const char* name : {"gpt-oss", "deepseek-v2-lite"})
    check_equality<RefBackend>(test_data("golden/") + name, one, two, 60, KvType::kF16);
}

#if CORBEL_HAS_CPU
TEST_CASE("bit equality on cpu at every ISA level", "[bits][cpu]") {
  for (IsaLevel level : isa_levels("bit equality on cpu at every ISA level")) {
    INFO("level " << isa_name(level));
    const Context one = context_at(level, 1), two = context_at(level, 2);
    for (const char* name : {"llama-gqa", "qwen2-f16", "gemma3-text", "llama-q4_k_m"})
      check_equality<CpuBackend>(test_data("golden/") + name + "/model.gguf", one, two, 100, KvType::kF32);
    check_equality<CpuBackend>(test_data("golden/qwen3/model.gguf"), one, two, 100, KvType::kBF16);
    check_equality<CpuBackend>(test_data("golden/qwen3/model.gguf"), one, two, 100, KvType::kF16);
    // Mixtures of experts: sinks, windows and biases; latent attention.
    for (const char* name : {"gpt-oss", "deepseek-v2-lite"}) {
      check_equality<CpuBackend>(test_data("golden/") + name, one, two, 100, KvType::kF32);
      check_equality<CpuBackend>(test_data("golden/") + name, one, two, 100, KvType::kF16);
    }
  }
}

TEST_CASE("bit equality of generated rows at amx and avx512", "[bits][cpu]") {
  if (!has_level(IsaLevel::kAmx)) {
    skip("bit equality of generated rows at amx and avx512", "this CPU lacks avx512");
    return;
  }
  const auto logits = [](const std::string& path, IsaLevel level, Role role) {
    auto running = Running<CpuBackend>::load(path, context_at(level), {.max_tokens = 128});
    auto batch = Batch<CpuBackend>::create(running.cache, {.max_rows = 64, .max_wanted = 64}).value();
    Sequence<CpuBackend> sequence(running.cache);
    return all_logits(batch, sequence, random_ids(40, running.model.spec().vocab), 16, role);
  };
  for (const char* name : {"llama-q4_k_m/model.gguf", "qwen2-f16/model.gguf", "gpt-oss"}) {
    INFO(name);
    const std::string path = test_data("golden/") + name;
    const std::vector<float> expected = logits(path, IsaLevel::kAvx512, Role::kPrompt);
    CHECK(same_bits(logits(path, IsaLevel::kAmx, Role::kGenerated), expected));
    // On tiles, prompts are close and not the same; where weights are finer than bfloat16, they are.
    const std::vector<float> prompts = logits(path, IsaLevel::kAmx, Role::kPrompt);
    CHECK(same_bits(prompts, expected) == (std::string_view(name) != "llama-q4_k_m/model.gguf"));
    CHECK(max_difference(prompts, expected) <= 0.25);
  }
}

TEST_CASE("bit equality of quantized experts", "[bits][cpu]") {
  const std::string root = shared_data("golden_quantized", "bit equality of quantized experts");
  if (root.empty()) return;
  const IsaLevel level = isa_levels("bit equality of quantized experts").back();
  check_equality<CpuBackend>(root + "/mxfp4-gpt-oss", context_at(level, 1), context_at(level, 2), 100, KvType::kF16);
}

TEST_CASE("bit equality of a real prompt of 64 tokens", "[bits][cpu][real]") {
  const std::string path = real_model("smollm2", "bit equality of a real prompt of 64 tokens");
  if (path.empty()) return;
  const IsaLevel level = detected_isa();
  check_equality<CpuBackend>(path, context_at(level, 1), context_at(level, 2), 64, KvType::kF16);
  if (level < IsaLevel::kAmx && has_level(IsaLevel::kAmx))  // emulated tiles are slow
    check_equality<CpuBackend>(path, context_at(IsaLevel::kAmx, 1), context_at(IsaLevel::kAmx, 2), 20, KvType::kF16);
}
#endif

TEST_CASE("a host's flush-to-zero mode changes no bit", "[bits]") {
  const Context context({.threads = 2});
  auto running = Running<DefaultBackend>::load(test_data("golden/llama-gqa/model.gguf"), context, {.max_tokens = 256});
  auto batch = Batch<DefaultBackend>::create(running.cache, {.max_rows = 64, .max_wanted = 64}).value();
  const std::vector<TokenId> ids = random_ids(40, 320);
  Sequence<DefaultBackend> plain(running.cache), flushed(running.cache);
  const std::vector<float> expected = all_logits(batch, plain, ids, 64);
  const auto host = detail::fp_control();
#if defined(__SSE2__)
  detail::set_fp_control(0x1f80u | 0x8040u | 0x6000u);  // flush to zero, denormals are zero, round toward zero
#endif
  const std::vector<float> got = all_logits(batch, flushed, ids, 64);
  const auto after = detail::fp_control();
  detail::set_fp_control(host);
  CHECK(same_bits(got, expected));
#if defined(__SSE2__)
  CHECK((after & ~0x3fu) == (0x1f80u | 0x8040u | 0x6000u));
#else
  CHECK(after == host);
#endif
}
