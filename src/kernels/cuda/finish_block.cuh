// What the kernel that finishes a step (finish.cuh) has in shared memory, and what its threads do together.
#pragma once

#include "kernels/cuda/scores.cuh"
#include "kernels/cuda/scratch.cuh"
#include "kernels/cuda/tile.cuh"
#include "kernels/second_choice.h"

namespace sparsewire::cuda {

inline constexpr unsigned kFinishThreads = 512;
inline constexpr unsigned kFinishWarps = kFinishThreads / 32;
template <By kBy>
inline constexpr std::uint32_t kListRoom =
    kBy == By::score ? 4096 : 6144;               // candidates in shared memory; a tile has 4096 at most
inline constexpr std::uint32_t kTileRoom = 2048;  // tiles of a part
inline constexpr std::uint32_t kAllWin = ~std::uint32_t{0};

struct FinishArguments {
  float* memory;
  std::size_t tiles_count;
  std::uint32_t tiles_per_block;
  Control* control;
  const TileList* tiles;
  const double* tile_norms;
  double* group_norms;          // of 4096 tiles each
  std::uint32_t* group_counts;  // tiles of each group whose norms are there
  const std::uint32_t* indices;
  const float* values;
  std::uint32_t* fine;
  std::uint64_t k;
  std::uint32_t threshold;  // key, as in the pass
  std::uint32_t wanted;     // candidates that a guess should give
  std::uint32_t* out_indices;
  float* out_values;
  std::uint32_t epoch;
  PublishedResult* result;
  // Of the second choice.
  std::uint32_t k_drawn = 0;
  Stream draw{0, 0, 0, 0};
  Scores scores = {};
};

static_assert(kMostSlices == 2 * kSlices);

// In dynamic shared memory.
struct BlockShared {
  std::uint32_t warps[kFinishWarps][2];
  std::uint32_t found[3];
  std::uint32_t near[2];     // keys in the bin of the k-th: of this block, and of all
  std::uint32_t near_above;  // keys of this block above it
  std::uint32_t near_inside[kNearInside];
  std::uint32_t near_bins[kFineKeys];
  std::uint32_t is_last;
  StepResult result;
  double slices[kSlices];
};
template <By kBy>
struct FinishShared : BlockShared {
  std::uint32_t begin[kTileRoom + 1];  // of each tile's candidates, among those of the part
  std::uint32_t offset[kTileRoom];     // in the arenas
  std::uint32_t index[kListRoom<kBy>];
  float value[kListRoom<kBy>];
  std::uint32_t score[kBy == By::score ? kListRoom<kBy> : 1];  // key
  std::uint16_t place[kListRoom<kBy>];  // among the winners of the part, from 1 on; 0: it loses
  union {
    std::uint32_t bins[kBins];
    std::uint32_t near_list[2][kAllNear];  // keys, and their blocks
  };
};

// The sum of two numbers of each thread, over the block; all threads get it.
__device__ inline uint2 block_sum(std::uint32_t a, std::uint32_t b, BlockShared& s) {
  a = __reduce_add_sync(kAllLanes, a);
  b = __reduce_add_sync(kAllLanes, b);
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    s.warps[threadIdx.x / 32][0] = a;
    s.warps[threadIdx.x / 32][1] = b;
  }
  __syncthreads();
  uint2 sum{0, 0};
  for (unsigned w = 0; w < kFinishWarps; ++w) {
    sum.x += s.warps[w][0];
    sum.y += s.warps[w][1];
  }
  return sum;
}

// The sum of a number over the threads up to this one, and over all.
struct Scan {
  std::uint32_t through;
  std::uint32_t all;
};
__device__ inline Scan block_scan(std::uint32_t number, BlockShared& s) {
  Scan sum{number, 0};
  for (unsigned step = 1; step < 32; step *= 2) {
    const std::uint32_t left = __shfl_up_sync(kAllLanes, sum.through, step);
    if (threadIdx.x % 32 >= step) sum.through += left;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 31) s.warps[threadIdx.x / 32][0] = sum.through;
  __syncthreads();
#pragma unroll
  for (unsigned w = 0; w < kFinishWarps; ++w) {
    const std::uint32_t one = s.warps[w][0];
    sum.through += w < threadIdx.x / 32 ? one : 0;
    sum.all += one;
  }
  return sum;
}

