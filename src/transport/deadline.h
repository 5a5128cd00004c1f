// The deadlines that a transport accepts.
#pragma once

#include <fmt/core.h>

#include <algorithm>
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

// A rank that waits looks at the clock this often.
inline std::chrono::milliseconds look_every(std::chrono::milliseconds deadline) {
  return std::max(deadline / 8, std::chrono::milliseconds(1));
}

// Whether a rank that looked at the clock at `last`, and now again, cannot have waited in between: its process was
// suspended, by Ctrl-Z or by a scheduler that preempts jobs. The others may have been suspended with it, so that time
// is nobody's silence.
inline bool was_suspended(std::chrono::steady_clock::time_point last, std::chrono::steady_clock::time_point now,
                          std::chrono::milliseconds deadline) {
  constexpr std::chrono::seconds kLongestDelay(1);  // of a thread that waits for a processor
  return now > last + look_every(deadline) + kLongestDelay;
}

}  // namespace sparsewire
