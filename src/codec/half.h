// bf16, also for the magnitudes of int2.
#pragma once

#include <cstdint>

namespace sparsewire {

// To nearest, ties to even; what is too large becomes the largest finite number.
std::uint16_t to_bf16(float value) noexcept;
float from_bf16(std::uint16_t bits) noexcept;

}  // namespace sparsewire
