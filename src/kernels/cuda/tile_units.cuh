// Units of one tile each, such as chunks of 4096: a step is one launch. A block adds the gradient to its unit, finds
// the k-th entry, and takes the winners out, all in registers.
#pragma once

#include "kernels/cuda/unit_select.cuh"

namespace sparsewire::cuda {

struct TileUnitsArguments {
  float* memory;
  const void* gradient;
  Factors by;
  const UnitTile* tiles;  // one for each unit
  const Piece* pieces;
  const Bar* bars;  // for the factors
  const std::uint32_t* ks;
  const std::uint32_t* slots;  // where the winners of each unit are written; there is room for k
  double* norms;
  double* sent_norms;
  std::uint8_t* is_bad;
  unsigned long long* bad;  // the lowest index with a sum that is not finite
  std::uint32_t* counts;    // winners of each unit
  std::uint32_t* indices;
  float* values;
};

// How many ranks of the block are at least `least`. The `counts` of two calls in turn must differ.
__device__ inline std::uint32_t count_from(const std::uint32_t (&ranks)[kRows], std::uint32_t least,
                                           std::uint32_t (&counts)[kSlices]) {
  std::uint32_t count = 0;
#pragma unroll
  for (int row = 0; row < kRows; ++row) count += ranks[row] >= least ? 1 : 0;
  count = __reduce_add_sync(kAllLanes, count);
  if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = count;
  __syncthreads();
  count = 0;
#pragma unroll
  for (unsigned w = 0; w < kSlices; ++w) count += counts[w];
  return count;
}

// The bar that k entries of the block reach, or all that are not zero if they are fewer.
__device__ inline Bar find_bar(const std::uint32_t (&ranks)[kRows], std::uint32_t k,
                               std::uint32_t (&counts)[2][kSlices]) {
  if (count_from(ranks, 1, counts[0]) <= k) return {};
  std::uint32_t low = 1;  // more than k are at or above it
  std::uint32_t high = kInfinityKey + 1;
  std::uint32_t above = 0;  // that many are at or above `high`, fewer than k
  for (unsigned turn = 1; high - low > 1; turn ^= 1U) {
    const std::uint32_t middle = low + (high - low) / 2;
    const std::uint32_t count = count_from(ranks, middle, counts[turn]);
    if (count == k) return {middle - 1, 0, 1};
    if (count > k) {
      low = middle;
    } else {
      high = middle;
      above = count;
    }
  }
  return {low, k - above, 1};
}

template <class T>
__global__ void __launch_bounds__(kTileThreads) sift_tile_units(TileUnitsArguments a) {
  constexpr bool kHasGradient = !std::is_void_v<T>;
  __shared__ double slices[2][kSlices];
  __shared__ std::uint32_t counts[2][kSlices];
  __shared__ std::uint32_t ends[kSlices][2];
  const T* const gradient = static_cast<const T*>(a.gradient);
  const UnitTile tile = a.tiles[blockIdx.x];
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  float sum[kRows];
  std::uint32_t largest = 0;
  double lane_sum = 0;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    sum[row] = 0;
    if (offset_of(row) < tile.size) {
      const std::size_t at = index_in(tile, a.pieces, offset_of(row));
      sum[row] = a.memory[at];
      if constexpr (kHasGradient) sum[row] = accumulated(sum[row], number(gradient, at), a.by);
    }
    largest = max(largest, key(sum[row]));
    lane_sum += static_cast<double>(sum[row]) * static_cast<double>(sum[row]);
  }
  const bool is_bad = __syncthreads_or(largest >= kInfinityKey) != 0;
  const double norm = add_tile(lane_sum, slices[0]);
  if (threadIdx.x == 0) {
    a.norms[blockIdx.x] = norm;
    a.is_bad[blockIdx.x] = is_bad ? 1 : 0;
  }
  if (is_bad) {
    if (threadIdx.x == 0) a.counts[blockIdx.x] = 0;
    if constexpr (kHasGradient) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        if (offset_of(row) >= tile.size) continue;
        const std::size_t at = index_in(tile, a.pieces, offset_of(row));
        if (key(sum[row]) >= kInfinityKey) {
          atomicMin(a.bad, static_cast<unsigned long long>(at));
        } else {
          a.memory[at] = restored(sum[row], number(gradient, at), a.by);
        }
      }
    }
    return;
  }

  const float factor = a.bars[blockIdx.x].factor;
  const std::uint32_t k = a.ks[blockIdx.x];
  std::uint32_t ranks[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) ranks[row] = rank_of(sum[row], factor);
  const Bar bar = find_bar(ranks, k, counts);
  std::uint32_t aboves = 0;
  std::uint32_t equals = 0;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    aboves += ranks[row] > bar.rank ? 1 : 0;
    equals += ranks[row] == bar.rank && bar.quota > 0 ? 1 : 0;
  }
  aboves = __reduce_add_sync(kAllLanes, aboves);
  equals = __reduce_add_sync(kAllLanes, equals);
  if (lane == 0) {
    ends[warp][0] = aboves;
    ends[warp][1] = equals;
  }
  __syncthreads();
  std::uint32_t above = 0;
  std::uint32_t ties = 0;
  std::uint32_t total = bar.quota;
  for (unsigned w = 0; w < kSlices; ++w) {
    above += w < warp ? ends[w][0] : 0;
    ties += w < warp ? ends[w][1] : 0;
    total += ends[w][0];
  }
  const unsigned lower = (1U << lane) - 1;
  const std::uint32_t start = a.slots[blockIdx.x];
  lane_sum = 0;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const bool is_above = ranks[row] > bar.rank;
    const bool is_tie = ranks[row] == bar.rank && bar.quota > 0;
    const unsigned row_above = __ballot_sync(kAllLanes, is_above);
    const unsigned row_ties = __ballot_sync(kAllLanes, is_tie);
    const std::uint32_t tie = ties + static_cast<std::uint32_t>(__popc(row_ties & lower));
    const bool wins = is_above || (is_tie && tie < bar.quota);
    if (offset_of(row) < tile.size) {
      const std::size_t at = index_in(tile, a.pieces, offset_of(row));
      if (wins) {
        const std::uint32_t to =
            start + above + static_cast<std::uint32_t>(__popc(row_above & lower)) + min(tie, bar.quota);
        a.indices[to] = static_cast<std::uint32_t>(at);
        a.values[to] = sum[row];
        lane_sum += static_cast<double>(sum[row]) * static_cast<double>(sum[row]);
      }
      if (kHasGradient || wins) a.memory[at] = wins ? 0 : sum[row];
    }
    above += static_cast<std::uint32_t>(__popc(row_above));
    ties += static_cast<std::uint32_t>(__popc(row_ties));
  }
  const double sent_norm = add_tile(lane_sum, slices[1]);
  if (threadIdx.x == 0) {
    a.sent_norms[blockIdx.x] = sent_norm;
    a.counts[blockIdx.x] = total;
  }
}

// Puts the winners back, after a step that failed. One thread for each unit.
__global__ void put_tile_units_back(float* memory, std::uint32_t units, const std::uint32_t* slots,
                                    const std::uint32_t* counts, const std::uint32_t* indices, const float* values) {
  for_each_entry(units, [=](std::size_t u) {
    for (std::uint32_t i = slots[u]; i < slots[u] + counts[u]; ++i) memory[indices[i]] = values[i];
  });
}

}  // namespace sparsewire::cuda
