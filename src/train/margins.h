// The data of logistic regression, and what is computed from them: rows a_i, already multiplied by their labels -1 and
// +1, so that <a_i, x> is the margin of sample i.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "train/libsvm.h"
#include "train/logreg.h"

namespace sparsewire::train {

struct LogregShape {
  std::uint64_t dim = 300;
  std::uint64_t samples = 2000;
  double density = 0.1;  // share of entries that are not 0
  double noise = 0.1;    // share of labels that are flipped
  double mean = 0;       // of the entries that are not 0
};

// Random rows with entries N(mean, 1), and labels given by a model with weights N(0, 1).
SparseRows draw_margin_rows(const LogregShape& shape, std::uint64_t seed);
// From a LIBSVM file with at most two labels. Of two numbers the larger is +1, of two words the later one in the
// alphabet; a single label is +1. Throws UsageError.
struct MarginData {
  SparseRows rows;
  std::string fingerprint;  // of the file
};
MarginData read_margin_rows(const std::string& path);

double margin_of(const SparseRows& rows, std::size_t row, std::span<const double> weights) noexcept;
// to += factor * row.
void add_row(const SparseRows& rows, std::size_t row, double factor, std::span<double> to) noexcept;

// sigma_max(A)^2, by power iteration from a fixed start.
double largest_singular_value2(const SparseRows& rows);

// By Newton's method with conjugate gradients, starting at 0. REQUIRES: l2 > 0 and there are rows.
LogregOptimum minimise_logreg(const SparseRows& rows, double l2);

}  // namespace sparsewire::train
