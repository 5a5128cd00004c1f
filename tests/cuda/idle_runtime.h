// A CUDA runtime for machines without a GPU, whose kernels do nothing: what is above it runs as ever, and can be
// watched. Arrays of the device lie on the host, and are 0 as long as nobody copies something there.
#pragma once

#include <cstddef>

namespace sparsewire::cuda_test {

// Calls since the program began.
struct RuntimeCalls {
  std::size_t launches = 0;
  std::size_t to_device = 0;  // copies
  std::size_t to_host = 0;
  std::size_t allocations = 0;
};
RuntimeCalls runtime_calls();

}  // namespace sparsewire::cuda_test
