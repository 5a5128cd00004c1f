// What an object says of itself by __cuda_array_interface__
// (https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html): how CuPy, Numba and others hand out arrays
// on a GPU. bfloat16 has no place in it; it comes by DLPack.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <optional>
#include <string_view>

#include "sparsewire/gradient.h"

namespace sparsewire::python {

struct CudaArrayInterface {
  // Throws UsageError, with `what` in front, if it is no array in C order of numbers that we know.
  CudaArrayInterface(const pybind11::dict& said, std::string_view what);

  void* data = nullptr;
  bool is_read_only = false;
  NumberType type = NumberType::f32;
  std::size_t size = 0;
  std::optional<void*> stream;  // nothing: the numbers are ready
};

}  // namespace sparsewire::python
