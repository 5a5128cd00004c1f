// Entries in pinned memory of the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/cuda/arrays.h"

namespace sparsewire::cuda {

// Kernels that look at each entry once read them from here: copying them to the device first takes longer.
struct HostEntries {
  PinnedArray<std::uint32_t> indices;
  PinnedArray<float> values;

  void reserve(std::size_t count) {
    indices.reserve(count);
    values.reserve(count);
  }
  // REQUIRES: the device uses nothing of what was here before.
  void set(std::span<const std::uint32_t> new_indices, std::span<const float> new_values) {
    indices.reserve(new_indices.size());
    values.reserve(new_values.size());
    std::copy(new_indices.begin(), new_indices.end(), indices.data());
    std::copy(new_values.begin(), new_values.end(), values.data());
  }
};

}  // namespace sparsewire::cuda
