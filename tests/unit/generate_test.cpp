// generate: how a reply ends, what the callback sees, and that nothing is left behind by errors, cancels and
// exceptions.
#include <corbel/checkpoint/gguf_writer.hpp>
#include <corbel/detail/utf8.hpp>
#include <corbel/generate.hpp>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/alloc_counter.hpp"
#include "support/golden.hpp"
#include "support/isa.hpp"
#include "support/support.hpp"

namespace {

using namespace corbel;
using Backend = RefBackend;
using Tokens = std::vector<TokenId>;

const corbel_test::Golden& golden() {
  static const corbel_test::Golden value =
      corbel_test::read_golden(corbel_test::test_data("golden/llama-gqa/golden.safetensors"));
  return value;
}

// A context of 128 positions, 320 tokens (byte-level BPE), <s> is 1 and </s> ends replies.
const Model<Backend>& tiny() {
  static const Model<Backend> model =
      Model<Backend>::load(corbel_test::test_data("golden/llama-gqa/model.gguf"), Context({.threads = 1})).value();
  return model;
}

KVCache<Backend> cache_of(std::uint32_t max_tokens = 128) {
  return KVCache<Backend>::create(tiny(), {.max_tokens = max_tokens, .block_tokens = 16, .type = KvType::kF32}).value();
}

Sampler<> greedy_sampler() { return Sampler<>::create({.temperature = 0.0f}).value(); }

// Says what it was told to, whatever the logits.
struct Script {
  Tokens tokens;
  std::size_t at = 0;
  std::size_t fail_at = ~std::size_t{0};
  std::function<void()> before_sample = {};
  Status start(std::span<const TokenId>, std::uint32_t) {
    at = 0;
    return {};
  }
  Result<TokenId> sample(std::span<const float> logits) {
    if (before_sample) before_sample();
    if (at == fail_at) return Status(Errc::kBadValue, "told to fail");
    CHECK(logits.size() == 320);
    return tokens[at % tokens.size()];
  }
  Status accept(TokenId token) {
    CHECK(token == tokens[at % tokens.size()]);
    ++at;
    return {};
  }
};

Script saying(std::string_view text) { return {.tokens = tiny().tokenizer().encode(text).value()}; }

Tokens tokens_of(const Sequence<Backend>& sequence) { return {sequence.tokens().begin(), sequence.tokens().end()}; }

// What a fresh sequence answers to the golden prompt.
GenerateResult fresh_reply(std::uint32_t max_tokens) {
  Sequence<Backend> sequence(cache_of());
  auto sampler = greedy_sampler();
  return generate(tiny(), sequence, sampler, golden().prompt,
                  {.max_tokens = max_tokens, .ignore_end_of_generation = true})
      .value();
}

// Runs of the model are counted on the host's executor; at the chosen one the token is cancelled.
struct CancellingExecutor : Executor {
  CancelToken* token = nullptr;
  std::size_t cancel_at = ~std::size_t{0};
  mutable std::size_t runs = 0;
  std::size_t concurrency() const noexcept override { return 2; }
  void run(std::size_t num_tasks, Task task, void* argument) noexcept override {
    if (++runs == cancel_at && token != nullptr) token->cancel();
    for (std::size_t i = 0; i < num_tasks; ++i) task(argument, i);
  }
};

}  // namespace

TEST_CASE("generate: greedy gives the reference's tokens, in any chunks", "[generate]") {
  for (const std::uint32_t chunk : {512u, 1u, 7u}) {
    Sequence<Backend> sequence(cache_of());
    auto sampler = greedy_sampler();
    Tokens seen;
    std::string text;
    const auto reply = generate(tiny(), sequence, sampler, golden().prompt,
                                {.max_tokens = static_cast<std::uint32_t>(golden().greedy.size()),
                                 .ignore_end_of_generation = true,
                                 .chunk = chunk},
                                [&](const TokenEvent& event) {
                                  CHECK(event.index == seen.size());
                                  seen.push_back(event.token);
                                  text += event.text;
                                  return Next::kContinue;
                                })
                           .value();
    CHECK(reply.finish == FinishReason::kLength);
    CHECK(reply.tokens == golden().greedy);
    CHECK(seen == golden().greedy);
    CHECK(reply.text == text);
    CHECK(reply.pending == golden().greedy.back());
    CHECK(reply.statistics.prompt_tokens == golden().prompt.size());
    CHECK(reply.statistics.reused_tokens == 0);
    CHECK(reply.statistics.decoded_tokens == golden().greedy.size());
    CHECK(reply.statistics.ttft_seconds > 0.0);
    CHECK(reply.statistics.seconds >= reply.statistics.ttft_seconds);
    Tokens expected = golden().prompt;
    expected.insert(expected.end(), golden().greedy.begin(), golden().greedy.end() - 1);
    CHECK(tokens_of(sequence) == expected);
    CHECK(sequence.roles()[golden().prompt.size() - 1] == Role::kPrompt);
    CHECK(sequence.roles()[golden().prompt.size()] == Role::kGenerated);
  }
}

