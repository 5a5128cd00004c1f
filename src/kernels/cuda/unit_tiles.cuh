// Tiles of many units, and the pass that adds a gradient to all of them.
//
// A unit is cut into tiles from its start (kernels/norm.h). A unit that has gaps has tiles of several pieces.
#pragma once

#include <type_traits>

#include "kernels/cuda/tile.cuh"

namespace sparsewire::cuda {

struct UnitTile {
  std::uint64_t begin = 0;  // the index of its first entry
  std::uint32_t size = 0;
  std::uint32_t unit = 0;
  std::uint32_t piece = 0;  // the number of its first piece, if it has several
  std::uint32_t pieces = 1;
};

// Consecutive entries of a tile.
struct Piece {
  std::uint64_t begin = 0;
  std::uint32_t offset = 0;  // of its first entry in the tile
};

struct UnitTiles {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

__device__ inline std::size_t index_in(const UnitTile& tile, const Piece* pieces, std::uint32_t offset) {
  if (tile.pieces == 1) return tile.begin + offset;
  std::uint32_t low = tile.piece;
  std::uint32_t high = tile.piece + tile.pieces;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (pieces[middle].offset <= offset ? low : high) = middle;
  }
  return pieces[low].begin + (offset - pieces[low].offset);
}

// Entries are compared by *ranks*: the key of |factor * x|, plus 1; 0 for an entry that is zero and therefore not sent.
__device__ inline std::uint32_t rank_of(float x, float factor) {
  return key(x) == 0 ? 0 : key(__fmul_rn(factor, x)) + 1;
}

// What a unit sends: the entries with a higher rank, and as many as `quota` of those with this rank, the first ones.
struct Bar {
  std::uint32_t rank = 0;
  std::uint32_t quota = 0;
  float factor = 1;
};

// The entry of this thread in a row of its slice: lane l of the warp of a slice has the entries l, l + 32, ...
__device__ inline std::uint32_t offset_of(int row) {
  return threadIdx.x / 32 * static_cast<std::uint32_t>(kSlice) + threadIdx.x % 32 +
         static_cast<std::uint32_t>(row) * 32;
}

// Adds the gradient (T; void: none) to the memory, and writes the sum of the squares of each tile. A tile with a sum
// that is not finite brings its entries to where kernels::make_round_trip() brings them, and says so in `is_bad`; `bad`
// becomes the lowest index. If there are floors, counts the entries of each tile whose rank reaches that of its unit.
// One block for each tile.
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    accumulate_tiles(float* memory, const void* gradient, Factors by, const UnitTile* tiles, const Piece* pieces,
                     double* norms, std::uint8_t* is_bad, unsigned long long* bad, const std::uint32_t* floors,
                     const Bar* bars, std::uint32_t* candidates) {
  constexpr bool kHasGradient = !std::is_void_v<T>;
  __shared__ double slices[kSlices];
  __shared__ std::uint32_t counts[kSlices];
  const UnitTile tile = tiles[blockIdx.x];
  float sum[kRows];
  std::uint32_t largest = 0;
  double lane_sum = 0;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const std::uint32_t offset = offset_of(row);
    sum[row] = 0;
    if (offset < tile.size) {
      const std::size_t at = index_in(tile, pieces, offset);
      sum[row] = memory[at];
      if constexpr (kHasGradient) sum[row] = accumulated(sum[row], number(static_cast<const T*>(gradient), at), by);
    }
    largest = max(largest, key(sum[row]));
    lane_sum += static_cast<double>(sum[row]) * static_cast<double>(sum[row]);
  }
  if (floors != nullptr) {
    const std::uint32_t least = floors[tile.unit];
    const float factor = bars[tile.unit].factor;
    std::uint32_t count = 0;
#pragma unroll
    for (int row = 0; row < kRows; ++row) count += rank_of(sum[row], factor) >= least ? 1 : 0;
    count = __reduce_add_sync(kAllLanes, count);
    if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = count;
  }
  const bool tile_is_bad = __syncthreads_or(largest >= kInfinityKey) != 0;
  if (floors != nullptr && threadIdx.x == 0) {
    std::uint32_t count = 0;
    for (unsigned w = 0; w < kSlices; ++w) count += counts[w];
    candidates[blockIdx.x] = tile_is_bad ? 0 : count;
  }
  const double norm = add_tile(lane_sum, slices);
  if (threadIdx.x == 0) {
    norms[blockIdx.x] = norm;
    is_bad[blockIdx.x] = tile_is_bad ? 1 : 0;
  }
  if constexpr (kHasGradient) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const std::uint32_t offset = offset_of(row);
      if (offset >= tile.size) continue;
      const std::size_t at = index_in(tile, pieces, offset);
      if (!tile_is_bad) {
        memory[at] = sum[row];
      } else if (key(sum[row]) >= kInfinityKey) {
        atomicMin(bad, static_cast<unsigned long long>(at));
      } else {
        memory[at] = restored(sum[row], number(static_cast<const T*>(gradient), at), by);
      }
    }
  }
}

// Takes the accumulation back in tiles that have not done so themselves. One block for each tile.
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    restore_tiles(float* memory, const void* gradient, Factors by, const UnitTile* tiles, const Piece* pieces,
                  const std::uint8_t* is_bad) {
  if (is_bad[blockIdx.x] != 0) return;
  const UnitTile tile = tiles[blockIdx.x];
  for (std::uint32_t offset = threadIdx.x; offset < tile.size; offset += kTileThreads) {
    const std::size_t at = index_in(tile, pieces, offset);
    memory[at] = restored(memory[at], number(static_cast<const T*>(gradient), at), by);
  }
}

}  // namespace sparsewire::cuda
