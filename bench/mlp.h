// What a training sends: Top-k of the error memories of four workers that train a network of 24 million weights.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "sparsewire/sparse_vector.h"

namespace sparsewire::bench {

struct MlpFrames {
  double ratio = 0;
  SparseVector sent;  // by worker 0, in the last step
  SparseVector sum;   // of what all workers sent in the last step: an answer without a downlink
};

// Trains 784-3328-3328-3328-10 units (24.8 million weights) with ReLU and softmax, 4 workers with batches of 8 images
// of ten classes, for `steps` steps of plain SGD. Each worker has an error memory for each of `ratios` and sends
// topk:ratio=R of it; the weights follow the first ratio. The same numbers on every machine that has the same exp().
// COST: about half a second for a step, 2 GB.
std::vector<MlpFrames> train_mlp(const std::vector<double>& ratios, int steps,
                                 const std::function<void(int done)>& progress);

}  // namespace sparsewire::bench
