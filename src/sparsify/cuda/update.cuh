// How an update gets into an array of the caller.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "sparsewire/support/half.h"
#include "kernels/cuda/check.h"
#include "sparsewire/gradient.h"

namespace sparsewire::cuda {

inline constexpr unsigned kUpdateThreads = 256;
inline unsigned update_blocks(std::size_t entries) {
  return static_cast<unsigned>(std::clamp<std::size_t>((entries + kUpdateThreads - 1) / kUpdateThreads, 1, 1U << 16U));
}

// Numbers of an array: as floats, or as the bits of 16-bit floats (sparsewire/support/half.h).
struct F32 {
  using Bits = float;
  __device__ static float widened(float number) { return number; }
  __device__ static float rounded(float number) { return number; }
};
struct Bf16 {
  using Bits = std::uint16_t;
  __device__ static float widened(std::uint16_t bits) { return from_bf16(bits); }
  __device__ static std::uint16_t rounded(float number) { return to_bf16(number); }
};
struct F16 {
  using Bits = std::uint16_t;
  __device__ static float widened(std::uint16_t bits) { return from_f16(bits); }
  __device__ static std::uint16_t rounded(float number) { return to_f16(number); }
};

template <class T>
__global__ void write_update(void* array, const std::uint32_t* indices, const float* values, std::size_t n,
                             float factor) {
  auto* numbers = static_cast<typename T::Bits*>(array);
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    numbers[indices == nullptr ? i : indices[i]] = T::rounded(__fmul_rn(factor, values[i]));
  }
}

template <class T>
__global__ void subtract_update(void* array, const std::uint32_t* indices, const float* values, std::size_t n,
                                float factor) {
  auto* numbers = static_cast<typename T::Bits*>(array);
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    const std::size_t at = indices == nullptr ? i : indices[i];
    numbers[at] = T::rounded(__fsub_rn(T::widened(numbers[at]), __fmul_rn(factor, values[i])));
  }
}

template <class F>
void with_numbers_of(NumberType type, F f) {
  switch (type) {
    case NumberType::f32:
      return f(F32());
    case NumberType::bf16:
      return f(Bf16());
    case NumberType::f16:
      return f(F16());
  }
}

// array[index] = factor * value, for `n` entries. indices: null for a full vector.
inline void queue_write(const WritableNumbers& array, const std::uint32_t* indices, const float* values, std::size_t n,
                        float factor, cudaStream_t stream) {
  if (n == 0) return;
  with_numbers_of(array.type, [&]<class T>(T) {
    write_update<T><<<update_blocks(n), kUpdateThreads, 0, stream>>>(array.data, indices, values, n, factor);
  });
  SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
}
// array[index] -= factor * value.
inline void queue_subtract(const WritableNumbers& array, const std::uint32_t* indices, const float* values,
                           std::size_t n, float factor, cudaStream_t stream) {
  if (n == 0) return;
  with_numbers_of(array.type, [&]<class T>(T) {
    subtract_update<T><<<update_blocks(n), kUpdateThreads, 0, stream>>>(array.data, indices, values, n, factor);
  });
  SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace sparsewire::cuda
