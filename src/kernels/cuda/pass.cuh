// The pass over the error memory: one block for each tile. Of a model that is one unit here, of others in
// unit_tiles.cuh and tile_units.cuh.
#pragma once

#include <type_traits>

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/gradient_norm.h"
#include "kernels/cuda/scratch.cuh"

namespace sparsewire::cuda {

inline constexpr unsigned kPassThreads = 512;
inline constexpr unsigned kPassWarps = kPassThreads / 32;
inline constexpr unsigned kPassBlocks = 3;  // in a multiprocessor; with 2 or 4 it takes longer
// Where so many entries of a tile are taken, they may all be equal. Their keys are not counted: every thread would wait
// for the same bin.
inline constexpr std::uint32_t kManyInTile = 3072;

// A type of gradients: a velocity in the memory of the device, to which numbers of type T are added first.
template <class T>
struct Velocity {};
template <class T>
inline constexpr bool kIsVelocity = false;
template <class T>
inline constexpr bool kIsVelocity<Velocity<T>> = true;

struct PassArguments {
  float* memory;
  const void* gradient;
  Factors by;
  const void* first_add;  // to a velocity
  float first_decay;
  const Clipped* clipped;  // its scale; if a velocity may overflow, nothing is added at all
  Control* control;
  TileList* tiles;
  double* tile_norms;  // sums of the squares of all sums
  std::uint32_t* indices;
  float* values;
  std::uint32_t arena_size;
};

// A tile of a model that is one unit, and the entries of a thread in it. Beyond the end, the last entry is read and not
// used: a branch would part the lanes.
template <bool kWhole>
struct PassTile {
  std::size_t first;  // entry of the thread
  std::size_t size;   // of the unit
  std::uint32_t threshold;
  std::uint32_t bins;
  std::uint32_t* fine;

