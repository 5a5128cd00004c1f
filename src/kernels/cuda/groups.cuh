// Sums of many numbers, such as the norms of tiles, by the tree of kernels/norm.h.
#pragma once

#include "kernels/cuda/check.h"
#include "kernels/cuda/tile.cuh"

namespace sparsewire::cuda {

// The sum of at most 4096 numbers, which other blocks may have written. By all threads of a block of kTileThreads;
// thread 0 has it. `slices` is shared.
__device__ inline double add_group(const double* numbers, std::size_t count, double* slices) {
  const unsigned first = threadIdx.x / 32 * static_cast<unsigned>(kSlice) + threadIdx.x % 32;
  double lane_sum = 0;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const unsigned i = first + static_cast<unsigned>(row) * 32;
    lane_sum += i < count ? __ldcg(numbers + i) : 0;
  }
  return add_tile(lane_sum, slices);
}

// The sum of each 4096 numbers.
static __global__ void __launch_bounds__(kTileThreads)
    add_groups(const double* numbers, std::size_t count, double* sums) {
  __shared__ double slices[kSlices];
  const std::size_t first = std::size_t{blockIdx.x} * kTile;
  const double sum = add_group(numbers + first, min(count - first, std::size_t{kTile}), slices);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Queues the sum of the norms of tiles. `groups` has room for one number for each 4096 tiles.
static void queue_sum(const double* of_tiles, std::size_t tiles, double* groups, double* sum, cudaStream_t stream) {
  const std::size_t count = (tiles + kTile - 1) / kTile;
  add_groups<<<static_cast<unsigned>(count), kTileThreads, 0, stream>>>(of_tiles, tiles, groups);
  add_groups<<<1, kTileThreads, 0, stream>>>(groups, count, sum);
  SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace sparsewire::cuda
