// Arrays of the caller on a GPU: updates are written to them.

#include "core/half.h"
#include "kernels/cuda/arrays.h"
#include "sparsify/cuda/device.h"
#include "sparsify/cuda/host_entries.h"
#include "sparsify/device_memory.h"

namespace sparsewire {
namespace cuda {
namespace {

// Numbers of an array: as floats, or as the bits of 16-bit floats (core/half.h).
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

// indices: null for a full vector.
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

class CudaArrays final : public DeviceArrays {
 public:
  explicit CudaArrays(int device) : device_(device) {}

  void write(const SparseVector& entries, float factor, const WritableNumbers& to) override {
    if (to.size == 0) return;
    const OnDevice on(device_);
    const cudaStream_t stream = give(entries, to);
    if (!entries.is_full()) SPARSEWIRE_CUDA_CHECK(cudaMemsetAsync(to.data, 0, to.size_bytes(), stream));
    if (entries.size() > 0) {
      with_numbers_of(to.type, [&]<class T>(T) {
        write_update<T><<<blocks(entries), 256, 0, stream>>>(to.data, indices_of(entries), given_.values.data(),
                                                             entries.size(), factor);
      });
      SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    }
    order_.end(stream);
  }

  void subtract(const SparseVector& entries, float factor, const WritableNumbers& from) override {
    if (from.size == 0 || entries.size() == 0) return;
    const OnDevice on(device_);
    const cudaStream_t stream = give(entries, from);
    with_numbers_of(from.type, [&]<class T>(T) {
      subtract_update<T><<<blocks(entries), 256, 0, stream>>>(from.data, indices_of(entries), given_.values.data(),
                                                              entries.size(), factor);
    });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
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
  static unsigned blocks(const SparseVector& entries) {
    return static_cast<unsigned>(std::clamp<std::size_t>((entries.size() + 255) / 256, 1, 1U << 16U));
  }
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
