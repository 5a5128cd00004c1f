// How much each worker counts in the update.
#pragma once

#include <string>
#include <vector>

#include "problems/problem.h"

namespace sparsewire::train {

// Of all workers, in rank order: from `1,2,1`, a number for each worker, or in proportion to the samples of each for
// `size`. All 1 if `written` is empty. Throws UsageError.
std::vector<double> worker_weights(const std::string& written, const Problem& problem, int workers);

}  // namespace sparsewire::train
