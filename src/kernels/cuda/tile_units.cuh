// Units of one tile each, such as chunks of 4096: a warp adds the gradient to its unit, slice by slice, and takes the
// winners out. So a warp never waits for another one, and while some choose, others load.
//
// The k-th entry is guessed from the step before: what reaches a floor below it is written to shared memory, and the
// winners are chosen among that. If there are fewer than k, or many, the unit goes to a list, and a second launch
// searches the k-th in all its sums.
#pragma once

#include "kernels/cuda/unit_select.cuh"

namespace sparsewire::cuda {

// Units whose k-th entry must be searched.
struct UnitSearch {
  std::uint32_t count = 0;
  std::uint32_t done = 0;  // blocks that have finished
};

struct TileUnitsArguments {
  float* memory;
  const void* gradient;
  Factors by;
  std::uint32_t units;
  const UnitTile* tiles;  // one for each unit
  const Piece* pieces;
  const Bar* bars;  // for the factors
  const std::uint32_t* ks;
  const std::uint32_t* slots;  // where the winners of each unit are written; there is room for k
  std::uint32_t* floors;       // of each unit, a rank; 0: there is no guess
  float* margins;              // of the floors below the last k-th
  double* norms;
  TileList* lists;        // candidates; offset ~0: the tile has a sum that is not finite, and its entries are back
  Control* control;       // for the failure
  std::uint32_t* counts;  // winners of each unit
  std::uint32_t* indices;
  float* values;
  UnitSearch* search;
  std::uint32_t* searched;  // the units of the search
};

inline constexpr unsigned kUnitWarps = 4;   // in a block
inline constexpr unsigned kUnitBlocks = 8;  // in a multiprocessor
inline constexpr unsigned kUnitThreads = kUnitWarps * 32;
inline constexpr int kCandidateRows = 8;
inline constexpr std::uint32_t kMostCandidates = kCandidateRows * 32;

// The candidates of a unit, in ascending order.
struct TileCandidates {
  float values[kMostCandidates];
  std::uint16_t offsets[kMostCandidates];  // in the tile
};

// Brings the entries of a tile back, as kernels::make_round_trip(). The slices before `first` have their sums already.
template <class T>
__device__ __noinline__ void bring_tile_back(const TileUnitsArguments& a, std::uint32_t u, UnitTile tile,
                                             unsigned first) {
  if constexpr (!std::is_void_v<T>) {
    const unsigned lane = threadIdx.x % 32;
    if (lane == 0) {
      a.counts[u] = 0;
      a.lists[u] = {~0U, 0};
    }
    for (std::uint32_t offset = lane; offset < tile.size; offset += 32) {
      const std::size_t at = index_in(tile, a.pieces, offset);
      const float added = number(static_cast<const T*>(a.gradient), at);
      const float sum = offset < first * kSlice ? a.memory[at] : accumulated(a.memory[at], added, a.by);
      if (key(sum) >= kInfinityKey) {
        atomicMin(&a.control->failure.bad, static_cast<unsigned long long>(at));
      } else {
        a.memory[at] = restored(sum, added, a.by);
      }
    }
  }
}

// A unit as a warp sees it: one slice at a time. kWhole: it has 4096 consecutive entries.
template <class T, bool kWhole>
class WarpUnit {
 public:
  __device__ WarpUnit(const TileUnitsArguments& a, std::uint32_t u, const UnitTile& tile, TileCandidates& s)
      : a_(a), tile_(tile), s_(s), u_(u), lane_(threadIdx.x % 32), factor_(a.bars[u].factor), k_(a.ks[u]) {}

  __device__ __forceinline__ void sift() {
    const std::uint32_t floor = a_.floors[u_];
    const std::uint32_t wanted = floor == 0 ? ~0U : floor;
    const float margin = a_.margins[u_];
    const std::uint32_t start = a_.slots[u_];
    double slice_sum = 0;  // of the slice with the number of this lane
    for (unsigned slice = 0; slice < kSlices; ++slice) {
      if (!kWhole && slice * kSlice >= tile_.size) break;
      float sum[kRows];
      load(slice, sum);
      if (kHasGradient && is_bad(sum)) return bring_tile_back<T>(a_, u_, tile_, slice);
      double lane_sum = 0;
#pragma unroll
      for (int row = 0; row < kRows; ++row) lane_sum += static_cast<double>(sum[row]) * static_cast<double>(sum[row]);
#pragma unroll
      for (int half = 16; half > 0; half /= 2) lane_sum += __shfl_xor_sync(kAllLanes, lane_sum, half);
      if (lane_ == slice) slice_sum = lane_sum;
      keep(slice, sum, wanted);
    }
    const double norm = add_lanes<kSlices>(slice_sum);
    __syncwarp();
    const bool has_all = n_ >= k_ || floor == 1;  // all winners are candidates
    if (lane_ == 0) {
      a_.norms[u_] = norm;
      a_.lists[u_] = {0, n_};
    }
    if (!has_all || n_ > kMostCandidates) {
      if (lane_ == 0) a_.searched[atomicAdd(&a_.search->count, 1)] = u_;
      return;
    }
    const std::uint32_t kth = choose(start, floor);
    if (lane_ != 0) return;
    a_.counts[u_] = min(n_, k_);
    const float next = next_margin(margin, n_, k_);
    a_.margins[u_] = next;
    a_.floors[u_] = floor_below(kth, next);
  }

