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

}  // namespace sparsewire::kernels
