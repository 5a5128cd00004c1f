// Labelled samples of a linear model: for training, and apart from it for validation and for testing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/libsvm.h"
#include "problems/problem.h"

namespace sparsewire::train {

struct Samples {
  SparseRows rows;
  std::vector<std::uint32_t> label;  // of each row, from 0

  std::size_t size() const noexcept { return rows.size(); }
};

struct SampleSets {
  Samples train;
  Samples validation;  // no rows: there are none
  Samples test;
  std::uint32_t classes = 2;          // labels are below it
  std::string fingerprint = {};       // of the file; empty: there is none
  std::string test_fingerprint = {};  // of the file of test data

  const Samples& of(Part part) const noexcept {
    return part == Part::train ? train : part == Part::validation ? validation : test;
  }
};

struct LogregShape {
  std::uint64_t dim = 300;
  std::uint64_t samples = 2000;
  double density = 0.1;         // share of entries that are not 0
  double noise = 0.1;           // share of labels that are flipped
  double mean = 0;              // of the entries that are not 0
  std::uint64_t held_back = 0;  // samples besides, for testing
};

// Random rows with entries N(mean, 1), and labels 0 and 1 given by a model with weights N(0, 1).
SampleSets draw_samples(const LogregShape& shape, std::uint64_t seed);

// From LIBSVM files. Labels are numbered in ascending order: numbers before words, words by the alphabet. Test
// data may have only labels of the training data; features beyond those of the training data are left out, since they
// have no weights. `dim`: the number of features; 0: as many as the training data have, unless that are so many that
// the memory for their weights is out of proportion to the data. Throws UsageError, also if the training data have a
// single label.
SampleSets read_samples(const std::string& path, const std::string& test_path, std::uint32_t dim);

// Moves a share of the training samples to `validation`, as hold_back() says.
void hold_back_samples(SampleSets& sets, double share, std::uint64_t seed);

// Adds a feature to all samples that is always 1.
void add_intercept(SampleSets& sets);

}  // namespace sparsewire::train
