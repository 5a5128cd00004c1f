// Memories and gradients as files, so that another program can time the same step: bench/torch_step.py.
#pragma once

#include <filesystem>

#include "bench.h"

namespace sparsewire::bench {

// Writes memory-0.001.npy and memory-0.01.npy, as they are before the next step, and the gradients of the next steps,
// gradient-0.npy, gradient-1.npy, ... . Makes the folder. Throws std::runtime_error if a file cannot be written.
void export_data(Bench& bench, const std::filesystem::path& folder);

}  // namespace sparsewire::bench
