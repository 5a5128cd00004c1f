// A problem that is computed in double, so that experiments can measure what float weights cannot resolve. In training
// its weights are floats, like those of any other problem.
#pragma once

#include <vector>

#include "problems/problem.h"

namespace sparsewire::train {

class PreciseProblem : public Problem {
 public:
  // `workers`: the number of workers.
  explicit PreciseProblem(int workers);

  // As the functions of Problem with the same names.
  virtual double gradient_at(int worker, std::uint64_t step, std::span<const double> weights,
                             std::span<double> gradient) = 0;
  virtual Score evaluate_at(Part part, std::span<const double> weights) = 0;
  virtual void initial_weights_at(std::span<double> weights) const = 0;

  // On the training data.
  Score evaluate_at(std::span<const double> weights) { return evaluate_at(Part::train, weights); }

  void initial_weights(std::span<float> weights) const final;
  double gradient(int worker, std::uint64_t step, std::span<const float> weights, std::span<float> gradient) final;
  Score evaluate(Part part, std::span<const float> weights) final;

 private:
  struct Room {
    std::vector<double> weights;
    std::vector<double> gradient;
  };
  std::vector<Room> rooms_;  // one for each worker, and the last one for evaluate()
};

}  // namespace sparsewire::train
