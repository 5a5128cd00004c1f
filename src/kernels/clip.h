// Clipping a gradient to a norm, in a form that processors and devices compute with the same bits.
#pragma once

namespace sparsewire::kernels {

struct Clip {
  double limit;  // of the norm

  // What a gradient is multiplied by whose norm is `norm` before it is multiplied by `scale`. If the norm is NaN: by
  // `scale`.
  constexpr float scale_of(double norm, float scale) const noexcept {
    const double scaled = norm * (scale < 0 ? -static_cast<double>(scale) : static_cast<double>(scale));
    const double factor = limit / scaled;
    return factor < 1 ? scale * static_cast<float>(factor) : scale;
  }
};

// Whether decay*number + scale*gradient is finite for every finite number, so that no gradient can be bad. No entry of
// a gradient is larger than its norm.
constexpr bool stays_finite(float decay, float scale, double norm) noexcept {
  constexpr double kLargest = 3.40282346638528859812e+38;  // of floats
  const double added = (scale < 0 ? -static_cast<double>(scale) : static_cast<double>(scale)) * norm;
  return (decay * kLargest + added) * (1 + 1e-6) < kLargest;
}

}  // namespace sparsewire::kernels
