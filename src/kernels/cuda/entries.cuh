// What is done to single entries, given by their indices; and to all of them.
#pragma once

#include "kernels/cuda/tile.cuh"

namespace sparsewire::cuda {

inline constexpr unsigned kEntryThreads = 256;

__global__ void take_entries(float* memory, const std::uint32_t* indices, std::size_t n, bool zeros, float* values) {
  for_each_entry(n, [=](std::size_t i) {
    const std::uint32_t at = indices[i];
    const float number = memory[at];
    values[i] = number;
    if (zeros || key(number) != 0) memory[at] = 0;
  });
}

__global__ void write_entries(float* memory, const std::uint32_t* indices, std::size_t n, const float* values) {
  for_each_entry(n, [=](std::size_t i) { memory[indices[i]] = values[i]; });
}

// The indices differ from each other.
__global__ void add_entries(float* memory, const std::uint32_t* indices, std::size_t n, const float* values) {
  for_each_entry(n, [=](std::size_t i) {
    const std::uint32_t at = indices[i];
    memory[at] = __fadd_rn(memory[at], values[i]);
  });
}

// The same; keeps the numbers from before, and finds the lowest index at which the sum is not finite.
__global__ void add_sum_entries(float* memory, const std::uint32_t* indices, std::size_t n, const float* values,
                                float* before, unsigned long long* bad) {
  for_each_entry(n, [=](std::size_t i) {
    const std::uint32_t at = indices[i];
    const float number = memory[at];
    const float sum = __fadd_rn(number, values[i]);
    before[i] = number;
    memory[at] = sum;
    if (key(sum) >= kInfinityKey) atomicMin(bad, static_cast<unsigned long long>(at));
  });
}

// Adds a gradient to all entries. REQUIRES: that gives finite numbers.
template <class T>
__global__ void accumulate_entries(float* memory, const void* gradient, std::size_t n, Factors by) {
  for_each_entry(
      n, [=](std::size_t i) { memory[i] = accumulated(memory[i], number(static_cast<const T*>(gradient), i), by); });
}

// Takes an accumulation back, for all entries.
template <class T>
__global__ void restore_entries(float* memory, const void* gradient, std::size_t n, Factors by) {
  for_each_entry(
      n, [=](std::size_t i) { memory[i] = restored(memory[i], number(static_cast<const T*>(gradient), i), by); });
}

}  // namespace sparsewire::cuda
