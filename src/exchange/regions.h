// Which rank serves which entries under `sharded`: fixed regions of almost equal size.
//
// The model is cut into blocks of 16 entries, and the blocks into groups of as many blocks as there are ranks. Each
// rank owns one block of each group; which one is rotated by a hash of the group's number. So layers and columns with
// large gradients spread over all ranks, and an entry never changes its owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "kernels/regions.h"
#include "sparsewire/pool.h"
#include "sparsewire/sparse_vector.h"

namespace sparsewire {

class Regions {
 public:
  // REQUIRES: 1 <= ranks <= 65536, dim < 2^32. With a pool, its threads split and join.
  Regions(std::uint64_t dim, int ranks, Pool* pool = nullptr);

  // Entries of a region.
  std::uint64_t size(int region) const noexcept;

  // The index in the model of the entry `local` of a region. Ascends with `local`.
  std::uint32_t global(int region, std::uint32_t local) const noexcept;
  // Replaces the indices of `part`, which are those of a region, by those of the model. A full part gets indices.
  void make_global(int region, SparseVector& part) const;

  // parts[r] becomes the entries of region r, with indices of that region. The parts of a full vector are full.
  void split(const SparseVector& whole, std::vector<SparseVector>& parts);
  // The inverse for values: `values` becomes those of `part_values`, in the order of the entries of the vector that
  // was split last. REQUIRES: as many values of each part as that part has entries.
  void join(const std::vector<std::vector<float>>& part_values, std::vector<float>& values);

  // Whether each part has all entries of its region, in the form of a full vector.
  bool are_full(std::span<const SparseVector> parts) const noexcept;
  // The inverse of split() for full parts: `whole` becomes full, with +0 where a part has -0 (as in a sum, which begins
  // with +0). REQUIRES: are_full(parts).
  void unite_full(std::span<const SparseVector> parts, SparseVector& whole) const;

 private:
  // Between the counts of two threads: no cache line has both.
  std::size_t stride() const noexcept { return map_.ranks() + 16; }
  template <class Slice>
  void for_each_slice_of_split(Slice slice);
  template <class Work>
  void for_each_block(Work work) const;
  void split_full(const SparseVector& whole, std::vector<SparseVector>& parts);

  std::uint64_t dim_;
  kernels::RegionMap map_;
  std::vector<std::uint64_t> sizes_;
  Pool* pool_;
  Buffer<std::uint16_t> region_of_;  // each entry that was split last
  Buffer<std::uint32_t> locals_;     // their indices in the regions
  std::size_t split_size_ = 0;
  bool split_full_ = false;              // the vector that was split last was full
  std::vector<std::size_t> begins_;      // of each thread's entries in each part
  std::vector<std::size_t> next_;        // scratch: the entry of each part that comes next
  std::vector<std::uint32_t*> indices_;  // of the parts
  std::vector<float*> values_;
};

}  // namespace sparsewire
