// Logistic regression on synthetic data or on a LIBSVM file. In each step a worker takes the gradient of a few samples
// drawn with replacement.
//
// Sahu et al., 2021: 20 workers, batch 1, l2 = L/10000, learning rate 1/(L + l2), with L the smoothness (logreg.h).
#include "train/logreg.h"

#include <fmt/core.h>

#include <optional>
#include <utility>

#include "sparsewire/errors.h"
#include "sparsewire/spec.h"
#include "train/logistic.h"
#include "train/margins.h"
#include "train/random.h"
#include "train/registry.h"

namespace sparsewire::train {
namespace {

struct Sampling {
  std::uint64_t batch = 1;  // samples of a worker in a step; 0: all
  bool split = false;       // worker n draws from rows n, n + workers, n + 2*workers, ... instead of from all rows
};

class LogregOnRows final : public Logreg {
 public:
  LogregOnRows(MarginData data, std::optional<double> l2, const Sampling& sampling, const ProblemPlace& place)
      : Logreg(place.workers),
        rows_(std::move(data.rows)),
        fingerprint_(std::move(data.fingerprint)),
        layout_(rows_.dim),
        smoothness_(largest_singular_value2(rows_) / (4 * static_cast<double>(rows_.size()))),
        l2_(l2.value_or(smoothness_ / 10000)),
        sampling_(sampling),
        stride_(sampling.split ? static_cast<std::size_t>(place.workers) : 1),
        seed_(place.seed) {}

  const Layout& layout() const noexcept override { return layout_; }
  std::string_view metric() const noexcept override { return "accuracy"; }
  std::string_view data_fingerprint() const noexcept override { return fingerprint_; }
  double smoothness() const noexcept override { return smoothness_; }
  double l2() const noexcept override { return l2_; }
  std::size_t samples() const noexcept override { return rows_.size(); }

  LogregOptimum optimum() const override {
    if (l2_ == 0) throw UsageError("[logreg] with l2=0 there may be no optimum");
    return minimise_logreg(rows_, l2_);
  }

  void initial_weights_at(std::span<double> weights) const override {
    for (double& weight : weights) weight = 0;
  }

  double gradient_at(int worker, std::uint64_t step, std::span<const double> weights,
                     std::span<double> gradient) override {
    double weights2 = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      gradient[i] = l2_ * weights[i];
      weights2 += weights[i] * weights[i];
    }
    const std::size_t first = sampling_.split ? static_cast<std::size_t>(worker) : 0;
    const std::size_t own = (rows_.size() - first + stride_ - 1) / stride_;
    const std::size_t taken = sampling_.batch == 0 ? own : sampling_.batch;
    // A worker with one row more weighs more, so that the mean over the workers is the mean over all rows.
    const double share = static_cast<double>(own * stride_) / static_cast<double>(rows_.size() * taken);
    Draws draws(seed_, Use::batch, worker, step);
    double sum = 0;
    for (std::size_t i = 0; i < taken; ++i) {
      const std::size_t chosen = sampling_.batch == 0 ? i : draws.below(static_cast<std::uint32_t>(own));
      const std::size_t row = first + stride_ * chosen;
      const double margin = margin_of(rows_, row, weights);
      sum += logistic_loss(margin);
      add_row(rows_, row, -share * logistic_pull(margin), gradient);
    }
    return share * sum + l2_ / 2 * weights2;
  }

  Evaluation evaluate_at(std::span<const double> weights) override {
    double sum = 0;
    double right = 0;
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      const double margin = margin_of(rows_, row, weights);
      sum += logistic_loss(margin);
      right += margin > 0 ? 1 : margin == 0 ? 0.5 : 0;  // undecided: right half of the time
    }
    double weights2 = 0;
    for (const double weight : weights) weights2 += weight * weight;
    const auto all = static_cast<double>(rows_.size());
    return {.loss = sum / all + l2_ / 2 * weights2, .metric = right / all};
  }

 private:
  SparseRows rows_;
  std::string fingerprint_;  // of the file they came from; empty: synthetic
  Layout layout_;
  double smoothness_;
  double l2_;
  Sampling sampling_;
  std::size_t stride_;  // from one row of a worker to its next
  std::uint64_t seed_;
};

LogregShape read_shape(Spec& spec, const ProblemPlace& place) {
  LogregShape shape;
  if (!place.data.empty()) {
    for (const char* key : {"dim", "samples", "density", "noise", "mean"}) {
      if (spec.has(key)) spec.fail(fmt::format("{}= is for synthetic data, and these come from '{}'", key, place.data));
    }
  }
  shape.dim = spec.integer("dim", 1, kMaxLibsvmIndex).value_or(shape.dim);
  shape.samples = spec.integer("samples", 1, (std::uint64_t{1} << 32) - 1).value_or(shape.samples);
  shape.density = spec.number("density", kRatioRange).value_or(shape.density);
  shape.noise = spec.number("noise", {.min = 0, .max = 0.5}).value_or(shape.noise);
  shape.mean = spec.number("mean", {.min = -1000, .max = 1000}).value_or(shape.mean);
  return shape;
}

std::unique_ptr<Logreg> make_from(Spec& spec, const ProblemPlace& place) {
  const LogregShape shape = read_shape(spec, place);
  const std::optional<double> l2 = spec.number("l2", {.min = 0});
  Sampling sampling;
  sampling.batch = spec.integer("batch", 0, 1U << 31).value_or(1);
  // Without a split, full gradients would be the same on all workers.
  sampling.split = spec.flag("split", sampling.batch == 0);
  spec.finish();  // before the data are read
  MarginData data =
      place.data.empty() ? MarginData{draw_margin_rows(shape, place.seed), ""} : read_margin_rows(place.data);
  if (sampling.split && data.rows.size() < static_cast<std::size_t>(place.workers)) {
    spec.fail(fmt::format("{} samples cannot be split between {} workers", data.rows.size(), place.workers));
  }
  return std::make_unique<LogregOnRows>(std::move(data), l2, sampling, place);
}

}  // namespace

std::unique_ptr<Logreg> make_logreg(std::string_view spec_text, const ProblemPlace& place) {
  Spec spec(spec_text);
  if (spec.name() != "logreg") throw UsageError(fmt::format("'{}' is not the problem logreg", spec.name()));
  return make_from(spec, place);
}

std::unique_ptr<Problem> make_logreg_problem(Spec& spec, const ProblemPlace& place) { return make_from(spec, place); }

}  // namespace sparsewire::train
