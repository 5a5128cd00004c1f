#include "cuda/idle_runtime.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "kernels/cuda/scratch.cuh"

namespace {

sparsewire::cuda_test::RuntimeCalls calls;
int handle;  // its address stands for streams, events and the rest

cudaError_t allocate(void** to, std::size_t size) {
  ++calls.allocations;
  *to = std::calloc(size, 1);
  return *to == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

}  // namespace

namespace sparsewire::cuda_test {
RuntimeCalls runtime_calls() { return calls; }
}  // namespace sparsewire::cuda_test

extern "C" {

cudaError_t cudaMalloc(void** to, std::size_t size) { return allocate(to, size); }
cudaError_t cudaHostAlloc(void** to, std::size_t size, unsigned /*flags*/) { return allocate(to, size); }
cudaError_t cudaHostGetDevicePointer(void** to, void* from, unsigned /*flags*/) {
  *to = from;
  return cudaSuccess;
}
cudaError_t cudaFree(void* array) {
  std::free(array);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* array) { return cudaFree(array); }
cudaError_t cudaMemset(void* /*array*/, int /*byte*/, std::size_t /*size*/) { return cudaSuccess; }
cudaError_t cudaMemsetAsync(void* /*array*/, int /*byte*/, std::size_t /*size*/, cudaStream_t /*stream*/) {
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t /*stream*/) {
  ++(kind == cudaMemcpyHostToDevice ? calls.to_device : calls.to_host);
  if (kind == cudaMemcpyHostToDevice) std::memcpy(to, from, size);
  // No kernel has failed. Nothing else has this size; all other results are 0.
  if (kind == cudaMemcpyDeviceToHost && size == sizeof(sparsewire::cuda::Failure)) {
    *static_cast<sparsewire::cuda::Failure*>(to) = {};
  }
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* where, const void* /*array*/) {
  *where = {};
  where->type = cudaMemoryTypeDevice;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int /*device*/) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr /*attribute*/, int /*device*/) {
  *value = 132;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t /*code*/) { return "an error"; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = reinterpret_cast<cudaStream_t>(&handle);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t /*stream*/, cudaEvent_t /*event*/, unsigned /*flags*/) {
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  *event = reinterpret_cast<cudaEvent_t>(&handle);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t /*event*/) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t /*event*/, cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t /*event*/) { return cudaSuccess; }

cudaError_t cudaFuncSetAttribute(const void* /*kernel*/, cudaFuncAttribute /*attribute*/, int /*value*/) {
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* /*kernel*/) {
  *attributes = {};
  attributes->ptxVersion = attributes->binaryVersion = 90;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* /*kernel*/, int /*threads*/,
                                                                   std::size_t /*shared*/, unsigned /*flags*/) {
  *blocks = 2;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* /*config*/, const void* /*kernel*/, void** /*arguments*/) {
  ++calls.launches;
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* /*kernel*/, dim3 /*grid*/, dim3 /*block*/, void** /*arguments*/,
                             std::size_t /*shared*/, cudaStream_t /*stream*/) {
  ++calls.launches;
  return cudaSuccess;
}

// What nvcc makes of <<<>>> and of kernels.
cudaError_t __cudaGetKernel(void** kernel, const void* /*function*/) {
  *kernel = &handle;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(void* /*kernel*/, dim3 /*grid*/, dim3 /*block*/, void** /*arguments*/,
                               std::size_t /*shared*/, cudaStream_t /*stream*/) {
  ++calls.launches;
  return cudaSuccess;
}
unsigned __cudaPushCallConfiguration(dim3 /*grid*/, dim3 /*block*/, std::size_t /*shared*/, void* /*stream*/) {
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* /*grid*/, dim3* /*block*/, std::size_t* /*shared*/, void* /*stream*/) {
  return cudaSuccess;
}
void** __cudaRegisterFatBinary(void* /*binary*/) {
  static void* none = nullptr;
  return &none;
}
void __cudaRegisterFatBinaryEnd(void** /*binary*/) {}
void __cudaUnregisterFatBinary(void** /*binary*/) {}
void __cudaRegisterFunction(void** /*binary*/, const char* /*host*/, char* /*device*/, const char* /*name*/,
                            int /*limit*/, void* /*tid*/, void* /*bid*/, void* /*block*/, void* /*grid*/,
                            int* /*size*/) {}
void __cudaRegisterVar(void** /*binary*/, char* /*host*/, char* /*device*/, const char* /*name*/, int /*external*/,
                       std::size_t /*size*/, int /*constant*/, int /*global*/) {}
}
