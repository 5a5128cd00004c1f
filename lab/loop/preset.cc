#include "loop/preset.h"

#include <fmt/core.h>

#include "sparsewire/errors.h"

namespace sparsewire::train {

namespace {

// As Sarfi et al. (2025) do it: each entry is divided by those who sent it.
void set_sparseloco(TrainConfig& config) {
  config.sparsifier = "topk:k=64,chunk=4096";
  config.feedback = "ef:decay=0.95";
  config.codec = "auto:values=int2";
  config.exchange = "allgather";  // all answers are as short as what was sent
  config.average = "senders";
  config.local_steps = 30;
  config.optimiser = "adamw";
  config.lr = 0.001;
}

// As Douillard et al. (2023): all weights, and an outer Nesterov momentum.
void set_diloco(TrainConfig& config) {
  config.sparsifier = "dense";
  config.exchange = "dense";
  config.local_steps = 30;
  config.outer_lr = 0.7;
  config.outer_momentum = 0.9;
  config.optimiser = "adamw";
  config.lr = 0.001;
}

}  // namespace

void set_from_preset(TrainConfig& config, std::string_view name) {
  if (name == "sparseloco") return set_sparseloco(config);
  if (name == "diloco") return set_diloco(config);
  throw UsageError(fmt::format("--preset '{}' is not a preset; there are sparseloco and diloco", name));
}

}  // namespace sparsewire::train