TEST_CASE("generate: a reply goes on from its pending token", "[generate]") {
  const Tokens whole = fresh_reply(12).tokens;
  Sequence<Backend> sequence(cache_of());
  auto sampler = greedy_sampler();
  auto batch = Batch<Backend>::create(sequence.cache(), {.max_rows = 16, .max_wanted = 1, .max_sequences = 1}).value();
  const GenerateOptions options = {.max_tokens = 6, .ignore_end_of_generation = true};
  const auto first = generate(batch, sequence, sampler, golden().prompt, options).value();
  const auto second = generate(batch, sequence, sampler, Tokens{first.pending}, options).value();
  CHECK(second.statistics.reused_tokens == golden().prompt.size() + 5);
  CHECK(second.statistics.prompt_tokens == golden().prompt.size() + 6);
  Tokens both = first.tokens;
  both.insert(both.end(), second.tokens.begin(), second.tokens.end());
  CHECK(both == whole);
}

TEST_CASE("generate: every way to end", "[generate]") {
  const Tokens prompt = {1, 10, 11};
  const auto run = [&](Script script, const GenerateOptions& options, const auto& callback) {
    Sequence<Backend> sequence(cache_of());
    auto reply = generate(tiny(), sequence, script, prompt, options, callback).value();
    // What is left in the sequence: the prompt and the reply, without the token that was chosen last.
    Tokens expected = prompt;
    expected.insert(expected.end(), reply.tokens.begin(), reply.tokens.end());
    if (!reply.tokens.empty() && expected.back() == reply.pending) expected.pop_back();
    CHECK(tokens_of(sequence) == expected);
    return reply;
  };
  const auto go_on = [](std::string_view) { return Next::kContinue; };
  const TokenId end = tiny().tokenizer().eos();
  REQUIRE(tiny().tokenizer().is_end_of_generation(end));

  Script script = saying(" the rain");
  script.tokens.push_back(end);
  auto reply = run(script, {}, go_on);
  CHECK(reply.finish == FinishReason::kEndOfGeneration);
  CHECK(reply.text == " the rain");
  CHECK(reply.pending == end);
  CHECK(reply.tokens.size() == script.tokens.size() - 1);

  reply = run(script, {.max_tokens = 20, .ignore_end_of_generation = true}, go_on);
  CHECK(reply.finish == FinishReason::kLength);
  CHECK(reply.tokens.size() == 20);

  reply = run(script, {.stop_tokens = {script.tokens[1]}}, go_on);
  CHECK(reply.finish == FinishReason::kStopToken);
  CHECK(reply.tokens == Tokens{script.tokens[0]});
  CHECK(reply.pending == script.tokens[1]);

  reply = run({.tokens = {end}}, {}, go_on);
  CHECK(reply.finish == FinishReason::kEndOfGeneration);
  CHECK(reply.tokens.empty());
  CHECK(reply.text.empty());

  int calls = 0;
  reply = run(saying(" a b c d"), {}, [&](const TokenEvent&) { return ++calls == 3 ? Next::kStop : Next::kContinue; });
  CHECK(reply.finish == FinishReason::kStopped);
  CHECK(reply.tokens.size() == 3);
  CHECK(calls == 3);

  reply = run(saying("abc "), {}, go_on);  // until the context of 128 is full: the last token is chosen at position 128
  CHECK(reply.finish == FinishReason::kContext);
  CHECK(reply.tokens.size() == 126);
}

