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

// Trains 784-2816-2816-2816-2816-10 units with ReLU and softmax, 4 workers with batches of 8 samples, for `steps`
// steps of plain SGD, once for each of `ratios`. Each worker sends topk:ratio=R of its error memory. Samples are drawn
// around points of 8 dimensions, which a random layer turns into 784 inputs, about half of them zero. The same numbers
// on every machine that has the same exp(). COST: about half a second for a step, 900 MB.
std::vector<MlpFrames> train_mlp(const std::vector<double>& ratios, int steps,
                                 const std::function<void(int done)>& progress);

}  // namespace sparsewire::bench
