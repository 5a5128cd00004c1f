#include "problems/samples.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/hold_back.h"
#include "data/random.h"
#include "problems/margins.h"
#include "sparsewire/errors.h"
#include "sparsewire/support/portable_math.h"
#include "text/number.h"

namespace sparsewire::train {
namespace {

// How many entries to leave out before the next one, if each is present with probability `density`.
std::uint64_t draw_gap(Draws& draws, double density) {
  constexpr double kMost = 0x1p40;  // longer than any row
  if (density >= 1) return 0;
  return static_cast<std::uint64_t>(std::min(kMost, portable_log(1 - draws.uniform()) / portable_log1p(-density)));
}

void append_row(const Samples& from, std::size_t row, Samples& to) {
  const auto indices = from.rows.indices(row);
  const auto values = from.rows.values(row);
  to.rows.index.insert(to.rows.index.end(), indices.begin(), indices.end());
  to.rows.value.insert(to.rows.value.end(), values.begin(), values.end());
  to.rows.begin.push_back(to.rows.index.size());
  to.label.push_back(from.label[row]);
}

Samples pick(const Samples& from, std::span<const std::uint32_t> rows) {
  Samples picked;
  picked.rows.dim = from.rows.dim;
  for (const std::uint32_t row : rows) append_row(from, row, picked);
  return picked;
}

// Without the features from `dim` on.
Samples narrowed(const Samples& from, std::uint32_t dim) {
  Samples narrow;
  narrow.rows.dim = dim;
  for (std::size_t row = 0; row < from.size(); ++row) {
    const auto indices = from.rows.indices(row);
    const auto kept = std::lower_bound(indices.begin(), indices.end(), dim) - indices.begin();
    narrow.rows.index.insert(narrow.rows.index.end(), indices.begin(), indices.begin() + kept);
    const auto values = from.rows.values(row);
    narrow.rows.value.insert(narrow.rows.value.end(), values.begin(), values.begin() + kept);
    narrow.rows.begin.push_back(narrow.rows.index.size());
  }
  narrow.label = from.label;
  return narrow;
}

// A file for regression has a label for nearly every row.
void check_classes(const std::vector<std::string>& labels, const std::string& path) {
  for (const std::string& label : labels) {
    const std::string_view digits = label.starts_with('+') ? std::string_view(label).substr(1) : label;
    const auto number = parse_number<double>(digits);
    if (!number || *number == std::floor(*number)) continue;
    throw UsageError(
        fmt::format("[logreg] '{}' has {} different labels, and one of them is {}: more than two must be whole numbers "
                    "or words, which name classes",
                    path, labels.size(), label));
  }
}

// The weights are dense, and a line of 24 bytes may have feature 200,000,000. Public data sets have more entries than
// weights, or not many weights.
void check_dim(const SampleSets& sets, const std::string& path) {
  constexpr std::uint64_t kAlwaysAllowed = 1 << 22;
  constexpr std::uint64_t kWeightsPerEntry = 8;
  const SparseRows& rows = sets.train.rows;
  const std::uint64_t weights = std::uint64_t{rows.dim} * (sets.classes > 2 ? sets.classes : 1);
  if (weights <= std::max<std::uint64_t>(kAlwaysAllowed, kWeightsPerEntry * rows.index.size())) return;
  throw UsageError(
      fmt::format("[logreg] '{}' has a feature {}, which needs {} weights, and only {} entries; if that is meant, say "
                  "it with logreg:dim={}",
                  path, rows.dim, weights, rows.index.size(), rows.dim));
}

}  // namespace

SampleSets draw_samples(const LogregShape& shape, std::uint64_t seed) {
  Draws of_model(seed, Use::data, 0);
  std::vector<double> model(shape.dim);
  for (double& weight : model) weight = of_model.normal();
  SampleSets sets;
  for (Samples* samples : {&sets.train, &sets.test}) samples->rows.dim = static_cast<std::uint32_t>(shape.dim);
  for (std::uint64_t number = 0; number < shape.samples + shape.held_back; ++number) {
    Samples& samples = number < shape.samples ? sets.train : sets.test;
    SparseRows& rows = samples.rows;
    Draws draws(seed, Use::data, 1, number);
    const bool is_flipped = draws.uniform() < shape.noise;
    for (std::uint64_t i = draw_gap(draws, shape.density); i < shape.dim; i += 1 + draw_gap(draws, shape.density)) {
      rows.index.push_back(static_cast<std::uint32_t>(i));
      rows.value.push_back(shape.mean + draws.normal());
    }
    rows.begin.push_back(rows.index.size());
    // The sign of the model's margin, or the opposite if it is flipped.
    samples.label.push_back((margin_of(rows, rows.size() - 1, model) > 0) != is_flipped ? 1 : 0);
  }
  return sets;
}

SampleSets read_samples(const std::string& path, const std::string& test_path, std::uint32_t dim) {
  LabelledRows data = read_libsvm(path);
  if (data.rows.size() == 0) throw UsageError(fmt::format("[logreg] '{}' holds no data", path));
  if (data.rows.dim == 0) {
    throw UsageError(
        fmt::format("[logreg] '{}' holds {} samples, and none has a feature (index:value)", path, data.rows.size()));
  }
  if (data.labels.size() == 1) {
    throw UsageError(
        fmt::format("[logreg] all {} samples of '{}' have the label '{}': training needs at least two labels",
                    data.rows.size(), path, data.labels[0]));
  }
  SampleSets sets{.train = {std::move(data.rows), std::move(data.label)}, .validation = {}, .test = {}};
  sets.fingerprint = std::move(data.fingerprint);
  sets.classes = static_cast<std::uint32_t>(data.labels.size());
  if (sets.classes > 2) check_classes(data.labels, path);
  if (dim == 0) {
    check_dim(sets, path);
  } else if (sets.train.rows.dim > dim) {
    throw UsageError(fmt::format("[logreg] '{}' has a feature {}, more than dim={}", path, sets.train.rows.dim, dim));
  } else {
    sets.train.rows.dim = dim;
  }
  if (test_path.empty()) return sets;

  LabelledRows test = read_libsvm(test_path);
  if (test.rows.size() == 0) throw UsageError(fmt::format("[logreg] '{}' holds no data", test_path));
  number_as(data.labels, test, test_path);
  sets.test = narrowed({std::move(test.rows), std::move(test.label)}, sets.train.rows.dim);
  sets.test_fingerprint = std::move(test.fingerprint);
  return sets;
}

void hold_back_samples(SampleSets& sets, double share, std::uint64_t seed) {
  if (share == 0) return;
  const HeldBack parts = hold_back(sets.train.size(), share, seed);
  sets.validation = pick(sets.train, parts.validation);
  sets.train = pick(sets.train, parts.training);
}

void add_intercept(SampleSets& sets) {
  const std::uint32_t dim = sets.train.rows.dim;
  for (Samples* samples : {&sets.train, &sets.validation, &sets.test}) {
    Samples wider;
    for (std::size_t row = 0; row < samples->size(); ++row) {
      append_row(*samples, row, wider);
      wider.rows.index.push_back(dim);
      wider.rows.value.push_back(1);
      ++wider.rows.begin.back();
    }
    wider.rows.dim = dim + 1;
    *samples = std::move(wider);
  }
}

}  // namespace sparsewire::train
