// What a step needs if there is no good guess of the threshold: an estimate from a sample; and, where that fails too
// (many equal numbers), the exact k-th key of all sums, by counting them.
#pragma once

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/groups.cuh"
#include "kernels/cuda/scratch.cuh"

namespace sparsewire::cuda {

inline constexpr unsigned kSampleThreads = 1024;
inline constexpr unsigned kSampleBlocks = 128;
inline constexpr std::uint32_t kSample = kSampleThreads * kSampleBlocks;
// Keys of a sample are counted by their first bits: a threshold within 1 % is good enough.
inline constexpr unsigned kSampleShift = 16;
inline constexpr std::uint32_t kSampleBins = 1U << (31 - kSampleShift);

// Counts the keys of entries that are spread over the unit, about evenly. `bins` are 0 before. Behind them is a key of
// each bin that is not empty, any of those that were counted.
template <class T>
__global__ void __launch_bounds__(kSampleThreads)
    sample(const float* memory, const void* gradient, std::size_t size, Factors by, std::uint32_t* bins) {
  // Somewhere in the i-th of kSample equal parts.
  const std::uint32_t i = blockIdx.x * kSampleThreads + threadIdx.x;
  std::uint32_t hash = i * 0x9E3779B1U;
  hash = (hash ^ hash >> 15U) * 0x85EBCA77U;
  const double part = static_cast<double>(size) / kSample;
  const auto at = min(static_cast<std::size_t>((i + (hash ^ hash >> 13U) * 0x1p-32) * part), size - 1);
  float sum = memory[at];
  if constexpr (!std::is_void_v<T>) sum = accumulated(sum, number(static_cast<const T*>(gradient), at), by);
  count_in_bin(bins, key(sum) >> kSampleShift, true);
  bins[kSampleBins + (key(sum) >> kSampleShift)] = key(sum);
}

// The threshold becomes about the key of that rank in the sample, at least the lowest there is; or infinity if more
// than `most` of the sample reach it, because too many are equal: then a likely k-th key is one of these. Leaves all
// bins 0. One block.
static __global__ void __launch_bounds__(kSampleThreads)
    choose_threshold(std::uint32_t* bins, std::uint32_t rank, std::uint32_t most, Control* control) {
  constexpr unsigned kEach = kSampleBins / kSampleThreads;
  __shared__ std::uint32_t warps[kSampleThreads / 32];
  // Thread 0 has the highest bins.
  std::uint32_t* const mine = bins + (kSampleThreads - 1 - threadIdx.x) * kEach;
  std::uint32_t sum = 0;
#pragma unroll
  for (unsigned i = 0; i < kEach; i += 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(mine + i);
    sum += four.x + four.y + four.z + four.w;
  }
  std::uint32_t through = sum;
  for (unsigned step = 1; step < 32; step *= 2) {
    const std::uint32_t left = __shfl_up_sync(kAllLanes, through, step);
    if (threadIdx.x % 32 >= step) through += left;
  }
  if (threadIdx.x % 32 == 31) warps[threadIdx.x / 32] = through;
  __syncthreads();
  for (unsigned w = 0; w < threadIdx.x / 32; ++w) through += warps[w];
  std::uint32_t before = through - sum;
  if (before < rank && rank <= through) {
    unsigned bin = kEach;
    do before += mine[--bin];
    while (before < rank);
    const std::uint32_t lowest = (static_cast<std::uint32_t>(mine - bins) + bin) << kSampleShift;
    const bool too_many = lowest > 0 && before > most;
    control->threshold = too_many ? kInfinityKey : min(max(lowest, kLowestKey), kInfinityKey - 1);
    control->likely = too_many ? mine[kSampleBins + bin] : 0;
  }
  for (unsigned i = 0; i < kEach; i += 4) *reinterpret_cast<uint4*>(mine + i) = uint4{0, 0, 0, 0};
}

// How many keys of the memory have each value of some bits, among those with the same bits above. First the 11 highest,
// then 10, then 10.
__global__ void __launch_bounds__(kTileThreads)
    count_keys(const float* memory, std::size_t size, std::uint32_t prefix, int shift, int above, std::uint32_t* bins) {
  __shared__ std::uint32_t mine[kBins];
  for (unsigned i = threadIdx.x; i < kBins; i += kTileThreads) mine[i] = 0;
  __syncthreads();
  const std::size_t tiles = (size + kTile - 1) / kTile;
  for (std::size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < kTile; i += kTileThreads) {
      const std::size_t at = tile * kTile + i;
      const std::uint32_t one = at < size ? key(memory[at]) : 0;
      const bool counts = at < size && (above >= 31 || one >> above == prefix);
      count_in_bin(mine, one >> shift & ((1U << (above - shift)) - 1), counts);
    }
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < kBins; i += kTileThreads) {
    if (mine[i] != 0) atomicAdd(bins + i, mine[i]);
  }
}

inline constexpr std::uint32_t kLikely = ~0U;  // instead of a key: Control::likely

// The sums above the k-th key and those equal to it, in each tile.
__global__ void __launch_bounds__(kTileThreads)
    count_winners(const float* memory, std::size_t size, std::uint32_t kth, const Control* control,
                  std::uint32_t* above, std::uint32_t* ties) {
  if (kth == kLikely) kth = control->likely;
  std::uint32_t counts = 0;  // above in the upper half, ties in the lower
  for (unsigned i = threadIdx.x; i < kTile; i += kTileThreads) {
    const std::size_t at = std::size_t{blockIdx.x} * kTile + i;
    const std::uint32_t one = at < size ? key(memory[at]) : 0;
    counts += one > kth ? 1U << 16U : one == kth ? 1U : 0U;
  }
  __shared__ std::uint32_t total;
  counts = add_block(counts, total);
  if (threadIdx.x == 0) {
    above[blockIdx.x] = counts >> 16U;
    ties[blockIdx.x] = counts & 0xFFFFU;
  }
}

// Takes the winners out of the memory: those above the k-th key, and `quota` of those equal to it; 0 if the k-th is
// zero. The numbers of both before each tile are given.
__global__ void __launch_bounds__(kTileThreads)
    take_winners(float* memory, std::size_t size, std::uint32_t kth, std::uint32_t quota, const std::uint32_t* above,
                 const std::uint32_t* ties, const std::uint32_t* above_before, const std::uint32_t* ties_before,
                 std::uint32_t* indices, float* values) {
  __shared__ std::uint32_t counts[kSlices][2];
  if (above[blockIdx.x] == 0 && (ties[blockIdx.x] == 0 || ties_before[blockIdx.x] >= quota)) return;
  const std::size_t first = std::size_t{blockIdx.x} * kTile + threadIdx.x / 32 * kSlice + threadIdx.x % 32;
  float sum[kRows];
  std::uint32_t keys[kRows];
  for (int row = 0; row < kRows; ++row) {
    const std::size_t at = first + static_cast<std::size_t>(row) * 32;
    sum[row] = at < size ? memory[at] : 0;
    keys[row] = key(sum[row]);
  }
  const std::uint32_t start = above_before[blockIdx.x] + min(ties_before[blockIdx.x], quota);
  for_each_winner(keys, kth, quota, ties_before[blockIdx.x], counts, [&](int row, std::uint32_t number) {
    const std::size_t at = first + static_cast<std::size_t>(row) * 32;
    indices[start + number] = static_cast<std::uint32_t>(at);
    values[start + number] = sum[row];
    memory[at] = 0;
  });
}

}  // namespace sparsewire::cuda
