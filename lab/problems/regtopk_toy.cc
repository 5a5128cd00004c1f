// Two weights, two workers with one sample each: -log sigma(<w, x>) with x = (100, 1) and (-100, 1). The gradients of
// the first weight are large and cancel; those of the second are small and agree. Top-1 always sends the first.
//
// Bereyhi, Liang, Boudreau, Afana, 2025. More workers get the two samples alternately.
#include "problems/logistic.h"
#include "problems/precise_problem.h"
#include "problems/registry.h"

namespace sparsewire::train {
namespace {

class RegtopkToy final : public PreciseProblem {
 public:
  explicit RegtopkToy(int workers) : PreciseProblem(workers), workers_(workers) {}

  const Layout& layout() const noexcept override { return layout_; }
  std::string_view metric() const noexcept override { return {}; }

  void initial_weights_at(std::span<double> weights) const override {
    weights[0] = 0;
    weights[1] = 1;
  }

  double gradient_at(int worker, std::uint64_t /*step*/, std::span<const double> weights,
                     std::span<double> gradient) override {
    const double margin = margin_of(worker, weights);
    const double pull = logistic_pull(margin);
    gradient[0] = -pull * first_feature(worker);
    gradient[1] = -pull;
    return logistic_loss(margin);
  }

  using PreciseProblem::evaluate_at;
  Score evaluate_at(Part /*part*/, std::span<const double> weights) override {
    double sum = 0;
    for (int worker = 0; worker < workers_; ++worker) sum += logistic_loss(margin_of(worker, weights));
    return {.loss = sum / workers_, .objective = sum / workers_};
  }

 private:
  static double first_feature(int worker) { return worker % 2 == 0 ? 100 : -100; }
  static double margin_of(int worker, std::span<const double> weights) {
    return weights[0] * first_feature(worker) + weights[1];
  }

  Layout layout_{2};
  int workers_;
};

}  // namespace

std::unique_ptr<Problem> make_regtopk_toy_problem(Spec& /*spec*/, const ProblemPlace& place) {
  return std::make_unique<RegtopkToy>(place.workers);
}

}  // namespace sparsewire::train