TEST_CASE("generate: a model without a tokenizer ends where its files say", "[generate]") {
  const Context context({.threads = 1});
  const std::string text = corbel_test::read_file(corbel_test::test_data("golden/llama-gqa/model.gguf"));
  const Checkpoint source = Checkpoint::from_memory(std::as_bytes(std::span(text)), context, {}, "m").value();
  GgufWriter writer(3);
  for (const Metadata::Entry& entry : source.metadata().entries())
    if (!entry.key.starts_with("tokenizer.")) writer.metadata().set(entry.key, entry.value);
  writer.metadata().set("tokenizer.ggml.model", MetaValue::from_string("no_vocab"));
  writer.metadata().set("tokenizer.ggml.eos_token_id", MetaValue::from_uint(7));
  writer.metadata().set("corbel.tokenizer.generation_config", MetaValue::from_string(R"({"eos_token_id":[9,7]})"));
  for (const TensorInfo& tensor : source.tensors())
    REQUIRE(writer.add_f32(tensor.name, tensor.shape, source.read_f32(tensor).value()).ok());
  const std::vector<std::byte> bytes = writer.to_bytes().value();
  const auto model = Model<Backend>::load(Checkpoint::from_memory(bytes, context, {}, "m").value(), context);
  REQUIRE(model.ok());
  REQUIRE(model->tokenizer().size() == 0);
  const auto cache =
      KVCache<Backend>::create(*model, {.max_tokens = 64, .block_tokens = 16, .type = KvType::kF32}).value();
  for (const TokenId end : {7, 9, 11}) {
    Sequence<Backend> sequence(cache);
    Script script = {.tokens = {4, 5, end, 6}};
    const auto reply = generate(*model, sequence, script, Tokens{1, 2}, {.max_tokens = 4}).value();
    CHECK(reply.finish == (end == 11 ? FinishReason::kLength : FinishReason::kEndOfGeneration));
    CHECK(reply.tokens.size() == (end == 11 ? 4u : 2u));
    Script stopped = {.tokens = {4, 5, 11, 6}};
    Sequence<Backend> again(cache);
    CHECK(generate(*model, again, stopped, Tokens{1, 2}, {.max_tokens = 4, .stop_tokens = {11}})->finish ==
          FinishReason::kStopToken);
  }
}

TEST_CASE("generate: stop strings over several tokens", "[generate]") {
  Sequence<Backend> sequence(cache_of());
  Script script = saying("A B C D E F G H I J K L M N O P Q R");
  REQUIRE(script.tokens.size() >= 18);
  std::string seen;
  std::string longest_held;
  const auto callback = [&](std::string_view text) {
    seen += text;
    return Next::kContinue;
  };
  auto reply = generate(tiny(), sequence, script, Tokens{1, 5}, {.stop = {"no", "O P Q"}}, callback).value();
  CHECK(reply.finish == FinishReason::kStopString);
  CHECK(reply.text == "A B C D E F G H I J K L M N ");
  CHECK(seen == reply.text);

  // Held back text is set free by the end of the reply.
  seen.clear();
  Script half = saying("x O P");
  half.tokens.push_back(tiny().tokenizer().eos());
  sequence.clear();
  std::vector<std::pair<TokenId, std::string>> events;
  reply = generate(tiny(), sequence, half, Tokens{1, 5}, {.stop = {"O P Q"}}, [&](const TokenEvent& event) {
            events.emplace_back(event.token, event.text);
            return Next::kContinue;
          }).value();
  CHECK(reply.finish == FinishReason::kEndOfGeneration);
  CHECK(reply.text == "x O P");
  REQUIRE(events.size() == reply.tokens.size() + 1);
  CHECK(events.back().first == kNoToken);
  CHECK(events.back().second == "O P");
}

TEST_CASE("generate: text comes in whole code points", "[generate]") {
  for (const std::string text :
       {"\xF0\x9F\x98\x80\xF0\x9F\x98\x81", "\xD1\x89\xD1\x91\xD1\x87\xD0\xBA\xD0\xB8", "a\xC3\xA9"}) {
    Script script = saying(text);
    REQUIRE(script.tokens.size() > 2);
    const std::size_t count = script.tokens.size();
    Sequence<Backend> sequence(cache_of());
    std::string seen;
    auto reply = generate(tiny(), sequence, script, Tokens{1, 5}, {.max_tokens = static_cast<std::uint32_t>(count)},
                          [&](std::string_view piece) {
                            CHECK_FALSE(piece.empty());
                            CHECK(detail::is_utf8(piece));
                            CHECK(piece.size() <= 4);  // nothing waits for the end
                            seen += piece;
                            return Next::kContinue;
                          })
                     .value();
    CHECK(reply.text == text);
    CHECK(seen == text);
    // Cut in the middle of a character: what cannot be completed becomes U+FFFD.
    sequence.clear();
    reply =
        generate(tiny(), sequence, script, Tokens{1, 5}, {.max_tokens = static_cast<std::uint32_t>(count - 1)}).value();
    CHECK(detail::is_utf8(reply.text));
    CHECK(reply.text != text);
  }
}

