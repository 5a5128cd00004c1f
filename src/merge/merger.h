// The weighted sum of sparse vectors that are all there at once, in fixed memory: for workers, and for servers that
// keep no memory of their own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "kernels/merge.h"
#include "sparsewire/pool.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// Walks through the model in windows that fit into the cache (kernels/merge.h). With a pool each thread has a range of
// the model, with about as many entries as the others: it sums them up, and copies the sums to their place in the
// result. No sum depends on where the ranges begin.
//
// COST: 16 kB for each thread, and room for the entries of all vectors; O(entries + dim/64) time.
class Merger {
 public:
  explicit Merger(Pool* pool = nullptr);

  // `total` becomes the sum over r of fl(weights[r] * vectors[r]), added in this order, each entry beginning with +0:
  // the entries that some vector has, also where the sum is zero; full if these are all. An empty `weights` stands for
  // ones. REQUIRES: valid vectors of dimension `dim`; as many weights as vectors, or none.
  void sum(std::uint64_t dim, std::span<const SparseVector> vectors, std::span<const float> weights,
           SparseVector& total);

  // The same, each sum divided by the sum of the weights of the vectors that have the entry, also where its value is 0:
  // the mean over those who sent it, or 0 where they have no weight.
  void mean_of_senders(std::uint64_t dim, std::span<const SparseVector> vectors, std::span<const float> weights,
                       SparseVector& mean);
  // The second half of that.
  void divide_by_senders(std::span<const SparseVector> vectors, std::span<const float> weights, SparseVector& sum);

  // The same as sum() without weights. REQUIRES: no entry is in two vectors. So the place of every entry in the result
  // is known before, and needs no copy.
  void unite(std::uint64_t dim, std::span<const SparseVector> vectors, SparseVector& total);

 private:
  // What one thread sums.
  struct Part {
    std::uint64_t begin = 0;  // of its range of the model
    std::size_t first = 0;    // entries of all vectors before the range
    std::vector<kernels::Addend> addends;
    kernels::MergeWindow window;
    Buffer<std::uint32_t> indices;  // of the sums
    Buffer<float> values;
    std::size_t size = 0;   // of the sums
    std::size_t place = 0;  // in the result
  };

  void cut(std::uint64_t dim, std::span<const SparseVector> vectors, std::span<const float> weights,
           std::size_t entries);
  void sum_full(std::span<const SparseVector> vectors, std::span<const float> weights, SparseVector& total);
  template <class Work>
  void for_each_part(Work work);

  Pool* pool_;
  std::vector<Part> parts_;  // one for each thread
  std::size_t used_ = 1;     // parts of the sum at hand
};

}  // namespace sparsewire
