// Every macro that a user may set, with its default, and the namespace that carries their values into symbol names.
//
//   CORBEL_HEADER_ONLY     1 (default): definitions come with the headers. The target corbel::corbel sets it to 0.
//                          Header-only mode needs fmt (with -lfmt or FMT_HEADER_ONLY) and a thread library.
//   CORBEL_SHARED          set by the shared corbel::corbel target: symbols are imported or exported.
//   CORBEL_HAS_CPU         1 (default): the CPU backend is part of the build; 0 leaves only the reference backend.
#pragma once

#include <corbel/version.hpp>

#ifndef CORBEL_HEADER_ONLY
#define CORBEL_HEADER_ONLY 1
#endif
#ifndef CORBEL_HAS_CPU
#define CORBEL_HAS_CPU 1
#endif

#if defined(__FAST_MATH__)
#error "Corbel's results are defined by IEEE arithmetic: build without -ffast-math"
#endif

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
#define CORBEL_HAS_EXCEPTIONS 1
#else
#define CORBEL_HAS_EXCEPTIONS 0
#endif

#if CORBEL_HEADER_ONLY
#define CORBEL_INLINE inline
#else
#define CORBEL_INLINE
#endif

// In shared builds the library is compiled with hidden visibility and this marks what leaves it.
#if defined(CORBEL_SHARED) && !CORBEL_HEADER_ONLY
#define CORBEL_API __attribute__((visibility("default")))
#else
#define CORBEL_API
#endif

// Version, mode and backends are part of every symbol: copies of the library that differ in one of them do not clash.
#if !CORBEL_HEADER_ONLY
#define CORBEL_DETAIL_TAG_MODE
#elif CORBEL_HAS_EXCEPTIONS
#define CORBEL_DETAIL_TAG_MODE _header_only
#else
#define CORBEL_DETAIL_TAG_MODE _header_only_noexcept
#endif
#if CORBEL_HAS_CPU
#define CORBEL_DETAIL_TAG_BACKENDS
#else
#define CORBEL_DETAIL_TAG_BACKENDS _ref
#endif
#define CORBEL_DETAIL_TAG2(major, minor, patch, mode, backends) v##major##_##minor##_##patch##mode##backends
#define CORBEL_DETAIL_TAG(major, minor, patch, mode, backends) CORBEL_DETAIL_TAG2(major, minor, patch, mode, backends)
#define CORBEL_ABI_TAG                                                                                        \
  CORBEL_DETAIL_TAG(CORBEL_VERSION_MAJOR, CORBEL_VERSION_MINOR, CORBEL_VERSION_PATCH, CORBEL_DETAIL_TAG_MODE, \
                    CORBEL_DETAIL_TAG_BACKENDS)

#define CORBEL_NAMESPACE_BEGIN \
  namespace corbel {           \
  inline namespace CORBEL_ABI_TAG {
#define CORBEL_NAMESPACE_END \
  }                          \
  }
