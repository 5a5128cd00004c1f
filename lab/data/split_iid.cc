// Samples in a random order, dealt one run after the other: all workers have data of the same distribution.
#include "data/hold_back.h"
#include "data/random.h"
#include "data/split.h"

namespace sparsewire::train {

WorkerSamples split_iid(Spec& spec, const SplitContext& context) {
  Draws draws(context.seed, Use::split);
  const std::vector<std::uint32_t> order = shuffled(static_cast<std::uint32_t>(context.labels.size()), draws);
  std::vector<std::vector<std::uint32_t>> lists;
  auto next = order.begin();
  for (const std::size_t size : read_sizes(spec, order.size(), context.workers)) {
    lists.emplace_back(next, next + static_cast<std::ptrdiff_t>(size));
    next += static_cast<std::ptrdiff_t>(size);
  }
  return WorkerSamples(std::move(lists));
}

}  // namespace sparsewire::train
