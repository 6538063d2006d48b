// A program whose threads are OpenMP's.
#include <corbel/backends/cpu/openmp_executor.hpp>
#include <corbel/context.hpp>

#include <atomic>
#include <cstddef>

int main() {
  corbel::OpenMpExecutor executor(2);
  const corbel::Context context({.executor = &executor});
  std::atomic<int> calls{0};
  context.run(
      10, [](void* p, std::size_t) noexcept { ++*static_cast<std::atomic<int>*>(p); }, &calls);
  return calls == 10 && context.concurrency() == 2 ? 0 : 1;
}
