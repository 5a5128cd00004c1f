// The norm of a gradient on a device, in the order of kernels/norm.h, and what clipping makes of it. The host need not
// know it: kernels that are queued later read it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/clip.h"
#include "kernels/cuda/arrays.h"
#include "kernels/sweep.h"

namespace sparsewire::cuda {

struct Clipped {
  double norm2 = 0;
  float scale = 1;                 // of the gradient
  std::uint32_t may_overflow = 0;  // 1: not every sum with it is finite (kernels::stays_finite)
};

// THREADS: one caller at a time.
class GradientNorm {
 public:
  // Queues the norm. What is queued on the stream from now on can read data(). With a clip, also the other members.
  // REQUIRES: size > 0; nothing is queued on another stream that uses the last norm.
  void queue(const kernels::ScaledGradient& gradient, const kernels::Clip* clip, cudaStream_t stream);
  const Clipped* data() const noexcept { return result_.data(); }  // in device memory

 private:
  DeviceArray<double> norms_;  // of tiles, and of groups of 4096 tiles
  DeviceArray<Clipped> result_;
};

}  // namespace sparsewire::cuda
