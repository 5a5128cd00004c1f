// Which devices there are, and where arrays are.
#include "kernels/cuda/arrays.h"
#include "sparsewire/device.h"
#include "sparsify/cuda/device.h"

namespace sparsewire {
namespace {

__global__ void do_nothing() {}

}  // namespace

bool has_cuda() noexcept { return true; }

bool is_usable(Device device) noexcept {
  if (device.kind == Device::host) return true;
  try {
    cuda::check_device(device);
    const cuda::OnDevice on(device.index);
    cudaFuncAttributes found{};
    const bool has_code = cudaFuncGetAttributes(&found, do_nothing) == cudaSuccess;  // for its architecture
    if (!has_code) cudaGetLastError();
    return has_code;
  } catch (const std::exception&) {
    return false;
  }
}

std::optional<Device> device_of(const void* data) noexcept {
  cudaPointerAttributes where{};
  if (cudaPointerGetAttributes(&where, data) != cudaSuccess) {
    cudaGetLastError();  // so that the next call does not report it
    return std::nullopt;
  }
  if (where.type != cudaMemoryTypeDevice && where.type != cudaMemoryTypeManaged) return std::nullopt;
  return Device{Device::cuda, where.device};
}

void synchronize(Device device, void* stream) {
  if (device.kind == Device::host) return;
  cuda::check_device(device);
  const cuda::OnDevice on(device.index);
  SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
}

}  // namespace sparsewire
