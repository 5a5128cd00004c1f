// The entries of a frame on the device, and what the host has to know about them before it chooses a code.
#pragma once

#include "kernels/cuda/block.cuh"
#include "kernels/stretches.h"

namespace sparsewire::cuda {

// Entries in the slots of their units, or one after the other where units had fewer than their slots hold.
struct FrameEntries {
  std::uint32_t units;
  std::uint32_t room;  // of all slots
  const std::uint32_t* slots;
  const std::uint32_t* before;  // entries of the units before each; behind the last, of all
  const std::uint32_t* slot_indices;
  const float* slot_values;
  std::uint32_t* close_indices;
  float* close_values;

  __device__ std::uint32_t count() const { return before[units]; }
  __device__ bool fills_slots() const { return count() == room; }
  __device__ const std::uint32_t* indices() const { return fills_slots() ? slot_indices : close_indices; }
  __device__ const float* values() const { return fills_slots() ? slot_values : close_values; }
};

// How many indices are left out before index number i.
__device__ inline std::uint32_t gap_before(const std::uint32_t* indices, std::size_t i) {
  return i == 0 ? indices[0] : indices[i] - indices[i - 1] - 1;
}

struct FrameSurvey {
  std::uint32_t count = 0;
  std::uint32_t last = 0;  // index
  std::uint32_t runs = 0;  // of consecutive indices
  std::uint32_t gaps[kernels::kMostNumberSample] = {};
  std::uint32_t divisor_gaps[kernels::kMostDivisorSample] = {};
};

// Closes the gaps between the slots, if there are any. One warp for each unit.
static __global__ void close_slots(const __grid_constant__ FrameEntries e) {
  const std::uint32_t u = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (u >= e.units || e.fills_slots()) return;
  const std::uint32_t to = e.before[u];
  const std::uint32_t count = e.before[u + 1] - to;
  for (std::uint32_t i = threadIdx.x % 32; i < count; i += 32) {
    e.close_indices[to + i] = e.slot_indices[e.slots[u] + i];
    e.close_values[to + i] = e.slot_values[e.slots[u] + i];
  }
}

// REQUIRES: survey->runs is 0 before.
static __global__ void survey_entries(const __grid_constant__ FrameEntries e, FrameSurvey* survey) {
  const std::uint32_t* const indices = e.indices();
  const std::uint32_t count = e.count();
  std::uint32_t runs = 0;
  for_each_entry(count, [&](std::size_t i) { runs += i == 0 || gap_before(indices, i) > 0 ? 1 : 0; });
  runs = __reduce_add_sync(kAllLanes, runs);
  if (threadIdx.x % 32 == 0 && runs > 0) atomicAdd(&survey->runs, runs);
  const kernels::Stretches numbers = kernels::number_sample(count);
  const kernels::Stretches divisors = kernels::divisor_sample(count);
  for_each_entry(numbers.size(), [&](std::size_t j) { survey->gaps[j] = gap_before(indices, numbers[j]); });
  for_each_entry(divisors.size(), [&](std::size_t j) { survey->divisor_gaps[j] = gap_before(indices, divisors[j]); });
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    survey->count = count;
    survey->last = count == 0 ? 0 : indices[count - 1];
  }
}

}  // namespace sparsewire::cuda
