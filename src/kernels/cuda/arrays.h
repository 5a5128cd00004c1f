// Memory of the device and pinned memory of the host, which free themselves; and which device is the current one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/cuda/check.h"

namespace sparsewire::cuda {

template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t count) { resize(count); }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  // The contents are lost; all bytes are 0.
  void resize(std::size_t count) {
    size_ = 0;
    SPARSEWIRE_CUDA_CHECK(cudaFree(std::exchange(data_, nullptr)));
    SPARSEWIRE_CUDA_CHECK(cudaMalloc(&data_, std::max<std::size_t>(count, 1) * sizeof(T)));
    SPARSEWIRE_CUDA_CHECK(cudaMemset(data_, 0, std::max<std::size_t>(count, 1) * sizeof(T)));
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(nullptr));  // other streams do not wait for this one
    size_ = count;
  }
  // The same if there is not enough room; grows by half, so that the steady state allocates nothing.
  void reserve(std::size_t count) {
    if (count > size_) resize(std::max(count, size_ + size_ / 2));
  }
  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// Of the host, where the device can read and write it.
template <class T>
class PinnedArray {
 public:
  PinnedArray() = default;
  ~PinnedArray() { cudaFreeHost(data_); }
  PinnedArray(const PinnedArray&) = delete;
  PinnedArray& operator=(const PinnedArray&) = delete;

  // The contents are lost if there is not enough room.
  void reserve(std::size_t count) {
    if (count <= size_) return;
    count = std::max(count, size_ + size_ / 2);
    size_ = 0;
    SPARSEWIRE_CUDA_CHECK(cudaFreeHost(std::exchange(data_, nullptr)));
    SPARSEWIRE_CUDA_CHECK(cudaHostAlloc(&data_, count * sizeof(T), cudaHostAllocDefault));
    size_ = count;
  }
  T* data() const noexcept { return data_; }
  T& operator[](std::size_t i) const noexcept { return data_[i]; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// Makes a device the current one of this thread, as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    SPARSEWIRE_CUDA_CHECK(cudaGetDevice(&before_));
    if (before_ != device) SPARSEWIRE_CUDA_CHECK(cudaSetDevice(device));
  }
  ~OnDevice() { cudaSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

// Brings work on several streams into one order: each begins when what was queued before is done.
class StreamOrder {
 public:
  StreamOrder() {
    SPARSEWIRE_CUDA_CHECK(cudaStreamCreateWithFlags(&own_, cudaStreamNonBlocking));
    SPARSEWIRE_CUDA_CHECK(cudaEventCreateWithFlags(&last_, cudaEventDisableTiming));
  }
  ~StreamOrder() {
    cudaEventSynchronize(last_);
    cudaEventDestroy(last_);
    cudaStreamDestroy(own_);
  }
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // The stream for work that no other stream is given for.
  cudaStream_t own() const noexcept { return own_; }
  // What is queued on this stream from now on comes after all that was queued before.
  void begin(cudaStream_t stream) const { SPARSEWIRE_CUDA_CHECK(cudaStreamWaitEvent(stream, last_, 0)); }
  // All is queued.
  void end(cudaStream_t stream) const { SPARSEWIRE_CUDA_CHECK(cudaEventRecord(last_, stream)); }
  // Waits until all is done.
  void wait() const { SPARSEWIRE_CUDA_CHECK(cudaEventSynchronize(last_)); }

 private:
  cudaStream_t own_ = nullptr;
  cudaEvent_t last_ = nullptr;
};

}  // namespace sparsewire::cuda
