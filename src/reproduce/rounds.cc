#include "reproduce/rounds.h"

#include <vector>

#include "sparsewire/sifter.h"
#include "sparsewire/transport.h"

namespace sparsewire::reproduce {

void run(const Plan& plan, train::PreciseProblem& problem, const std::function<void(const Round&)>& look) {
  const bool holds_lr = parse_feedback(plan.worker.feedback).scale_by_lr;
  run_on_threads(plan.workers, [&](Transport& transport) {
    Worker worker(plan.worker, problem.layout(), transport);
    std::vector<double> weights(problem.layout().dim());
    std::vector<double> precise(weights.size());
    std::vector<float> gradient(weights.size());
    std::vector<float> update(weights.size());
    problem.initial_weights_at(weights);
    if (transport.rank() == 0) look({0, weights, worker.stats()});
    for (std::uint64_t step = 0; step < plan.rounds; ++step) {
      problem.gradient_at(transport.rank(), step, weights, precise);
      for (std::size_t i = 0; i < precise.size(); ++i) gradient[i] = static_cast<float>(precise[i]);
      const StepStats& stats = worker.step(gradient, update, {.lr = static_cast<float>(plan.lr)});
      const double factor = holds_lr ? 1 : plan.lr;
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= factor * static_cast<double>(update[i]);
      if (transport.rank() == 0) look({step + 1, weights, stats});
    }
  });
}

}  // namespace sparsewire::reproduce
