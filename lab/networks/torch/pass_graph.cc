#include "networks/torch/pass_graph.h"

#ifdef SPARSEWIRE_TORCH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace sparsewire::train::torch {

#ifdef SPARSEWIRE_TORCH_CUDA
namespace {

class RecordedGraph final : public PassGraph {
 public:
  void replay() override { graph.replay(); }
  at::cuda::CUDAGraph graph;
};

}  // namespace

std::unique_ptr<PassGraph> record_pass(const std::function<void()>& work) {
  auto recorded = std::make_unique<RecordedGraph>();
  // Other threads may allocate memory meanwhile: only this one is restricted.
  recorded->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  try {
    work();
  } catch (...) {
    try {
      recorded->graph.capture_end();
    } catch (...) {  // it reports what has gone wrong already
    }
    throw;
  }
  recorded->graph.capture_end();
  return recorded;
}

void* native_stream(const c10::Stream& stream) { return c10::cuda::CUDAStream(stream).stream(); }
#else
void* native_stream(const c10::Stream&) { return nullptr; }

std::unique_ptr<PassGraph> record_pass(const std::function<void()>&) { return nullptr; }
#endif

}  // namespace sparsewire::train::torch
