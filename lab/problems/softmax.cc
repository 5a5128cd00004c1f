// Logistic regression with more than two labels: mean of log(sum_c exp(<a, x_c>)) - <a, x_y>, and (l2/2) ||x||^2.
//
// Feature i of class c has weight i*classes + c; with an intercept, its weights are the last ones and have no penalty.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "problems/linear.h"
#include "problems/margins.h"
#include "problems/precise_problem.h"
#include "sparsewire/layout.h"
#include "sparsewire/support/portable_math.h"

namespace sparsewire::train {
namespace {

Layout layout_of(std::uint64_t features, std::uint64_t classes, bool intercept) {
  if (!intercept) return Layout(features * classes);
  return Layout({{"weight", (features - 1) * classes}, {"intercept", classes}});
}

class Softmax final : public PreciseProblem {
 public:
  Softmax(SampleSets sets, const LinearOptions& options, const ProblemPlace& place)
      : PreciseProblem(place.workers),
        sets_(std::move(sets)),
        classes_(sets_.classes),
        layout_(layout_of(sets_.train.rows.dim, classes_, options.intercept)),
        // The second derivative of log-sum-exp is at most 1/2 in any direction.
        penalty_{.l2 = options.l2.value_or(largest_singular_value2(sets_.train.rows) /
                                           (2 * static_cast<double>(sets_.train.size())) / 10000),
                 .count = (sets_.train.rows.dim - (options.intercept ? 1U : 0U)) * classes_},
        batches_(sets_.train.label, options, place),
        outputs_(static_cast<std::size_t>(place.workers) + 1, std::vector<double>(classes_)) {}

  const Layout& layout() const noexcept override { return layout_; }
  std::string_view metric() const noexcept override { return "accuracy"; }
  std::string_view data_fingerprint() const noexcept override { return sets_.fingerprint; }
  std::string_view test_fingerprint() const noexcept override { return sets_.test_fingerprint; }
  bool has(Part part) const noexcept override { return sets_.of(part).size() != 0; }
  bool has_penalty() const noexcept override { return true; }
  std::uint64_t samples_of(int worker) const noexcept override { return batches_.samples_of(worker); }

  void initial_weights_at(std::span<double> weights) const override { std::fill(weights.begin(), weights.end(), 0); }

  double gradient_at(int worker, std::uint64_t step, std::span<const double> weights,
                     std::span<double> gradient) override {
    penalty_.begin_gradient(weights, gradient);
    const double share = batches_.share(worker);
    std::vector<double>& outputs = outputs_[static_cast<std::size_t>(worker)];
    double sum = 0;
    batches_.for_each(worker, step, [&](std::size_t row) {
      sum += apply(sets_.train, row, weights, outputs);
      outputs[sets_.train.label[row]] -= 1;  // probabilities, less 1 at the right class
      add(sets_.train, row, share, outputs, gradient);
    });
    return share * sum + penalty_.at(weights);
  }

  using PreciseProblem::evaluate_at;
  Score evaluate_at(Part part, std::span<const double> weights) override {
    const Samples& samples = sets_.of(part);
    std::vector<double>& outputs = outputs_.back();
    double sum = 0;
    double right = 0;
    for (std::size_t row = 0; row < samples.size(); ++row) {
      sum += apply(samples, row, weights, outputs);
      const double most = *std::max_element(outputs.begin(), outputs.end());
      const auto equals = std::count(outputs.begin(), outputs.end(), most);
      // Undecided: right as often as one of the classes is.
      if (outputs[samples.label[row]] == most) right += 1 / static_cast<double>(equals);
    }
    const auto all = static_cast<double>(samples.size());
    return {.loss = sum / all, .objective = sum / all + penalty_.at(weights), .metric = right / all};
  }

 private:
  // Returns the loss of a sample; `outputs` become the probabilities of the classes.
  double apply(const Samples& samples, std::size_t row, std::span<const double> weights,
               std::vector<double>& outputs) const {
    std::fill(outputs.begin(), outputs.end(), 0);
    const auto indices = samples.rows.indices(row);
    const auto values = samples.rows.values(row);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const double* of_feature = weights.data() + std::size_t{indices[i]} * classes_;
      for (std::size_t c = 0; c < classes_; ++c) outputs[c] += values[i] * of_feature[c];
    }
    const double top = *std::max_element(outputs.begin(), outputs.end());
    const double own = outputs[samples.label[row]];
    double sum = 0;
    for (double& output : outputs) sum += output = portable_exp(output - top);
    for (double& output : outputs) output /= sum;
    return portable_log(sum) - (own - top);
  }

  // gradient += factor * sample * by_class.
  void add(const Samples& samples, std::size_t row, double factor, const std::vector<double>& by_class,
           std::span<double> gradient) const {
    const auto indices = samples.rows.indices(row);
    const auto values = samples.rows.values(row);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      double* of_feature = gradient.data() + std::size_t{indices[i]} * classes_;
      for (std::size_t c = 0; c < classes_; ++c) of_feature[c] += factor * values[i] * by_class[c];
    }
  }

  SampleSets sets_;
  std::size_t classes_;
  Layout layout_;
  Penalty penalty_;
  LinearBatches batches_;
  std::vector<std::vector<double>> outputs_;  // for each worker, and the last one for evaluate_at()
};

}  // namespace

std::unique_ptr<Problem> make_softmax(SampleSets sets, const LinearOptions& options, const ProblemPlace& place) {
  return std::make_unique<Softmax>(std::move(sets), options, place);
}

}  // namespace sparsewire::train
