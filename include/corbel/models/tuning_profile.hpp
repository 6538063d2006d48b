// What was measured to be fast, kept between processes in the folder of packed files.
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstdint>
#include <string>
#include <string_view>

CORBEL_NAMESPACE_BEGIN
namespace models {

/// The word (Context::measured()) that was kept in `folder` for `identity`, which names all that it holds for: the
/// machine, the level, the number of threads. 0 where there is none, or a damaged one.
CORBEL_API std::uint64_t read_tuning_profile(const std::string& folder, std::string_view identity);

/// Keeps `word` in `folder`, which is made where it is missing, as "<digest of identity>.tuned"; a link of that name is
/// replaced. kIoOpen, kIoWrite, kNoSpace.
CORBEL_API Status write_tuning_profile(const std::string& folder, std::string_view identity, std::uint64_t word);

}  // namespace models
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/models/tuning_profile.ipp>
#endif
