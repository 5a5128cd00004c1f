// How long a study will take, and how much room.
#pragma once

#include <cstdint>

#include "study/plan.h"
#include "study/study.h"

namespace sparsewire::study {

// What a study will take, from 20 steps of each method.
struct Estimate {
  Work pilots;
  Work probes;
  Work tuning;
  Work judging;
  double hours = 0;
  std::uint64_t disk_bytes = 0;

  std::uint64_t runs() const noexcept { return pilots.runs + probes.runs + tuning.runs + judging.runs; }
};
// Nothing is written. Throws as a training; Stopped.
Estimate estimate(const Plan& plan, const StudyOptions& options);

}  // namespace sparsewire::study
