// Linear regression with data that differ from worker to worker; the optimum is known.
#pragma once

#include <memory>
#include <span>

#include "problems/precise_problem.h"

namespace sparsewire::train {

struct LinregShape {
  std::uint64_t dim = 100;
  std::uint64_t samples = 500;  // of each worker
  double spread = 5;            // variance between the workers' true weights
  double noise = 0.5;           // variance of the labels' noise
};

class Linreg : public PreciseProblem {
 public:
  using PreciseProblem::PreciseProblem;

  // The weights that minimise the mean of the workers' losses. evaluate()'s metric is the squared distance from them.
  virtual std::span<const double> optimum() const noexcept = 0;
};

// Throws UsageError.
std::unique_ptr<Linreg> make_linreg(const LinregShape& shape, const ProblemPlace& place);

}  // namespace sparsewire::train
