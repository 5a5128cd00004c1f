// What the steps over one unit need in device memory, and how it grows. Has kernels, so one file may include it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/arrays.h"
#include "kernels/cuda/gradient_norm.h"
#include "kernels/cuda/last_round.h"
#include "kernels/cuda/pass.cuh"
#include "kernels/cuda/scratch.cuh"

namespace sparsewire::cuda {

// How many candidates a guessed threshold should give: as TopSelector has it.
inline std::size_t wanted(std::size_t k) {
  const auto count = static_cast<double>(k);
  return static_cast<std::size_t>(count + std::max(0.12 * count, 4 * std::sqrt(count) + 8));
}

static __global__ void set_threshold(Control* control, std::uint32_t key) {
  control->threshold = key;
  control->margin = 0.01F;
}

struct UnitArrays {
  UnitArrays(float* numbers, std::size_t entries, std::size_t most_entries)
      : size(entries), tile_count(kernels::tiles_of(entries)), memory(numbers) {
    if (numbers == nullptr) {
      owned.resize(size);
      memory = owned.data();
    }
    control.resize(1);
    begin_anew<<<1, kArenas>>>(control.data());
    set_threshold<<<1, 1>>>(control.data(), kLowestKey);
    SPARSEWIRE_CUDA_CHECK(cudaGetLastError());
    tiles.resize(tile_count);
    fine.resize(kFine);
    const std::size_t groups = (tile_count + kTile - 1) / kTile;
    tile_norms.resize(tile_count);
    group_norms.resize(groups);
    group_counts.resize(groups);
    reserve(most_entries);
    SPARSEWIRE_CUDA_CHECK(cudaHostAlloc(&result, sizeof(PublishedResult), cudaHostAllocMapped));
    new (result) PublishedResult;
    SPARSEWIRE_CUDA_CHECK(cudaHostGetDevicePointer(&result_on_device, result, 0));
    SPARSEWIRE_CUDA_CHECK(cudaStreamSynchronize(nullptr));  // other streams do not wait for this one
  }
  ~UnitArrays() { cudaFreeHost(result); }
  UnitArrays(const UnitArrays&) = delete;
  UnitArrays& operator=(const UnitArrays&) = delete;

  // Twice as many candidates as a guess should give, and room for a whole tile in each arena.
  void reserve(std::size_t entries) {
    most = entries;
    arena_size = static_cast<std::uint32_t>(std::min(2 * wanted(entries), size) / kArenas + kTile);
    indices.resize(std::size_t{arena_size} * kArenas);
    values.resize(std::size_t{arena_size} * kArenas);
    out_indices.resize(indices.size());  // of a threshold, every candidate is sent
    out_values.resize(indices.size());
  }

  unsigned grid_of_tiles() const { return grid(tile_count); }
  static unsigned grid(std::size_t n) { return static_cast<unsigned>(n); }

  std::size_t size;
  std::size_t tile_count;
  std::size_t most = 0;
  std::uint32_t arena_size = 0;
  cudaStream_t stream = nullptr;
  PublishedResult* result = nullptr;  // on the host
  PublishedResult* result_on_device = nullptr;
  DeviceArray<float> owned;
  float* memory;
  DeviceArray<Control> control;
  DeviceArray<TileList> tiles;
  DeviceArray<std::uint32_t> fine;
  DeviceArray<double> tile_norms, group_norms;
  DeviceArray<std::uint32_t> group_counts;
  DeviceArray<std::uint32_t> indices, out_indices, sampled;
  LastRoundOnDevice last_round;
  GradientNorm norm;  // of what is added to a velocity first
  DeviceArray<float> values, out_values;
};

}  // namespace sparsewire::cuda
