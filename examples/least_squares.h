// The problem that threads.cc and mpi.cc solve: least squares, with the rows dealt to the workers.
//
// Worker r holds the rows A_r and the labels y_r = A_r * solution, and computes the gradient of
//
//   f_r(w) = 1/(2 rows) * ||A_r w - y_r||^2.
//
// The labels have no noise, so all workers have the same optimum, `solution`, and we can see how close we come to it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

class LeastSquares {
 public:
  static constexpr std::size_t kWeights = 100;
  static constexpr std::size_t kRowsPerWorker = 400;

  explicit LeastSquares(int rank) : solution_(kWeights), rows_(kRowsPerWorker * kWeights), labels_(kRowsPerWorker) {
    std::mt19937 common(1);  // the same solution on every rank
    for (float& number : solution_) number = uniform(common);
    std::mt19937 own(100 + static_cast<std::uint32_t>(rank));  // every rank draws other rows
    for (float& number : rows_) number = uniform(own);
    for (std::size_t r = 0; r < kRowsPerWorker; ++r) labels_[r] = product(r, solution_);
  }

  void gradient(const std::vector<float>& weights, std::vector<float>& gradient) const {
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    for (std::size_t r = 0; r < kRowsPerWorker; ++r) {
      const float error = (product(r, weights) - labels_[r]) / static_cast<float>(kRowsPerWorker);
      for (std::size_t i = 0; i < kWeights; ++i) gradient[i] += error * rows_[r * kWeights + i];
    }
  }

  // The largest difference between a weight and the solution's.
  float distance(const std::vector<float>& weights) const {
    float largest = 0;
    for (std::size_t i = 0; i < kWeights; ++i) largest = std::max(largest, std::abs(weights[i] - solution_[i]));
    return largest;
  }

 private:
  static float uniform(std::mt19937& random) { return static_cast<float>(random()) / 2147483648.0F - 1; }

  float product(std::size_t row, const std::vector<float>& weights) const {
    float sum = 0;
    for (std::size_t i = 0; i < kWeights; ++i) sum += rows_[row * kWeights + i] * weights[i];
    return sum;
  }

  std::vector<float> solution_;
  std::vector<float> rows_;
  std::vector<float> labels_;
};
