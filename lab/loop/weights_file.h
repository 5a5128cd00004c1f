// Weights in .npy files, for NumPy and for other trainings: one dimension, float32, the tensors in the order of the
// layout.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace sparsewire::train {

// float16 is read too. Throws UsageError if the file cannot be read, has another shape than (size,), or a number in it
// is not finite.
std::vector<float> read_weights(const std::string& path, std::size_t size);

// Replaces the file whole or not at all. Throws std::runtime_error.
void write_weights(const std::string& path, std::span<const float> weights);

}  // namespace sparsewire::train
