// Arrays of a replica on a GPU.
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/arrays.h"
#include "train/replica_arrays.h"

namespace sparsewire::train {
namespace {

using cuda::DeviceArray;
using cuda::OnDevice;
using cuda::PinnedArray;

constexpr unsigned kThreads = 256;

unsigned blocks_for(std::size_t n) {
  return static_cast<unsigned>(std::clamp<std::size_t>((n + kThreads - 1) / kThreads, 1, 1U << 16U));
}

__global__ void write_difference(const float* a, const float* b, float* to, std::size_t n) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) to[i] = a[i] - b[i];
}

template <OptimiserStep::Kind kKind>
__global__ void apply_to_all(OptimiserStep step, const float* update, float* weights, float* first, float* second,
                             std::size_t n) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    apply_step<kKind>(step, update[i], weights[i], first == nullptr ? nullptr : first + i,
                      second == nullptr ? nullptr : second + i);
  }
}

// Entries at `indices`; null: at 0, 1, 2, ...
__global__ void apply_to_some(OptimiserStep step, const std::uint32_t* indices, const float* values, float* weights,
                              std::size_t n) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) {
    const std::size_t at = indices == nullptr ? i : indices[i];
    apply_step<OptimiserStep::Kind::plain>(step, values[i], weights[at], nullptr, nullptr);
  }
}

class CudaReplicaArrays final : public ReplicaArrays {
 public:
  CudaReplicaArrays(int device, cudaStream_t stream, std::size_t size) : device_(device), stream_(stream), size_(size) {
    SPARSEWIRE_CUDA_CHECK(cudaEventCreateWithFlags(&uploaded_, cudaEventDisableTiming));
  }
  ~CudaReplicaArrays() override {
    cudaStreamSynchronize(stream_);
    cudaEventDestroy(uploaded_);
  }
  CudaReplicaArrays(const CudaReplicaArrays&) = delete;
  CudaReplicaArrays& operator=(const CudaReplicaArrays&) = delete;

  float* allocate() override {
    const OnDevice on(device_);
    arrays_.push_back(std::make_unique<DeviceArray<float>>(size_));
    return arrays_.back()->data();
  }

  void write(std::span<const float> from, float* to) override {
    const OnDevice on(device_);
    SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream_));
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream_));
  }
  void read(const float* from, std::span<float> to) override {
    const OnDevice on(device_);
    SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(to.data(), from, to.size_bytes(), cudaMemcpyDeviceToHost, stream_));
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream_));
  }
  void copy(const float* from, float* to) override {
    const OnDevice on(device_);
    SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(to, from, size_ * sizeof(float), cudaMemcpyDeviceToDevice, stream_));
  }
  void subtract(const float* a, const float* b, float* to) override {
    const OnDevice on(device_);
    write_difference<<<blocks_for(size_), kThreads, 0, stream_>>>(a, b, to, size_);
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }

  void apply(const OptimiserStep& step, const float* update, float* weights, float* first, float* second) override {
    const OnDevice on(device_);
    with_kind(step.kind, [&]<OptimiserStep::Kind kKind>() {
      apply_to_all<kKind><<<blocks_for(size_), kThreads, 0, stream_>>>(step, update, weights, first, second, size_);
    });
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }

  void apply_sparse(const OptimiserStep& step, const SparseVector& update, float* weights) override {
    const std::size_t n = update.size();
    if (n == 0) return;
    const OnDevice on(device_);
    upload(update);
    apply_to_some<<<blocks_for(n), kThreads, 0, stream_>>>(step, update.is_full() ? nullptr : indices_.data(),
                                                           values_.data(), weights, n);
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
  }

 private:
  // The entries, through pinned memory: the copy waits for nothing.
  void upload(const SparseVector& update) {
    const std::size_t n = update.size();
    SPARSEWIRE_CUDA_CHECK(cudaEventSynchronize(uploaded_));  // of the last entries
    if (values_.size() < n) SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(stream_));
    values_.reserve(n);
    host_values_.reserve(n);
    std::memcpy(host_values_.data(), update.values.data(), n * sizeof(float));
    SPARSEWIRE_CUDA_CHECK(
        cudaMemcpyAsync(values_.data(), host_values_.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream_));
    if (!update.is_full()) {
      indices_.reserve(n);
      host_indices_.reserve(n);
      std::memcpy(host_indices_.data(), update.indices.data(), n * sizeof(std::uint32_t));
      SPARSEWIRE_CUDA_CHECK(cudaMemcpyAsync(indices_.data(), host_indices_.data(), n * sizeof(std::uint32_t),
                                            cudaMemcpyHostToDevice, stream_));
    }
    SPARSEWIRE_CUDA_CHECK(cudaEventRecord(uploaded_, stream_));
  }

  int device_;
  cudaStream_t stream_;
  std::size_t size_;
  cudaEvent_t uploaded_ = nullptr;
  std::vector<std::unique_ptr<DeviceArray<float>>> arrays_;
  DeviceArray<std::uint32_t> indices_;  // of an update
  DeviceArray<float> values_;
  PinnedArray<std::uint32_t> host_indices_;
  PinnedArray<float> host_values_;
};

}  // namespace

std::unique_ptr<ReplicaArrays> make_replica_arrays(Device device, void* stream, std::size_t size) {
  const OnDevice on(device.index);
  return std::make_unique<CudaReplicaArrays>(device.index, static_cast<cudaStream_t>(stream), size);
}

}  // namespace sparsewire::train
