#include "problems/star.h"

#include <utility>
#include <vector>

#include "problems/linreg.h"
#include "problems/logreg.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

class Star final : public PreciseProblem {
 public:
  Star(std::unique_ptr<PreciseProblem> problem, std::vector<double> optimum, int workers)
      : PreciseProblem(workers),
        problem_(std::move(problem)),
        optimum_(std::move(optimum)),
        at_optimum_(static_cast<std::size_t>(workers)) {}

  const Layout& layout() const noexcept override { return problem_->layout(); }
  void initial_weights_at(std::span<double> weights) const override { problem_->initial_weights_at(weights); }
  using PreciseProblem::evaluate_at;
  Score evaluate_at(Part part, std::span<const double> weights) override {
    return problem_->evaluate_at(part, weights);
  }
  bool has(Part part) const noexcept override { return problem_->has(part); }
  std::string_view metric() const noexcept override { return problem_->metric(); }
  bool is_metric_of_samples() const noexcept override { return problem_->is_metric_of_samples(); }
  bool has_penalty() const noexcept override { return problem_->has_penalty(); }
  std::uint64_t samples_of(int worker) const noexcept override { return problem_->samples_of(worker); }
  std::string_view data_fingerprint() const noexcept override { return problem_->data_fingerprint(); }
  std::string_view test_fingerprint() const noexcept override { return problem_->test_fingerprint(); }

  double gradient_at(int worker, std::uint64_t step, std::span<const double> weights,
                     std::span<double> gradient) override {
    std::vector<double>& there = at_optimum_[static_cast<std::size_t>(worker)];
    there.resize(gradient.size());
    problem_->gradient_at(worker, step, optimum_, there);
    const double loss = problem_->gradient_at(worker, step, weights, gradient);
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] -= there[i];
    return loss;
  }

 private:
  std::unique_ptr<PreciseProblem> problem_;
  std::vector<double> optimum_;
  std::vector<std::vector<double>> at_optimum_;  // by worker: they may be called at the same time
};

}  // namespace

std::unique_ptr<Problem> make_star(std::unique_ptr<Problem> problem, int workers) {
  std::vector<double> optimum;
  if (const auto* const linreg = dynamic_cast<const Linreg*>(problem.get())) {
    optimum.assign(linreg->optimum().begin(), linreg->optimum().end());
  } else if (const auto* const logreg = dynamic_cast<const Logreg*>(problem.get())) {
    optimum = logreg->optimum().weights;
  } else {
    throw UsageError(
        "star=true needs a problem whose optimum is known: linreg, or logreg with two labels (with more it is softmax "
        "regression)");
  }
  std::unique_ptr<PreciseProblem> precise(dynamic_cast<PreciseProblem*>(problem.release()));
  return std::make_unique<Star>(std::move(precise), std::move(optimum), workers);
}

}  // namespace sparsewire::train
