// The weighted sum of sparse vectors, in the order in which they come: who adds in rank order gets the same bits
// everywhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/pages.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

// COST: a float and a bit for each of `dim` entries; adding is O(entries), taking out O(entries + dim/64).
class Merger {
 public:
  explicit Merger(std::uint64_t dim);

  // sums[i] = fl(sums[i] + fl(weight * value)). REQUIRES: vector.dim == dim, valid.
  void add(const SparseVector& vector, float weight);

  // Zero where nothing was added.
  std::span<const float> sums() const noexcept { return sums_; }

  // The entries that were added to, zeros included, ascending; full if that is all of them.
  void copy_to(SparseVector& total) const;
  // Begins anew.
  void clear() noexcept;

 private:
  template <class Visit>
  void for_each(Visit&& visit) const;

  LongVector sums_;
  std::vector<std::uint64_t> touched_;  // a bit for each entry
  bool full_ = false;
};

}  // namespace sparsewire
