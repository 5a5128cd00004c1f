// Rounds of Top-k and RegTop-k in double throughout, straight from the papers' formulas, on one thread: shows where a
// method ends when floats do not stop it, and is a second opinion on the engine until they do.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "train/precise_problem.h"

namespace sparsewire::reproduce {

struct PrecisePlan {
  enum class Method : std::uint8_t { topk, regtopk_a, regtopk_b };
  Method method = Method::topk;
  std::size_t k = 1;
  double mu = 4;
  int workers = 1;
  std::uint64_t rounds = 0;
  double lr = 0.01;
};

// Calls `look` before the first round and after each, with the number of rounds done and the weights.
void run_precise(const PrecisePlan& plan, train::PreciseProblem& problem,
                 const std::function<void(std::uint64_t step, std::span<const double> weights)>& on_round);

}  // namespace sparsewire::reproduce
