// The optimum of logistic regression, by Newton's method. Its equations are solved by conjugate gradients, with the
// diagonal of the Hessian as preconditioner, so it works for any number of weights.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "problems/logistic.h"
#include "problems/margins.h"

namespace sparsewire::train {
namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Loss, gradient and Hessian at one point.
class Point {
 public:
  Point(const SparseRows& rows, double l2, Vector weights)
      : rows_(&rows), l2_(l2), weights_(std::move(weights)), gradient_(weights_.size()), curvature_(rows.size()) {
    const double share = 1 / static_cast<double>(rows.size());
    for (std::size_t i = 0; i < weights_.size(); ++i) gradient_[i] = l2 * weights_[i];
    double sum = 0;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const double margin = margin_of(rows, row, weights_);
      const double pull = logistic_pull(margin);
      sum += logistic_loss(margin);
      curvature_[row] = pull * logistic_pull(-margin) * share;
      add_row(rows, row, -pull * share, gradient_);
    }
    loss_ = sum * share + l2 / 2 * dot(weights_, weights_);
  }

  const Vector& weights() const { return weights_; }
  const Vector& gradient() const { return gradient_; }
  double loss() const { return loss_; }
  double gradient_norm() const { return std::sqrt(dot(gradient_, gradient_)); }

  void times_hessian(const Vector& x, Vector& out) const {
    for (std::size_t i = 0; i < x.size(); ++i) out[i] = l2_ * x[i];
    for (std::size_t row = 0; row < curvature_.size(); ++row)
      add_row(*rows_, row, curvature_[row] * margin_of(*rows_, row, x), out);
  }

  Vector hessian_diagonal() const {
    Vector diagonal(weights_.size(), l2_);
    for (std::size_t row = 0; row < curvature_.size(); ++row) {
      for (std::size_t at = rows_->begin[row]; at < rows_->begin[row + 1]; ++at) {
        diagonal[rows_->index[at]] += curvature_[row] * rows_->value[at] * rows_->value[at];
      }
    }
    return diagonal;
  }

 private:
  const SparseRows* rows_;
  double l2_;
  Vector weights_;
  Vector gradient_;
  Vector curvature_;  // of each row: the second derivative of its loss, divided by the number of rows
  double loss_ = 0;
};

// Hessian^-1 * gradient, until the norm of the residual is `tolerance` times that of the gradient.
Vector newton_step(const Point& point, double tolerance) {
  constexpr int kMostRounds = 5000;
  const Vector diagonal = point.hessian_diagonal();
  Vector residual = point.gradient();
  const std::size_t dim = residual.size();
  Vector step(dim), scaled(dim), product(dim);
  const auto precondition = [&] {
    for (std::size_t i = 0; i < dim; ++i) scaled[i] = residual[i] / diagonal[i];
  };
  precondition();
  Vector direction = scaled;
  double rho = dot(residual, scaled);
  const double enough = tolerance * point.gradient_norm();
  for (int round = 0; round < kMostRounds && std::sqrt(dot(residual, residual)) > enough; ++round) {
    point.times_hessian(direction, product);
    const double alpha = rho / dot(direction, product);
    for (std::size_t i = 0; i < dim; ++i) {
      step[i] += alpha * direction[i];
      residual[i] -= alpha * product[i];
    }
    precondition();
    const double next = dot(residual, scaled);
    for (std::size_t i = 0; i < dim; ++i) direction[i] = scaled[i] + next / rho * direction[i];
    rho = next;
  }
  return step;
}

Vector minus(const Vector& a, double factor, const Vector& b) {
  Vector out(a);
  for (std::size_t i = 0; i < a.size(); ++i) out[i] -= factor * b[i];
  return out;
}

}  // namespace

LogregOptimum minimise_logreg(const SparseRows& rows, double l2) {
  constexpr int kMostSteps = 100;
  constexpr int kMostHalvings = 40;
  Point best(rows, l2, Vector(rows.dim));
  const double enough = 1e-13 * best.gradient_norm();
  for (int taken = 0; taken < kMostSteps && best.gradient_norm() > enough; ++taken) {
    // Far from the optimum a rough solution is enough; close to it an exact one doubles the correct digits.
    const Vector step = newton_step(best, std::clamp(best.gradient_norm(), 1e-6, 0.1));
    const double slope = dot(best.gradient(), step);
    double factor = 1;
    bool is_better = false;
    for (int halving = 0; halving < kMostHalvings && !is_better; ++halving, factor /= 2) {
      Point next(rows, l2, minus(best.weights(), factor, step));
      // Close to the optimum the loss no longer changes, but the gradient does.
      is_better = next.loss() <= best.loss() - 1e-4 * factor * slope || 2 * next.gradient_norm() < best.gradient_norm();
      if (is_better) best = std::move(next);
    }
    if (!is_better) break;  // only rounding errors are left
  }
  return {.weights = best.weights(), .loss = best.loss(), .gradient_norm = best.gradient_norm()};
}

}  // namespace sparsewire::train
