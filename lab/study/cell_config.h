// The settings of the runs of a cell.
#pragma once

#include <cstdint>

#include "loop/config.h"
#include "study/plan.h"

namespace sparsewire::study {

// Of pilots and probes: a tuning seed, so that they do not see what judging sees.
std::uint64_t pilot_seed(const Plan& plan);

// Thresholds are not measured yet.
train::TrainConfig config_of(const Plan& plan, const Cell& cell, std::uint64_t seed);

// How long a pilot takes. REQUIRES: the sparsifier has a ratio.
std::uint64_t pilot_steps(const train::TrainConfig& config);

// For --budget-bytes: how many steps are run to see how many bytes a step has. What a step sends settles within them.
inline constexpr std::uint64_t kProbeSteps = 200;
// How many steps stay within the budget, if `bytes` were moved in `steps` steps. At least one. Throws UsageError if
// none were moved.
std::uint64_t steps_within(std::uint64_t budget, std::uint64_t bytes, std::uint64_t steps);
// Another number of steps, with as many evaluations.
void set_steps(train::TrainConfig& config, std::uint64_t steps);

}  // namespace sparsewire::study
