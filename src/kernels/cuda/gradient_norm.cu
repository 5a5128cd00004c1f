#include <type_traits>

#include "kernels/cuda/gradient_norm.h"
#include "kernels/cuda/groups.cuh"
#include "kernels/cuda/types.h"

namespace sparsewire::cuda {
namespace {

// The sum of the squares of each tile of a gradient. One block for each tile.
template <class T>
__global__ void __launch_bounds__(kTileThreads) square_tiles(const void* gradient, std::size_t size, double* norms) {
  __shared__ double slices[kSlices];
  const std::size_t first = std::size_t{blockIdx.x} * kTile + threadIdx.x / 32 * kSlice + threadIdx.x % 32;
  double lane_sum = 0;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const std::size_t at = first + static_cast<std::size_t>(row) * 32;
    const double one = at < size ? static_cast<double>(number(static_cast<const T*>(gradient), at)) : 0;
    lane_sum += one * one;
  }
  const double norm = add_tile(lane_sum, slices);
  if (threadIdx.x == 0) norms[blockIdx.x] = norm;
}

// The norm, from those of groups of tiles, and what the clip makes of it; limit 0: there is none. One block.
__global__ void __launch_bounds__(kTileThreads)
    clip_norm(const double* group_norms, std::size_t groups, kernels::Clip clip, Factors by, Clipped* result) {
  __shared__ double slices[kSlices];
  const double norm2 = add_group(group_norms, groups, slices);
  if (threadIdx.x != 0) return;
  *result = {norm2, by.scale, 0};
  if (clip.limit == 0) return;
  const double norm = __dsqrt_rn(norm2);
  result->scale = clip.scale_of(norm, by.scale);
  result->may_overflow = kernels::stays_finite(by.decay, result->scale, norm) ? 0 : 1;
}

}  // namespace

void GradientNorm::queue(const kernels::ScaledGradient& gradient, const kernels::Clip* clip, cudaStream_t stream) {
  const std::size_t tiles = kernels::tiles_of(gradient.size);
  const std::size_t groups = kernels::tiles_of(tiles);
  norms_.reserve(tiles + groups);
  result_.reserve(1);
  with_type(&gradient, [&]<class T>(T*) {
    if constexpr (!std::is_void_v<T>) {
      square_tiles<T>
          <<<static_cast<unsigned>(tiles), kTileThreads, 0, stream>>>(gradient.data, gradient.size, norms_.data());
    }
  });
  SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  double* const of_groups = norms_.data() + tiles;
  add_groups<<<static_cast<unsigned>(groups), kTileThreads, 0, stream>>>(norms_.data(), tiles, of_groups);
  SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  clip_norm<<<1, kTileThreads, 0, stream>>>(of_groups, groups, clip == nullptr ? kernels::Clip{0} : *clip,
                                            {gradient.scale, gradient.decay}, result_.data());
  SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace sparsewire::cuda