TEST_CASE("generate: requests that cannot be served leave the sequence as it was", "[generate]") {
  const KVCache<Backend> cache = cache_of();
  Sequence<Backend> sequence(cache);
  auto sampler = greedy_sampler();
  const auto failure = [&](const Tokens& prompt, const GenerateOptions& options) {
    const Tokens before = tokens_of(sequence);
    const std::uint32_t free = cache.num_free_blocks();
    const auto reply = generate(tiny(), sequence, sampler, prompt, options);
    REQUIRE_FALSE(reply.ok());
    CHECK(tokens_of(sequence) == before);
    CHECK(cache.num_free_blocks() == free);
    return std::pair(reply.status().code(), std::string(reply.status().message()));
  };
  REQUIRE(generate(tiny(), sequence, sampler, golden().prompt, {.max_tokens = 1}).ok());
  const std::size_t held = golden().prompt.size();
  CHECK(failure({}, {}) == std::pair(Errc::kInvalidArgument, std::string("the prompt is empty")));
  CHECK(failure(Tokens(129, 5), {}) ==
        std::pair(Errc::kContextOverflow, "129 prompt tokens after " + std::to_string(held) +
                                              " do not fit: the model has 128 positions, the cache 128"));
  CHECK(failure({5, 320}, {}).first == Errc::kInvalidArgument);
  CHECK(failure({5, 6, -1}, {.chunk = 1}).first == Errc::kInvalidArgument);  // found in the third chunk
  CHECK(failure({5}, {.stop = {""}}) == std::pair(Errc::kInvalidArgument, std::string("stop string 0 is empty")));
  CHECK(failure({5}, {.stop_tokens = {320}}) ==
        std::pair(Errc::kInvalidArgument, std::string("stop_tokens: token 320 is outside the vocabulary of 320")));
  CHECK(failure({5}, {.chunk = 0}) == std::pair(Errc::kInvalidArgument, std::string("chunk must be above 0")));
  Script script = saying("some text");
  script.fail_at = 2;
  const Tokens before = tokens_of(sequence);
  CHECK(generate(tiny(), sequence, script, Tokens{5}).status().message() == "told to fail");
  CHECK(tokens_of(sequence) == before);
}

TEST_CASE("generate: a full cache", "[generate]") {
  const KVCache<Backend> cache = cache_of(64);
  Sequence<Backend> other(cache);
  Sequence<Backend> sequence(cache);
  Script script = saying("word ");
  // The pool is taken by another sequence: the reply ends where no block is free.
  REQUIRE(generate(tiny(), other, script, Tokens(30, 7), {.max_tokens = 1}).ok());
  const auto reply = generate(tiny(), sequence, script, Tokens(10, 7), {}).value();
  CHECK(reply.finish == FinishReason::kContext);
  CHECK(sequence.size() == 32);
  CHECK(reply.tokens.size() == 23);
  // A prompt that does not fit in the free blocks is an error, and gives them back.
  const std::uint32_t free = cache.num_free_blocks();
  Sequence<Backend> third(cache);
  CHECK(generate(tiny(), third, script, Tokens(40, 7), {.chunk = 8}).status().code() == Errc::kOutOfMemory);
  CHECK(third.empty());
  CHECK(cache.num_free_blocks() == free);
  CHECK(generate(tiny(), third, script, Tokens(65, 7), {}).status().code() == Errc::kContextOverflow);
}

TEST_CASE("generate: cancel takes everything back", "[generate]") {
  const GenerateResult expected = fresh_reply(8);
  const KVCache<Backend> cache = cache_of();
  Sequence<Backend> sequence(cache);
  auto sampler = greedy_sampler();
  const GenerateOptions options = {.max_tokens = 8, .ignore_end_of_generation = true};
  int calls = 0;
  auto reply = generate(tiny(), sequence, sampler, golden().prompt, options,
                        [&](const TokenEvent&) { return ++calls == 4 ? Next::kCancel : Next::kContinue; });
  CHECK(reply.status().code() == Errc::kCancelled);
  const std::string size = std::to_string(golden().prompt.size());
  CHECK(reply.status().message() ==
        "cancelled by the callback after " + size + " of " + size + " prompt tokens and 4 tokens of the reply");
  CHECK(sequence.empty());
  CHECK(cache.num_free_blocks() == cache.num_blocks());
  CancelToken token;
  token.cancel();
  GenerateOptions cancelled = options;
  cancelled.cancel = &token;
  reply = generate(tiny(), sequence, sampler, golden().prompt, cancelled);
  CHECK(reply.status().message() == "cancelled after 0 of " + size + " prompt tokens and 0 tokens of the reply");
  token.reset();
  CHECK(generate(tiny(), sequence, sampler, golden().prompt, cancelled).value().tokens == expected.tokens);
}

