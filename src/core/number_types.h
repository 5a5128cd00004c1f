// Numbers in the formats of NumberType.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sparsewire/gradient.h"
#include "sparsewire/support/half.h"

namespace sparsewire {

// Calls use(array, rounded): the numbers as an array of floats or of 16-bit patterns, and a function that rounds a
// float to such a number. REQUIRES: the numbers are on the host.
template <class Use>
void with_numbers(const WritableNumbers& numbers, Use use) {
  switch (numbers.type) {
    case NumberType::f32:
      return use(static_cast<float*>(numbers.data), [](float x) { return x; });
    case NumberType::bf16:
      return use(static_cast<std::uint16_t*>(numbers.data), [](float x) { return to_bf16(x); });
    case NumberType::f16:
      return use(static_cast<std::uint16_t*>(numbers.data), [](float x) { return to_f16(x); });
  }
}

// A number of such an array as a float.
inline float widened(NumberType /*type*/, float number) noexcept { return number; }
inline float widened(NumberType type, std::uint16_t bits) noexcept {
  return type == NumberType::bf16 ? from_bf16(bits) : from_f16(bits);
}

}  // namespace sparsewire
