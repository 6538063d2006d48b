// What every refusal of a malformed file, and every acceptance, is checked for.
#pragma once

#include <corbel/checkpoint/checkpoint.hpp>
#include <corbel/detail/utf8.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/alloc_counter.hpp"

namespace corbel_test {

struct MalformedCase {
  std::string id;
  std::string file;
  corbel::Errc code;
  std::vector<std::string> says;  // parts of the message
};

/// Empty, or what is wrong with the text of an error.
inline std::string message_fault(std::string_view message) {
  if (message.empty() || message.size() > 512) return "its length";
  if (!corbel::detail::is_utf8(message)) return "not UTF-8";
  if (std::any_of(message.begin(), message.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }))
    return "control bytes";
  return {};
}

inline bool within_memory(const AllocationStats& stats, std::size_t file) {
  return stats.largest <= (1u << 20) + file && stats.peak <= static_cast<std::int64_t>((8u << 20) + 2 * file);
}

/// Reads everything that a checkpoint offers, and whether it can.
inline bool usable(const corbel::Checkpoint& checkpoint) {
  for (const corbel::TensorInfo& tensor : checkpoint.tensors()) {
    if (checkpoint.find_tensor(tensor.name) != &tensor) return false;
    const auto values = checkpoint.read_f32(tensor);
    if (tensor.supported ? !values.ok() : values.status().code() != corbel::Errc::kUnsupported) return false;
  }
  return true;
}

}  // namespace corbel_test
