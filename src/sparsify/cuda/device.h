// Whether there is such a device, and whether an array is on it.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "sparsewire/errors.h"
#include "sparsewire/gradient.h"

namespace sparsewire::cuda {

// Throws UsageError if there is no such device.
inline void check_device(Device device) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && device.index >= 0 && device.index < count) return;
  cudaGetLastError();  // so that the next call does not report it
  throw UsageError("there is no device cuda:" + std::to_string(device.index) + ": " +
                   (code != cudaSuccess ? cudaGetErrorString(code) : "this machine has " + std::to_string(count)));
}

// Throws UsageError unless the array is in the memory of this device.
inline void check_array(const void* data, Device said, int device) {
  cudaPointerAttributes where{};
  const cudaError_t code = cudaPointerGetAttributes(&where, data);
  if (code != cudaSuccess) cudaGetLastError();
  const bool is_there =
      where.type == cudaMemoryTypeManaged || (where.type == cudaMemoryTypeDevice && where.device == device);
  if (code == cudaSuccess && is_there && said == Device{Device::cuda, device}) return;
  throw UsageError("an array that is said to be on cuda:" + std::to_string(said.index) +
                   " is not in the memory of cuda:" + std::to_string(device));
}

}  // namespace sparsewire::cuda
