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

  // Reads where the candidates of the first part are. Returns how many the first kTileRoom tiles have.
  __device__ __forceinline__ std::uint32_t load_first() {
    if (tiles_ == 0) return 0;
    all_ = load_part(0);
    return s_.begin[min(tiles_, kTileRoom)];
  }

  // Gathers the first part, and keeps it if all candidates of the block fit. meanwhile() is called while they are on
  // their way, by all threads. REQUIRES: load_first().
  template <class Meanwhile>
  __device__ __forceinline__ void gather_first(Meanwhile meanwhile) {
    Entry first[kFirst];
#pragma unroll
    for (unsigned n = 0; n < kFirst; ++n) {
      const std::uint32_t i = n * kFinishThreads + threadIdx.x;
      if (i < all_.count) first[n] = entry(all_, i);
    }
    meanwhile();
#pragma unroll
    for (unsigned n = 0; n < kFirst; ++n) {
      const std::uint32_t i = n * kFinishThreads + threadIdx.x;
      if (i < all_.count) put(i, first[n]);
    }
    for (std::uint32_t i = kFirst * kFinishThreads + threadIdx.x; i < all_.count; i += kFinishThreads) {
      put(i, entry(all_, i));
    }
    __syncthreads();
    has_all_ = tiles_ > 0 && all_.end == tiles_;
  }

 private:
  struct Entry {
    std::uint32_t index;
    float value;
  };
  static constexpr unsigned kFirst = 3;  // entries that a thread reads at once: mostly it has no more

  // The part that begins with this tile: as many as there is room for.
  __device__ __forceinline__ Part load_part(std::uint32_t tile) {
    Part part{tile, min(tiles_, tile + kTileRoom), 0};
    for (std::uint32_t at = tile; at < part.end; at += kFinishThreads) {
      const std::uint32_t i = at + threadIdx.x;
      TileList list;
      if (i < part.end) list = a_.tiles[first_tile_ + i];
      const Scan counts = block_scan(list.count, s_);  // nobody reads another part any more
      if (i < part.end) {
        s_.begin[i - tile] = part.count + counts.through - list.count;
        s_.offset[i - tile] = list.offset;
      }
      part.count += counts.all;
    }
    if (threadIdx.x == 0) s_.begin[part.end - tile] = part.count;
    __syncthreads();
    if (part.count <= kListRoom<kBy>) return part;
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

  // Candidate number i of a part that is loaded.
  __device__ __forceinline__ Entry entry(const Part& part, std::uint32_t i) const {
    std::uint32_t low = 0;  // begin[low] <= i < begin[high]
    std::uint32_t high = part.end - part.tile;
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (s_.begin[middle] <= i ? low : high) = middle;
    }
    const std::uint32_t from = s_.offset[low] + (i - s_.begin[low]);
    return {a_.indices[from], a_.values[from]};
  }
  __device__ __forceinline__ void put(std::uint32_t i, const Entry& one) {
    s_.index[i] = one.index;
    s_.value[i] = one.value;
    if constexpr (kBy == By::score) s_.score[i] = a_.scores.key_of(one.index, one.value);
  }

  __device__ __forceinline__ Part gather(std::uint32_t tile) {
    if (has_all_) return all_;
    const Part part = load_part(tile);
    for (std::uint32_t i = threadIdx.x; i < part.count; i += kFinishThreads) put(i, entry(part, i));
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
