// Which rank serves which entries under `sharded`: fixed regions of almost equal size.
//
// The model is cut into blocks of 16 entries, and the blocks into groups of as many blocks as there are ranks. Each
// rank owns one block of each group; which one is rotated by a hash of the group's number. So layers and columns with
// large gradients spread over all ranks, and an entry never changes its owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sparsewire/sparse_vector.h"

namespace sparsewire {

class Regions {
 public:
  Regions(std::uint64_t dim, int ranks);

  // Entries of a region.
  std::uint64_t size(int region) const noexcept;

  // The index in the model of the entry `local` of a region. Ascends with `local`.
  std::uint32_t global(int region, std::uint32_t local) const noexcept;

  // parts[r] becomes the entries of region r, with indices of that region. The parts of a full vector are full.
  void split(const SparseVector& whole, std::vector<SparseVector>& parts) const;
  // The inverse for values: `values` becomes those of `part_values`, in the order of the entries of `whole`.
  void join(const SparseVector& whole, const std::vector<std::vector<float>>& part_values, std::vector<float>& values);

 private:
  struct Owner {
    std::uint32_t region;
    std::uint32_t local;
  };
  Owner owner_of(std::uint32_t index) const noexcept;
  std::uint32_t rotation(std::uint32_t group) const noexcept;

  std::uint64_t dim_;
  std::uint32_t ranks_;
  std::vector<std::size_t> next_;  // for join(), which would otherwise allocate in every step
};

}  // namespace sparsewire
