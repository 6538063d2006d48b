// The instruction levels that tests run on.
#pragma once

#include <corbel/context.hpp>

namespace corbel_test {

inline constexpr corbel::IsaLevel kAllLevels[] = {corbel::IsaLevel::kBase, corbel::IsaLevel::kAvx2,
                                                  corbel::IsaLevel::kAvx512, corbel::IsaLevel::kAmx};

/// Whether tests can run at a level: where there is avx512, amx with emulated tiles if need be.
inline bool has_level(corbel::IsaLevel level) {
  const corbel::IsaLevel detected = corbel::detected_isa();
  return level <= detected || (level == corbel::IsaLevel::kAmx && detected >= corbel::IsaLevel::kAvx512);
}

/// Options that force a level.
inline corbel::ContextOptions options_at(corbel::IsaLevel level, int threads) {
  corbel::ContextOptions options;
  options.threads = threads;
  options.isa = level;
  options.force_isa = true;
  if (level > corbel::detected_isa()) options.amx = corbel::AmxUse::kEmulate;
  return options;
}

}  // namespace corbel_test
