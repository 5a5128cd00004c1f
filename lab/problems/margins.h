// The data of logistic regression, and what is computed from them: rows a_i, already multiplied by their labels -1 and
// +1, so that <a_i, x> is the margin of sample i.
#pragma once

#include <cstdint>
#include <span>

#include "data/libsvm.h"
#include "problems/logreg.h"
#include "problems/samples.h"

namespace sparsewire::train {

// The rows of samples with labels 0 and 1, which become -1 and +1.
SparseRows margin_rows(const Samples& samples);

double margin_of(const SparseRows& rows, std::size_t row, std::span<const double> weights) noexcept;
// to += factor * row.
void add_row(const SparseRows& rows, std::size_t row, double factor, std::span<double> to) noexcept;

// sigma_max(A)^2, by power iteration from a fixed start.
double largest_singular_value2(const SparseRows& rows);

// By Newton's method with conjugate gradients, starting at 0. REQUIRES: l2 > 0 and there are rows.
LogregOptimum minimise_logreg(const SparseRows& rows, double l2);

}  // namespace sparsewire::train
