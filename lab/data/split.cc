#include "data/split.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "sparsewire/errors.h"
#include "text/list.h"
#include "text/names.h"

namespace sparsewire::train {
namespace {

constexpr SplitInfo kInfos[] = {
#define SPLIT(name, summary, example, weights_by_size) {#name, summary, example, weights_by_size},
#include "data/splits.def"
#undef SPLIT
};

using Make = WorkerSamples (*)(Spec& spec, const SplitContext& context);

constexpr Make kMakers[] = {
#define SPLIT(name, summary, example, weights_by_size) split_##name,
#include "data/splits.def"
#undef SPLIT
};

std::vector<double> parse_shares(const Spec& spec, const std::string& written, int workers) {
  const auto shares = parse_numbers(written, '/');
  if (!shares || *std::min_element(shares->begin(), shares->end()) <= 0) {
    spec.fail(fmt::format("sizes={} is not a list of positive numbers like 4/2/1", written));
  }
  if (shares->size() != static_cast<std::size_t>(workers)) {
    spec.fail(fmt::format("sizes={} has {} numbers, and there are {} workers", written, shares->size(), workers));
  }
  return *shares;
}

}  // namespace

std::vector<std::size_t> read_sizes(Spec& spec, std::size_t samples, int workers) {
  const std::optional<std::string> written = spec.word("sizes");
  const std::vector<double> shares =
      written ? parse_shares(spec, *written, workers) : std::vector<double>(static_cast<std::size_t>(workers), 1);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (!std::isfinite(sum)) spec.fail(fmt::format("the numbers of sizes={} are too large", *written));
  // Each worker ends where its share of all samples before it and its own ends, so nothing is lost by rounding.
  std::vector<std::size_t> sizes;
  double before = 0;
  std::size_t begin = 0;
  for (std::size_t worker = 0; worker < shares.size(); ++worker) {
    before += shares[worker];
    const bool is_last = worker + 1 == shares.size();
    const auto end =
        is_last ? samples
                : std::min(samples,
                           static_cast<std::size_t>(std::floor(static_cast<double>(samples) * (before / sum) + 0.5)));
    sizes.push_back(end - begin);
    begin = end;
  }
  return sizes;
}

std::span<const SplitInfo> splits() noexcept { return kInfos; }

const SplitInfo& split_info(std::string_view spec) {
  return kInfos[find_by_name(kInfos, Spec(spec).name(), "a split")];
}

WorkerSamples make_split(std::string_view spec_text, const SplitContext& context) {
  Spec spec(spec_text);
  const auto make = kMakers[find_by_name(kInfos, spec.name(), "a split")];
  WorkerSamples made = make(spec, context);
  spec.finish();
  for (int worker = 0; worker < context.workers; ++worker) {
    if (made.size(worker) != 0) continue;
    spec.fail(fmt::format("{} samples cannot be split between {} workers: worker {} would get none",
                          context.labels.size(), context.workers, worker));
  }
  return made;
}

}  // namespace sparsewire::train
