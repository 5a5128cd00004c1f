// Writes error memories and gradients to files, so that bench/torch_step_cpu.py can time the same step.
#pragma once

#include <filesystem>

#include "bench.h"

namespace sparsewire::bench {

// Writes the memories before the next step (memory-0.001.npy, memory-0.01.npy) and the gradients of the next steps
// (gradient-0.npy, gradient-1.npy, ...). Creates the folder. Throws std::runtime_error if a file cannot be written.
void export_data(Bench& bench, const std::filesystem::path& folder);

}  // namespace sparsewire::bench
