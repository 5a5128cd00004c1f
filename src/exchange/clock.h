// Measures how long each stage of a step takes.
#pragma once

#include <chrono>
#include <cstdint>

namespace sparsewire {

class StageClock {
 public:
  // Adds the time since the last lap to `stage`.
  void lap(std::uint64_t& stage) noexcept {
    const auto now = std::chrono::steady_clock::now();
    stage += static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now - last_).count());
    last_ = now;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace sparsewire
