// When a thread should rather work alone: another process has a core that a worker needs.
#pragma once

#include <corbel/config.hpp>

#include <algorithm>
#include <chrono>

CORBEL_NAMESPACE_BEGIN
namespace detail {

/// Regions wait for workers that hold a task. Where the system has given a worker's core to someone else, that takes
/// milliseconds, in which the calling thread could have done all of the work. Each such stall buys a time without
/// workers, several times as long, and longer from stall to stall; quiet times pay it back. So with a core that is
/// always busy next to nothing is lost to waiting, and one hiccup costs little. The clock is the caller's. For one
/// thread at a time.
class StallBackoff {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  /// Waits below this are not a stall, nor those of up to as many times what the thread's own tasks took, for the last
  /// task of another may be as long.
  static constexpr Duration kShortest = std::chrono::microseconds(400);
  static constexpr int kOwnTimes = 2;
  static constexpr int kFirstFactor = 8;  ///< times the wait
  static constexpr int kGrowth = 4;       ///< from stall to stall
  static constexpr Duration kLongest = std::chrono::milliseconds(500);

  /// Whether a region that begins now runs without workers.
  bool alone(Time now) const noexcept { return now < until_; }

  /// A region with workers began at `begin`, had its own tasks done at `done` and all at `end`.
  void joined(Time begin, Time done, Time end) noexcept {
    const Duration wait = end - done;
    if (wait >= kShortest && wait >= kOwnTimes * (done - begin)) {
      length_ = std::min(std::max(kFirstFactor * wait, kGrowth * length_), kLongest);
      until_ = quiet_since_ = end + length_;
    } else if (length_ != Duration{} && end - quiet_since_ >= 2 * length_) {
      length_ = length_ < kShortest ? Duration{} : length_ / 2;
      quiet_since_ = end;
    }
  }

 private:
  Time until_{};        // without workers until then
  Time quiet_since_{};  // no stall since
  Duration length_{};   // of the last time without workers, halved in quiet times
};

}  // namespace detail
CORBEL_NAMESPACE_END
