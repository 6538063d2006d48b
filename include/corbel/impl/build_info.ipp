// Definitions of build_info.hpp.
#pragma once

#include <corbel/build_info.hpp>

CORBEL_NAMESPACE_BEGIN

#define CORBEL_DETAIL_TEXT2(x) #x
#define CORBEL_DETAIL_TEXT(x) CORBEL_DETAIL_TEXT2(x)
#define CORBEL_DETAIL_DOTTED(a, b, c) CORBEL_DETAIL_TEXT(a) "." CORBEL_DETAIL_TEXT(b) "." CORBEL_DETAIL_TEXT(c)

CORBEL_INLINE const BuildInfo& build_info() noexcept {
  static constexpr BuildInfo kInfo = {
    CORBEL_DETAIL_DOTTED(CORBEL_VERSION_MAJOR, CORBEL_VERSION_MINOR, CORBEL_VERSION_PATCH),
#if defined(__clang__)
    "clang " CORBEL_DETAIL_DOTTED(__clang_major__, __clang_minor__, __clang_patchlevel__),
#elif defined(__GNUC__)
    "gcc " CORBEL_DETAIL_DOTTED(__GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__),
#else
    "unknown",
#endif
#if CORBEL_HEADER_ONLY
    "header-only"
#elif defined(CORBEL_SHARED)
    "shared"
#else
    "static"
#endif
#if !CORBEL_HAS_EXCEPTIONS
    ", no exceptions"
#endif
    ,
#if !CORBEL_HAS_CPU
    "ref",
    "",
#elif defined(__x86_64__)
    "cpu ref",
    "base avx2 avx512 amx",
#else
    "cpu ref",
    "base",
#endif
  };
  return kInfo;
}

#undef CORBEL_DETAIL_DOTTED
#undef CORBEL_DETAIL_TEXT
#undef CORBEL_DETAIL_TEXT2

CORBEL_NAMESPACE_END
