#include "loop/worker_weights.h"

#include <fmt/core.h>

#include <algorithm>

#include "sparsewire/errors.h"
#include "text/list.h"

namespace sparsewire::train {
namespace {

std::vector<double> parse(const std::string& written) {
  const auto weights = parse_numbers(written, ',');
  if (weights && *std::min_element(weights->begin(), weights->end()) >= 0) return *weights;
  throw UsageError(fmt::format(
      "--worker-weights {} is neither size nor a list of numbers that are not negative, like 1,2,1", written));
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