TEST_CASE("generate: cancel in the middle of a prefill is honoured within one chunk", "[generate]") {
  CancellingExecutor executor;
  CancelToken token;
  executor.token = &token;
  const auto model =
      Model<Backend>::load(corbel_test::test_data("golden/llama-gqa/model.gguf"), Context({.executor = &executor}))
          .value();
  const auto cache =
      KVCache<Backend>::create(model, {.max_tokens = 128, .block_tokens = 16, .type = KvType::kF32}).value();
  Sequence<Backend> sequence(cache);
  auto sampler = greedy_sampler();
  auto batch = Batch<Backend>::create(cache, {.max_rows = 4, .max_wanted = 1, .max_sequences = 1}).value();
  Tokens prompt;
  for (TokenId i = 0; i < 100; ++i) prompt.push_back(3 + i % 300);
  GenerateOptions options = {.max_tokens = 4, .ignore_end_of_generation = true, .chunk = 4, .cancel = &token};
  const Tokens expected = generate(batch, sequence, sampler, prompt, options).value().tokens;
  sequence.clear();
  const std::uint64_t runs_before = batch.num_runs();
  executor.runs = 0;
  executor.cancel_at = 150;  // some op of some chunk
  const auto reply = generate(batch, sequence, sampler, prompt, options);
  REQUIRE(reply.status().code() == Errc::kCancelled);
  INFO(reply.status().message());
  CHECK(executor.runs >= 150);
  CHECK(batch.num_runs() - runs_before > 1);
  CHECK(batch.num_runs() - runs_before < 25);
  CHECK(sequence.empty());
  CHECK(cache.num_free_blocks() == cache.num_blocks());
  token.reset();
  executor.cancel_at = 0;
  CHECK(generate(batch, sequence, sampler, prompt, options).value().tokens == expected);
}

TEST_CASE("generate: an exception of the callback reaches the caller, and nothing is left", "[generate]") {
  const GenerateResult expected = fresh_reply(8);
  const KVCache<Backend> cache = cache_of();
  Sequence<Backend> sequence(cache);
  auto sampler = greedy_sampler();
  const GenerateOptions options = {.max_tokens = 8, .ignore_end_of_generation = true};
  struct HostError {
    int value;
  };
  int calls = 0;
  const auto throw_host_error = [&](const TokenEvent&) -> Next {
    if (++calls == 3) throw HostError{7};
    return Next::kContinue;
  };
  CHECK_THROWS_AS(generate(tiny(), sequence, sampler, golden().prompt, options, throw_host_error), HostError);
  CHECK(sequence.empty());
  CHECK(cache.num_free_blocks() == cache.num_blocks());
  const auto throw_bad_alloc = [](const TokenEvent&) -> Next { throw std::bad_alloc(); };  // not taken for ours
  CHECK_THROWS_AS(generate(tiny(), sequence, sampler, golden().prompt, options, throw_bad_alloc), std::bad_alloc);
  CHECK(sequence.empty());
  CHECK(generate(tiny(), sequence, sampler, golden().prompt, options).value().tokens == expected.tokens);
}

TEST_CASE("generate: two models are not mixed", "[generate]") {
  const auto other =
      Model<Backend>::load(corbel_test::test_data("golden/llama-gqa/model.gguf"), Context({.threads = 1})).value();
  Sequence<Backend> sequence(cache_of());
  auto sampler = greedy_sampler();
  const auto reply = generate(other, sequence, sampler, Tokens{5});
  CHECK(reply.status().code() == Errc::kInvalidArgument);
  CHECK(reply.status().message() == "the sequence belongs to another model");
}

#if CORBEL_HAS_CPU
namespace {

/// What the library allocates: operator new on all threads, and the context's memory.
class CountingMemory final : public MemoryResource {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    calls_.fetch_add(1);
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  void deallocate(void* memory, std::size_t, std::size_t) noexcept override { std::free(memory); }
  std::uint64_t allocations() const noexcept { return calls_.load() + corbel_test::allocations_of_all_threads(); }

