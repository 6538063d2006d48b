// What one rendering may spend, and its first error.
#pragma once

#include <corbel/config.hpp>
#include <corbel/error.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

CORBEL_NAMESPACE_BEGIN
namespace text::jinja {

/// Values nest at most this deep: everything that walks a value recursively is bounded by it.
inline constexpr std::uint32_t kMaxValueDepth = 200;

/// Fuel, clock and first error of one rendering. Functions that can fail return false after fail(); callers only pass
/// the false on. One unit of fuel is one step, or 8 bytes made or looked at.
class Runtime {
 public:
  Runtime(std::uint64_t fuel, std::int64_t now) : fuel_(fuel), now_(now) {}

  [[nodiscard]] bool charge(std::uint64_t units) {
    if (units <= fuel_) {
      fuel_ -= units;
      return true;
    }
    fuel_ = 0;
    return fail(Errc::kTemplateBudget, "the template needs more steps than its budget");
  }
  [[nodiscard]] bool charge_bytes(std::uint64_t bytes) { return charge(1 + bytes / 8); }

  /// Keeps the first error; always false.
  bool fail(Errc code, std::string_view message) {
    if (status_.ok()) status_ = Status(code, message);
    return false;
  }
  bool fail(std::string_view message) { return fail(Errc::kTemplateError, message); }

  /// Puts the place before the error.
  void place(std::string_view place) { status_ = status_.with_place(place); }
  const Status& status() const noexcept { return status_; }
  /// Seconds since 1970-01-01 UTC; negative where the host gave no time.
  std::int64_t now() const noexcept { return now_; }
  std::uint64_t fuel() const noexcept { return fuel_; }

 private:
  std::uint64_t fuel_;
  std::int64_t now_;
  Status status_;
};

}  // namespace text::jinja
CORBEL_NAMESPACE_END
