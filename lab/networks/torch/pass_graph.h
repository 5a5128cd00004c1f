// Kernels of a pass, recorded once and launched again as one CUDA graph: a small batch takes longer to launch kernel by
// kernel than to compute.
#pragma once

#include <c10/core/Stream.h>

#include <functional>
#include <memory>

namespace sparsewire::train::torch {

class PassGraph {
 public:
  virtual ~PassGraph() = default;
  // Launches what was recorded, on the current stream. It reads and writes the tensors that it was recorded with.
  virtual void replay() = 0;
};

// The stream as CUDA knows it; null if this build does not: it needs the headers of CUDA.
void* native_stream(const c10::Stream& stream);

// Records what `work` launches on the current stream, which must not be the default one; nothing is computed. Null if
// this build cannot: it needs the headers of CUDA. Throws as `work` does, and if it does what a graph cannot hold.
std::unique_ptr<PassGraph> record_pass(const std::function<void()>& work);

}  // namespace sparsewire::train::torch
