// A tile of 4096 entries, as a block of threads works on it: lane l of a warp has the entries l, l + 32, l + 64, ... of
// a slice, or of half a slice. That is the order of the norms (kernels/norm.h), so a lane adds up its own.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "kernels/norm.h"
#include "kernels/sweep.h"

namespace sparsewire::cuda {

using kernels::kInfinityKey;
using kernels::kLanes;
using kernels::kLowestKey;
using kernels::kSlice;
using kernels::kSlices;
using kernels::kTile;

inline constexpr int kTileThreads = 256;
inline constexpr int kRows = static_cast<int>(kSlice / kLanes);  // entries of a lane
inline constexpr unsigned kAllLanes = 0xFFFFFFFF;

// How the gradient enters the memory: memory <- decay*memory + scale*gradient.
struct Factors {
  float scale = 1;
  float decay = 1;
};

__device__ inline float number(const float* gradient, std::size_t i) { return gradient[i]; }
__device__ inline float number(const __nv_bfloat16* gradient, std::size_t i) { return __bfloat162float(gradient[i]); }
__device__ inline float number(const __half* gradient, std::size_t i) { return __half2float(gradient[i]); }

__device__ inline float accumulated(float memory, float gradient, Factors by) {
  return __fadd_rn(__fmul_rn(by.decay, memory), __fmul_rn(by.scale, gradient));
}

// As kernels/sweep.h says: what the memory was, up to rounding, and limited to finite numbers.
__device__ inline float restored(float sum, float gradient, Factors by) {
  const float before = __fdiv_rn(__fsub_rn(sum, __fmul_rn(by.scale, gradient)), by.decay);
  return fminf(fmaxf(before, -3.402823466e38F), 3.402823466e38F);
}

__device__ inline std::uint32_t key(float x) { return __float_as_uint(x) & 0x7FFFFFFF; }

// Lane i and i + 16, then i and i + 8, and so on; lane 0 has the sum.
template <int kCount>
__device__ inline double add_lanes(double sum) {
  for (int half = kCount / 2; half > 0; half /= 2) sum += __shfl_down_sync(kAllLanes, sum, half);
  return sum;
}

// The sum over a tile of what each thread's entries add up to: of all slices, in the order of kernels/norm.h. Thread 0
// has it. REQUIRES: all 256 threads call it; `slices` is shared.
__device__ inline double add_tile(double lane_sum, double* slices) {
  const double slice = add_lanes<32>(lane_sum);
  if (threadIdx.x % 32 == 0) slices[threadIdx.x / 32] = slice;
  __syncthreads();
  double sum = threadIdx.x < kSlices ? slices[threadIdx.x] : 0;
  if (threadIdx.x < 32) sum = add_lanes<kSlices>(sum);
  return sum;
}

// What a later block reads first is brought to the L2 cache: the entries stream through it, so tables fall out.
inline constexpr unsigned kBlocksAhead = 512;
__device__ inline void prefetch(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

// Calls f(i) for each i below n, by all threads of the grid.
template <class F>
__device__ inline void for_each_entry(std::size_t n, F f) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

}  // namespace sparsewire::cuda
