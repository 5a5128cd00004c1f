// Regularised logistic regression, with its smoothness and its optimum.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "problems/precise_problem.h"

namespace sparsewire::train {

struct LogregOptimum {
  std::vector<double> weights;
  double loss = 0;
  double gradient_norm = 0;  // at these weights: about 1e-13 times that at 0
};

// f(x) = mean log(1 + exp(-y <a, x>)) + (l2/2) ||x||^2 over the training data. Score::objective is f, Score::loss its
// first term, Score::metric the share of samples that are classified correctly.
class Logreg : public PreciseProblem {
 public:
  using PreciseProblem::PreciseProblem;

  // L = sigma_max(A)^2/(4m), with m samples in the rows of A: f is (L + l2)-smooth, and 1/(L + l2) is the usual
  // learning rate.
  virtual double smoothness() const noexcept = 0;
  virtual double l2() const noexcept = 0;
  virtual std::size_t samples() const noexcept = 0;  // for training
  // COST: some hundred passes over the data at every call. Throws UsageError if l2 is 0 or there is an intercept, which
  // has no penalty: then there may be no optimum.
  virtual LogregOptimum optimum() const = 0;
};

// Makes it from a spec, `logreg:key=value,...`, as make_problem() does. Throws UsageError, also if the data have more
// than two labels.
std::unique_ptr<Logreg> make_logreg(std::string_view spec, const ProblemPlace& place);

}  // namespace sparsewire::train
