// Solves small dense systems of linear equations.
#pragma once

#include <span>
#include <vector>

namespace sparsewire::train {

// Solves matrix * x = right. `matrix` is symmetric and positive definite, row by row; only its lower half is read.
// COST: n^3/3. Throws UsageError if it is not positive definite in double precision.
std::vector<double> solve_positive(std::vector<double> matrix, std::span<const double> right);

}  // namespace sparsewire::train