 private:
  __device__ __forceinline__ std::uint32_t offset(unsigned slice, int row) const {
    return slice * static_cast<unsigned>(kSlice) + static_cast<unsigned>(row) * 32 + lane_;
  }
  __device__ __forceinline__ bool inside(unsigned slice, int row) const {
    return kWhole || offset(slice, row) < tile_.size;
  }
  __device__ __forceinline__ std::size_t index(std::uint32_t at) const {
    return kWhole ? tile_.begin + at : index_in(tile_, a_.pieces, min(at, tile_.size - 1));
  }
  __device__ __forceinline__ void load(unsigned slice, float (&sum)[kRows]) const {
#pragma unroll
    for (int row = 0; row < kRows; ++row) sum[row] = a_.memory[index(offset(slice, row))];
    if constexpr (kHasGradient) {
      float added[kRows];
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        added[row] = number(static_cast<const T*>(a_.gradient), index(offset(slice, row)));
      }
#pragma unroll
      for (int row = 0; row < kRows; ++row) sum[row] = accumulated(sum[row], added[row], a_.by);
    }
    if constexpr (!kWhole) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) sum[row] = inside(slice, row) ? sum[row] : 0;
    }
  }
  __device__ __forceinline__ static bool is_bad(const float (&sum)[kRows]) {
    std::uint32_t largest = 0;
#pragma unroll
    for (int row = 0; row < kRows; ++row) largest = max(largest, key(sum[row]));
    return __any_sync(kAllLanes, largest >= kInfinityKey) != 0;
  }

  // Writes the sums to the memory, and what reaches the floor also to the candidates.
  __device__ __forceinline__ void keep(unsigned slice, const float (&sum)[kRows], std::uint32_t floor) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if (kHasGradient && inside(slice, row)) a_.memory[index(offset(slice, row))] = sum[row];
      const bool reaches = rank_of(sum[row], factor_) >= floor;
      const unsigned lanes = __ballot_sync(kAllLanes, reaches);
      if (lanes == 0) continue;
      const std::uint32_t to = n_ + count_before(lanes);
      if (reaches && to < kMostCandidates) {
        s_.values[to] = sum[row];
        s_.offsets[to] = static_cast<std::uint16_t>(offset(slice, row));
      }
      n_ += static_cast<std::uint32_t>(__popc(lanes));
    }
  }

  // Writes the k best candidates. Returns about the rank of the k-th, or 0 if there are fewer.
  __device__ __forceinline__ std::uint32_t choose(std::uint32_t start, std::uint32_t floor) {
    std::uint32_t ranks[kCandidateRows];
#pragma unroll
    for (int row = 0; row < kCandidateRows; ++row) {
      const std::uint32_t i = static_cast<unsigned>(row) * 32 + lane_;
      ranks[row] = i < n_ ? rank_of(s_.values[i], factor_) : 0;
    }
    const Bar bar = n_ > k_ ? find_bar(ranks, floor) : Bar{};
    std::uint32_t number = 0;  // of winners so far
    std::uint32_t ties = 0;
#pragma unroll
    for (int row = 0; row < kCandidateRows; ++row) {
      if (static_cast<unsigned>(row) * 32 >= n_) break;
      const std::uint32_t i = static_cast<unsigned>(row) * 32 + lane_;
      const bool is_tie = ranks[row] == bar.rank && bar.quota > 0;
      const unsigned row_ties = __ballot_sync(kAllLanes, is_tie);
      const bool wins = ranks[row] > bar.rank || (is_tie && ties + count_before(row_ties) < bar.quota);
      const unsigned winners = __ballot_sync(kAllLanes, wins);
      if (wins) {
        const std::uint32_t to = start + number + count_before(winners);
        const std::size_t at = index(s_.offsets[i]);
        a_.indices[to] = static_cast<std::uint32_t>(at);
        a_.values[to] = s_.values[i];
        a_.memory[at] = 0;
      }
      ties += static_cast<std::uint32_t>(__popc(row_ties));
      number += static_cast<std::uint32_t>(__popc(winners));
    }
    if (n_ > k_) return bar.rank;
    if (n_ < k_) return 0;
    std::uint32_t least = ~0U;
#pragma unroll
    for (int row = 0; row < kCandidateRows; ++row) least = min(least, ranks[row] - 1);  // those that are none: ~0
    return __reduce_min_sync(kAllLanes, least) + 1;
  }

  // The bar that k of more than k candidates reach. By bisection: few steps, as they stop when k are above.
  __device__ __forceinline__ Bar find_bar(const std::uint32_t (&ranks)[kCandidateRows], std::uint32_t floor) const {
    std::uint32_t highest = 0;
#pragma unroll
    for (int row = 0; row < kCandidateRows; ++row) highest = max(highest, ranks[row]);
    std::uint32_t low = floor;  // more than k are at or above it
    std::uint32_t high = __reduce_max_sync(kAllLanes, highest) + 1;
    std::uint32_t above = 0;  // that many are at or above `high`, fewer than k
    while (high - low > 1) {
      const std::uint32_t middle = low + (high - low) / 2;
      std::uint32_t count = 0;
#pragma unroll
      for (int row = 0; row < kCandidateRows; ++row) count += ranks[row] >= middle ? 1 : 0;
      count = __reduce_add_sync(kAllLanes, count);
      if (count == k_) return {middle - 1, 0, 1};
      if (count > k_) {
        low = middle;
      } else {
        high = middle;
        above = count;
      }
    }
    return {low, k_ - above, 1};
  }

  static constexpr bool kHasGradient = !std::is_void_v<T>;

  const TileUnitsArguments& a_;
  UnitTile tile_;
  TileCandidates& s_;
  std::uint32_t u_;
  unsigned lane_;
  float factor_;
  std::uint32_t k_;
  std::uint32_t n_ = 0;  // candidates
};

