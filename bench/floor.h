// What no step can beat, and what a step is compared with.
#pragma once

#include <string>

#include "bench.h"

namespace sparsewire::bench {

// "floor/add/threads:1/n:25000000": memory += gradient, 12 bytes an entry through the memory system.
std::string floor_add_name(int threads, std::size_t n);
// "floor/memcpy/threads:1/n:25000000": gradient to memory, 8 bytes an entry.
std::string floor_memcpy_name(int threads, std::size_t n);
// "yardstick/nth_element/ratio:0.001/n:25000000": the standard library's selection of the k-th magnitude alone, without
// the addition before and the moves after it.
std::string nth_element_name(double ratio, std::size_t n);

// `bench` must outlive the run.
void register_floors(Bench& bench);

}  // namespace sparsewire::bench
