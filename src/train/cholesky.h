// Small dense systems of linear equations, exactly enough to measure distances from their solution.
#pragma once

#include <span>
#include <vector>

namespace sparsewire::train {

// Solves matrix * x = right. `matrix`: symmetric and positive definite, row by row; only its lower half is read.
// COST: n^3/3. Throws UsageError if it is not positive definite, as far as double can tell.
std::vector<double> solve_positive(std::vector<double> matrix, std::span<const double> right);

}  // namespace sparsewire::train
