// The values of a frame in two bits each, as codec/int2.cc has them; what that takes from the values goes to the
// memory.
//
// A warp has a block of 256 values: lanes l and l + 16 have the values l, l + 16, l + 32, ... That is the order of the
// sums of kernels/levels.cc.
#pragma once

#include "sparsewire/support/half.h"
#include "kernels/cuda/frame_entries.cuh"
#include "kernels/frame_plan.h"

namespace sparsewire::cuda {

struct Int2Arguments {
  FrameEntries entries;
  float* memory;
  std::uint32_t* scales;  // of each block: low, and high in the upper half
  double* losses;         // for each 4096 entries: the sum of the squares of what was rounded off
};

inline constexpr unsigned kInt2Threads = 512;
inline constexpr unsigned kInt2Warps = kInt2Threads / 32;
inline constexpr unsigned kInt2Lanes = 16;
inline constexpr int kInt2Each = static_cast<int>(kPlannedBlock / kInt2Lanes);  // values of a lane
static_assert(kInt2Warps * kPlannedBlock == kTile);

// Magnitudes divided into two groups, as kernels::Halves.
struct Int2Halves {
  double all = 0;
  double high_sum = 0;
  double low_count = 0;
  double high_count = 0;

  __device__ double low_sum() const { return all - high_sum; }
  __device__ double explained() const {
    const double low = low_count == 0 ? 0 : low_sum() * low_sum() / low_count;
    return high_count == 0 ? low : low + high_sum * high_sum / high_count;
  }
};

struct Int2Levels {
  float low = 0;
  float high = 0;
  __device__ float middle() const { return low * 0.5F + high * 0.5F; }
};

__device__ inline Int2Levels means_of(const Int2Halves& halves) {
  Int2Levels levels;
  levels.low = halves.low_count == 0 ? 0 : static_cast<float>(halves.low_sum() / halves.low_count);
  levels.high = halves.high_count == 0 ? levels.low : static_cast<float>(halves.high_sum / halves.high_count);
  levels.low = fminf(levels.low, levels.high);
  return levels;
}

// The sum of the lanes of this half of the warp, in their order.
__device__ inline double add_half_warp(float lane_sum) {
  double sum = 0;
#pragma unroll
  for (unsigned l = 0; l < kInt2Lanes; ++l) {
    sum += static_cast<double>(__shfl_sync(kAllLanes, lane_sum, static_cast<int>((threadIdx.x & 16U) + l)));
  }
  return sum;
}

// The magnitudes above the cut of each half of the warp: their sum, and the numbers of both halves in one.
struct Int2High {
  double sum;
  std::uint32_t counts;
};
__device__ inline Int2High above_cut(const float (&magnitudes)[kInt2Each], float cut) {
  float sum = 0;
  std::uint32_t count = 0;
#pragma unroll
  for (int j = 0; j < kInt2Each; ++j) {
    const bool is_high = magnitudes[j] > cut;
    sum += is_high ? magnitudes[j] : 0;
    count += is_high ? 1 : 0;
  }
  return {add_half_warp(sum), __reduce_add_sync(kAllLanes, count << (threadIdx.x & 16U))};
}

// As choose_levels() of codec/int2.cc: the best of eight cuts, then two refinements. `highs`: of this warp, shared.
__device__ inline Int2Levels choose_int2_levels(float (&magnitudes)[kInt2Each], std::uint32_t count,
                                                double (&high_sums)[8], std::uint32_t (&high_counts)[8]) {
  const unsigned lane = threadIdx.x % 32;
  float largest = 0;
#pragma unroll
  for (int j = 0; j < kInt2Each; ++j) largest = fmaxf(largest, magnitudes[j]);
  largest = __uint_as_float(__reduce_max_sync(kAllLanes, __float_as_uint(largest)));
  const float factor = largest > 0x1p100F ? 0x1p-40F : 1.0F;  // so that no sum overflows
  largest *= factor;
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kInt2Each; ++j) {
    magnitudes[j] *= factor;
    sum += magnitudes[j];
  }
  const double all = add_half_warp(sum);
  const auto halves_of = [&](double high_sum, std::uint32_t high_count) -> Int2Halves {
    return {all, high_sum, static_cast<double>(count) - static_cast<double>(high_count),
            static_cast<double>(high_count)};
  };
  // One half of the warp tries the cuts 1 to 4 eighths, the other 5 to 8: above that is nothing.
  for (unsigned i = 1; i <= 4; ++i) {
    const unsigned mine = i + (lane & 16U) / 4;
    const Int2High high = above_cut(magnitudes, mine == 8 ? largest : largest * 0.125F * static_cast<float>(mine));
    if (lane % 16 == 0) {
      high_sums[mine % 8] = high.sum;
      high_counts[mine % 8] = high.counts >> (lane & 16U) & 0xFFFFU;
    }
  }
  __syncwarp();
  Int2Halves best = halves_of(high_sums[lane % 8], high_counts[lane % 8]);
  // The first of the best.
  double explained = best.explained();
  unsigned which = lane % 8;
#pragma unroll
  for (int step = 1; step < 8; step *= 2) {
    const double other = __shfl_xor_sync(kAllLanes, explained, step);
    const unsigned other_which = __shfl_xor_sync(kAllLanes, which, step);
    if (other > explained || (other == explained && other_which < which)) {
      explained = other;
      which = other_which;
    }
  }
  best = halves_of(high_sums[which], high_counts[which]);
  for (int i = 0; i < 2; ++i) {
    const Int2High high = above_cut(magnitudes, means_of(best).middle());
    const Int2Halves next = halves_of(high.sum, high.counts & 0xFFFFU);
    const double next_explained = next.explained();
    if (next_explained > explained) {
      best = next;
      explained = next_explained;
    }
  }
  __syncwarp();
  const Int2Levels levels = means_of(best);
  return {levels.low / factor, levels.high / factor};
}

