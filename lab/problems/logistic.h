// The logistic loss and its derivative, for margins of any size.
#pragma once

#include "sparsewire/support/portable_math.h"

namespace sparsewire::train {

// log(1 + exp(-margin)), without overflow.
inline double logistic_loss(double margin) {
  return margin >= 0 ? portable_log1p(portable_exp(-margin)) : portable_log1p(portable_exp(margin)) - margin;
}

// 1/(1 + exp(margin)): minus the derivative of the loss.
inline double logistic_pull(double margin) {
  if (margin < 0) return 1 / (1 + portable_exp(margin));
  const double small = portable_exp(-margin);
  return small / (1 + small);
}

}  // namespace sparsewire::train
