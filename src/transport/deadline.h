// Which deadlines a transport takes.
#pragma once

#include <fmt/core.h>

#include <chrono>

#include "sparsewire/errors.h"

namespace sparsewire {

// A year and a bit stands for ever, and is still far from where clocks overflow.
inline constexpr std::chrono::milliseconds kLongestDeadline = std::chrono::hours(10000);

// Throws UsageError.
inline void check_deadline(std::chrono::milliseconds deadline) {
  if (deadline >= std::chrono::milliseconds(1) && deadline <= kLongestDeadline) return;
  throw UsageError(
      fmt::format("[transport] a deadline of {} ms is not in [1, {}]", deadline.count(), kLongestDeadline.count()));
}

}  // namespace sparsewire
