// The types of a gradient's numbers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/sweep.h"

namespace sparsewire::cuda {

// Calls f with a null pointer to the type of the gradient's numbers; void: there is none.
template <class F>
void with_type(const kernels::ScaledGradient* gradient, F f) {
  if (gradient == nullptr) return f(static_cast<void*>(nullptr));
  switch (gradient->type) {
    case NumberType::f32:
      return f(static_cast<float*>(nullptr));
    case NumberType::bf16:
      return f(static_cast<__nv_bfloat16*>(nullptr));
    case NumberType::f16:
      return f(static_cast<__half*>(nullptr));
  }
}

}  // namespace sparsewire::cuda
