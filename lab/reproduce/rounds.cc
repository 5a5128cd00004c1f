#include "reproduce/rounds.h"

#include <algorithm>
#include <numeric>

#include "sparsewire/sifter.h"
#include "sparsewire/transport.h"

namespace sparsewire::reproduce {
namespace {

struct RoundCost {
  double entries;
  double memory_norm2;
};

// The rounds of one worker; returns what each of them cost it.
std::vector<RoundCost> work(const Plan& plan, train::PreciseProblem& problem, Transport& transport,
                            const std::function<void(const Round&)>& on_round) {
  const bool holds_lr = parse_feedback(plan.worker.feedback).scale_by_lr;
  Worker worker(plan.worker, problem.layout(), transport);
  std::vector<double> weights(problem.layout().dim());
  std::vector<double> precise(weights.size());
  std::vector<float> gradient(weights.size());
  std::vector<float> update(weights.size());
  std::vector<RoundCost> costs;

  if (plan.start.empty()) {
    problem.initial_weights_at(weights);
  } else {
    weights = plan.start;
  }
  if (transport.rank() == 0) on_round({0, weights});
  for (std::uint64_t step = 0; step < plan.rounds; ++step) {
    problem.gradient_at(transport.rank(), step, weights, precise);
    std::transform(precise.begin(), precise.end(), gradient.begin(), [](double g) { return static_cast<float>(g); });
    const double lr = rate_at(plan.rate, plan.lr, step, plan.rounds);
    const double factor = holds_lr ? 1 : lr;
    worker.step(gradient, {.lr = static_cast<float>(lr)});
    worker.write_update(update);
    const StepStats& stats = worker.stats();
    costs.push_back({static_cast<double>(stats.entries_sent), stats.memory_norm2});
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= factor * static_cast<double>(update[i]);
    if (transport.rank() == 0) on_round({step + 1, weights});
  }
  return costs;
}

}  // namespace

double RoundTotals::entries_until(std::uint64_t rounds) const {
  const auto n = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(rounds, entries.size()));
  return std::accumulate(entries.begin(), entries.begin() + n, 0.0) / workers;
}
double RoundTotals::all_entries() const { return entries_until(entries.size()); }
double RoundTotals::total_error() const { return std::accumulate(memory_norm2.begin(), memory_norm2.end(), 0.0); }
double RoundTotals::peak() const {
  return memory_norm2.empty() ? 0 : *std::max_element(memory_norm2.begin(), memory_norm2.end());
}

RoundTotals run(const Plan& plan, train::PreciseProblem& problem, const std::function<void(const Round&)>& on_round) {
  std::vector<std::vector<RoundCost>> by_worker(static_cast<std::size_t>(plan.workers));
  run_on_threads(plan.workers, [&](Transport& transport) {
    by_worker[static_cast<std::size_t>(transport.rank())] = work(plan, problem, transport, on_round);
  });
  RoundTotals all{plan.workers, std::vector<double>(plan.rounds), std::vector<double>(plan.rounds)};
  for (const auto& costs : by_worker) {
    for (std::size_t i = 0; i < costs.size(); ++i) {
      all.entries[i] += costs[i].entries;
      all.memory_norm2[i] += costs[i].memory_norm2 / plan.workers;
    }
  }
  return all;
}

}  // namespace sparsewire::reproduce
