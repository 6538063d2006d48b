// The boundary at which running out of memory becomes a Status.
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <new>
#include <stdexcept>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace detail {

/// Calls `function` (which returns Status or Result<T>); std::bad_alloc and std::length_error become
/// Errc::kOutOfMemory. Other exceptions, which can only come from the host's own callbacks, pass. Without exceptions it
/// only calls.
template <class Function>
auto guard(Function&& function) -> decltype(function()) {
#if CORBEL_HAS_EXCEPTIONS
  try {
    return std::forward<Function>(function)();
  } catch (const std::bad_alloc&) {
    return Status(Errc::kOutOfMemory, "out of memory");
  } catch (const std::length_error&) {
    return Status(Errc::kOutOfMemory, "out of memory: a container would be too long");
  }
#else
  return std::forward<Function>(function)();
#endif
}

}  // namespace detail
CORBEL_NAMESPACE_END
