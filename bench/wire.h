// The length of frames in bits. Nothing is timed, so the table is the same on every machine.
#pragma once

#include <string>

#include "bench.h"
#include "grid.h"

namespace sparsewire::bench {

// The lengths for supports and values of many kinds and sizes, entropies, zstd, and the allowed lengths.
std::string wire_table(Bench& bench, Form form);

}  // namespace sparsewire::bench
