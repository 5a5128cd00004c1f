#include "problems/margins.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "data/random.h"

namespace sparsewire::train {
namespace {

double norm2(std::span<const double> x) {
  double sum = 0;
  for (const double entry : x) sum += entry * entry;
  return sum;
}

}  // namespace

SparseRows margin_rows(const Samples& samples) {
  SparseRows rows = samples.rows;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (samples.label[row] == 1) continue;
    for (std::size_t at = rows.begin[row]; at < rows.begin[row + 1]; ++at) rows.value[at] = -rows.value[at];
  }
  return rows;
}

double margin_of(const SparseRows& rows, std::size_t row, std::span<const double> weights) noexcept {
  double sum = 0;
  for (std::size_t at = rows.begin[row]; at < rows.begin[row + 1]; ++at)
    sum += rows.value[at] * weights[rows.index[at]];
  return sum;
}

void add_row(const SparseRows& rows, std::size_t row, double factor, std::span<double> to) noexcept {
  for (std::size_t at = rows.begin[row]; at < rows.begin[row + 1]; ++at) to[rows.index[at]] += factor * rows.value[at];
}

double largest_singular_value2(const SparseRows& rows) {
  constexpr int kMostRounds = 1000;
  constexpr double kConverged = 1e-13;  // relative change in a round
  Draws draws(0, Use::noise);
  std::vector<double> x(rows.dim);
  for (double& entry : x) entry = draws.normal();  // so almost surely not orthogonal to the singular vector
  std::vector<double> next(x.size());
  double value = 0;
  for (int round = 0; round < kMostRounds; ++round) {
    const double length = std::sqrt(norm2(x));
    if (length == 0) return 0;  // all rows are 0
    for (double& entry : x) entry /= length;
    std::fill(next.begin(), next.end(), 0);
    double now = 0;  // ||A x||^2, which grows from round to round
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const double product = margin_of(rows, row, x);
      now += product * product;
      add_row(rows, row, product, next);
    }
    if (now - value <= kConverged * now) return now;
    value = now;
    x.swap(next);
  }
  return value;
}

}  // namespace sparsewire::train
