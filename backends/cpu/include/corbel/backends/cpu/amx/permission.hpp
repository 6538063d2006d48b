// The system's permission to use the tile registers.
#pragma once

#include <corbel/config.hpp>

CORBEL_NAMESPACE_BEGIN
namespace cpu {

/// Asks the kernel for the tile data of AMX, once per process: later calls give the same answer. False where it
/// refuses (an old kernel, a filter of system calls, an alternate signal stack that is too small) and on other systems.
/// From then on the process's signal frames have room for 8 KiB more. For CPUs with AMX; thread-safe.
CORBEL_API bool request_tiles() noexcept;

}  // namespace cpu
CORBEL_NAMESPACE_END
