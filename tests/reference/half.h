// 16-bit floats, converted directly by their definition.
#pragma once

#include <cstdint>
#include <vector>

#include "sparsewire/gradient.h"

namespace sparsewire::reference {

float from_f16(std::uint16_t bits);
float from_bf16(std::uint16_t bits);

// The nearest finite number, ties to even. REQUIRES: x is finite.
std::uint16_t to_f16(float x);
std::uint16_t to_bf16(float x);

// The numbers of a gradient of any type, without its scale.
std::vector<float> widen(const Gradient& gradient);

}  // namespace sparsewire::reference
