// How long a study will take, and how much room.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "study/plan.h"
#include "study/study.h"

namespace sparsewire::study {

// What a study will take, from some steps of each method.
struct Estimate {
  Work pilots;
  Work probes;
  Work tuning;
  Work judging;
  double hours = 0;
  std::uint64_t disk_bytes = 0;
  std::uint64_t fewest_steps = 0;  // that a method was timed for
  std::uint64_t most_steps = 0;

  std::uint64_t runs() const noexcept { return pilots.runs + probes.runs + tuning.runs + judging.runs; }
};

struct EstimateOptions {
  // Each method, with each ratio, is timed for 20 steps, or as many as a run has. After this time no step begins but
  // the second.
  std::chrono::milliseconds longest = std::chrono::seconds(3);
  // Told before each of them.
  std::function<void(std::size_t number, std::size_t of)> on_method = [](std::size_t, std::size_t) {};
};

// Nothing is written. Throws as a training; Stopped.
Estimate estimate(const Plan& plan, const StudyOptions& options, const EstimateOptions& how = {});

}  // namespace sparsewire::study
