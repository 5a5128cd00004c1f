#include <type_traits>

#include "kernels/cuda/gradient_norm.h"
#include "kernels/cuda/groups.cuh"
#include "kernels/cuda/types.h"

namespace sparsewire::cuda {
namespace {

struct NormArguments {
  const void* gradient;
  std::size_t size;
  std::uint32_t tiles;
  std::uint32_t groups;
  double* norms;
  double* group_norms;
  std::uint32_t* counts;
  kernels::Clip clip;  // limit 0: none
  float scale;
  float decay;
  Clipped* result;
};

// Whether this block is the last of `members` that come here. Then it sees what the others have written.
__device__ bool is_last_of(std::uint32_t members, std::uint32_t* count, std::uint32_t& is_last) {
  if (threadIdx.x == 0) {
    __threadfence();
    is_last = atomicAdd(count, 1) + 1 == members ? 1 : 0;
    if (is_last != 0) *count = 0;  // for the next norm
    __threadfence();
  }
  __syncthreads();
  return is_last != 0;
}

// One block for each tile. Whoever completes a group adds it up, and whoever completes the groups, all. The first tiles
// come last: those are in the cache when a pass over the gradient begins.
template <class T>
__global__ void __launch_bounds__(kTileThreads) find_norm(const __grid_constant__ NormArguments a) {
  __shared__ double slices[kSlices];
  __shared__ std::uint32_t is_last;
  const std::uint32_t tile = gridDim.x - 1 - blockIdx.x;
  const std::size_t first = std::size_t{tile} * kTile + threadIdx.x / 32 * kSlice + threadIdx.x % 32;
  const T* const gradient = static_cast<const T*>(a.gradient);
  float numbers[kRows];
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const std::size_t at = first + static_cast<std::size_t>(row) * 32;
    numbers[row] = at < a.size ? number(gradient, at) : 0;
  }
  double lane_sum = 0;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    lane_sum += static_cast<double>(numbers[row]) * static_cast<double>(numbers[row]);
  }
  const double norm = add_tile(lane_sum, slices);
  if (threadIdx.x == 0) __stcg(a.norms + tile, norm);
  const std::uint32_t group = tile / static_cast<std::uint32_t>(kTile);
  const std::uint32_t begin = group * static_cast<std::uint32_t>(kTile);
  const std::uint32_t members = min(a.tiles - begin, static_cast<std::uint32_t>(kTile));
  if (!is_last_of(members, a.counts + group, is_last)) return;
  const double group_norm = add_group(a.norms + begin, members, slices);
  if (threadIdx.x == 0) __stcg(a.group_norms + group, group_norm);
  if (!is_last_of(a.groups, a.counts + a.groups, is_last)) return;
  const double norm2 = add_group(a.group_norms, a.groups, slices);
  if (threadIdx.x != 0) return;
  Clipped result{norm2, a.scale, 0};
  if (a.clip.limit > 0) {
    const double root = __dsqrt_rn(norm2);
    result.scale = a.clip.scale_of(root, a.scale);
    result.may_overflow = kernels::stays_finite(a.decay, result.scale, root) ? 0 : 1;
  }
  *a.result = result;
}

}  // namespace

void GradientNorm::queue(const kernels::ScaledGradient& gradient, const kernels::Clip* clip, cudaStream_t stream) {
  const std::size_t tiles = kernels::tiles_of(gradient.size);
  const std::size_t groups = kernels::tiles_of(tiles);
  norms_.reserve(tiles + groups);
  counts_.reserve(groups + 1);
  result_.reserve(1);
  const NormArguments arguments{.gradient = gradient.data,
                                .size = gradient.size,
                                .tiles = static_cast<std::uint32_t>(tiles),
                                .groups = static_cast<std::uint32_t>(groups),
                                .norms = norms_.data(),
                                .group_norms = norms_.data() + tiles,
                                .counts = counts_.data(),
                                .clip = clip == nullptr ? kernels::Clip{0} : *clip,
                                .scale = gradient.scale,
                                .decay = gradient.decay,
                                .result = result_.data()};
  with_type(&gradient, [&]<class T>(T*) {
    if constexpr (!std::is_void_v<T>) {
      find_norm<T><<<static_cast<unsigned>(tiles), kTileThreads, 0, stream>>>(arguments);
    }
  });
  SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace sparsewire::cuda
