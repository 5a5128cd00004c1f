// The host's part of a step on a GPU, for callgrind: chunks of four entries, with a runtime whose kernels do nothing
// (tests/cuda/idle_runtime.h). So it needs no GPU, and no device hides what the host does.
//
//   cuda_host_bench [units [steps]]
#include <cstdlib>
#include <vector>

#include "sparsewire/sifter.h"

int main(int count, char** arguments) {
  const std::size_t units = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 24'415;
  const std::size_t steps = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 11;
  const std::vector<float> numbers(4 * units, 1.0F);
  sparsewire::Gradient gradient(numbers);
  gradient.device = {sparsewire::Device::cuda, 0};
  sparsewire::Sifter sifter("topk:k=1,chunk=4", "ef:decay=0.95", {.layout = sparsewire::Layout(numbers.size())});
  sparsewire::SparseVector sent;
  for (std::size_t step = 0; step < steps; ++step) sifter.sift(gradient, sent);
}
