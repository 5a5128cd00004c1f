#include "problems/precise_problem.h"

#include <algorithm>

namespace sparsewire::train {

PreciseProblem::PreciseProblem(int workers) : rooms_(static_cast<std::size_t>(workers) + 1) {}

void PreciseProblem::initial_weights(std::span<float> weights) const {
  std::vector<double> precise(weights.size());
  initial_weights_at(precise);
  std::transform(precise.begin(), precise.end(), weights.begin(), [](double w) { return static_cast<float>(w); });
}

double PreciseProblem::gradient(int worker, std::uint64_t step, std::span<const float> weights,
                                std::span<float> gradient) {
  Room& room = rooms_[static_cast<std::size_t>(worker)];
  room.weights.assign(weights.begin(), weights.end());
  room.gradient.resize(weights.size());
  const double loss = gradient_at(worker, step, room.weights, room.gradient);
  std::transform(room.gradient.begin(), room.gradient.end(), gradient.begin(),
                 [](double g) { return static_cast<float>(g); });
  return loss;
}

Score PreciseProblem::evaluate(Part part, std::span<const float> weights) {
  Room& room = rooms_.back();
  room.weights.assign(weights.begin(), weights.end());
  return evaluate_at(part, room.weights);
}

}  // namespace sparsewire::train
