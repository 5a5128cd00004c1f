// Sums of squares in one fixed order, which processors and GPUs can both follow at the speed of memory. The bits do not
// depend on threads, SIMD level or device.
//
// The entries of a unit are cut, from its start, into tiles of 4096, and a tile into slices of 512. Entry number o of a
// slice belongs to lane o % 32. A lane adds its squares, which are exact in double, in ascending order. Then lanes are
// added pairwise, lane i and i + 16, then i and i + 8, and so on; then the slices of the tile in the same way: i and
// i + 4, i + 2, i + 1. Missing entries count as 0. Tile sums are added by the same tree, 4096 at a time, until one is
// left. Entries that are sent are summed as a unit of their own: their places in the model do not matter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sparsewire::kernels {

inline constexpr std::size_t kTile = 4096;
inline constexpr std::size_t kSlice = 512;
inline constexpr std::size_t kLanes = 32;
inline constexpr std::size_t kSlices = kTile / kSlice;

inline constexpr std::size_t tiles_of(std::size_t entries) noexcept { return (entries + kTile - 1) / kTile; }

// Adds number i and i + n/2, and so on, until one is left. REQUIRES: n is a power of two. Overwrites the numbers.
inline double add_pairwise(double* numbers, std::size_t n) noexcept {
  for (std::size_t half = n / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) numbers[i] += numbers[i + half];
  }
  return numbers[0];
}

// The tile sums of some consecutive tiles of a unit, added entry by entry or slice by slice.
class TileNorms {
 public:
  // Begins with the first entry of tile number `tile`; the sum of tile t goes to tiles[t].
  void begin(double* tiles, std::size_t tile) noexcept {
    tiles_ = tiles;
    position_ = tile * kTile;
    lanes.fill(0);
    slices_.fill(0);
  }

  // The place of the next entry within its slice.
  std::size_t in_slice() const noexcept { return position_ % kSlice; }

  // The sums of the lanes of the slice that has begun.
  std::array<double, kLanes> lanes;

  // The squares of `count` entries were added to the lanes. REQUIRES: in_slice() + count <= kSlice.
  void advance(std::size_t count) noexcept {
    position_ += count;
    if (in_slice() == 0) end_slice();
  }
  // A whole slice has this sum. REQUIRES: in_slice() == 0.
  void add_slice(double sum) noexcept {
    const std::size_t slice = position_ / kSlice % kSlices;
    slices_[slice] = sum;
    position_ += kSlice;
    if (slice == kSlices - 1) end_tile();
  }
  // No more entries come: ends a tile that is not complete.
  void end() noexcept {
    if (in_slice() != 0) {
      position_ += kSlice - in_slice();
      end_slice();
    }
    if (position_ % kTile != 0) {
      position_ += kTile - position_ % kTile;
      end_tile();
    }
  }

 private:
  void end_slice() noexcept {
    const std::size_t slice = (position_ / kSlice + kSlices - 1) % kSlices;
    slices_[slice] = add_pairwise(lanes.data(), kLanes);
    lanes.fill(0);
    if (slice == kSlices - 1) end_tile();
  }
  void end_tile() noexcept {
    tiles_[position_ / kTile - 1] = add_pairwise(slices_.data(), kSlices);
    slices_.fill(0);
  }

  double* tiles_ = nullptr;
  std::size_t position_ = 0;  // of the next entry in the unit
  std::array<double, kSlices> slices_;
};

// The sum of all tiles. Overwrites them.
double sum_tiles(double* tiles, std::size_t n) noexcept;

}  // namespace sparsewire::kernels
