// The weighted sum of sparse vectors that are all there at once, in fixed memory: for workers, and for servers that
// keep no memory of their own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// Walks through the model in windows that fit into the cache. In each it adds up the entries of all vectors, in the
// order given, and then appends those that were touched to the result.
//
// COST: 264 kB, whatever the size of the model; O(entries + dim/64) time.
class Merger {
 public:
  Merger();

  // `total` becomes the sum over r of fl(weights[r] * vectors[r]), added in this order, each entry beginning with +0:
  // the entries that some vector has, also where the sum is zero; full if these are all. An empty `weights` stands for
  // ones. REQUIRES: valid vectors of dimension `dim`; as many weights as vectors, or none.
  void sum(std::uint64_t dim, std::span<const SparseVector> vectors, std::span<const float> weights,
           SparseVector& total);

 private:
  void sum_full(std::span<const SparseVector> vectors, std::span<const float> weights, SparseVector& total) const;

  std::vector<float> sums_;             // of a window; zero between windows
  std::vector<std::uint64_t> touched_;  // a bit for each entry of a window; zero between windows
  std::vector<std::size_t> next_;       // of each vector, the first entry after the window
};

}  // namespace sparsewire
