// Every worker has all samples, and draws its batches from them.
#include "data/split.h"

namespace sparsewire::train {

WorkerSamples split_all(Spec& /*spec*/, const SplitContext& context) { return {context.labels.size(), 0, 1}; }

}  // namespace sparsewire::train
