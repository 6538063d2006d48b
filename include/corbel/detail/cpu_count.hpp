// How many threads pay on this machine: physical cores that this process may use, within its cgroup's share of time.
#pragma once

#include <corbel/config.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>
#endif

CORBEL_NAMESPACE_BEGIN
namespace detail {

#if defined(__linux__)

/// The first bytes of a small system file; empty where it cannot be read.
inline std::string read_system_file(const std::string& path) {
  std::string text(4096, '\0');
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  const ssize_t bytes = ::read(file, text.data(), text.size());
  ::close(file);
  text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  return text;
}

/// The number that `text` starts with; 0 where it starts with none.
inline std::int64_t leading_number(std::string_view text) noexcept {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Cores' worth of time in a cgroup v2 "cpu.max" ("QUOTA PERIOD" or "max PERIOD"), rounded up; 0: no limit.
inline std::int64_t quota_cores(std::int64_t quota, std::int64_t period) noexcept {
  return quota > 0 && period > 0 ? (quota - 1) / period + 1 : 0;
}
inline std::int64_t cores_of_cpu_max(std::string_view text) noexcept {
  const std::size_t space = text.find(' ');
  return space == text.npos ? 0 : quota_cores(leading_number(text), leading_number(text.substr(space + 1)));
}

/// The path of this process in a cgroup hierarchy, from the text of /proc/self/cgroup: of v2 where `controller` is
/// empty.
inline std::string cgroup_path(std::string_view text, std::string_view controller) {
  while (!text.empty()) {  // lines "ID:CONTROLLER,CONTROLLER:PATH", v2 is "0::PATH"
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    std::string_view names = line.substr(first + 1, second - first - 1);
    bool found = names == controller;
    while (!found && !names.empty() && !controller.empty()) {
      const std::string_view name = names.substr(0, names.find(','));
      names.remove_prefix(std::min(names.size(), name.size() + 1));
      found = name == controller;
    }
    if (found) return std::string(line.substr(second + 1));
  }
  return {};
}

/// The smallest CPU quota on the way from this process's cgroup to the root, in cores rounded up; 0: none.
inline std::int64_t cgroup_cores() {
  const std::string groups = read_system_file("/proc/self/cgroup");
  std::int64_t least = 0;
  const auto walk = [&](const std::string& root, std::string path, auto cores_of) {
    while (true) {  // a path that a namespace hides reads as nothing, and its parents still count
      const std::int64_t cores = cores_of(root + path);
      if (cores > 0 && (least == 0 || cores < least)) least = cores;
      const std::size_t slash = path.rfind('/');
      if (path.empty() || slash == path.npos) return;
      path.resize(slash);
    }
  };
  walk("/sys/fs/cgroup", cgroup_path(groups, ""),
       [](const std::string& folder) { return cores_of_cpu_max(read_system_file(folder + "/cpu.max")); });
  walk("/sys/fs/cgroup/cpu", cgroup_path(groups, "cpu"), [](const std::string& folder) {
    const std::string quota = read_system_file(folder + "/cpu.cfs_quota_us");  // -1: none
    return quota.empty()
               ? 0
               : quota_cores(leading_number(quota), leading_number(read_system_file(folder + "/cpu.cfs_period_us")));
  });
  return least;
}

/// Physical cores within the affinity mask; where the topology is not told, hardware threads; 0 where nothing is.
inline std::size_t affine_cores() {
  std::vector<cpu_set_t> mask(8);  // 8,192 CPUs
  const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
  if (sched_getaffinity(0, bytes, mask.data()) != 0) return 0;
  const auto allowed = [&](std::size_t cpu) { return CPU_ISSET_S(cpu, bytes, mask.data()) != 0; };
  std::size_t cores = 0;
  std::vector<std::int64_t> seen;  // first sibling of each core counted so far
  for (std::size_t cpu = 0; cpu < bytes * 8; ++cpu) {
    if (!allowed(cpu)) continue;
    const std::string siblings =
        read_system_file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    if (!siblings.empty()) {
      const std::int64_t first = leading_number(siblings);
      if (std::find(seen.begin(), seen.end(), first) != seen.end()) continue;
      seen.push_back(first);
    }
    ++cores;
  }
  return cores;
}

/// Threads of a pool whose size nobody chose; at least 1. Reads no environment variable.
inline std::size_t default_threads() {
  std::size_t threads = affine_cores();
  if (threads == 0) threads = std::max<std::size_t>(1, std::thread::hardware_concurrency());
  const std::int64_t quota = cgroup_cores();
  return quota > 0 ? std::min(threads, static_cast<std::size_t>(quota)) : threads;
}

#else

inline std::size_t default_threads() { return std::max<std::size_t>(1, std::thread::hardware_concurrency()); }

#endif

}  // namespace detail
CORBEL_NAMESPACE_END
