// Gaps in Golomb's code, on the device: the same bits as kernels/golomb.cc, in four streams.
#pragma once

#include "kernels/cuda/frame_bits.cuh"
#include "kernels/golomb.h"

namespace sparsewire::cuda {

struct GolombArguments {
  const std::uint32_t* indices;
  std::uint32_t count;
  std::uint32_t divisor;
  unsigned bits;           // of the longer remainders
  std::uint32_t shorter;   // remainders below it are one bit shorter
  std::uint64_t* lengths;  // of the streams of each segment, in bits
  std::uint32_t* frame;
  FrameLayout* layout;
};

static_assert(kSegmentThreads / 32 == kernels::kGolombLanes && kMostStreams == kernels::kGolombLanes);

struct GolombParts {
  std::uint32_t quotient;
  std::uint32_t remainder;
  std::uint32_t longer;  // 1: the remainder has all bits

  __device__ GolombParts(const GolombArguments& a, std::uint32_t gap)
      : quotient(gap / a.divisor), remainder(gap - quotient * a.divisor), longer(remainder >= a.shorter ? 1 : 0) {}
  __device__ std::uint64_t length(const GolombArguments& a) const { return std::uint64_t{quotient} + a.bits + longer; }
};

// Calls f(gap) for the gaps of a thread: those of one stream, which is that of its warp.
template <class F>
__device__ __forceinline__ void for_each_gap(const GolombArguments& a, F f) {
  constexpr std::uint32_t kLanes4 = kernels::kGolombLanes;
  const std::uint32_t first = blockIdx.x * kSegment + threadIdx.x % 32 * (kCodesOfThread * kLanes4) + threadIdx.x / 32;
  for (std::uint32_t j = 0; j < kCodesOfThread; ++j) {
    const std::uint32_t i = first + j * kLanes4;
    if (i < a.count) f(gap_before(a.indices, i));
  }
}
__device__ inline std::uint64_t golomb_length(const GolombArguments& a) {
  std::uint64_t length = 0;
  for_each_gap(a, [&](std::uint32_t gap) { length += GolombParts(a, gap).length(a); });
  return length;
}

static __global__ void __launch_bounds__(kSegmentThreads) measure_golomb(const __grid_constant__ GolombArguments a) {
  std::uint64_t length = golomb_length(a);
  for (int half = 16; half > 0; half /= 2) length += __shfl_down_sync(kAllLanes, length, half);
  if (threadIdx.x % 32 == 0) a.lengths[std::size_t{blockIdx.x} * kMostStreams + threadIdx.x / 32] = length;
}

static __global__ void __launch_bounds__(kSegmentThreads) write_golomb(const __grid_constant__ GolombArguments a) {
  if (a.layout->has_failed != 0) return;
  const unsigned stream = threadIdx.x / 32;
  const std::uint64_t length = golomb_length(a);
  std::uint64_t through = length;
#pragma unroll
  for (unsigned step = 1; step < 32; step *= 2) {
    const std::uint64_t left = __shfl_up_sync(kAllLanes, through, step);
    if (threadIdx.x % 32 >= step) through += left;
  }
  if (length == 0) return;
  FrameBits out(a.frame, a.layout->begin[stream] + a.lengths[std::size_t{blockIdx.x} * kMostStreams + stream] +
                             (through - length));
  for_each_gap(a, [&](std::uint32_t gap) {
    const GolombParts parts(a, gap);
    const std::uint32_t sum = parts.remainder + (parts.longer != 0 ? a.shorter : 0);
    const std::uint32_t binary = parts.longer != 0 ? sum >> 1U | (sum & 1U) << (a.bits - 1) : sum;
    out.put_unary(parts.quotient);
    out.put(binary, a.bits - 1 + parts.longer);
  });
  out.finish();
}

}  // namespace sparsewire::cuda