// Not inlined: it needs more registers, and they would be missing elsewhere.
template <class T>
__device__ __noinline__ void sift_part_of_tile(const TileUnitsArguments& a, std::uint32_t u, UnitTile tile,
                                               TileCandidates& s) {
  WarpUnit<T, false>(a, u, tile, s).sift();
}

// One warp for each unit.
template <class T>
__global__ void __launch_bounds__(kUnitThreads, kUnitBlocks)
    sift_tile_units(const __grid_constant__ TileUnitsArguments a) {
  __shared__ TileCandidates s[kUnitWarps];
  const std::uint32_t u = blockIdx.x * kUnitWarps + threadIdx.x / 32;
  if (u >= a.units) return;
  const UnitTile tile = a.tiles[u];
  const std::uint32_t ahead = u + kBlocksAhead * kUnitWarps;
  if (threadIdx.x == 0 && ahead < a.units) {
    prefetch(a.tiles + ahead);
    prefetch(a.bars + ahead);
    prefetch(a.ks + ahead);
    prefetch(a.slots + ahead);
    prefetch(a.floors + ahead);
    prefetch(a.margins + ahead);
  }
  if (tile.size == kTile && tile.pieces == 1) {
    WarpUnit<T, true>(a, u, tile, s[threadIdx.x / 32]).sift();
  } else {
    sift_part_of_tile<T>(a, u, tile, s[threadIdx.x / 32]);
  }
}

struct SearchShared {
  std::uint32_t counts[2][kSlices];
  std::uint32_t ends[kSlices][2];
};

// Takes the winners out of a unit whose sums are in the memory. One block.
__device__ inline void search_unit(const TileUnitsArguments& a, std::uint32_t u, SearchShared& s) {
  const UnitTile tile = a.tiles[u];
  const float factor = a.bars[u].factor;
  const std::uint32_t start = a.slots[u];
  std::uint32_t ranks[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const std::uint32_t offset = offset_of(row);
    ranks[row] = offset < tile.size ? rank_of(a.memory[index_in(tile, a.pieces, offset)], factor) : 0;
  }
  const Bar bar = find_bar(ranks, a.ks[u], 1, kInfinityKey, s.counts);
  std::uint32_t sent = for_each_winner(ranks, bar.rank, bar.quota, 0, s.ends, [&](int row, std::uint32_t number) {
    const std::size_t at = index_in(tile, a.pieces, offset_of(row));
    const float value = a.memory[at];
    a.indices[start + number] = static_cast<std::uint32_t>(at);
    a.values[start + number] = value;
    a.memory[at] = 0;
  });
  sent += bar.quota;
  if (threadIdx.x == 0) {
    constexpr float kFirstMargin = 0.12F;
    const float margin = a.floors[u] == 0 ? kFirstMargin : next_margin(a.margins[u], a.lists[u].count, a.ks[u]);
    a.counts[u] = sent;
    a.margins[u] = margin;
    a.floors[u] = floor_below(bar.rank, margin);
  }
  __syncthreads();
}

inline constexpr std::uint32_t kSearchBlocks = 1024;

// The units whose winners are not among few candidates. Any number of blocks.
static __global__ void __launch_bounds__(kTileThreads) search_tile_units(const __grid_constant__ TileUnitsArguments a) {
  __shared__ SearchShared s;
  const std::uint32_t count = a.search->count;
  for (std::uint32_t i = blockIdx.x; i < count; i += gridDim.x) search_unit(a, a.searched[i], s);
  if (threadIdx.x == 0 && atomicAdd(&a.search->done, 1) == gridDim.x - 1) *a.search = {};
}

// Puts the winners back, after a step that failed. One thread for each unit.
__global__ void put_tile_units_back(float* memory, std::uint32_t units, const std::uint32_t* slots,
                                    const std::uint32_t* counts, const std::uint32_t* indices, const float* values) {
  for_each_entry(units, [=](std::size_t u) {
    for (std::uint32_t i = slots[u]; i < slots[u] + counts[u]; ++i) memory[indices[i]] = values[i];
  });
}

}  // namespace sparsewire::cuda
