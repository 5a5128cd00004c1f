// Results do not depend on the caller's floating-point mode. Frameworks often switch a thread to flush-to-zero, and a
// rank that alone did so would lose the denormal numbers that the others keep.
#pragma once

#include <cfenv>

namespace sparsewire {

// While one lives, the calling thread rounds to nearest and keeps denormal numbers; then its mode is what it was.
// COST: some ten nanoseconds.
class StandardFloatMode {
 public:
  StandardFloatMode() noexcept {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~StandardFloatMode() { std::fesetenv(&before_); }
  StandardFloatMode(const StandardFloatMode&) = delete;
  StandardFloatMode& operator=(const StandardFloatMode&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace sparsewire
