// The input numbers of the benches. All are functions of (step, index): the same on every machine, and nothing is
// stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sparsewire/pool.h"

namespace sparsewire::bench {

// gradient[j] = scale[j] * (drift[j](step) + noise(step, j)): a part that drifts over about a thousand steps, and noise
// of 5 to 9 times its size. The scales are log-normal with sigma 1, times a factor for each 65,536 entries (a layer)
// between 0.35 and 2.8. After 300 steps of error feedback at a ratio of 0.1 % the k-th magnitude then changes by 0.1 %
// per step, and 1.2 k entries are above 0.995 of it: as in the error memories of real training, and unlike fresh random
// numbers. COST: about 18 ms for 25 million entries on one core of an EPYC Genoa.
void fill_gradient(std::uint64_t step, std::span<float> gradient, Pool* pool = nullptr);

// +-magnitude; the sign is a hash of the index.
void fill_equal(float magnitude, std::span<float> numbers);

// Zeros, except for `count` numbers (fewer if two have the same index) at indices that differ from step to step.
void fill_sparse(std::uint64_t step, std::size_t count, std::span<float> numbers);

// From nearly 0 to `largest`, ascending.
void fill_sorted(float largest, std::span<float> numbers);

// numbers *= factor.
void multiply(float factor, std::span<float> numbers);

// A 32-bit hash in which every bit of the input affects every bit of the output.
constexpr std::uint32_t mix(std::uint32_t x) noexcept {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ (x >> 16);
}

// Converts a hash to a number in [0, 1).
constexpr double uniform(std::uint32_t hash) noexcept { return hash * 0x1p-32; }

}  // namespace sparsewire::bench
