// The table of steps on several numbers of threads, each beside `memory += gradient` on as many.
#pragma once

#include <string>
#include <vector>

#include "bench.h"
#include "grid.h"

namespace sparsewire::bench {

// Times steps in the steady state on each of these numbers of threads, and says whether they met their targets. A step
// whose entries differ between numbers of threads is a failure of `bench`.
std::string threads_table(Bench& bench, const std::vector<int>& threads, Form form);

}  // namespace sparsewire::bench
