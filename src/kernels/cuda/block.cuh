// What the threads of a warp or of a block do together, in several kernels.
#pragma once

#include "kernels/cuda/tile.cuh"

namespace sparsewire::cuda {

// Of the lanes given by a ballot, those before this one.
__device__ inline std::uint32_t count_before(unsigned lanes) {
  return static_cast<std::uint32_t>(__popc(lanes & ((1U << threadIdx.x % 32) - 1)));
}

// ++bins[bin] for every lane that counts. Many are equal in their first digits: one adds for all lanes that have the
// same bin. REQUIRES: all lanes call it.
__device__ inline void count_in_bin(std::uint32_t* bins, std::uint32_t bin, bool counts) {
  const unsigned same = __match_any_sync(kAllLanes, counts ? bin : ~0U);
  if (counts && count_before(same) == 0) atomicAdd(bins + bin, static_cast<std::uint32_t>(__popc(same)));
}

// The sum of a number over the block, in `total`, which is shared. All threads get it.
__device__ inline std::uint32_t add_block(std::uint32_t number, std::uint32_t& total) {
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  number = __reduce_add_sync(kAllLanes, number);
  if (threadIdx.x % 32 == 0) atomicAdd(&total, number);
  __syncthreads();
  return total;
}

// Calls f(row, number) for each entry of a thread that is sent: those with a rank above the bar, and those equal to it
// as long as fewer than `quota` come before them. `number`: how many of the tile come before it. ties_before: entries
// equal to the bar in tiles before this one. Returns how many entries of the tile are above the bar. REQUIRES: all
// threads of the block call it, and the rows of a warp follow on those of the warp before; `counts` is shared; ranks
// equal to the bar count only if quota > 0.
template <int kCount, unsigned kWarps, class F>
__device__ __forceinline__ std::uint32_t for_each_winner(const std::uint32_t (&ranks)[kCount], std::uint32_t bar,
                                                         std::uint32_t quota, std::uint32_t ties_before,
                                                         std::uint32_t (&counts)[kWarps][2], F f) {
  const unsigned warp = threadIdx.x / 32;
  std::uint32_t aboves = 0;
  std::uint32_t equals = 0;
#pragma unroll
  for (int row = 0; row < kCount; ++row) {
    aboves += ranks[row] > bar ? 1 : 0;
    equals += ranks[row] == bar && quota > 0 ? 1 : 0;
  }
  aboves = __reduce_add_sync(kAllLanes, aboves);
  equals = __reduce_add_sync(kAllLanes, equals);
  if (threadIdx.x % 32 == 0) {
    counts[warp][0] = aboves;
    counts[warp][1] = equals;
  }
  __syncthreads();
  std::uint32_t above = 0;
  std::uint32_t ties = ties_before;
  std::uint32_t total = 0;
#pragma unroll
  for (unsigned w = 0; w < kWarps; ++w) {
    above += w < warp ? counts[w][0] : 0;
    ties += w < warp ? counts[w][1] : 0;
    total += counts[w][0];
  }
  const std::uint32_t sent_before = min(ties_before, quota);
#pragma unroll
  for (int row = 0; row < kCount; ++row) {
    const bool is_above = ranks[row] > bar;
    const bool is_tie = ranks[row] == bar && quota > 0;
    const unsigned row_above = __ballot_sync(kAllLanes, is_above);
    const unsigned row_ties = __ballot_sync(kAllLanes, is_tie);
    const std::uint32_t tie = ties + count_before(row_ties);
    if (is_above || (is_tie && tie < quota)) f(row, above + count_before(row_above) + min(tie, quota) - sent_before);
    above += static_cast<std::uint32_t>(__popc(row_above));
    ties += static_cast<std::uint32_t>(__popc(row_ties));
  }
  return total;
}

}  // namespace sparsewire::cuda
