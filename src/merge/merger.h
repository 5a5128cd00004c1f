// The weighted sum of sparse vectors, added in the order of the calls: adding in rank order gives the same bits on
// every rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/pages.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// COST: memory of a float and a bit for each of `dim` entries; add() is O(entries), copy_to() and clear() are
// O(entries + dim/64).
class Merger {
 public:
  explicit Merger(std::uint64_t dim);

  // sums[i] = fl(sums[i] + fl(weight * value)). REQUIRES: vector.dim == dim, valid.
  void add(const SparseVector& vector, float weight);

  // All sums; zero where nothing was added.
  std::span<const float> sums() const noexcept { return sums_; }

  // `total` becomes the entries to which something was added, also where the sum is zero; full if these are all.
  void copy_to(SparseVector& total) const;
  // Sets all sums to zero.
  void clear() noexcept;

 private:
  template <class Visit>
  void for_each(Visit&& visit) const;

  LongVector sums_;
  std::vector<std::uint64_t> touched_;  // a bit for each entry to which something was added
  bool full_ = false;                   // a full vector was added: all entries are touched
};

}  // namespace sparsewire
