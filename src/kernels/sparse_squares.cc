// The squares of entries that are few among many, in the order of norm.h.
#include "kernels/norm.h"
#include "kernels/targets.h"  // must come before foreach_target.h
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sparse_squares.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sparsewire::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Doubles = hn::CappedTag<double, kSlices>;
using Double = hn::Vec<Doubles>;
constexpr Doubles kDoubles;
constexpr std::size_t kDoubleWidth = hn::MaxLanes(kDoubles);

// The lanes of all slices of a tile: lane l of slice number s is at[l * kSlices + s], so that slices are added up side
// by side.
struct TileLanes {
  HWY_ALIGN double at[kLanes * kSlices] = {};

  HWY_INLINE Double take(double* from) {
    const Double taken = hn::Load(kDoubles, from);
    hn::Store(hn::Zero(kDoubles), kDoubles, from);
    return taken;
  }
  // The sum of the tile. Leaves zeros.
  HWY_INLINE double total() {
    constexpr std::size_t kHalf = kLanes / 2;
    HWY_ALIGN double slices[kSlices];
    for (std::size_t s = 0; s < kSlices; s += kDoubleWidth) {
      Double sums[kHalf];
      for (std::size_t l = 0; l < kHalf; ++l) {
        sums[l] = hn::Add(take(at + l * kSlices + s), take(at + (l + kHalf) * kSlices + s));
      }
      for (std::size_t half = kHalf / 2; half > 0; half /= 2) {
        for (std::size_t l = 0; l < half; ++l) sums[l] = hn::Add(sums[l], sums[l + half]);
      }
      hn::Store(sums[0], kDoubles, slices + s);
    }
    return add_pairwise(slices, kSlices);
  }
};

void sum_sparse_squares(const std::uint32_t* indices, const float* values, std::size_t n, std::size_t shift,
                        double* tiles) {
  TileLanes lanes;
  for (std::size_t i = 0; i < n;) {
    const std::size_t tile = (indices[i] - shift) / kTile;
    if (i + 1 == n || (indices[i + 1] - shift) / kTile != tile) {  // a single entry: adding zeros changes nothing
      tiles[tile] = static_cast<double>(values[i]) * static_cast<double>(values[i]);
      ++i;
      continue;
    }
    do {
      const std::size_t place = (indices[i] - shift) % kTile;
      const double wide = values[i];
      lanes.at[place % kLanes * kSlices + place / kSlice] += wide * wide;
      ++i;
    } while (i < n && (indices[i] - shift) / kTile == tile);
    tiles[tile] = lanes.total();
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sparsewire::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sparsewire::kernels {
namespace {
HWY_EXPORT(sum_sparse_squares);
}  // namespace

void sum_sparse_squares(const std::uint32_t* indices, const float* values, std::size_t n, std::size_t shift,
                        double* tiles) noexcept {
  HWY_DYNAMIC_DISPATCH(sum_sparse_squares)(indices, values, n, shift, tiles);
}

}  // namespace sparsewire::kernels
#endif  // HWY_ONCE
