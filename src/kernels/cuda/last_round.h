// The entries of RegTop-k's last round on their way to the device, while a pass is running.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "kernels/cuda/arrays.h"
#include "kernels/second_choice.h"

namespace sparsewire::cuda {

class LastRoundOnDevice {
 public:
  // REQUIRES: nothing is queued that uses the last one.
  void reserve(std::size_t count) {
    if (side_ == nullptr) side_ = std::make_unique<StreamOrder>();
    side_->wait();
    numbers_.reserve(count);
    host_.reserve(count);
  }
  // What is queued on `stream` from now on may read it. REQUIRES: room.
  void upload(std::span<const kernels::LastRound> round, cudaStream_t stream) {
    std::copy(round.begin(), round.end(), host_.data());
    SPARSEWIRE_CUDA_CHECK(
        cudaMemcpyAsync(numbers_.data(), host_.data(), round.size_bytes(), cudaMemcpyHostToDevice, side_->own()));
    side_->end(side_->own());
    side_->begin(stream);
  }
  const kernels::LastRound* data() const noexcept { return numbers_.data(); }

 private:
  std::unique_ptr<StreamOrder> side_;  // a stream for it
  DeviceArray<kernels::LastRound> numbers_;
  PinnedArray<kernels::LastRound> host_;
};

}  // namespace sparsewire::cuda
