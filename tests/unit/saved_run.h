// The states of all workers of a run, for tests of saved workers.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "exchange/bodies.h"
#include "sparsewire/transport.h"
#include "sparsewire/worker.h"

namespace sparsewire {

struct SavedRun {
  std::vector<bodies::Bytes> states;
  std::vector<double> owed;  // what they had not sent yet
  std::vector<double> size;  // the sum of its magnitudes, for the tolerance
};

// sum_i |w_i e_i| + |E|: rounding errors are relative to it.
inline std::vector<double> size_of_owed(Transport& transport, const bodies::Plan& plan, const Worker& worker) {
  std::vector<double> mine(plan.layout.dim());
  worker.add_server_memory(mine);
  for (double& number : mine) number = std::fabs(number);
  const float share = plan.shares(transport.size())[static_cast<std::size_t>(transport.rank())];
  const bodies::Numbers memory = worker.memory();
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += double{share} * std::fabs(double{memory[i]});
  std::vector<double> sum(mine.size());
  for (const auto& one : bodies::from_all(transport, std::span<const double>(mine))) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }
  return sum;
}

inline SavedRun run_and_save(const bodies::Plan& plan, int ranks, std::uint64_t steps) {
  SavedRun saved;
  saved.states.resize(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, [&](Transport& transport) {
    bodies::Runner run(plan, transport);
    for (std::uint64_t t = 0; t < steps; ++t) run.step(t);
    saved.states[static_cast<std::size_t>(transport.rank())] = run.worker.save();
    const std::vector<double> owed = bodies::owed(transport, plan, run.worker);
    const std::vector<double> size = size_of_owed(transport, plan, run.worker);
    if (transport.rank() == 0) saved.owed = owed, saved.size = size;
  });
  return saved;
}

}  // namespace sparsewire
