// The logistic loss and its derivative, for margins of any size.
#pragma once

#include <cmath>

namespace sparsewire::train {

// log(1 + exp(-margin)), without overflow.
inline double logistic_loss(double margin) {
  return margin >= 0 ? std::log1p(std::exp(-margin)) : std::log1p(std::exp(margin)) - margin;
}

// 1/(1 + exp(margin)): minus the derivative of the loss.
inline double logistic_pull(double margin) {
  if (margin < 0) return 1 / (1 + std::exp(margin));
  const double small = std::exp(-margin);
  return small / (1 + small);
}

}  // namespace sparsewire::train
