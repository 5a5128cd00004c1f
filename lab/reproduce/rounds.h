// Rounds of training with the real workers, but with weights in double: so an experiment shows the method, and not
// where float weights stop. Gradients, memories and messages are float, as always.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "problems/precise_problem.h"
#include "reproduce/learning_rate.h"
#include "sparsewire/worker.h"

namespace sparsewire::reproduce {

struct Round {
  std::uint64_t step = 0;           // rounds done; 0: before the first
  std::span<const double> weights;  // the same on all workers
};

struct Plan {
  WorkerConfig worker;  // the memory holds lr*gradient if its feedback says scale=lr
  int workers = 1;
  std::uint64_t rounds = 0;
  double lr = 0.01;
  Rate rate = Rate::constant;
  std::vector<double> start = {};  // the initial weights; empty: those of the problem
};

// One entry for every round.
struct RoundTotals {
  int workers = 1;
  std::vector<double> entries;       // sent by all workers together: whole numbers, so sums of them are exact
  std::vector<double> memory_norm2;  // of what was not sent, the mean over the workers

  // Entries sent in the first `rounds` rounds, as a mean over the workers.
  double entries_until(std::uint64_t rounds) const;
  double all_entries() const;
  double total_error() const;
  double peak() const;
};

// Calls `on_round` on the thread of rank 0, before the first round and after each. Throws what the workers throw.
RoundTotals run(const Plan& plan, train::PreciseProblem& problem, const std::function<void(const Round&)>& on_round);

}  // namespace sparsewire::reproduce