struct Int2Shared {
  float lost[kTile];
  double high_sums[kInt2Warps][8];
  std::uint32_t high_counts[kInt2Warps][8];
};

// The sum of the squares of what a tile lost, by eight threads: as distance2() of sparsify/sifter_rounding.cc.
__device__ inline double square_lost(const float* lost, std::uint32_t count) {
  const unsigned lane = threadIdx.x;
  const std::uint32_t whole = count / 8 * 8;
  double sum = 0;
#pragma unroll 8
  for (std::uint32_t i = lane; i < whole; i += 8) {
    sum += static_cast<double>(lost[i]) * static_cast<double>(lost[i]);
  }
  for (std::uint32_t i = whole; lane == 0 && i < count; ++i) {
    sum += static_cast<double>(lost[i]) * static_cast<double>(lost[i]);
  }
  for (int half = 4; half > 0; half /= 2) sum += __shfl_down_sync(0xFF, sum, half, 8);
  return sum;
}

// One block for each 4096 entries; those beyond the last end at once.
static __global__ void __launch_bounds__(kInt2Threads, 2) encode_int2(const __grid_constant__ Int2Arguments a) {
  __shared__ Int2Shared s;
  const std::uint32_t count = a.entries.count();
  const std::uint32_t first = blockIdx.x * static_cast<std::uint32_t>(kTile);
  if (first >= count) return;
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  const std::uint32_t begin = first + warp * static_cast<std::uint32_t>(kPlannedBlock);
  if (begin < count) {
    const std::uint32_t* const indices = a.entries.indices() + begin;
    const float* const values = a.entries.values() + begin;
    const std::uint32_t n = min(static_cast<std::uint32_t>(kPlannedBlock), count - begin);
    const std::uint32_t blocks = (count + static_cast<std::uint32_t>(kPlannedBlock) - 1) / kPlannedBlock;
    const std::uint32_t block = begin / kPlannedBlock;
    float value[kInt2Each];
    float magnitudes[kInt2Each];
#pragma unroll
    for (int j = 0; j < kInt2Each; ++j) {
      const std::uint32_t i = lane % kInt2Lanes + static_cast<unsigned>(j) * kInt2Lanes;
      value[j] = i < n ? values[i] : 0;
      magnitudes[j] = fabsf(value[j]);
    }
    const Int2Levels exact = choose_int2_levels(magnitudes, n, s.high_sums[warp], s.high_counts[warp]);
    const std::uint16_t low = to_bf16(exact.low);
    const std::uint16_t high = to_bf16(exact.high);
    if (lane == 0) a.scales[block] = low | std::uint32_t{high} << 16U;
    const Int2Levels levels{from_bf16(low), from_bf16(high)};
    const float middle = levels.middle();
    std::uint32_t word = 0;  // of codes: lane j has that of the values from 16 j on
#pragma unroll
    for (int j = 0; j < kInt2Each; ++j) {
      const std::uint32_t i = lane % kInt2Lanes + static_cast<unsigned>(j) * kInt2Lanes;
      const bool is_high = fabsf(value[j]) > middle;
      const std::uint32_t sign = __float_as_uint(value[j]) >> 31U;
      const std::uint32_t code = (is_high ? 1U : 0U) | sign << 1U;
      const std::uint32_t codes = __reduce_or_sync(kAllLanes, lane < kInt2Lanes && i < n ? code << (2 * lane) : 0);
      if (lane == static_cast<unsigned>(j)) word = codes;
      if (lane / kInt2Lanes == static_cast<unsigned>(j) % 2 && i < n) {
        const float magnitude = is_high ? levels.high : levels.low;
        const float lost = value[j] - (sign == 0 ? magnitude : -magnitude);
        s.lost[begin - first + i] = lost;
        a.memory[indices[i]] = 0.0F + lost;
      }
    }
    if (lane < kInt2Lanes && lane * kInt2Lanes < n) a.scales[blocks + block * kInt2Lanes + lane] = word;
  }
  __syncthreads();
  if (threadIdx.x >= 8) return;
  const double loss = square_lost(s.lost, min(static_cast<std::uint32_t>(kTile), count - first));
  if (threadIdx.x == 0) a.losses[blockIdx.x] = loss;
}

}  // namespace sparsewire::cuda
