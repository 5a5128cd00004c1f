// Arrays of the caller on a GPU: updates are written to them.

#include "kernels/cuda/arrays.h"
#include "sparsify/cuda/device.h"
#include "sparsify/cuda/host_entries.h"
#include "sparsify/cuda/update.cuh"
#include "sparsify/device_memory.h"

namespace sparsewire {
namespace cuda {
namespace {

class CudaArrays final : public DeviceArrays {
 public:
  explicit CudaArrays(int device) : device_(device) {}

  void write(const SparseVector& entries, float factor, const WritableNumbers& to) override {
    if (to.size == 0) return;
    const OnDevice on(device_);
    const cudaStream_t stream = give(entries, to);
    if (!entries.is_full()) SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(to.data, 0, to.size_bytes(), stream));
    queue_write(to, indices_of(entries), given_.values.data(), entries.size(), factor, stream);
    order_.end(stream);
  }

  void subtract(const SparseVector& entries, float factor, const WritableNumbers& from) override {
    if (from.size == 0 || entries.size() == 0) return;
    const OnDevice on(device_);
    const cudaStream_t stream = give(entries, from);
    queue_subtract(from, indices_of(entries), given_.values.data(), entries.size(), factor, stream);
    order_.end(stream);
  }

  void read(const Gradient& from, void* to) override {
    if (from.size == 0) return;
    const OnDevice on(device_);
    check_array(from.data, from.device, device_);
    const auto stream = static_cast<cudaStream_t>(from.stream);
    const std::size_t bytes = from.size * (from.type == NumberType::f32 ? 4 : 2);
    SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(to, from.data, bytes, cudaMemcpyDeviceToHost, stream));
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream));
  }

 private:
  const std::uint32_t* indices_of(const SparseVector& entries) const {
    return entries.is_full() ? nullptr : given_.indices.data();
  }

  // Copies entries to where the device can read them. Returns the stream of the array.
  cudaStream_t give(const SparseVector& entries, const WritableNumbers& array) {
    check_array(array.data, array.device, device_);
    order_.wait();  // those before may be in use
    given_.set(entries.indices, entries.values);
    const auto stream = static_cast<cudaStream_t>(array.stream);
    order_.begin(stream);
    return stream;
  }

  int device_;
  StreamOrder order_;
  HostEntries given_;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<DeviceArrays> make_device_arrays(Device device) {
  cuda::check_device(device);
  const cuda::OnDevice on(device.index);
  return std::make_unique<cuda::CudaArrays>(device.index);
}

}  // namespace sparsewire
