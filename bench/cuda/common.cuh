// What the benches on a GPU have in common: the yardstick, gradients, and the median.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sparsewire::cuda {

// memory += gradient, of 4 n entries.
static __global__ void add(float4* memory, const float4* gradient, std::size_t n) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float4 m = memory[i];
  const float4 g = gradient[i];
  m.x += g.x;
  m.y += g.y;
  m.z += g.z;
  m.w += g.w;
  memory[i] = m;
}

__device__ inline std::uint32_t mix(std::uint32_t x) {
  x = (x ^ x >> 16U) * 0x7FEB352DU;
  x = (x ^ x >> 15U) * 0x846CA68BU;
  return x ^ x >> 16U;
}

// About N(0, scale^2).
static __global__ void draw(float* gradient, std::size_t n, std::uint32_t seed, float scale) {
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const std::uint32_t a = mix(static_cast<std::uint32_t>(i) ^ mix(seed));
    const std::uint32_t b = mix(a + 0x9E3779B9U);
    const float radius = sqrtf(-2 * __logf((static_cast<float>(a >> 8U) + 0.5F) * 0x1p-24F));
    gradient[i] = scale * radius * __cosf(6.2831853F * static_cast<float>(b >> 8U) * 0x1p-24F);
  }
}

template <class T>
__global__ void fill(T* to, std::size_t n, T number) {
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += std::size_t{gridDim.x} * blockDim.x) {
    to[i] = number;
  }
}

inline double median(std::vector<double> all) {
  std::nth_element(all.begin(), all.begin() + static_cast<long>(all.size() / 2), all.end());
  return all[all.size() / 2];
}

}  // namespace sparsewire::cuda
