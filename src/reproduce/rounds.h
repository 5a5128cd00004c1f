// Rounds of training with the real engine and weights in double, so that an experiment sees what the method does and
// not where float weights stop. What travels is float, as always.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sparsewire/worker.h"
#include "train/precise_problem.h"

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
  std::vector<double> start = {};  // the first weights; empty: the problem's
};

// Of every round that was done.
struct RoundTotals {
  int workers = 1;
  std::vector<double> entries;       // sent by all workers together: whole numbers, so that sums of them are exact
  std::vector<double> memory_norm2;  // of what was not sent, the mean over the workers

  // A worker's share, in the first `rounds` rounds.
  double entries_until(std::uint64_t rounds) const;
  double all_entries() const;
  double total_error() const;
  double peak() const;
};

// Calls `look` on the thread of rank 0, before the first round and after each. Throws what the workers throw.
RoundTotals run(const Plan& plan, train::PreciseProblem& problem, const std::function<void(const Round&)>& on_round);

}  // namespace sparsewire::reproduce
