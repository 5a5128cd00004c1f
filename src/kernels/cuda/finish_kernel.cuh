// The kernel that finishes a step: it chooses among the candidates of the pass.
#pragma once

#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/finish_choose.cuh"
#include "kernels/cuda/finish_draw.cuh"
#include "kernels/cuda/finish_result.cuh"
#include "kernels/cuda/finish_write.cuh"

namespace sparsewire::cuda {

template <By kBy>
__global__ void __launch_bounds__(kFinishThreads, 2) finish(const __grid_constant__ FinishArguments a) {
  extern __shared__ __align__(16) unsigned char room[];
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");  // until the pass has ended
#endif
  Finish<kBy>(a, *reinterpret_cast<FinishShared<kBy>*>(room)).run();
}

}  // namespace sparsewire::cuda
