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

// The sum of what the lanes of a warp have of each slice, in the order of kernels/norm.h: lane i and i + 16, i + 8,
// ..., then slice i and i + 4, i + 2, i + 1. All lanes get it. Lanes divide the slices among them, so that each adds
// one of two numbers, not both.
__device__ __forceinline__ double add_slices(const double (&sum)[kSlices]) {
  const unsigned lane = threadIdx.x % 32;
  double four[4];  // slices 0 to 3, or 4 to 7 in lanes from 16 on
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const bool is_upper = (lane & 16U) != 0;
    const double other = __shfl_xor_sync(kAllLanes, is_upper ? sum[i] : sum[i + 4], 16);
    four[i] = (is_upper ? sum[i + 4] : sum[i]) + other;
  }
  double two[2];
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    const bool is_upper = (lane & 8U) != 0;
    const double other = __shfl_xor_sync(kAllLanes, is_upper ? four[i] : four[i + 2], 8);
    two[i] = (is_upper ? four[i + 2] : four[i]) + other;
  }
  const bool is_upper = (lane & 4U) != 0;
  double one = (is_upper ? two[1] : two[0]) + __shfl_xor_sync(kAllLanes, is_upper ? two[0] : two[1], 4);
  one += __shfl_xor_sync(kAllLanes, one, 2);
  one += __shfl_xor_sync(kAllLanes, one, 1);
  one += __shfl_xor_sync(kAllLanes, one, 16);  // lanes 4 and more apart have different slices now
  one += __shfl_xor_sync(kAllLanes, one, 8);
  return one + __shfl_xor_sync(kAllLanes, one, 4);
}

// An entry that may be sent, for square_few().
struct MaybeSent {
  bool is_sent = false;
  std::uint32_t offset = 0;  // in its tile
  float value = 0;
};

// The sum of the squares of a tile of which few entries are sent: those of entry(begin) to entry(end - 1), in ascending
// order. Each square goes to its slice and lane, those of one lane in order (kernels/norm.h). By one warp; lane 0 gets
// it. `squares`: shared, kSlices * 32 of them for each warp.
template <class Entry>
__device__ __forceinline__ double square_few(std::uint32_t begin, std::uint32_t end, double* squares, Entry entry) {
  if (begin >= end) return 0;
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (unsigned i = 0; i < kSlices; ++i) squares[i * 32 + lane] = 0;
  __syncwarp();
  for (std::uint32_t at = begin; at < end; at += 32) {
    MaybeSent one;
    if (at + lane < end) one = entry(at + lane);
    const unsigned place = one.is_sent ? one.offset / static_cast<unsigned>(kSlice) * 32 + one.offset % 32 : ~lane;
    const unsigned same = __match_any_sync(kAllLanes, place);
    const std::uint32_t turn = count_before(same);
    for (std::uint32_t t = 0; __any_sync(kAllLanes, one.is_sent && t <= turn); ++t) {
      if (one.is_sent && t == turn) squares[place] += static_cast<double>(one.value) * static_cast<double>(one.value);
      __syncwarp();
    }
  }
  double sum[kSlices];
#pragma unroll
  for (unsigned i = 0; i < kSlices; ++i) sum[i] = squares[i * 32 + lane];
  __syncwarp();
  return add_slices(sum);
}

// The same by one thread, of at most kVeryFew entries; by a warp it takes as long for 1 as for 32. `sums`: shared, for
// each thread of a block of kThreads eight numbers, kThreads apart, from this one on.
//
// The sum is a tree (kernels/norm.h) of 256 lanes, of which nearly all are 0, and adding 0 changes nothing. So the
// entries are brought into the order of its leaves, and two neighbours meet where their numbers first differ.
inline constexpr unsigned kVeryFew = 12;
template <unsigned kThreads, class Entry>
__device__ __forceinline__ double square_very_few(std::uint32_t begin, std::uint32_t end, double* sums, Entry entry) {
  constexpr std::uint32_t kNone = ~0U;
  std::uint32_t order[kVeryFew];  // number of the leaf, then of the entry
#pragma unroll
  for (unsigned i = 0; i < kVeryFew; ++i) {
    order[i] = kNone;
    if (begin + i >= end) continue;
    const MaybeSent one = entry(begin + i);
    const std::uint32_t leaf = __brev(one.offset / static_cast<unsigned>(kSlice) | one.offset % 32 << 3U) >> 24U;
    if (one.is_sent) order[i] = leaf << 8U | i;
  }
  // Batcher's merge sort: two sorted runs of `size` become one.
#pragma unroll
  for (unsigned size = 1; size < kVeryFew; size *= 2) {
#pragma unroll
    for (unsigned step = size; step > 0; step /= 2) {
#pragma unroll
      for (unsigned i = step % size; i + step < kVeryFew; ++i) {
        if ((i - step % size) % (2 * step) >= step || i / (2 * size) != (i + step) / (2 * size)) continue;
        const std::uint32_t lower = min(order[i], order[i + step]);
        order[i + step] = max(order[i], order[i + step]);
        order[i] = lower;
      }
    }
  }
  double sum = 0;
  std::uint32_t waiting = 0;  // bit d: a sum that waits for its neighbour on level d of the tree
  const auto add_below = [&](unsigned level) {
    while ((waiting & ((1U << level) - 1)) != 0) {
      const auto d = static_cast<unsigned>(__ffs(static_cast<int>(waiting)) - 1);
      sum = sums[(d - 1) * kThreads] + sum;
      waiting &= waiting - 1;
    }
  };
#pragma unroll
  for (unsigned i = 0; i < kVeryFew; ++i) {
    if (order[i] == kNone) break;
    const double value = static_cast<double>(entry(begin + order[i] % 256).value);
    const unsigned level = i == 0 ? 0 : 32 - static_cast<unsigned>(__clz(static_cast<int>((order[i - 1] ^ order[i]) >> 8U)));
    if (level == 0) {
      sum += value * value;
      continue;
    }
    add_below(level);
    sums[(level - 1) * kThreads] = sum;
    waiting |= 1U << level;
    sum = value * value;
  }
  add_below(9);
  return sum;
}

}  // namespace sparsewire::cuda
