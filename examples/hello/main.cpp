// The whole of Corbel in one page: load a model, ask, stream the answer. See docs/getting-started.md.
#include <corbel/corbel.hpp>

#include <cstdio>

int main(int argc, char** argv) try {
  corbel::Context context;  // cannot fail; threads start at first use
  auto model = corbel::Model<>::load(argc > 1 ? argv[1] : "smollm2.gguf", context).value();
  auto cache = corbel::KVCache<>::create(model, {.max_tokens = 4096}).value();  // a pool of blocks, for all sequences
  auto sampler = corbel::Sampler<>::create({.temperature = 0.7f, .top_p = 0.9f, .seed = 42}).value();
  corbel::Conversation talk(model, cache);  // keeps what is already computed
  talk.say("Why is the sky blue?", sampler,
           [](std::string_view text) {
             std::fwrite(text.data(), 1, text.size(), stdout);
             return corbel::Next::kContinue;  // or kStop, kCancel
           })
      .value();
  std::puts("");
} catch (const corbel::Exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
