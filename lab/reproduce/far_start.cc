#include "reproduce/far_start.h"

#include <utility>

namespace sparsewire::reproduce {
namespace {

// The mean is not 0, as for counts and indicators: with a mean of 0 the learning rate 1/(L + l2) is so large for single
// samples that not even dense training comes close to the optimum.
constexpr const char* kSynthetic = "logreg:dim=300,samples=2000,density=0.1,mean=3";

}  // namespace

FarStart::FarStart(const std::string& data, std::uint64_t first_seed, const std::string& split)
    : seed(first_seed),
      problem(train::make_logreg(data.empty() ? kSynthetic : "logreg",
                                 {.workers = kWorkers, .seed = seed, .data = data, .split = split})),
      lr(1 / (problem->smoothness() + problem->l2())) {
  train::LogregOptimum optimum = problem->optimum();
  best_loss = optimum.loss;
  start = std::move(optimum.weights);
  for (double& weight : start) weight += 1;
  first_loss = problem->evaluate_at(start).objective;
}

Plan FarStart::plan(const std::string& sparsifier, std::uint64_t rounds) const {
  return {.worker = {.sparsifier = sparsifier, .feedback = "ef:scale=lr", .exchange = "server", .seed = seed},
          .workers = kWorkers,
          .rounds = rounds,
          .lr = lr,
          .start = start};
}

double FarStart::gap_at(std::span<const double> weights) const {
  return (problem->evaluate_at(weights).objective - best_loss) / (first_loss - best_loss);
}

}  // namespace sparsewire::reproduce
