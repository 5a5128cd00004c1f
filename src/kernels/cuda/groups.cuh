// Sums of many numbers, such as the norms of tiles, by the tree of kernels/norm.h.
#pragma once

#include "kernels/cuda/check.h"
#include "kernels/cuda/tile.cuh"

namespace sparsewire::cuda {

// The sum of each 4096 numbers, by the tree of kernels/norm.h.
static __global__ void __launch_bounds__(kTileThreads)
    add_groups(const double* numbers, std::size_t count, double* sums) {
  __shared__ double slices[kSlices];
  const std::size_t first = std::size_t{blockIdx.x} * kTile + threadIdx.x / 32 * kSlice + threadIdx.x % 32;
  double lane_sum = 0;
  for (int row = 0; row < kRows; ++row) {
    const std::size_t i = first + static_cast<std::size_t>(row) * 32;
    lane_sum += i < count ? numbers[i] : 0;
  }
  const double sum = add_tile(lane_sum, slices);
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
