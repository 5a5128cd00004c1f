// Arrays on a GPU for the tests of unit/device.
#include <stdexcept>

#include "kernels/cuda/check.h"
#include "unit/device/arrays.h"

namespace sparsewire::device_test {

std::string why_none() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess) return std::string("there is no GPU: ") + cudaGetErrorString(code);
  return count > 0 ? "" : "there is no GPU";
}
bool is_fast() { return true; }

void* stream() {
  static const cudaStream_t stream = [] {
    cudaStream_t made = nullptr;
    SPARSEWIRE_CUDA_CHECK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return stream;
}

Copy::Copy(const void* bytes, std::size_t size) : data_(nullptr), size_(size) {
  SPARSEWIRE_CUDA_CHECK(cudaMalloc(&data_, size + 1));
  SPARSEWIRE_CUDA_CHECK(cudaMemcpy(data_, bytes, size, cudaMemcpyHostToDevice));
  SPARSEWIRE_CUDA_CHECK(cudaDeviceSynchronize());
}
Copy::~Copy() { cudaFree(data_); }
void Copy::read(void* bytes) const {
  SPARSEWIRE_CUDA_CHECK(cudaDeviceSynchronize());
  SPARSEWIRE_CUDA_CHECK(cudaMemcpy(bytes, data_, size_, cudaMemcpyDeviceToHost));
}

}  // namespace sparsewire::device_test
