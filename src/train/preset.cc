#include "train/preset.h"

#include <fmt/core.h>

#include "sparsewire/errors.h"

namespace sparsewire::train {

void set_from_preset(TrainConfig& config, std::string_view name) {
  if (name != "sparseloco") {
    throw UsageError(fmt::format("--preset '{}' is not a preset; there is sparseloco", name));
  }
  config.sparsifier = "topk:k=64,chunk=4096";
  config.feedback = "ef:decay=0.95";
  config.codec = "auto:values=int2";
  config.exchange = "allgather";  // all answers are as short as what was sent
  config.local_steps = 15;
  config.optimiser = "adamw";
  config.lr = 0.001;
}

}  // namespace sparsewire::train
