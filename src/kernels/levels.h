// Sums for choosing the levels (the representable values) of a block in the formats of few bits. Computed in 16 lanes
// that are added in a fixed order: the same bits at every SIMD level.
#pragma once

#include <cstddef>

namespace sparsewire::kernels {

// The magnitudes of a block, each times a factor, divided into two groups.
struct Halves {
  double low_sum = 0;
  double high_sum = 0;
  double low_count = 0;
  double high_count = 0;
};

// Magnitudes (times `factor`) above `cut` are in the high group. REQUIRES: count <= 65536; no sum overflows.
Halves halves_of(const float* values, std::size_t count, float factor, float cut) noexcept;

// The sum of (value - rounded)^2, where `rounded` is `scale` times the nearest integer in [-most, most], ties to even.
// REQUIRES: scale is a normal number.
double rounding_loss(const float* values, std::size_t count, float scale, float most) noexcept;

}  // namespace sparsewire::kernels
