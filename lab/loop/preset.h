// Options of a training that belong together, under one name.
#pragma once

#include <string_view>

#include "loop/config.h"

namespace sparsewire::train {

// sparseloco: local steps, and a few coarse values of what changed (Sarfi et al., 2025). Throws UsageError, with the
// names that there are.
void set_from_preset(TrainConfig& config, std::string_view name);

}  // namespace sparsewire::train
