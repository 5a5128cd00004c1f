// Tiles of many units, and the pass that adds a gradient to all of them.
//
// A unit is cut into tiles from its start (kernels/norm.h). A unit that has gaps has tiles of several pieces.
#pragma once

#include "kernels/cuda/pass.cuh"

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

// Such a tile in a pass: takes what reaches the floor of its unit.
template <bool kWhole>
struct UnitPassTile {
  UnitTile tile;
  const Piece* pieces;
  float factor;
  std::uint32_t floor;  // rank

  __device__ bool inside(int row) const {
    return kWhole || first_of_thread() + static_cast<unsigned>(row) * 32 < tile.size;
  }
  __device__ std::size_t at(int row) const {
    const std::uint32_t offset = first_of_thread() + static_cast<unsigned>(row) * 32;
    return kWhole ? tile.begin + offset : index_in(tile, pieces, min(offset, tile.size - 1));
  }
  __device__ bool takes(float sum) const { return rank_of(sum, factor) >= floor; }
  __device__ std::uint32_t bins_for(std::uint32_t /*count*/, Control& /*control*/) const { return 0; }
  __device__ void took(float /*sum*/, std::uint32_t /*bins*/) const {}
};

struct UnitsPassArguments {
  PassArguments pass;
  const UnitTile* tiles;
  const Piece* pieces;
  const Bar* bars;              // for the factors
  const std::uint32_t* floors;  // of units; null: nothing is taken
};

// Not inlined: it needs more registers, and they would be missing elsewhere.
template <class T>
__device__ __noinline__ void pass_part_of_tile(const PassArguments& a, const UnitPassTile<false>& tile) {
  pass_tile<T>(a, tile);
}

// The pass over a model of many units.
template <class T>
__global__ void __launch_bounds__(kPassThreads, std::is_void_v<T> ? 2 : kPassBlocks)
    pass_units(const __grid_constant__ UnitsPassArguments a) {
  const UnitTile tile = a.tiles[blockIdx.x];
  if (threadIdx.x == 0 && blockIdx.x + kBlocksAhead < gridDim.x) prefetch(a.tiles + blockIdx.x + kBlocksAhead);
  const std::uint32_t floor = a.floors == nullptr ? ~0U : a.floors[tile.unit];
  const float factor = a.bars[tile.unit].factor;
  if (tile.size == kTile && tile.pieces == 1) {
    pass_tile<T>(a.pass, UnitPassTile<true>{tile, a.pieces, factor, floor});
  } else {
    pass_part_of_tile<T>(a.pass, {tile, a.pieces, factor, floor});
  }
}

// Takes the accumulation back in tiles that have not done so themselves. One block for each tile.
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    restore_tiles(float* memory, const void* gradient, Factors by, const UnitTile* tiles, const Piece* pieces,
                  const TileList* lists) {
  if (lists[blockIdx.x].offset == ~0U) return;
  const UnitTile tile = tiles[blockIdx.x];
  for (std::uint32_t offset = threadIdx.x; offset < tile.size; offset += kTileThreads) {
    const std::size_t at = index_in(tile, pieces, offset);
    memory[at] = restored(memory[at], number(static_cast<const T*>(gradient), at), by);
  }
}

}  // namespace sparsewire::cuda
