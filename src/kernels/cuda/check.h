// CUDA calls that fail throw.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace sparsewire::cuda {

// A call of the CUDA library failed.
class CudaError : public std::runtime_error {
 public:
  CudaError(const char* call, cudaError_t code)
      : std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code)) {}
};

inline void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw CudaError(call, code);
}

#define SPARSEWIRE_CUDA_CHECK(call) ::sparsewire::cuda::check((call), #call)

}  // namespace sparsewire::cuda
