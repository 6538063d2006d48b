// TokenId, apart from everything that deals with them.
#pragma once

#include <corbel/config.hpp>

#include <cstdint>

CORBEL_NAMESPACE_BEGIN

using TokenId = std::int32_t;
inline constexpr TokenId kNoToken = -1;

CORBEL_NAMESPACE_END
