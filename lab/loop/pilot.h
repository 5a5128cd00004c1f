// A short training with Top-k that measures a threshold, so that another training can have it from its first step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "loop/loop.h"

namespace sparsewire::train {

struct Pilot {
  double lambda = 0;                      // in units of the gradient: for threshold:lambda=
  std::optional<double> downlink_lambda;  // if the downlink was a threshold that is to be measured
  std::uint64_t steps = 0;
  Totals totals;  // what the pilot cost

  // "threshold:lambda=0.00123"
  std::string sparsifier() const;
  std::string downlink() const;  // the same; empty if none was measured
};

// How many steps a pilot takes unless it is said: 1/ratio.
std::uint64_t pilot_steps(double ratio);

// Trains with Top-k of this ratio for `steps` steps, by default 1/ratio, under run.config's learning rates, and
// measures the threshold that sends as many: the median of the k-th magnitudes over the last tenth of the steps, and
// over the ranks. run.config.sparsifier is ignored; a downlink threshold:ratio=... is measured as well. No metrics or
// checkpoints are written. Collective; the result is the same on all ranks. Throws as train(), and SharedError if it
// was asked to stop, or nothing could be measured, because all gradients are zero.
Pilot run_pilot(const Run& run, double ratio, std::optional<std::uint64_t> steps = {});

}  // namespace sparsewire::train
