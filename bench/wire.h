// How long frames are, in bits: no time, so the same on every machine.
#pragma once

#include <cstddef>
#include <string>

#include "grid.h"

namespace sparsewire::bench {

// Supports of many kinds and sizes beside the entropy of a random one, and what the bars allow.
std::string wire_table(std::size_t n, Form form);

}  // namespace sparsewire::bench
