// A problem whose gradients are those of the original minus those at its optimum.
#pragma once

#include <memory>

#include "problems/problem.h"

namespace sparsewire::train {

// The gradient of a worker becomes grad f_i(x) - grad f_i(x*), with the same batch; all else stays. With full batches
// and error feedback that is EF-GD* (Sahu et al., 2021; EC-GDstar of Gorbunov et al., 2020): gradients vanish at the
// optimum on every worker, however different the data of the workers are. No real training knows the optimum: it is a
// control. COST: two gradients for each. Throws UsageError unless it is linreg, or logreg with two labels, whose optima
// are known.
std::unique_ptr<Problem> make_star(std::unique_ptr<Problem> problem, int workers);

}  // namespace sparsewire::train
