// The length of frames in bits. Nothing is timed, so the table is the same on every machine.
#pragma once

#include <cstddef>
#include <string>

#include "grid.h"

namespace sparsewire::bench {

// The lengths for supports of many kinds and sizes, the entropy of a random support, and the allowed lengths.
std::string wire_table(std::size_t n, Form form);

}  // namespace sparsewire::bench
