#include "reproduce/rounds.h"

#include <algorithm>
#include <numeric>

#include "sparsewire/sifter.h"
#include "sparsewire/transport.h"

namespace sparsewire::reproduce {
namespace {

constexpr std::uint8_t kStop = 1;  // a flag of StepOptions: rank 0 has seen enough

struct Entry {
  double entries;
  double memory_norm2;
};

// One worker's part. Returns what it would put into the books.
std::vector<Entry> work(const Plan& plan, train::PreciseProblem& problem, Transport& transport,
                        const std::function<Next(const Round&)>& look) {
  const double factor = parse_feedback(plan.worker.feedback).scale_by_lr ? 1 : plan.lr;
  const auto lr = static_cast<float>(plan.lr);
  Worker worker(plan.worker, problem.layout(), transport);
  std::vector<double> weights(problem.layout().dim());
  std::vector<double> precise(weights.size());
  std::vector<float> gradient(weights.size());
  std::vector<float> update(weights.size());
  std::vector<Entry> book;

  if (plan.start.empty()) {
    problem.initial_weights_at(weights);
  } else {
    weights = plan.start;
  }
  std::uint8_t flags = 0;
  const auto show = [&](std::uint64_t step) {
    if (transport.rank() == 0 && look({step, weights}) == Next::stop) flags = kStop;
  };
  show(0);
  for (std::uint64_t step = 0; step < plan.rounds; ++step) {
    problem.gradient_at(transport.rank(), step, weights, precise);
    std::transform(precise.begin(), precise.end(), gradient.begin(), [](double g) { return static_cast<float>(g); });
    const StepStats& stats = worker.step(gradient, update, {.lr = lr, .flags = flags});
    if ((stats.flags & kStop) != 0) break;  // everybody has heard it by now; this round was only its carrier
    book.push_back({static_cast<double>(stats.entries_sent), stats.memory_norm2});
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= factor * static_cast<double>(update[i]);
    show(step + 1);
  }
  return book;
}

std::size_t at_most(const std::vector<double>& numbers, std::uint64_t rounds) {
  return static_cast<std::size_t>(std::min<std::uint64_t>(rounds, numbers.size()));
}

double sum_until(const std::vector<double>& numbers, std::uint64_t rounds) {
  return std::accumulate(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(at_most(numbers, rounds)), 0.0);
}

}  // namespace

double Books::entries_until(std::uint64_t rounds) const { return sum_until(entries, rounds); }
double Books::total_error_until(std::uint64_t rounds) const { return sum_until(memory_norm2, rounds); }
double Books::peak_until(std::uint64_t rounds) const {
  const std::size_t n = at_most(memory_norm2, rounds);
  return n == 0 ? 0 : *std::max_element(memory_norm2.begin(), memory_norm2.begin() + static_cast<std::ptrdiff_t>(n));
}

Books run(const Plan& plan, train::PreciseProblem& problem, const std::function<Next(const Round&)>& look) {
  std::vector<std::vector<Entry>> books(static_cast<std::size_t>(plan.workers));
  run_on_threads(plan.workers, [&](Transport& transport) {
    books[static_cast<std::size_t>(transport.rank())] = work(plan, problem, transport, look);
  });
  Books means{std::vector<double>(books[0].size()), std::vector<double>(books[0].size())};
  for (const auto& book : books) {
    for (std::size_t i = 0; i < book.size(); ++i) {
      means.entries[i] += book[i].entries / plan.workers;
      means.memory_norm2[i] += book[i].memory_norm2 / plan.workers;
    }
  }
  return means;
}

Books run_all(const Plan& plan, train::PreciseProblem& problem, const std::function<void(const Round&)>& look) {
  return run(plan, problem, [&](const Round& round) {
    look(round);
    return Next::go_on;
  });
}

}  // namespace sparsewire::reproduce
