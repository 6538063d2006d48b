// The floating-point environment that results are defined in: round to nearest, no flush to zero, no traps. A host may
// have changed its thread's environment; public calls and tasks set the default one and put the host's back.
#pragma once

#include <corbel/config.hpp>

#include <cstdint>

CORBEL_NAMESPACE_BEGIN
namespace detail {

#if defined(__SSE2__)
using FpControl = std::uint32_t;
inline constexpr FpControl kDefaultFpControl = 0x1f80;  // MXCSR: exceptions masked, round to nearest, FTZ and DAZ off
inline FpControl fp_control() noexcept { return __builtin_ia32_stmxcsr(); }
// The empty asm keeps the compiler from moving loads and stores, and what is computed from them, across the change.
inline void set_fp_control(FpControl control) noexcept {
  __asm__ volatile("" ::: "memory");
  __builtin_ia32_ldmxcsr(control);
  __asm__ volatile("" ::: "memory");
}
// The low six bits record which exceptions happened; they have no influence on results.
inline constexpr FpControl kFpStatusBits = 0x3f;
#elif defined(__aarch64__)
using FpControl = std::uint64_t;
inline constexpr FpControl kDefaultFpControl = 0;
inline FpControl fp_control() noexcept {
  FpControl control = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
inline void set_fp_control(FpControl control) noexcept { __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory"); }
inline constexpr FpControl kFpStatusBits = 0;
#else
using FpControl = std::uint32_t;
inline constexpr FpControl kDefaultFpControl = 0;
inline FpControl fp_control() noexcept { return kDefaultFpControl; }
inline void set_fp_control(FpControl) noexcept {}
inline constexpr FpControl kFpStatusBits = 0;
#endif

/// Gives the calling thread the default environment until the end of the scope, then the host's again, with its record
/// of exceptions. Costs a few nanoseconds.
class ScopedFpEnvironment {
 public:
  ScopedFpEnvironment() noexcept : host_(fp_control()) {
    if ((host_ & ~kFpStatusBits) != kDefaultFpControl) set_fp_control(kDefaultFpControl);
  }
  ~ScopedFpEnvironment() {
    if (fp_control() != host_) set_fp_control(host_);
  }
  ScopedFpEnvironment(const ScopedFpEnvironment&) = delete;
  ScopedFpEnvironment& operator=(const ScopedFpEnvironment&) = delete;

 private:
  FpControl host_;
};

}  // namespace detail
CORBEL_NAMESPACE_END
