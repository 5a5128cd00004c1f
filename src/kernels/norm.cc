#include "kernels/norm.h"

#include <algorithm>

namespace sparsewire::kernels {
namespace {

// The tree of a tile, for numbers that are added as they are.
double sum_tile(const double* numbers, std::size_t n) noexcept {
  std::array<double, kSlices> slices{};
  for (std::size_t s = 0; s * kSlice < n; ++s) {
    std::array<double, kLanes> lanes{};
    const std::size_t end = std::min(n, (s + 1) * kSlice);
    for (std::size_t i = s * kSlice; i < end; ++i) lanes[i % kLanes] += numbers[i];
    slices[s] = add_pairwise(lanes.data(), kLanes);
  }
  return add_pairwise(slices.data(), kSlices);
}

}  // namespace

double sum_tiles(double* tiles, std::size_t n) noexcept {
  if (n == 0) return 0;
  while (n > 1) {
    for (std::size_t t = 0; t < tiles_of(n); ++t) {
      tiles[t] = sum_tile(tiles + t * kTile, std::min(kTile, n - t * kTile));
    }
    n = tiles_of(n);
  }
  return tiles[0];
}

void SparseNorm::begin(double* sums, std::size_t tiles) noexcept {
  sums_ = sums;
  tiles_ = tiles;
  std::fill_n(sums, tiles, 0.0);
  slice_ = count_ = tile_ = 0;
  slices_.fill(0);
}

// Moves the first entries of a slice to their lanes.
void SparseNorm::spread() noexcept {
  lanes_.fill(0);
  for (std::size_t i = 0; i < kFew; ++i) lanes_[few_lanes_[i]] += few_[i];
}

void SparseNorm::end_slice() noexcept {
  if (count_ == 0) return;
  if (slice_ / kSlices != tile_) {
    sums_[tile_] = add_pairwise(slices_.data(), kSlices);
    slices_.fill(0);
    tile_ = slice_ / kSlices;
  }
  slices_[slice_ % kSlices] = count_ > kFew    ? add_pairwise(lanes_.data(), kLanes)
                              : count_ == kFew ? few_[0] + few_[1]
                                               : few_[0];
  count_ = 0;
}

double SparseNorm::total() noexcept {
  end_slice();
  if (tiles_ != 0) sums_[tile_] = add_pairwise(slices_.data(), kSlices);
  return sum_tiles(sums_, tiles_);
}

}  // namespace sparsewire::kernels
