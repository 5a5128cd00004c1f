#include "reference/half.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sparsewire::reference {
namespace {

// A sign, `exponent_bits` of exponent and `fraction_bits` of fraction, as in IEEE 754.
float from_bits(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int all_ones = (1 << exponent_bits) - 1;
  const int bias = all_ones / 2;
  const int exponent = (bits >> fraction_bits) & all_ones;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  if (exponent == all_ones) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : static_cast<float>(sign * std::numeric_limits<double>::infinity());
  }
  const double unit = std::ldexp(1.0, -fraction_bits);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction * unit, 1 - bias) : std::ldexp(1.0 + fraction * unit, exponent - bias);
  return static_cast<float>(sign * magnitude);
}

// Every finite number that is not negative, in ascending order; the position is the bit pattern.
std::vector<double> finite_numbers(float (*from)(std::uint16_t)) {
  std::vector<double> all;
  for (std::uint16_t pattern = 0; std::isfinite(from(pattern)); ++pattern) all.push_back(double{from(pattern)});
  return all;
}

// Finds the neighbours of x in the list. Twice a number and the sum of two neighbours are exact in double.
std::uint16_t nearest(float x, const std::vector<double>& all) {
  const double magnitude = std::fabs(double{x});
  const auto above = static_cast<std::size_t>(std::upper_bound(all.begin(), all.end(), magnitude) - all.begin());
  std::size_t pattern = above - 1;
  if (above < all.size()) {
    const double twice = 2 * magnitude;
    const double middle = all[above - 1] + all[above];
    if (twice > middle || (twice == middle && above % 2 == 0)) pattern = above;
  }
  return static_cast<std::uint16_t>(pattern + (std::signbit(x) ? 0x8000U : 0U));
}

}  // namespace

float from_f16(std::uint16_t bits) { return from_bits(bits, 5, 10); }
float from_bf16(std::uint16_t bits) { return from_bits(bits, 8, 7); }

std::uint16_t to_f16(float x) {
  static const std::vector<double> all = finite_numbers(from_f16);
  return nearest(x, all);
}

std::uint16_t to_bf16(float x) {
  static const std::vector<double> all = finite_numbers(from_bf16);
  return nearest(x, all);
}

std::vector<float> widen(const Gradient& gradient) {
  std::vector<float> wide(gradient.size);
  for (std::size_t i = 0; i < gradient.size; ++i) {
    switch (gradient.type) {
      case NumberType::f32:
        wide[i] = static_cast<const float*>(gradient.data)[i];
        break;
      case NumberType::f16:
        wide[i] = from_f16(static_cast<const std::uint16_t*>(gradient.data)[i]);
        break;
      case NumberType::bf16:
        wide[i] = from_bf16(static_cast<const std::uint16_t*>(gradient.data)[i]);
        break;
    }
  }
  return wide;
}

}  // namespace sparsewire::reference
