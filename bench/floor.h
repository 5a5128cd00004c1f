// The reference times: lower bounds that no step can beat (floor/...), and other algorithms (yardstick/...).
#pragma once

#include <string>

#include "bench.h"

namespace sparsewire::bench {

// "floor/add", or "floor/add/threads:2": memory += gradient, which moves 12 bytes per entry.
std::string floor_add_name(int threads);
// "floor/memcpy", or "floor/memcpy/threads:2": copies gradient to memory, which moves 8 bytes per entry.
std::string floor_memcpy_name(int threads);
// "yardstick/nth_element" at the first of kRatios, "yardstick/nth_element/ratio:R" at the others: the standard
// library's selection of the k-th magnitude alone, without the addition before it and the moves after it.
std::string nth_element_name(double ratio);

// memory += gradient on the threads of a pool; null: on the calling thread.
void add_on(Pool* pool, std::span<float> memory, std::span<const float> gradient);

// `bench` must outlive the run.
void register_floors(Bench& bench);

}  // namespace sparsewire::bench
