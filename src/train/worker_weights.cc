#include "train/worker_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/number.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

std::vector<double> parse(const std::string& written) {
  std::vector<double> weights;
  for (std::size_t at = 0; at <= written.size();) {
    const std::size_t end = std::min(written.find(',', at), written.size());
    const auto weight = parse_number<double>(written.substr(at, end - at));
    if (!weight || !std::isfinite(*weight) || *weight < 0) {
      throw UsageError(fmt::format(
          "--worker-weights {} is neither size nor a list of numbers that are not negative, like 1,2,1", written));
    }
    weights.push_back(*weight);
    at = end + 1;
  }
  return weights;
}

}  // namespace

std::vector<double> worker_weights(const std::string& written, const Problem& problem, int workers) {
  const auto count = static_cast<std::size_t>(workers);
  std::vector<double> weights(count, 1);
  if (written.empty()) return weights;
  if (written == "size") {
    for (int worker = 0; worker < workers; ++worker) {
      weights[static_cast<std::size_t>(worker)] = static_cast<double>(problem.samples_of(worker));
    }
    return weights;
  }
  weights = parse(written);
  if (weights.size() == count) return weights;
  throw UsageError(
      fmt::format("--worker-weights {} has {} numbers, and there are {} workers", written, weights.size(), workers));
}

}  // namespace sparsewire::train
