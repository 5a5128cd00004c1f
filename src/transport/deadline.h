// Which deadlines a transport takes.
#pragma once

#include <chrono>

#include "core/text.h"
#include "sparsewire/errors.h"

namespace sparsewire {

// A year and a bit stands for ever, and is still far from where clocks overflow.
inline constexpr std::chrono::milliseconds kLongestDeadline = std::chrono::hours(10000);

// Throws UsageError.
inline void check_deadline(std::chrono::milliseconds deadline) {
  if (deadline >= std::chrono::milliseconds(1) && deadline <= kLongestDeadline) return;
  throw UsageError(
      text("[transport] a deadline of ", deadline.count(), " ms is not in [1, ", kLongestDeadline.count(), "]"));
}

}  // namespace sparsewire
