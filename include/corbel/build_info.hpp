// What this copy of the library is: for log lines and bug reports.
#pragma once

#include <corbel/config.hpp>

CORBEL_NAMESPACE_BEGIN

/// Zero-terminated texts with static storage, each one line.
struct BuildInfo {
  const char* version;   ///< "0.1.0"
  const char* compiler;  ///< "gcc 12.2.0", "clang 14.0.6"
  const char* mode;      ///< "static", "shared" or "header-only", then ", no exceptions" where that is so
  const char* backends;  ///< best first, separated by blanks: "cpu ref"
  const char*
      isa_levels;  ///< levels that the cpu backend has kernels for, lowest first: "base avx2 avx512 amx"; empty without it
};

/// Cannot fail. Thread-safe.
CORBEL_API const BuildInfo& build_info() noexcept;

CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/build_info.ipp>
#endif
