// Rounds of Top-k and RegTop-k entirely in double, written from the papers' formulas, on one thread. They show where a
// method ends when the precision of float does not stop it, and check the real workers up to there.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "problems/precise_problem.h"
#include "reproduce/learning_rate.h"

namespace sparsewire::reproduce {

struct PrecisePlan {
  enum class Method : std::uint8_t { topk, regtopk_a, regtopk_b };
  Method method = Method::topk;
  std::size_t k = 1;
  double mu = 4;
  int workers = 1;
  std::uint64_t rounds = 0;
  double lr = 0.01;
  Rate rate = Rate::constant;
};

// Calls `on_round` before the first round and after each, with the number of rounds done and the weights.
void run_precise(const PrecisePlan& plan, train::PreciseProblem& problem,
                 const std::function<void(std::uint64_t step, std::span<const double> weights)>& on_round);

}  // namespace sparsewire::reproduce
