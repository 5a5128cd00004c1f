// Logistic regression on synthetic data or on a LIBSVM file; with more than two labels see softmax.cc. In each step a
// worker takes the gradient of a few samples drawn with replacement.
//
// Sahu et al., 2021: 20 workers, batch 1, l2 = L/10000, learning rate 1/(L + l2), with L the smoothness (logreg.h).
#include "problems/logreg.h"

#include <fmt/core.h>

#include <string>
#include <utility>

#include "problems/linear.h"
#include "problems/logistic.h"
#include "problems/margins.h"
#include "problems/registry.h"
#include "problems/samples.h"
#include "sparsewire/errors.h"
#include "sparsewire/spec.h"

namespace sparsewire::train {
namespace {

class LogregOnRows final : public Logreg {
 public:
  LogregOnRows(SampleSets sets, const LinearOptions& options, const ProblemPlace& place)
      : Logreg(place.workers),
        rows_(margin_rows(sets.train)),
        validation_(margin_rows(sets.validation)),
        test_(margin_rows(sets.test)),
        fingerprint_(std::move(sets.fingerprint)),
        test_fingerprint_(std::move(sets.test_fingerprint)),
        layout_(options.intercept ? Layout({{"weight", rows_.dim - 1U}, {"intercept", 1}}) : Layout(rows_.dim)),
        smoothness_(largest_singular_value2(rows_) / (4 * static_cast<double>(rows_.size()))),
        penalty_{.l2 = options.l2.value_or(smoothness_ / 10000), .count = rows_.dim - (options.intercept ? 1U : 0U)},
        batches_(sets.train.label, options, place) {}

  const Layout& layout() const noexcept override { return layout_; }
  std::string_view metric() const noexcept override { return "accuracy"; }
  std::string_view data_fingerprint() const noexcept override { return fingerprint_; }
  std::string_view test_fingerprint() const noexcept override { return test_fingerprint_; }
  bool has(Part part) const noexcept override { return rows_of(part).size() != 0; }
  std::uint64_t samples_of(int worker) const noexcept override { return batches_.samples_of(worker); }
  bool has_penalty() const noexcept override { return true; }
  double smoothness() const noexcept override { return smoothness_; }
  double l2() const noexcept override { return penalty_.l2; }
  std::size_t samples() const noexcept override { return rows_.size(); }

  LogregOptimum optimum() const override {
    if (penalty_.l2 == 0) throw UsageError("[logreg] with l2=0 there may be no optimum");
    if (penalty_.count != rows_.dim) throw UsageError("[logreg] with intercept=true there may be no optimum");
    return minimise_logreg(rows_, penalty_.l2);
  }

  void initial_weights_at(std::span<double> weights) const override {
    for (double& weight : weights) weight = 0;
  }

  double gradient_at(int worker, std::uint64_t step, std::span<const double> weights,
                     std::span<double> gradient) override {
    penalty_.begin_gradient(weights, gradient);
    const double share = batches_.share(worker);
    double sum = 0;
    batches_.for_each(worker, step, [&](std::size_t row) {
      const double margin = margin_of(rows_, row, weights);
      sum += logistic_loss(margin);
      add_row(rows_, row, -share * logistic_pull(margin), gradient);
    });
    return share * sum + penalty_.at(weights);
  }

  using Logreg::evaluate_at;
  Score evaluate_at(Part part, std::span<const double> weights) override {
    const SparseRows& rows = rows_of(part);
    double sum = 0;
    double right = 0;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const double margin = margin_of(rows, row, weights);
      sum += logistic_loss(margin);
      right += margin > 0 ? 1 : margin == 0 ? 0.5 : 0;  // undecided: right half of the time
    }
    const auto all = static_cast<double>(rows.size());
    return {.loss = sum / all, .objective = sum / all + penalty_.at(weights), .metric = right / all};
  }

 private:
  const SparseRows& rows_of(Part part) const noexcept {
    return part == Part::train ? rows_ : part == Part::validation ? validation_ : test_;
  }

