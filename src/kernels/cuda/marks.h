// For benches: when the results of a step lie on the device, and when the host knows how many they are.
#pragma once

#include <chrono>

#include "kernels/cuda/check.h"

namespace sparsewire::cuda {

struct StepMarks {
  cudaEvent_t on_device = nullptr;                     // indices, values, counts and norms lie on the device
  std::chrono::steady_clock::time_point counted = {};  // the host knows the counts
};
// Null: nobody measures. Of a step that has several passes, the last one sets the marks.
inline thread_local StepMarks* step_marks = nullptr;

inline void mark_on_device(cudaStream_t stream) {
  if (step_marks != nullptr) SPARSEWIRE_CUDA_CHECK(cudaEventRecord(step_marks->on_device, stream));
}
inline void mark_counted() {
  if (step_marks != nullptr) step_marks->counted = std::chrono::steady_clock::now();
}

}  // namespace sparsewire::cuda
