// How the test program is built: what is slower by design is judged by another clock.
#pragma once

namespace corbel_test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

#if defined(__OPTIMIZE__)
inline constexpr bool kOptimized = true;
#else
inline constexpr bool kOptimized = false;
#endif

/// Time limits are multiplied by this.
inline constexpr double kSlowness = (kSanitized ? 10.0 : 1.0) * (kOptimized ? 1.0 : 5.0);

}  // namespace corbel_test