// The sum of one slice of `count` numbers by the tree of kernels/norm.h; missing ones are 0. By a warp, which reads
// kAtOnce rows at once; lane 0 gets it.
template <unsigned kAtOnce = kRows>
__device__ inline double add_slice(const double* numbers, std::uint32_t slice, std::uint32_t count) {
  const std::uint32_t first = slice * static_cast<std::uint32_t>(kSlice) + threadIdx.x % 32;
  double lane_sum = 0;
#pragma unroll 1
  for (unsigned begin = 0; begin < kRows; begin += kAtOnce) {
    double mine[kAtOnce];
#pragma unroll
    for (unsigned row = 0; row < kAtOnce; ++row) {
      const std::uint32_t i = first + (begin + row) * 32;
      mine[row] = i < count ? __ldcg(numbers + i) : 0;
    }
#pragma unroll
    for (unsigned row = 0; row < kAtOnce; ++row) lane_sum += mine[row];
  }
  return add_lanes<32>(lane_sum);
}

// The sum of at most 4096 numbers by the same tree. Thread 0 gets it.
__device__ inline double add_many(const double* numbers, std::size_t count, BlockShared& s) {
  const unsigned warp = threadIdx.x / 32;
  if (warp < kSlices) {
    const double slice = add_slice(numbers, warp, static_cast<std::uint32_t>(count));
    if (threadIdx.x % 32 == 0) s.slices[warp] = slice;
  }
  __syncthreads();
  return warp == 0 ? add_lanes<kSlices>(threadIdx.x < kSlices ? s.slices[threadIdx.x] : 0) : 0;
}

// The sum of two groups, of whose slices each lane has one. By the first warp; thread 0 gets it.
__device__ inline double add_groups_of_slices(double slice) {
  const double group = add_lanes<kSlices>(slice);
  return group + __shfl_down_sync(kAllLanes, group, kSlices);  // they are two lanes: so are their sums added
}

// The same for 32 numbers at most: they are the lanes of one slice. By the first warp.
__device__ inline double add_few(const double* numbers, std::size_t count) {
  return add_lanes<32>(threadIdx.x < count ? __ldcg(numbers + threadIdx.x) : 0);
}

// What a block writes for others that wait for it, in this step. Such numbers may arrive in any order, and say nothing
// about what else has.
struct Messages {
  std::uint32_t epoch;

  __device__ void write(std::uint64_t* to, std::uint32_t number) const {
    *static_cast<volatile std::uint64_t*>(to) = tagged(number);
  }
  __device__ void write(TwoNumbers* to, uint2 numbers) const {
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(tagged(numbers.x)), "l"(tagged(numbers.y))
                 : "memory");
  }
  __device__ std::uint32_t read(const std::uint64_t* from) const {
    std::uint64_t word = 0;
    do word = *static_cast<const volatile std::uint64_t*>(from);
    while (!is_there(word));
    return static_cast<std::uint32_t>(word);
  }
  __device__ uint2 read(const TwoNumbers* from) const {
    std::uint64_t first = 0;
    std::uint64_t second = 0;
    do {
      asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(from) : "memory");
    } while (!is_there(first) || !is_there(second));
    return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(second)};
  }

 private:
  __device__ std::uint64_t tagged(std::uint32_t number) const { return std::uint64_t{epoch} << 32U | number; }
  __device__ bool is_there(std::uint64_t word) const { return word >> 32U == epoch; }
};

// A barrier of all blocks, in two halves: what is done between them overlaps with waiting.
class GridBarrier {
 public:
  __device__ explicit GridBarrier(Control* control) : control_(control) {}

  __device__ void arrive() {
    __syncthreads();
    ++count_;
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(&control_->arrived, 1);
    }
  }
  __device__ void wait() {
    if (threadIdx.x == 0) {
      while (*static_cast<volatile std::uint32_t*>(&control_->arrived) < count_ * gridDim.x) {
      }
      __threadfence();
    }
    __syncthreads();
  }

 private:
  Control* control_;
  std::uint32_t count_ = 0;
};

}  // namespace sparsewire::cuda
