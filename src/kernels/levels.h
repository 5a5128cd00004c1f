// The sums that choose the levels of a block of values, for formats of few bits. 16 lanes, added in a fixed order: the
// same bits at every SIMD level.
#pragma once

#include <cstddef>

namespace sparsewire::kernels {

// The magnitudes of a block times a factor, cut in two.
struct Halves {
  double low_sum = 0;
  double high_sum = 0;
  double low_count = 0;
  double high_count = 0;
};

// Those above `cut` are the higher half. REQUIRES: count <= 65536; no sum overflows.
Halves halves_of(const float* values, std::size_t count, float factor, float cut) noexcept;

// The sum of (value - rounded)^2, where `rounded` is the nearest multiple of `scale` by a whole number in [-most,
// most], ties to even. REQUIRES: scale is a normal number.
double rounding_loss(const float* values, std::size_t count, float scale, float most) noexcept;

}  // namespace sparsewire::kernels
