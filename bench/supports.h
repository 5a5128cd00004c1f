// Supports and values of many kinds, for the table of --wire. The same on every machine that has the same standard
// library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sparsewire/sparse_vector.h"

namespace sparsewire::bench {

using Indices = std::vector<std::uint32_t>;

Indices random_support(std::size_t n, std::size_t k);
// Runs of `shortest` to `longest` neighbours.
Indices runs(std::size_t n, std::size_t k, std::size_t shortest, std::size_t longest);
// Rows of a table with 30 % of their entries chosen, as in the gradient of a word embedding; no entry in the other
// rows.
Indices hot_rows(std::size_t n, std::size_t k);
// All entries of some columns of the table.
Indices hot_columns(std::size_t n, std::size_t k);

// A support whose density is known at each place.
struct KnownSupport {
  Indices indices;
  double entropy = 0;  // of the generator, in bits for each entry
};

// 20 segments, with densities that are log-uniform over two decades, and `ratio` on average: drawn at random, or evenly
// spaced. Of so few draws the entropy depends much on the draw.
enum class Spacing : std::uint8_t { random, even };
KnownSupport layers(std::size_t n, double ratio, Spacing spacing);
// Rows of 512: 2 % of them at a density of 40 %, the others at 0.2 %. About 1 % in all.
KnownSupport rows(std::size_t n);

// The 1 % of n numbers that are largest. Standard normal numbers; or Student's t, in 20 layers with scales
// that are log-uniform in [1/e, e].
SparseVector largest_of_normal(std::size_t n);
SparseVector largest_of_student(std::size_t n, int degrees);

}  // namespace sparsewire::bench
