#include "reproduce/precise_rounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "sparsewire/support/portable_math.h"

namespace sparsewire::reproduce {
namespace {

using Vector = std::vector<double>;

struct PreciseWorker {
  explicit PreciseWorker(std::size_t dim) : memory(dim), sent(dim), was_sent(dim) {}

  Vector memory;
  Vector sent;                 // last round's values
  std::vector<bool> was_sent;  // in the last round
};

double score(const PrecisePlan& plan, double a, const PreciseWorker& worker, double total, std::size_t j) {
  if (plan.method == PrecisePlan::Method::topk || !worker.was_sent[j]) return std::abs(a);
  if (a == 0) return 0;
  const double omega = 1.0 / plan.workers;
  const double below = omega * (plan.method == PrecisePlan::Method::regtopk_a ? worker.sent[j] : a);
  const double delta = (total - omega * worker.sent[j]) / below;
  return std::abs(a) * portable_tanh(std::abs(1 + delta) / plan.mu);
}

// The round of one worker: adds what it sends to `sum`. `total` is the update of the last round.
void send_entries(const PrecisePlan& plan, const Vector& gradient, const Vector& total, PreciseWorker& worker,
                  Vector& sum) {
  const std::size_t dim = gradient.size();
  Vector scores(dim);
  for (std::size_t j = 0; j < dim; ++j) {
    worker.memory[j] += gradient[j];
    scores[j] = score(plan, worker.memory[j], worker, total[j], j);
  }
  std::vector<std::size_t> order(dim);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  worker.was_sent.assign(dim, false);
  for (std::size_t i = 0; i < plan.k; ++i) {
    const std::size_t j = order[i];
    worker.was_sent[j] = worker.memory[j] != 0;
    worker.sent[j] = worker.memory[j];
    worker.memory[j] = 0;
    sum[j] += worker.sent[j] / plan.workers;
  }
}

}  // namespace

void run_precise(const PrecisePlan& plan, train::PreciseProblem& problem,
                 const std::function<void(std::uint64_t, std::span<const double>)>& on_round) {
  const std::size_t dim = problem.layout().dim();
  Vector weights(dim), gradient(dim), total(dim), sum(dim);
  std::vector<PreciseWorker> workers(static_cast<std::size_t>(plan.workers), PreciseWorker(dim));
  problem.initial_weights_at(weights);
  on_round(0, weights);
  for (std::uint64_t step = 0; step < plan.rounds; ++step) {
    std::fill(sum.begin(), sum.end(), 0.0);
    for (int worker = 0; worker < plan.workers; ++worker) {
      problem.gradient_at(worker, step, weights, gradient);
      send_entries(plan, gradient, total, workers[static_cast<std::size_t>(worker)], sum);
    }
    std::swap(total, sum);
    const double lr = rate_at(plan.rate, plan.lr, step, plan.rounds);
    for (std::size_t j = 0; j < dim; ++j) weights[j] -= lr * total[j];
    on_round(step + 1, weights);
  }
}

}  // namespace sparsewire::reproduce