  SparseRows rows_;
  SparseRows validation_;
  SparseRows test_;
  std::string fingerprint_;  // of the file they came from; empty: synthetic
  std::string test_fingerprint_;
  Layout layout_;
  double smoothness_;
  Penalty penalty_;
  LinearBatches batches_;
};

LogregShape read_shape(Spec& spec, const ProblemPlace& place) {
  LogregShape shape;
  if (!place.data.empty()) {
    for (const char* key : {"samples", "density", "noise", "mean", "held_back"}) {
      if (spec.has(key)) spec.fail(fmt::format("{}= is for synthetic data, and these come from '{}'", key, place.data));
    }
  }
  constexpr std::uint64_t kMostSamples = (std::uint64_t{1} << 32) - 1;
  shape.dim = spec.integer("dim", 1, kMaxLibsvmIndex).value_or(shape.dim);
  shape.samples = spec.integer("samples", 1, kMostSamples).value_or(shape.samples);
  shape.density = spec.number("density", kRatioRange).value_or(shape.density);
  shape.noise = spec.number("noise", {.min = 0, .max = 0.5}).value_or(shape.noise);
  shape.mean = spec.number("mean", {.min = -1000, .max = 1000}).value_or(shape.mean);
  shape.held_back = spec.integer("held_back", 0, kMostSamples).value_or(shape.held_back);
  return shape;
}

// The split that the spec and --split ask for.
std::string read_split(Spec& spec, const ProblemPlace& place, bool is_whole) {
  if (spec.has("split") && !place.split.empty()) {
    spec.fail("split= and --split are both given: leave one out (split=true is --split round_robin)");
  }
  // Without a split, full gradients would be the same on all workers.
  const std::string otherwise = spec.flag("split", is_whole) ? "round_robin" : "all";
  return place.split.empty() ? otherwise : place.split;
}

struct LinearProblem {
  SampleSets sets;
  LinearOptions options;
};

LinearProblem read_problem(Spec& spec, const ProblemPlace& place) {
  LinearProblem made;
  const bool has_dim = spec.has("dim");
  const LogregShape shape = read_shape(spec, place);
  made.options.l2 = spec.number("l2", {.min = 0});
  made.options.batch = spec.integer("batch", 0, 1U << 31).value_or(1);
  made.options.split = read_split(spec, place, made.options.batch == 0);
  made.options.intercept = spec.flag("intercept", false);
  spec.finish();  // before the data are read
  made.sets = place.data.empty()
                  ? draw_samples(shape, place.seed)
                  : read_samples(place.data, place.test_data, has_dim ? static_cast<std::uint32_t>(shape.dim) : 0);
  hold_back_samples(made.sets, place.validation, place.seed);
  if (made.options.batch > made.sets.train.size()) {
    spec.fail(fmt::format("batch={} is more than the {} training samples: with batch=0 a worker takes all it has",
                          made.options.batch, made.sets.train.size()));
  }
  if (made.options.intercept) add_intercept(made.sets);
  return made;
}

}  // namespace

std::unique_ptr<Logreg> make_logreg(std::string_view spec_text, const ProblemPlace& place) {
  Spec spec(spec_text);
  if (spec.name() != "logreg") throw UsageError(fmt::format("'{}' is not the problem logreg", spec.name()));
  LinearProblem made = read_problem(spec, place);
  if (made.sets.classes > 2) {
    spec.fail(fmt::format("'{}' has {} different labels: here it must have two", place.data, made.sets.classes));
  }
  return std::make_unique<LogregOnRows>(std::move(made.sets), made.options, place);
}

std::unique_ptr<Problem> make_logreg_problem(Spec& spec, const ProblemPlace& place) {
  LinearProblem made = read_problem(spec, place);
  if (made.sets.classes > 2) return make_softmax(std::move(made.sets), made.options, place);
  return std::make_unique<LogregOnRows>(std::move(made.sets), made.options, place);
}

}  // namespace sparsewire::train
