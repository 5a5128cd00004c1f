// Rounds of training with the real engine and weights in double, so that an experiment sees what the method does and
// not where float weights stop. What travels is float, as always.
#pragma once

#include <functional>
#include <span>

#include "sparsewire/worker.h"
#include "train/precise_problem.h"

namespace sparsewire::reproduce {

struct Round {
  std::uint64_t step = 0;           // rounds done; 0: before the first
  std::span<const double> weights;  // the same on all workers
  const StepStats& stats;           // of rank 0
};

struct Plan {
  WorkerConfig worker;  // the memory holds lr*gradient if its feedback says scale=lr
  int workers = 1;
  std::uint64_t rounds = 0;
  double lr = 0.01;
};

// Calls `look` on rank 0, before the first round and after each. Throws what the workers throw.
void run(const Plan& plan, train::PreciseProblem& problem, const std::function<void(const Round&)>& look);

}  // namespace sparsewire::reproduce
