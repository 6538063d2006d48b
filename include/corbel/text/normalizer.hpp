// Normalizers of tokenizer.json: what is done to a text before it is cut into words. Unicode 16, tables of our own.
#pragma once

#include <corbel/checkpoint/json.hpp>
#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

CORBEL_NAMESPACE_BEGIN
namespace text {

class NormalizerStep;

/// A sequence of steps. Immutable; all members are thread-safe. Movable.
class CORBEL_API Normalizer {
 public:
  /// Does nothing.
  Normalizer() noexcept;
  Normalizer(Normalizer&&) noexcept;
  Normalizer& operator=(Normalizer&&) noexcept;
  ~Normalizer();

  /// From the node "normalizer" of a tokenizer.json (null: does nothing); `place` is its JSON path, for messages.
  /// kUnsupported for a type or pattern that is not known, kMissingKey, kTypeMismatch, kBadValue, kVocabInvalid for a
  /// broken precompiled_charsmap or an empty pattern, kLimitExceeded, kDepthExceeded.
  static Result<Normalizer> from_json(const json::Value& node, std::string_view place);

  /// True where apply() is the identity on every text.
  bool empty() const noexcept { return steps_.empty(); }

  /// Replaces `out` with the normalized `text` (valid UTF-8; must not be memory of `out`). `cuts`, ascending offsets
  /// into `text`, become offsets into `out`: a cut moves to the first byte that comes of what stands at or behind it.
  /// Linear in the text and the output. Adds the code points looked at to `steps`. kLimitExceeded where the output, or
  /// a step between, is above kMaxGrowth times the text and 1 MiB.
  Status apply(std::string_view text, std::string& out, std::span<std::size_t> cuts, std::uint64_t& steps) const;
  Status apply(std::string_view text, std::string& out) const;

  std::uint64_t memory_bytes() const noexcept;

  static constexpr std::size_t kMaxGrowth = 64;

 private:
  std::vector<std::unique_ptr<const NormalizerStep>> steps_;
};

}  // namespace text
CORBEL_NAMESPACE_END

#if CORBEL_HEADER_ONLY
#include <corbel/impl/text/normalizer.ipp>
#endif
