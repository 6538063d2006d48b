// Ends while objects of the library are alive: static ones, leaked ones, and ones that another thread is using.
#include <corbel/corbel.hpp>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>

namespace {

corbel::Context early_context({.threads = 3});  // made before main, destroyed after it

struct Live {
  corbel::Context context{{.threads = 3}};
  std::unique_ptr<corbel::Model<>> model;
  std::unique_ptr<corbel::KVCache<>> cache;
  std::unique_ptr<corbel::Sequence<>> sequence;
};
std::unique_ptr<Live> static_live;

std::unique_ptr<Live> make(const char* path) {
  auto live = std::make_unique<Live>();
  corbel::Result<corbel::Model<>> model = corbel::Model<>::load(path, live->context);
  if (!model.ok()) return nullptr;
  live->model = std::make_unique<corbel::Model<>>(*model);
  corbel::Result<corbel::KVCache<>> cache = corbel::KVCache<>::create(*live->model, {.max_tokens = 64});
  if (!cache.ok()) return nullptr;
  live->cache = std::make_unique<corbel::KVCache<>>(*cache);
  live->sequence = std::make_unique<corbel::Sequence<>>(*live->cache);
  corbel::Result<corbel::Batch<>> batch = corbel::Batch<>::create(*live->cache, {.max_rows = 8});
  const corbel::TokenId ids[] = {1, 2, 3};
  if (!batch.ok() || !batch->add(*live->sequence, ids, corbel::Role::kPrompt).ok() || !batch->forward().ok())
    return nullptr;
  return live;
}

void spin(const corbel::Context& context) {
  context.run(
      8, [](void*, std::size_t) noexcept {}, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  static_live = make(argv[1]);
  Live* const leaked = make(argv[1]).release();
  if (static_live == nullptr || leaked == nullptr) return 1;
  spin(early_context);
  static std::atomic<bool> started{false};
  std::thread([context = leaked->context] {
    started = true;
    while (true) spin(context);  // still runs while the process ends
  }).detach();
  while (!started) std::this_thread::yield();
  std::exit(0);
}