 private:
  std::atomic<std::uint64_t> calls_{0};
};

/// Calls body(model, memory) for a committed model at every level of this CPU, on one thread and on two.
template <class Body>
void for_each_cpu(const char* name, const Body& body) {
  for (const IsaLevel level : corbel_test::kAllLevels) {
    if (!corbel_test::has_level(level)) continue;
    for (const int threads : {1, 2}) {
      INFO(name << ", " << isa_name(level) << ", " << threads << " threads");
      CountingMemory memory;
      ContextOptions options = corbel_test::options_at(level, threads);
      options.memory = &memory;
      const Context context(options);
      body(Model<CpuBackend>::load(corbel_test::test_data(std::string("golden/") + name), context).value(), memory);
    }
  }
}

constexpr std::uint32_t kWarmUp = 4;  // steps after which scratch memory has its size
const SamplerOptions kSamplers[] = {{.temperature = 0.0f},
                                    {.temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .min_p = 0.01f, .seed = 3},
                                    {.typical_p = 0.9f, .repetition_penalty = 1.1f, .penalty_window = 32}};

}  // namespace

TEST_CASE("generate: a step allocates nothing, with new cache blocks and held back text too", "[generate]") {
  for (const char* name : {"llama-gqa/model.gguf", "llama-q4_k_m/model.gguf", "gemma3-text/model.gguf"}) {
    for_each_cpu(name, [](const Model<CpuBackend>& model, const CountingMemory& memory) {
      const auto cache = KVCache<CpuBackend>::create(model, {.max_tokens = 128, .block_tokens = 16}).value();
      auto batch = Batch<CpuBackend>::create(cache).value();
      for (const SamplerOptions& options : kSamplers) {
        for (const std::uint32_t max_tokens : {80u, 0u}) {
          Sequence<CpuBackend> sequence(cache);
          auto sampler = Sampler<>::create(options).value();
          std::vector<std::uint64_t> counts;
          counts.reserve(256);
          const std::vector<TokenId> prompt(5, 7);
          const auto reply = generate(batch, sequence, sampler, prompt,
                                      {.max_tokens = max_tokens,
                                       .stop = {"a text that is not there", "\n\n\n\n\n"},
                                       .ignore_end_of_generation = true},
                                      [&](const TokenEvent&) {
                                        counts.push_back(memory.allocations());
                                        return Next::kContinue;
                                      })
                                 .value();
          REQUIRE(reply.tokens.size() >= 80);
          REQUIRE(sequence.num_blocks() > 4);
          for (std::size_t i = kWarmUp; i < reply.tokens.size(); ++i) {
            INFO("token " << i);
            CHECK(counts[i] == counts[i - 1]);
          }
        }
      }
    });
  }
}

TEST_CASE("Batch: a step of several sequences allocates nothing", "[generate]") {
  for (const char* name : {"llama-q4_k_m/model.gguf", "gpt-oss", "deepseek-v2-lite", "llama-dynamic"}) {
    for_each_cpu(name, [](const Model<CpuBackend>& model, const CountingMemory& memory) {
      const auto cache = KVCache<CpuBackend>::create(model, {.max_tokens = 512, .block_tokens = 16}).value();
      auto batch = Batch<CpuBackend>::create(cache).value();
      std::vector<Sequence<CpuBackend>> sequences;
      std::vector<Sampler<>> samplers;
      std::vector<TokenId> last;
      for (std::size_t i = 0; i < std::size(kSamplers); ++i) {
        sequences.emplace_back(cache);
        REQUIRE(sequences.back().plan_length(64).ok());
        REQUIRE(sequences.back().reserve(64).ok());
        samplers.push_back(Sampler<>::create(kSamplers[i]).value());
        last.push_back(static_cast<TokenId>(i) + 3);
      }
      const auto step = [&](Role role) {
        bool ok = true;
        for (std::size_t i = 0; i < sequences.size(); ++i) ok = batch.add(sequences[i], {&last[i], 1}, role).ok() && ok;
        const Result<Logits> logits = batch.forward();
        for (std::size_t i = 0; ok && i < sequences.size(); ++i) {
          last[i] = samplers[i].sample(logits->row(i)).value();
          ok = samplers[i].accept(last[i]).ok();
        }
        return ok;
      };
      REQUIRE(step(Role::kPrompt));
      for (std::uint32_t i = 1; i < 60; ++i) {
        const std::uint64_t before = memory.allocations();
        const bool ok = step(Role::kGenerated);
        const std::uint64_t after = memory.allocations();
        REQUIRE(ok);
        INFO("step " << i);
        if (i >= kWarmUp) CHECK(after == before);
      }
    });
  }
}
#endif
