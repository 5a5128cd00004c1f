#include "train/margins.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "sparsewire/errors.h"
#include "train/random.h"

namespace sparsewire::train {
namespace {

// How many entries to leave out before the next one, if each is present with probability `density`.
std::uint64_t draw_gap(Draws& draws, double density) {
  constexpr double kMost = 0x1p40;  // longer than any row
  if (density >= 1) return 0;
  return static_cast<std::uint64_t>(std::min(kMost, std::log(1 - draws.uniform()) / std::log1p(-density)));
}

double norm2(std::span<const double> x) {
  double sum = 0;
  for (const double entry : x) sum += entry * entry;
  return sum;
}

}  // namespace

SparseRows draw_margin_rows(const LogregShape& shape, std::uint64_t seed) {
  Draws of_model(seed, Use::data, 0);
  std::vector<double> model(shape.dim);
  for (double& weight : model) weight = of_model.normal();
  SparseRows rows;
  rows.dim = static_cast<std::uint32_t>(shape.dim);
  for (std::uint64_t row = 0; row < shape.samples; ++row) {
    Draws draws(seed, Use::data, 1, row);
    const bool is_flipped = draws.uniform() < shape.noise;
    for (std::uint64_t i = draw_gap(draws, shape.density); i < shape.dim; i += 1 + draw_gap(draws, shape.density)) {
      rows.index.push_back(static_cast<std::uint32_t>(i));
      rows.value.push_back(shape.mean + draws.normal());
    }
    rows.begin.push_back(rows.index.size());
    // Times its label: the sign of the model's margin, or the opposite if it is flipped.
    if ((margin_of(rows, row, model) > 0) == is_flipped) {
      for (std::size_t at = rows.begin[row]; at < rows.index.size(); ++at) rows.value[at] = -rows.value[at];
    }
  }
  return rows;
}

MarginData read_margin_rows(const std::string& path) {
  LabelledRows data = read_libsvm(path);
  if (data.rows.size() == 0 || data.rows.dim == 0) throw UsageError(fmt::format("[logreg] '{}' holds no data", path));
  if (data.labels.size() > 2) {
    throw UsageError(fmt::format("[logreg] '{}' has {} different labels ('{}', '{}', '{}{}): it must have two", path,
                                 data.labels.size(), data.labels[0], data.labels[1], data.labels[2],
                                 data.labels.size() > 3 ? "', ..." : "'"));
  }
  SparseRows& rows = data.rows;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (data.label[row] + 1 == data.labels.size()) continue;
    for (std::size_t at = rows.begin[row]; at < rows.begin[row + 1]; ++at) rows.value[at] = -rows.value[at];
  }
  return {std::move(data.rows), std::move(data.fingerprint)};
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
