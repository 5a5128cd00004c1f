// A whole training of small problems, on threads.
#pragma once

#include "loop/config.h"
#include "loop/loop.h"
#include "problems/problem.h"
#include "sparsewire/transport.h"

namespace sparsewire::train {

// The result of rank 0.
inline Result trained(const TrainConfig& config) {
  const auto problem = make_problem(config.problem, problem_place(config));
  Result result;
  run_on_threads(static_cast<int>(config.workers), [&](Transport& transport) {
    const Result mine = train(Run{.config = config, .problem = *problem, .transport = transport});
    if (transport.rank() == 0) result = mine;
  });
  return result;
}

}  // namespace sparsewire::train
