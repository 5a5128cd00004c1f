// The deadlines that a transport accepts.
#pragma once

#include <fmt/core.h>

#include <chrono>

#include "sparsewire/errors.h"

namespace sparsewire {

// More than a year is as good as no deadline, and clocks do not overflow yet.
inline constexpr std::chrono::milliseconds kLongestDeadline = std::chrono::hours(10000);

// Throws UsageError.
inline void check_deadline(std::chrono::milliseconds deadline) {
  if (deadline >= std::chrono::milliseconds(1) && deadline <= kLongestDeadline) return;
  throw UsageError(
      fmt::format("[transport] a deadline of {} ms is not in [1, {}]", deadline.count(), kLongestDeadline.count()));
}

}  // namespace sparsewire
