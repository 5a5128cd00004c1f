// The candidates of a block of the kernel that finishes a step, in shared memory.
//
// Each block has some consecutive tiles. Their candidates are gathered in ascending order; where there are more than
// fit, they are gathered part by part, again in each phase.
#pragma once

#include "kernels/cuda/finish_block.cuh"

namespace sparsewire::cuda {

// Some of the block's candidates, in shared memory.
struct Part {
  std::uint32_t tile = 0;  // the first, and the one after the last, of the block
  std::uint32_t end = 0;
  std::uint32_t count = 0;
};

template <By kBy>
class BlockCandidates {
 public:
  __device__ BlockCandidates(const FinishArguments& a, FinishShared<kBy>& s) : a_(a), s_(s) {
    first_tile_ = std::size_t{blockIdx.x} * a.tiles_per_block;
    if (first_tile_ < a.tiles_count) {
      tiles_ = static_cast<std::uint32_t>(min(a.tiles_count - first_tile_, std::size_t{a.tiles_per_block}));
    }
  }

  // The tiles of the block.
  __device__ std::size_t first_tile() const { return first_tile_; }
  __device__ std::uint32_t tiles() const { return tiles_; }

  // Calls f(part) for all candidates of the block, with one part after the other in shared memory.
  template <class F>
  __device__ __forceinline__ void for_each_part(F f) {
    for (std::uint32_t tile = 0; tile < tiles_;) {
      const Part part = gather(tile);
      f(part);
      tile = part.end;
    }
  }

  // By what candidate number i of the part is compared first: its magnitude, or its score.
  __device__ std::uint32_t rank(std::uint32_t i) const {
    if constexpr (kBy == By::score) return s_.score[i];
    return key(s_.value[i]);
  }

  // If all candidates of the block fit, they are gathered once.
  __device__ __forceinline__ void gather_first() {
    if (tiles_ == 0) return;
    all_ = gather(0);
    has_all_ = all_.end == tiles_;
  }

 private:
  // The part that begins with this tile: as many as there is room for.
  __device__ __forceinline__ Part load_part(std::uint32_t tile) {
    Part part{tile, min(tiles_, tile + kTileRoom), 0};
    std::uint32_t before = 0;
    __syncthreads();
    for (std::uint32_t at = tile; at < part.end; at += kFinishThreads) {
      const std::uint32_t i = at + threadIdx.x;
      TileList list;
      if (i < part.end) list = a_.tiles[first_tile_ + i];
      const std::uint32_t through = before + block_scan(list.count, s_);
      if (i < part.end) {
        s_.begin[i - tile] = through - list.count;
        s_.offset[i - tile] = list.offset;
      }
      if (threadIdx.x == kFinishThreads - 1) s_.found[0] = through;
      __syncthreads();
      before = s_.found[0];
    }
    if (threadIdx.x == 0) s_.begin[part.end - tile] = before;
    __syncthreads();
    std::uint32_t low = 1;
    std::uint32_t high = part.end - tile + 1;
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (s_.begin[middle] <= kListRoom<kBy> ? low : high) = middle;
    }
    part.end = tile + low;
    part.count = s_.begin[low];
    return part;
  }

  __device__ __forceinline__ Part gather(std::uint32_t tile) {
    if (has_all_) return all_;
    const Part part = load_part(tile);
    for (std::uint32_t i = threadIdx.x; i < part.count; i += kFinishThreads) {
      std::uint32_t low = 0;  // begin[low] <= i < begin[high]
      std::uint32_t high = part.end - tile;
      while (high - low > 1) {
        const std::uint32_t middle = (low + high) / 2;
        (s_.begin[middle] <= i ? low : high) = middle;
      }
      const std::uint32_t from = s_.offset[low] + (i - s_.begin[low]);
      s_.index[i] = a_.indices[from];
      s_.value[i] = a_.values[from];
      if constexpr (kBy == By::score) s_.score[i] = a_.scores.key_of(s_.index[i], s_.value[i]);
    }
    __syncthreads();
    return part;
  }

  const FinishArguments& a_;
  FinishShared<kBy>& s_;
  std::size_t first_tile_ = 0;
  std::uint32_t tiles_ = 0;
  Part all_;
  bool has_all_ = false;
};

}  // namespace sparsewire::cuda
