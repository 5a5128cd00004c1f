// Arrays of a replica on a GPU.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "loop/replica_arrays.h"

namespace sparsewire::train {
namespace {

void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
}
#define CHECK(call) check((call), #call)

// Makes a device the current one of this thread, as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    CHECK(cudaGetDevice(&before_));
    if (before_ != device) CHECK(cudaSetDevice(device));
  }
  ~OnDevice() { cudaSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

struct FreeOnDevice {
  void operator()(void* data) const { cudaFree(data); }
};
struct FreePinned {
  void operator()(void* data) const { cudaFreeHost(data); }
};
template <class T, class Free>
using Array = std::unique_ptr<T[], Free>;

template <class T>
Array<T, FreeOnDevice> on_device(std::size_t count) {
  T* data = nullptr;
  CHECK(cudaMalloc(&data, std::max<std::size_t>(count, 1) * sizeof(T)));
  return Array<T, FreeOnDevice>(data);
}
template <class T>
Array<T, FreePinned> pinned(std::size_t count) {
  T* data = nullptr;
  CHECK(cudaHostAlloc(&data, count * sizeof(T), cudaHostAllocDefault));
  return Array<T, FreePinned>(data);
}

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
    CHECK(cudaEventCreateWithFlags(&uploaded_, cudaEventDisableTiming));
  }
  ~CudaReplicaArrays() override {
    cudaStreamSynchronize(stream_);
    cudaEventDestroy(uploaded_);
  }
  CudaReplicaArrays(const CudaReplicaArrays&) = delete;
  CudaReplicaArrays& operator=(const CudaReplicaArrays&) = delete;

  float* allocate() override {
    const OnDevice on(device_);
    arrays_.push_back(on_device<float>(size_));
    CHECK(cudaMemsetAsync(arrays_.back().get(), 0, size_ * sizeof(float), stream_));
    return arrays_.back().get();
  }

  void write(std::span<const float> from, float* to) override {
    const OnDevice on(device_);
    CHECK(cudaMemcpyAsync(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream_));
    CHECK(cudaStreamSynchronize(stream_));
  }
  void read(const float* from, std::span<float> to) override {
    const OnDevice on(device_);
    CHECK(cudaMemcpyAsync(to.data(), from, to.size_bytes(), cudaMemcpyDeviceToHost, stream_));
    CHECK(cudaStreamSynchronize(stream_));
  }
  void copy(const float* from, float* to) override {
    const OnDevice on(device_);
    CHECK(cudaMemcpyAsync(to, from, size_ * sizeof(float), cudaMemcpyDeviceToDevice, stream_));
  }
  void subtract(const float* a, const float* b, float* to) override {
    const OnDevice on(device_);
    write_difference<<<blocks_for(size_), kThreads, 0, stream_>>>(a, b, to, size_);
    CHECK(cudaGetLastError());
  }

  void apply(const OptimiserStep& step, const float* update, float* weights, float* first, float* second) override {
    const OnDevice on(device_);
    with_kind(step.kind, [&]<OptimiserStep::Kind kKind>() {
      apply_to_all<kKind><<<blocks_for(size_), kThreads, 0, stream_>>>(step, update, weights, first, second, size_);
    });
    CHECK(cudaGetLastError());
  }

  void apply_sparse(const OptimiserStep& step, const SparseVector& update, float* weights) override {
    const std::size_t n = update.size();
    if (n == 0) return;
    const OnDevice on(device_);
    upload(update);
    apply_to_some<<<blocks_for(n), kThreads, 0, stream_>>>(step, update.is_full() ? nullptr : indices_.get(),
                                                           values_.get(), weights, n);
    CHECK(cudaGetLastError());
  }

 private:
  // The entries, through pinned memory: the copy waits for nothing.
  void upload(const SparseVector& update) {
    const std::size_t n = update.size();
    CHECK(cudaEventSynchronize(uploaded_));  // of the last entries
    if (n > room_) {
      CHECK(cudaStreamSynchronize(stream_));
      room_ = std::max(n, room_ + room_ / 2);
      values_ = on_device<float>(room_);
      indices_ = on_device<std::uint32_t>(room_);
      host_values_ = pinned<float>(room_);
      host_indices_ = pinned<std::uint32_t>(room_);
    }
    std::memcpy(host_values_.get(), update.values.data(), n * sizeof(float));
    CHECK(cudaMemcpyAsync(values_.get(), host_values_.get(), n * sizeof(float), cudaMemcpyHostToDevice, stream_));
    if (!update.is_full()) {
      std::memcpy(host_indices_.get(), update.indices.data(), n * sizeof(std::uint32_t));
      CHECK(cudaMemcpyAsync(indices_.get(), host_indices_.get(), n * sizeof(std::uint32_t), cudaMemcpyHostToDevice,
                            stream_));
    }
    CHECK(cudaEventRecord(uploaded_, stream_));
  }

  int device_;
  cudaStream_t stream_;
  std::size_t size_;
  cudaEvent_t uploaded_ = nullptr;
  std::vector<Array<float, FreeOnDevice>> arrays_;
  std::size_t room_ = 0;  // entries of an update that the arrays below have room for
  Array<std::uint32_t, FreeOnDevice> indices_;
  Array<float, FreeOnDevice> values_;
  Array<std::uint32_t, FreePinned> host_indices_;
  Array<float, FreePinned> host_values_;
};

}  // namespace

std::unique_ptr<ReplicaArrays> make_replica_arrays(Device device, void* stream, std::size_t size) {
  const OnDevice on(device.index);
  return std::make_unique<CudaReplicaArrays>(device.index, static_cast<cudaStream_t>(stream), size);
}

}  // namespace sparsewire::train