  __device__ bool inside(int row) const { return kWhole || first + static_cast<unsigned>(row) * 32 < size; }
  __device__ std::size_t at(int row) const {
    return kWhole ? first + static_cast<unsigned>(row) * 32 : min(first + static_cast<unsigned>(row) * 32, size - 1);
  }
  __device__ bool takes(float sum) const { return key(sum) >= threshold; }
  // Keys slightly above the threshold are counted, to find the k-th: in how many bins, if the tile has so many.
  __device__ std::uint32_t bins_for(std::uint32_t count, Control& control) const {
    if (count <= kManyInTile) return bins;
    control.has_uncounted = 1;
    return 0;
  }
  __device__ void took(float sum, std::uint32_t in_bins) const {
    const std::uint32_t bin = (key(sum) - threshold) >> kFineShift;
    if (bin < in_bins) atomicAdd(fine + bin, 1);
  }
};

// The first entry of a thread in its tile: two warps share a slice, and the first has its first eight rows.
__device__ inline std::uint32_t first_of_thread() {
  return threadIdx.x / 32 * static_cast<std::uint32_t>(kSlice / 2) + threadIdx.x % 32;
}

// What is added to this thread's entries of a tile.
template <class T, class Tile, int kCount>
__device__ __forceinline__ void load_gradient(const PassArguments& a, const Tile& tile, float (&added)[kCount], T*) {
#pragma unroll
  for (int row = 0; row < kCount; ++row) added[row] = number(static_cast<const T*>(a.gradient), tile.at(row));
}
template <class T, class Tile, int kCount>
__device__ __forceinline__ void load_gradient(const PassArguments& a, const Tile& tile, float (&added)[kCount],
                                              Velocity<T>*) {
  auto* const velocity = static_cast<float*>(const_cast<void*>(a.gradient));
  float first[kCount];
#pragma unroll
  for (int row = 0; row < kCount; ++row) added[row] = velocity[tile.at(row)];
#pragma unroll
  for (int row = 0; row < kCount; ++row) first[row] = number(static_cast<const T*>(a.first_add), tile.at(row));
  const Factors by{a.clipped->scale, a.first_decay};
  const bool adds = a.clipped->may_overflow == 0;
#pragma unroll
  for (int row = 0; row < kCount; ++row) {
    added[row] = adds ? accumulated(added[row], first[row], by) : added[row];
    if (tile.inside(row)) velocity[tile.at(row)] = added[row];
  }
}
template <class T>
__device__ __forceinline__ bool may_overflow(const PassArguments& a) {
  if constexpr (kIsVelocity<T>) return a.clipped->may_overflow != 0;
  return false;
}

// Adds the gradient (T; void: none) to a tile of the memory, and moves what the tile takes into an arena. A tile that
// finds no room leaves its sums in the memory; one with a sum that is not finite brings its entries back to where
// kernels::make_round_trip() brings them.
template <class T, class Tile>
__device__ __forceinline__ void pass_tile(const PassArguments& a, const Tile& tile) {
  constexpr bool kHasGradient = !std::is_void_v<T>;
  constexpr int kHalf = kRows / 2;
  __shared__ double first_half[kSlices][32];
  __shared__ double slices[kSlices];
  __shared__ std::uint32_t counts[kPassWarps];
  __shared__ std::uint32_t place;
  __shared__ std::uint32_t bins;  // in which its keys are counted; in a register it would be missing elsewhere
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;

  float sum[kHalf];
#pragma unroll
  for (int row = 0; row < kHalf; ++row) sum[row] = a.memory[tile.at(row)];
  if constexpr (kHasGradient) {
    float added[kHalf];
    load_gradient(a, tile, added, static_cast<T*>(nullptr));
#pragma unroll
    for (int row = 0; row < kHalf; ++row) {
      sum[row] = may_overflow<T>(a) ? sum[row] : accumulated(sum[row], added[row], a.by);
    }
  }
#pragma unroll
  for (int row = 0; row < kHalf; ++row) sum[row] = tile.inside(row) ? sum[row] : 0;

  std::uint32_t largest = 0;
  std::uint32_t taken = 0;  // rows of the lane
#pragma unroll
  for (int row = 0; row < kHalf; ++row) {
    largest = max(largest, key(sum[row]));
    taken |= (tile.takes(sum[row]) ? 1U : 0U) << static_cast<unsigned>(row);
  }
  const auto add_squares = [&](double lane_sum) {
#pragma unroll
    for (int row = 0; row < kHalf; ++row) lane_sum += static_cast<double>(sum[row]) * static_cast<double>(sum[row]);
    return lane_sum;
  };
  if (warp % 2 == 0) first_half[warp / 2][lane] = add_squares(0);
  const std::uint32_t in_warp = __reduce_add_sync(kAllLanes, static_cast<unsigned>(__popc(taken)));
  if (lane == 0) counts[warp] = in_warp;
  const bool is_bad = __syncthreads_or(largest >= kInfinityKey) != 0;

  std::uint32_t before = 0;  // in warps before this one
  std::uint32_t total = 0;
#pragma unroll
  for (unsigned w = 0; w < kPassWarps; ++w) {
    const std::uint32_t one = counts[w];
    before += w < warp ? one : 0;
    total += one;
  }
  if (is_bad) total = 0;
  std::uint32_t at_arena = 0;
  if (total > 0 && threadIdx.x == 0) at_arena = atomicAdd(&a.control->used[blockIdx.x % kArenas].value, total);
  if (warp % 2 == 1) {  // while the counter is on its way
    const double slice = add_lanes<32>(add_squares(first_half[warp / 2][lane]));
    if (lane == 0) slices[warp / 2] = slice;
  }
  if (threadIdx.x == 0) {
    place = blockIdx.x % kArenas * a.arena_size + at_arena;
    const bool fits = at_arena + total <= a.arena_size && at_arena + total >= total;
    if (!fits) {
      atomicOr(&a.control->failure.outcome, kNoRoom);
      place = ~0U;
    }
    a.tiles[blockIdx.x] = {is_bad ? ~0U : fits ? place : 0, fits ? total : 0};
    if (is_bad) atomicOr(&a.control->failure.outcome, kNotFinite);
    bins = tile.bins_for(total, *a.control);
  }
  __syncthreads();
  if (warp == 0) {
    const double norm = add_lanes<kSlices>(lane < kSlices ? slices[lane] : 0);
    if (lane == 0) a.tile_norms[blockIdx.x] = norm;
  }
  if (is_bad) {
#pragma unroll
    for (int row = 0; row < kHalf; ++row) {
      if (!tile.inside(row)) continue;
      if (key(sum[row]) >= kInfinityKey) {
        atomicMin(&a.control->failure.bad, static_cast<unsigned long long>(tile.at(row)));
      } else if constexpr (kHasGradient) {
        using Number = std::conditional_t<kIsVelocity<T>, float, T>;  // which this thread has written
        const Number* const gradient = static_cast<const Number*>(a.gradient);
        a.memory[tile.at(row)] = restored(sum[row], number(gradient, tile.at(row)), a.by);
      }
    }
    return;
  }
  if (in_warp > 0 && place != ~0U) {
    std::uint32_t at = place + before;
#pragma unroll
    for (int row = 0; row < kHalf; ++row) {
      const bool is_taken = (taken >> static_cast<unsigned>(row) & 1U) != 0;
      const unsigned lanes = __ballot_sync(kAllLanes, is_taken);
      if (is_taken) {
        const std::uint32_t mine = at + count_before(lanes);
        a.indices[mine] = static_cast<std::uint32_t>(tile.at(row));
        a.values[mine] = sum[row];
        tile.took(sum[row], *static_cast<volatile std::uint32_t*>(&bins));
        sum[row] = 0;
        if constexpr (!kHasGradient) a.memory[tile.at(row)] = 0;
      }
      at += static_cast<std::uint32_t>(__popc(lanes));
    }
  }
  if constexpr (kHasGradient) {  // without one the others have not changed
#pragma unroll
    for (int row = 0; row < kHalf; ++row) {
      if (tile.inside(row)) a.memory[tile.at(row)] = sum[row];
    }
  }
}

// The pass over a model that is one unit.
struct UnitPassArguments {
  PassArguments pass;
  std::size_t size;
  std::uint32_t threshold;  // key; 0: control->threshold
  std::uint32_t bins;       // of `fine`, where keys from the threshold on are counted
  std::uint32_t* fine;
  bool is_second;  // there was a pass over the same sums, whose candidates were put back
};

// The last tile. Not inlined: it needs more registers, and they would be missing elsewhere.
template <class T>
__device__ __noinline__ void pass_part_of_tile(const PassArguments& a, const PassTile<false>& tile) {
  pass_tile<T>(a, tile);
}

template <class T>
__global__ void __launch_bounds__(kPassThreads, std::is_void_v<T> ? 2 : kPassBlocks)
    pass(const __grid_constant__ UnitPassArguments a) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");  // finish.cuh may start when the last block has
#endif
  if (blockIdx.x == 0 && threadIdx.x == 0) {  // for finish.cuh
    a.pass.control->arrived = a.pass.control->fell = a.pass.control->listed = 0;
    if (may_overflow<T>(a.pass)) atomicOr(&a.pass.control->failure.outcome, kMayOverflow);
  }
  const std::uint32_t threshold = a.threshold != 0 ? a.threshold : a.pass.control->threshold;
  if constexpr (std::is_void_v<T>) {
    if (a.is_second && threshold == kInfinityKey) return;  // it would take nothing
  }
  const std::size_t first = std::size_t{blockIdx.x} * kTile + first_of_thread();
  if ((std::size_t{blockIdx.x} + 1) * kTile <= a.size) {
    pass_tile<T>(a.pass, PassTile<true>{first, a.size, threshold, a.bins, a.fine});
  } else {
    pass_part_of_tile<T>(a.pass, {first, a.size, threshold, a.bins, a.fine});
  }
}

