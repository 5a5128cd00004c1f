#include "study/cell_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "loop/pilot.h"
#include "sparsewire/errors.h"
#include "sparsewire/spec.h"

namespace sparsewire::study {

std::uint64_t pilot_seed(const Plan& plan) {
  return plan.tune_seeds.empty() ? plan.config.seed + kTuneSeedsFrom : plan.tune_seeds.front();
}

train::TrainConfig config_of(const Plan& plan, const Cell& cell, std::uint64_t seed) {
  train::TrainConfig config = plan.methods[cell.method_index].config(plan.config, cell);
  config.seed = seed;
  return config;
}

std::uint64_t pilot_steps(const train::TrainConfig& config) {
  Spec spec(config.sparsifier);
  const auto given = spec.integer("calibrate", 1, std::numeric_limits<std::uint64_t>::max());
  return given.value_or(train::pilot_steps(spec.number("ratio", kRatioRange).value()));
}

std::uint64_t steps_within(std::uint64_t budget, std::uint64_t bytes, std::uint64_t steps) {
  if (bytes == 0) throw UsageError("--budget-bytes: nothing was sent");
  const double per_step = static_cast<double>(bytes) / static_cast<double>(steps);
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(budget) / per_step));
}

void set_steps(train::TrainConfig& config, std::uint64_t steps) {
  const double share = static_cast<double>(config.eval_every) / static_cast<double>(config.steps);
  if (config.eval_every != 0) {
    config.eval_every =
        std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(share * static_cast<double>(steps))));
  }
  config.steps = steps;
}

}  // namespace sparsewire::study
