// Who serves which entries under `sharded`: fixed regions of equal size.
//
// Entries come in blocks of 16. Of each group of as many blocks as there are ranks every rank owns one, rotated by a
// hash of the group's number: hot layers and hot columns spread over all ranks, and no memory ever moves.
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

  // The index in the whole model of the entry `local` of a region. Ascends with `local`.
  std::uint32_t global(int region, std::uint32_t local) const noexcept;

  // parts[r] becomes what falls into region r, with indices of that region. Full vectors give full ones.
  void split(const SparseVector& whole, std::vector<SparseVector>& parts) const;
  // The way back for their values: `values` becomes those of `part_values` in the order of `whole`.
  void join(const SparseVector& whole, const std::vector<std::vector<float>>& part_values,
            std::vector<float>& values) const;

 private:
  struct Owner {
    std::uint32_t region;
    std::uint32_t local;
  };
  Owner owner_of(std::uint32_t index) const noexcept;
  std::uint32_t rotation(std::uint32_t group) const noexcept;

  std::uint64_t dim_;
  std::uint32_t ranks_;
};

}  // namespace sparsewire