// Before a pass: no arena is used, and nothing has failed. As many threads as there are arenas.
static __global__ void begin_anew(Control* control) {
  control->used[threadIdx.x].value = 0;
  if (threadIdx.x != 0) return;
  control->failure = {~0ULL, kDone};
  control->gathered = control->units_done = control->has_uncounted = 0;
}

// Puts all candidates back. One warp for each tile.
static __global__ void put_back(float* memory, const TileList* tiles, std::size_t n, const std::uint32_t* indices,
                                const float* values) {
  const std::size_t tile = (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  if (tile >= n) return;
  const TileList list = tiles[tile];
  for (std::uint32_t i = threadIdx.x % 32; i < list.count; i += 32)
    memory[indices[list.offset + i]] = values[list.offset + i];
}

// Takes the accumulation back, after all candidates were put back, in tiles that have not done so themselves.
template <class T>
__global__ void restore(float* memory, const void* gradient, std::size_t size, Factors by, const TileList* tiles) {
  if (tiles[blockIdx.x].offset == ~0U) return;
  for (std::size_t i = threadIdx.x; i < kTile; i += blockDim.x) {
    const std::size_t at = std::size_t{blockIdx.x} * kTile + i;
    if (at < size) memory[at] = restored(memory[at], number(static_cast<const T*>(gradient), at), by);
  }
}

}  // namespace sparsewire::cuda
