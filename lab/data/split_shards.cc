// Samples sorted by label and cut into runs of equal size, of which each worker gets some: most workers see few labels.
//
// McMahan et al., Communication-efficient learning of deep networks from decentralized data, 2017. Zou et al., 2022:
// 100 workers, 200 shards of 300, two for each worker.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "data/hold_back.h"
#include "data/random.h"
#include "data/split.h"

namespace sparsewire::train {

WorkerSamples split_shards(Spec& spec, const SplitContext& context) {
  const auto each = static_cast<std::size_t>(spec.integer("per_worker", 1, 1U << 16).value_or(2));
  const std::size_t samples = context.labels.size();
  const std::size_t shards = each * static_cast<std::size_t>(context.workers);
  if (samples < shards) {
    spec.fail(fmt::format("{} samples cannot be cut into {} shards, {} for each of {} workers", samples, shards, each,
                          context.workers));
  }
  std::vector<std::uint32_t> sorted(samples);
  std::iota(sorted.begin(), sorted.end(), 0U);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return context.labels[a] < context.labels[b]; });
  Draws draws(context.seed, Use::split);
  const std::vector<std::uint32_t> order = shuffled(static_cast<std::uint32_t>(shards), draws);
  std::vector<std::vector<std::uint32_t>> lists(static_cast<std::size_t>(context.workers));
  for (std::size_t i = 0; i < shards; ++i) {
    const std::size_t shard = order[i];
    const auto begin = sorted.begin() + static_cast<std::ptrdiff_t>(shard * samples / shards);
    const auto end = sorted.begin() + static_cast<std::ptrdiff_t>((shard + 1) * samples / shards);
    lists[i / each].insert(lists[i / each].end(), begin, end);
  }
  return WorkerSamples(std::move(lists));
}

}  // namespace sparsewire::train
