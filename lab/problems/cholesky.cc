#include "problems/cholesky.h"

#include <fmt/core.h>

#include <cassert>
#include <cmath>

#include "sparsewire/errors.h"

namespace sparsewire::train {
namespace {

// Replaces the lower half by L, with matrix = L L^T.
void factorise(std::vector<double>& matrix, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    double* row = matrix.data() + i * n;
    for (std::size_t j = 0; j <= i; ++j) {
      const double* other = matrix.data() + j * n;
      double rest = row[j];
      for (std::size_t k = 0; k < j; ++k) rest -= row[k] * other[k];
      if (j < i) {
        row[j] = rest / other[j];
      } else if (rest > 0) {
        row[i] = std::sqrt(rest);
      } else {
        throw UsageError(fmt::format("the optimum is not unique: its equations are singular in row {} of {}", i, n));
      }
    }
  }
}

}  // namespace

std::vector<double> solve_positive(std::vector<double> matrix, std::span<const double> right) {
  const std::size_t n = right.size();
  assert(matrix.size() == n * n);
  factorise(matrix, n);
  std::vector<double> x(right.begin(), right.end());
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) x[i] -= matrix[i * n + k] * x[k];
    x[i] /= matrix[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    x[i] /= matrix[i * n + i];
    for (std::size_t k = 0; k < i; ++k) x[k] -= matrix[i * n + k] * x[i];
  }
  return x;
}

}  // namespace sparsewire::train
