// What is done to single entries, given by their indices; and to all of them.
#pragma once

#include "kernels/cuda/tile.cuh"

namespace sparsewire::cuda {

inline constexpr unsigned kEntryThreads = 256;

__global__ void take_entries(float* memory, const std::uint32_t* indices, std::size_t n, bool zeros, float* values) {
  for_each_entry(n, [=](std::size_t i) {
    const std::uint32_t at = indices[i];
    const float number = memory[at];
    values[i] = number;
    if (zeros || key(number) != 0) memory[at] = 0;
  });
}

__global__ void write_entries(float* memory, const std::uint32_t* indices, std::size_t n, const float* values) {
  for_each_entry(n, [=](std::size_t i) { memory[indices[i]] = values[i]; });
}

// The indices differ from each other.
__global__ void add_entries(float* memory, const std::uint32_t* indices, std::size_t n, const float* values) {
  for_each_entry(n, [=](std::size_t i) {
    const std::uint32_t at = indices[i];
    memory[at] = __fadd_rn(memory[at], values[i]);
  });
}

// The same; keeps the numbers from before, and finds the lowest index at which the sum is not finite.
__global__ void add_sum_entries(float* memory, const std::uint32_t* indices, std::size_t n, const float* values,
                                float* before, unsigned long long* bad) {
  for_each_entry(n, [=](std::size_t i) {
    const std::uint32_t at = indices[i];
    const float number = memory[at];
    const float sum = __fadd_rn(number, values[i]);
    before[i] = number;
    memory[at] = sum;
    if (key(sum) >= kInfinityKey) atomicMin(bad, static_cast<unsigned long long>(at));
  });
}

// Adds a gradient to all entries. REQUIRES: that gives finite numbers.
template <class T>
__global__ void accumulate_entries(float* memory, const void* gradient, std::size_t n, Factors by) {
  for_each_entry(
      n, [=](std::size_t i) { memory[i] = accumulated(memory[i], number(static_cast<const T*>(gradient), i), by); });
}

// Takes an accumulation back, for all entries.
template <class T>
__global__ void restore_entries(float* memory, const void* gradient, std::size_t n, Factors by) {
  for_each_entry(
      n, [=](std::size_t i) { memory[i] = restored(memory[i], number(static_cast<const T*>(gradient), i), by); });
}

// The sum of the squares of each tile of a gradient. One block for each tile.
template <class T>
__global__ void __launch_bounds__(kTileThreads) square_tiles(const void* gradient, std::size_t size, double* norms) {
  __shared__ double slices[kSlices];
  const std::size_t first = std::size_t{blockIdx.x} * kTile + threadIdx.x / 32 * kSlice + threadIdx.x % 32;
  double lane_sum = 0;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const std::size_t at = first + static_cast<std::size_t>(row) * 32;
    const double one = at < size ? static_cast<double>(number(static_cast<const T*>(gradient), at)) : 0;
    lane_sum += one * one;
  }
  const double norm = add_tile(lane_sum, slices);
  if (threadIdx.x == 0) norms[blockIdx.x] = norm;
}

}  // namespace sparsewire::cuda
