// Runs a function on a thread with a stack of 128 KiB: what recurses on its input dies there.
#pragma once

#include <cstddef>
#include <functional>
#include <pthread.h>

#include "support/build_kind.hpp"

namespace corbel_test {

/// False where the thread could not be made. The function must not throw.
inline bool on_small_stack(const std::function<void()>& function) {
  const std::size_t bytes = kSanitized ? 512 << 10 : 128 << 10;  // sanitizers widen every frame
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_t thread{};
  const bool started = pthread_attr_setstacksize(&attributes, bytes) == 0 &&
                       pthread_create(
                           &thread, &attributes,
                           [](void* argument) -> void* {
                             (*static_cast<const std::function<void()>*>(argument))();
                             return nullptr;
                           },
                           const_cast<std::function<void()>*>(&function)) == 0;
  pthread_attr_destroy(&attributes);
  return started && pthread_join(thread, nullptr) == 0;
}

}  // namespace corbel_test
