// What launches over a memory have in common. Has kernels, so one file may include it.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/check.h"
#include "kernels/cuda/entries.cuh"
#include "kernels/cuda/tile.cuh"
#include "kernels/sweep.h"

namespace sparsewire::cuda {

using kernels::ScaledGradient;

inline constexpr unsigned long long kNoneBad = ~0ULL;

inline Factors factors_of(const ScaledGradient* gradient) {
  return gradient == nullptr ? Factors{} : Factors{gradient->scale, gradient->decay};
}
inline const void* data_of(const ScaledGradient* gradient) { return gradient == nullptr ? nullptr : gradient->data; }

inline unsigned blocks_for(std::size_t entries) {
  return static_cast<unsigned>(std::clamp<std::size_t>((entries + kEntryThreads - 1) / kEntryThreads, 1, 1U << 16U));
}

template <class T>
void download(const T* from, T* to, std::size_t count, cudaStream_t stream) {
  if (count == 0) return;
  SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
}

}  // namespace sparsewire::cuda
