// f_n(w) = (1/D) ||A_n w - y_n||^2, full gradients (2/D) A_n^T (A_n w - y_n). Features are N(0, 1); the true weights of
// worker n are t_n*1 + N(0, I) with one number t_n ~ N(0, spread); labels have noise. Weights start at U(-0.1, 0.1).
//
// Bereyhi, Liang, Boudreau, Afana, 2025: 20 workers, 100 weights, 500 samples each, spread 5, noise 0.5.
#include "problems/linreg.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "data/random.h"
#include "problems/cholesky.h"
#include "problems/registry.h"
#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

// What the loss needs of the data: ||A w - y||^2 = w^T (A^T A) w - 2 (A^T y)^T w + y^T y. So a gradient costs dim^2,
// however many samples there are.
struct Squares {
  explicit Squares(std::size_t dim) : aa(dim * dim), ay(dim) {}

  std::vector<double> aa;  // A^T A
  std::vector<double> ay;  // A^T y
  double yy = 0;

  void add(std::span<const double> features, double label) {
    const std::size_t dim = features.size();
    for (std::size_t i = 0; i < dim; ++i) {
      for (std::size_t j = 0; j < dim; ++j) aa[i * dim + j] += features[i] * features[j];
      ay[i] += label * features[i];
    }
    yy += label * label;
  }

  void add(const Squares& other) {
    for (std::size_t i = 0; i < aa.size(); ++i) aa[i] += other.aa[i];
    for (std::size_t i = 0; i < ay.size(); ++i) ay[i] += other.ay[i];
    yy += other.yy;
  }

  // out = A^T A w. The matrix is symmetric, so rows serve as columns: the inner loop has no sum, and vectorises.
  void times(std::span<const double> weights, std::span<double> out) const {
    const std::size_t dim = weights.size();
    std::fill(out.begin(), out.end(), 0);
    for (std::size_t j = 0; j < dim; ++j) {
      for (std::size_t i = 0; i < dim; ++i) out[i] += aa[j * dim + i] * weights[j];
    }
  }

  // ||A w - y||^2, given A^T A w.
  double residual2(std::span<const double> weights, std::span<const double> product) const {
    double sum = yy;
    for (std::size_t i = 0; i < weights.size(); ++i) sum += weights[i] * (product[i] - 2 * ay[i]);
    return sum;
  }
};

Squares draw_worker(const LinregShape& shape, const ProblemPlace& place, int worker) {
  Draws draws(place.seed, Use::data, worker);
  const double common = std::sqrt(shape.spread) * draws.normal();
  std::vector<double> truth(shape.dim);
  for (double& entry : truth) entry = common + draws.normal();
  Squares squares(shape.dim);
  std::vector<double> features(shape.dim);
  for (std::uint64_t sample = 0; sample < shape.samples; ++sample) {
    double label = std::sqrt(shape.noise) * draws.normal();
    for (std::size_t i = 0; i < features.size(); ++i) {
      features[i] = draws.normal();
      label += features[i] * truth[i];
    }
    squares.add(features, label);
  }
  return squares;
}

class DrawnLinreg final : public Linreg {
 public:
  DrawnLinreg(const LinregShape& shape, const ProblemPlace& place)
      : Linreg(place.workers),
        layout_(shape.dim),
        samples_(static_cast<double>(shape.samples)),
        seed_(place.seed),
        all_(shape.dim) {
    for (int worker = 0; worker < place.workers; ++worker) {
      workers_.push_back(draw_worker(shape, place, worker));
      all_.add(workers_.back());
    }
    optimum_ = solve_positive(all_.aa, all_.ay);
  }

  const Layout& layout() const noexcept override { return layout_; }
  std::string_view metric() const noexcept override { return "distance"; }
  bool is_metric_of_samples() const noexcept override { return false; }
  std::span<const double> optimum() const noexcept override { return optimum_; }

  void initial_weights_at(std::span<double> weights) const override {
    Draws draws(seed_, Use::weights);
    for (double& weight : weights) weight = 0.2 * draws.uniform() - 0.1;
  }

  double gradient_at(int worker, std::uint64_t /*step*/, std::span<const double> weights,
                     std::span<double> gradient) override {
    const Squares& squares = workers_[static_cast<std::size_t>(worker)];
    squares.times(weights, gradient);
    const double residual2 = squares.residual2(weights, gradient);
    for (std::size_t i = 0; i < weights.size(); ++i) gradient[i] = 2 * (gradient[i] - squares.ay[i]) / samples_;
    return residual2 / samples_;
  }

  using Linreg::evaluate_at;
  Score evaluate_at(Part /*part*/, std::span<const double> weights) override {
    double distance = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      distance += (weights[i] - optimum_[i]) * (weights[i] - optimum_[i]);
    }
    std::vector<double> product(weights.size());
    all_.times(weights, product);
    const double samples = samples_ * static_cast<double>(workers_.size());
    const double loss = all_.residual2(weights, product) / samples;
    return {.loss = loss, .objective = loss, .metric = distance};
  }

 private:
  Layout layout_;
  double samples_;
  std::uint64_t seed_;
  std::vector<Squares> workers_;
  Squares all_;
  std::vector<double> optimum_;
};

}  // namespace

std::unique_ptr<Linreg> make_linreg(const LinregShape& shape, const ProblemPlace& place) {
  const std::uint64_t rows = shape.samples * static_cast<std::uint64_t>(place.workers);
  if (rows < shape.dim) {
    throw UsageError(fmt::format(
        "[linreg] samples={} on each of {} workers are fewer than the dim={} weights: the optimum is not unique",
        shape.samples, place.workers, shape.dim));
  }
  return std::make_unique<DrawnLinreg>(shape, place);
}

std::unique_ptr<Problem> make_linreg_problem(Spec& spec, const ProblemPlace& place) {
  LinregShape shape;
  // The data of a worker take dim^2 numbers, the optimum dim^3 operations.
  shape.dim = spec.integer("dim", 1, 4096).value_or(shape.dim);
  shape.samples = spec.integer("samples", 1, 1U << 24).value_or(shape.samples);
  shape.spread = spec.number("spread", {.min = 0}).value_or(shape.spread);
  shape.noise = spec.number("noise", {.min = 0}).value_or(shape.noise);
  spec.finish();  // before the data are generated
  return make_linreg(shape, place);
}

}  // namespace sparsewire::train
